// b lies in strips of as many columns as a tile has, [strip][k][column]: few rows of a pass through
// all of it, and find the next row of a strip where the last one ended.  Of BF16 it is
// [strip][pair of k][column][2].
//
// One row waits for b.  Many rows wait for multiply-adds.  So one loop may compute both products.
#include <algorithm>
#include <type_traits>

#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/blocked/blocked.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/blocked/pairs.h"
#include "engine/runtime/primitives/blocked/products.h"

namespace gyre {
namespace {

constexpr int64_t kStrip = kProductColumns;
// Rows of a piece of work: a few tiles, so that pieces share out evenly.
constexpr int64_t kPieceRows = 4 * kProductRows;
// Rows that go through all strips before the next ones: of a few hundred columns they stay in the
// second-level cache meanwhile.
constexpr int64_t kBlockRows = 4 * kPieceRows;

template <typename T>
constexpr int64_t kPair = std::is_same_v<T, BFloat16> ? 2 : 1;

// Of k in a strip.
template <typename T>
int64_t Depth(const GemmSpec& spec) {
  return RoundUp(spec.k, kPair<T>);
}

template <typename T>
struct PackStrip {
  GemmSpec spec;
  const T* from;
  T* to;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t strip = begin; strip < end; ++strip) Pack(strip);
  }

  // By blocks of rows, so that the lines that are written stay in the cache until they are whole.
  void Pack(int64_t strip) const {
    constexpr int64_t kBlock = 16;
    const int64_t first = strip * kStrip, columns = std::min(kStrip, spec.n - first);
    const int64_t row_step = spec.transpose_b ? 1 : spec.n;
    const int64_t column_step = spec.transpose_b ? spec.k : 1;
    T* const strip_to = to + strip * kStrip * Depth<T>(spec);
    const auto place = [&](int64_t k, int64_t j) {
      return strip_to + (k / kPair<T> * kStrip + j) * kPair<T> + k % kPair<T>;
    };
    for (int64_t k = 0; k < spec.k; k += kBlock) {
      const int64_t rows = std::min(kBlock, spec.k - k);
      for (int64_t j = 0; j < columns; ++j) {
        const T* const at = from + (first + j) * column_step + k * row_step;
        for (int64_t i = 0; i < rows; ++i) *place(k + i, j) = at[i * row_step];
      }
    }
    for (int64_t k = spec.k; k < Depth<T>(spec); ++k) {
      for (int64_t j = 0; j < columns; ++j) *place(k, j) = T(0.f);
    }
  }
};

template <typename T>
struct MultiplyTiles {
  GemmSpec spec;
  const T* a;
  const T* strips;
  T* c;

  void operator()(int64_t begin, int64_t end) const {
    // Of a strip: in all, and in a block.
    const int64_t pieces = CeilDiv(spec.m, kPieceRows), all = CeilDiv(spec.n, kStrip);
    constexpr int64_t kPieces = kBlockRows / kPieceRows;
    if (pieces == 1 && std::is_same_v<T, float> && begin < end) {  // all columns by one call
      return Multiply(0, spec.m, begin * kStrip, std::min(spec.n, end * kStrip) - begin * kStrip);
    }
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i / (kPieces * all) * kPieces, at = i - first * all;
      const int64_t of_strip = std::min(kPieces, pieces - first);
      const int64_t row = (first + at % of_strip) * kPieceRows, column = at / of_strip * kStrip;
      Multiply(row, std::min(kPieceRows, spec.m - row), column, std::min(kStrip, spec.n - column));
    }
  }

  void Multiply(int64_t row, int64_t rows, int64_t column, int64_t columns) const {
    const T* const from = a + row * spec.k;
    const T* const strip = strips + column * Depth<T>(spec);
    T* const to = c + row * spec.n + column;
    if constexpr (std::is_same_v<T, BFloat16>) {
      MultiplyPairs({.rows = rows,
                     .columns = columns,
                     .inner = spec.k,
                     .a = from,
                     .a_row = spec.k,
                     .b = strip,
                     .c = to,
                     .c_row = spec.n,
                     .accumulate = spec.accumulate});
    } else {
      Products p{.rows = rows, .columns = columns, .inner = spec.k};
      p.a = from;
      p.a_row = spec.k;
      p.b = strip;
      p.b_inner = kStrip;
      p.b_strip = kStrip * spec.k;
      p.c = to;
      p.c_row = spec.n;
      if (spec.accumulate) p.start = to, p.start_row = spec.n;
      MultiplyAlongColumns(p);
    }
  }
};

// One row, and beside it a part of some rows of another product.  Strips are shared out among
// threads, each of which computes both products' columns there, a few strips and at most one vector
// of the other's columns at a time.
struct MultiplyBeside {
  static constexpr int64_t kStep = kRowsBeside * kColumnsBeside;
  GemmSpec spec;
  const float* a;
  const float* strips;
  float* c;
  RowsBeside rows;

  void operator()(int64_t begin, int64_t end) const {
    // The other's part: every kRowsBeside-th vector of columns, whatever the threads.
    int64_t column =
        RoundUp(begin * kStrip - rows.part * kColumnsBeside, kStep) + rows.part * kColumnsBeside;
    const int64_t past = std::min(spec.n, end * kStrip);
    const int64_t groups = CeilDiv(end - begin, kRowStrips);
    const auto strip = [&](int64_t group) { return begin + group * (end - begin) / groups; };
    for (int64_t i = 0; i < groups; ++i) {
      // Of two calls, the second begins with the strips that the first has left in the cache.
      const int64_t group = rows.part % 2 == 0 ? i : groups - 1 - i;
      const Products row = Row(strip(group), strip(group + 1));
      if (column < past) {
        MultiplyRowBeside(row, Others(column));
      } else {
        MultiplyAlongColumns(row);
      }
      column += kStep;
    }
  }

  Products Row(int64_t begin, int64_t end) const {
    const int64_t column = begin * kStrip;
    Products p{.rows = 1, .columns = std::min(spec.n, end * kStrip) - column, .inner = spec.k};
    p.a = a;
    p.b = strips + column * spec.k;
    p.b_inner = kStrip;
    p.b_strip = kStrip * spec.k;
    p.c = c + column;
    return p;
  }

  ProductsBeside Others(int64_t column) const {
    const int64_t strip = column / kStrip;
    return {.columns = std::min(kColumnsBeside, spec.n - column),
            .inner = rows.k,
            .a = static_cast<const float*>(rows.a),
            .b = static_cast<const float*>(rows.b) + strip * kStrip * rows.k + column % kStrip,
            .c = static_cast<float*>(rows.c) + column,
            .c_row = spec.n};
  }
};

template <typename T>
class PackedProduct : public UnpreparedGemm {
 public:
  using UnpreparedGemm::UnpreparedGemm;

  size_t packed_bytes() const override {
    return std::max<size_t>(1,
                            static_cast<size_t>(strips() * kStrip * Depth<T>(spec_)) * sizeof(T));
  }

  absl::Status Pack(Stream& stream, const void* b, void* packed) const override {
    return OnTeam(stream, strips(),
                  PackStrip<T>{spec_, static_cast<const T*>(b), static_cast<T*>(packed)});
  }

  // Pairs of BF16 have none, as another library may take some of the products that share b.
  std::string_view packed_layout() const override {
    if (!std::is_same_v<T, float>) return "";
    return spec_.transpose_b ? "strips of rows" : "strips of columns";
  }
  absl::Status PackHere(const void* b, void* packed) const override {
    std::fill_n(static_cast<std::byte*>(packed), packed_bytes(), std::byte{0});
    PackStrip<T>{spec_, static_cast<const T*>(b), static_cast<T*>(packed)}(0, strips());
    return absl::OkStatus();
  }
  absl::Status UnpackHere(const void* packed, void* b) const override {
    const int64_t row_step = spec_.transpose_b ? 1 : spec_.n;
    const int64_t column_step = spec_.transpose_b ? spec_.k : 1;
    for (int64_t j = 0; j < spec_.n; ++j) {
      const T* const strip = static_cast<const T*>(packed) + j / kStrip * kStrip * spec_.k;
      T* const column = static_cast<T*>(b) + j * column_step;
      for (int64_t k = 0; k < spec_.k; ++k) column[k * row_step] = strip[k * kStrip + j % kStrip];
    }
    return absl::OkStatus();
  }

  int64_t rows_beside(const Gemm& other) const override {
    if constexpr (!std::is_same_v<T, float>) return 0;
    const auto* const product = dynamic_cast<const PackedProduct*>(&other);
    const bool takes = product != nullptr && product->spec_.n == spec_.n && spec_.m == 1 &&
                       !spec_.accumulate && !product->spec_.accumulate;
    return takes ? kRowsBeside : 0;
  }
  absl::Status RunBeside(Stream& stream, const void* a, const void* b, void* c,
                         const RowsBeside& rows) const override {
    return OnTeam(stream, strips(),
                  MultiplyBeside{spec_, static_cast<const float*>(a), static_cast<const float*>(b),
                                 static_cast<float*>(c), rows});
  }

 private:
  absl::Status RunSpec(Stream& stream, const GemmSpec& spec, const void* a, const void* b,
                       const void*, void* c) const override {
    return OnTeam(stream, strips() * CeilDiv(spec.m, kPieceRows),
                  MultiplyTiles<T>{spec, static_cast<const T*>(a), static_cast<const T*>(b),
                                   static_cast<T*>(c)});
  }

  int64_t strips() const { return CeilDiv(spec_.n, kStrip); }
};

}  // namespace

std::unique_ptr<Gemm> PreparePackedProduct(const GemmSpec& spec) {
  GemmSpec assigns = spec;
  assigns.accumulate = false;
  const bool takes = spec.packs_b && assigns.IsPlain() && !spec.bias && !spec.transpose_a &&
                     spec.activation == Activation::kNone && !spec.lower_a && !spec.lower_c;
  if (takes && spec.dtype == DType::kF32) return std::make_unique<PackedProduct<float>>(spec);
  if (takes && spec.dtype == DType::kBF16 && HasPairProducts()) {
    return std::make_unique<PackedProduct<BFloat16>>(spec);
  }
  return nullptr;
}

}  // namespace gyre
