// b lies in strips of as many columns as a tile has, [strip][k][column]: few rows of a pass through
// all of it, and find the next row of a strip where the last one ended.
#include "engine/runtime/primitives/blocked/packed.h"

#include <algorithm>

#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/blocked/products.h"

namespace gyre {
namespace {

constexpr int64_t kStrip = kProductColumns;
// Rows of a piece of work: a few tiles, so that pieces share out evenly.
constexpr int64_t kPieceRows = 4 * kProductRows;
// Rows that go through all strips before the next ones: of a few hundred columns they stay in the
// second-level cache meanwhile.
constexpr int64_t kBlockRows = 4 * kPieceRows;

struct PackStrip {
  GemmSpec spec;
  const float* from;
  float* to;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t strip = begin; strip < end; ++strip) Pack(strip);
  }

  // By blocks of rows, so that the lines that are written stay in the cache until they are whole.
  void Pack(int64_t strip) const {
    constexpr int64_t kBlock = 16;
    const int64_t first = strip * kStrip, columns = std::min(kStrip, spec.n - first);
    const int64_t row_step = spec.transpose_b ? 1 : spec.n;
    const int64_t column_step = spec.transpose_b ? spec.k : 1;
    float* const strip_to = to + strip * kStrip * spec.k;
    for (int64_t k = 0; k < spec.k; k += kBlock) {
      const int64_t rows = std::min(kBlock, spec.k - k);
      for (int64_t j = 0; j < columns; ++j) {
        const float* const at = from + (first + j) * column_step + k * row_step;
        for (int64_t i = 0; i < rows; ++i) strip_to[(k + i) * kStrip + j] = at[i * row_step];
      }
    }
  }
};

struct MultiplyPieces {
  GemmSpec spec;
  const float* a;
  const float* strips;
  float* c;

  void operator()(int64_t begin, int64_t end) const {
    // Of a strip: in all, and in a block.
    const int64_t pieces = CeilDiv(spec.m, kPieceRows), all = CeilDiv(spec.n, kStrip);
    constexpr int64_t kPieces = kBlockRows / kPieceRows;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / (kPieces * all) * kPieces, at = i - first * all;
      const int64_t of_strip = std::min(kPieces, pieces - first);
      const int64_t row = (first + at % of_strip) * kPieceRows, column = at / of_strip * kStrip;
      Products p{.rows = std::min(kPieceRows, spec.m - row),
                 .columns = std::min(kStrip, spec.n - column),
                 .inner = spec.k};
      p.a = a + row * spec.k;
      p.a_row = spec.k;
      p.b = strips + column * spec.k;
      p.b_inner = kStrip;
      p.c = c + row * spec.n + column;
      p.c_row = spec.n;
      if (spec.accumulate) p.start = p.c, p.start_row = spec.n;
      MultiplyAlongColumns(p);
    }
  }
};

class PackedProduct : public Gemm {
 public:
  explicit PackedProduct(const GemmSpec& spec) : spec_(spec) {}

  size_t scratch_bytes() const override { return 0; }
  size_t packed_bytes() const override {
    return std::max<size_t>(1, static_cast<size_t>(strips() * kStrip * spec_.k) * sizeof(float));
  }

  absl::Status Pack(Stream& stream, const void* b, void* packed) const override {
    return OnTeam(stream, strips(),
                  PackStrip{spec_, static_cast<const float*>(b), static_cast<float*>(packed)});
  }

  absl::Status Run(Stream& stream, const void* a, const void* b, const void*, void* c,
                   void* scratch) const override {
    return RunRows(stream, spec_.m, a, b, c, scratch);
  }
  absl::Status RunRows(Stream& stream, int64_t rows, const void* a, const void* b, void* c,
                       void*) const override {
    return OnTeam(stream, strips() * CeilDiv(rows, kPieceRows),
                  MultiplyPieces{OfRows(spec_, rows), static_cast<const float*>(a),
                                 static_cast<const float*>(b), static_cast<float*>(c)});
  }

 private:
  int64_t strips() const { return CeilDiv(spec_.n, kStrip); }

  const GemmSpec spec_;
};

class PackedProductsLibrary : public PrimitiveLibrary {
 public:
  std::string_view name() const override { return "packed products"; }

  // Its sums are fused.
  std::string choices() const override { return HasAvx512() ? "packed products avx512\n" : ""; }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    GemmSpec assigns = spec;
    assigns.accumulate = false;
    const bool takes = spec.packs_b && assigns.IsPlain() && !spec.bias && !spec.transpose_a &&
                       spec.activation == Activation::kNone && !spec.lower_a && !spec.lower_c;
    if (!takes || !HasAvx512() || spec.dtype != DType::kF32) return LeaveToOthers(spec);
    RETURN_IF_ERROR(Validate(spec));
    return std::make_unique<PackedProduct>(spec);
  }

 private:
  static bool HasAvx512() { return CurrentInstructionSet() == InstructionSet::kAvx512; }
};

}  // namespace

std::unique_ptr<PrimitiveLibrary> NewPackedProductsLibrary() {
  return std::make_unique<PackedProductsLibrary>();
}

}  // namespace gyre
