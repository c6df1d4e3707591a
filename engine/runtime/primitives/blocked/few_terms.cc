// Of few terms a product is mostly the writing of c.  A tile of c stays in registers for all of
// them, and leaves by whole lines past the caches; a library that reads c in order to write it
// moves twice as much, and each rank of a host writes the whole gradient of its few samples.
#include <algorithm>
#include <cstring>

#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/blocked/blocked.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/blocked/products.h"

namespace gyre {
namespace {

constexpr int64_t kRows = kProductRows, kColumns = kProductColumns;
// Elements of b that are packed at a time, in a block of whole tiles: 128 KB, a small part of a
// second-level cache.
constexpr int64_t kPacked = 1 << 15;
constexpr int64_t kLine = 64;  // bytes of a cache line

// a, as it is stored: [k, m], and so b: [k, n].
struct MultiplyPanels {
  GemmSpec spec;
  const float* a;
  const float* b;
  float* c;
  bool streams;  // c and its rows are whole lines

  // Panels of kRows rows.  For each the tiles go along the row, as memory likes to be written.
  void operator()(int64_t begin, int64_t end) const {
    const int64_t block = std::max(kPacked / std::max<int64_t>(spec.k, 1) / kColumns, int64_t{1});
    const int64_t most_columns = std::min(block * kColumns, RoundUp(spec.n, kColumns));
    const int64_t of_b = spec.k * most_columns, of_a = spec.k * kRows;
    float* const packed_b = Lines(parallel_internal::PartialValues<float>(of_b + of_a + kLine / 4));
    float* const packed_a = packed_b + of_b;
    Products p{.inner = spec.k};
    p.a = packed_a, p.a_row = 1, p.a_inner = kRows;
    p.b = packed_b, p.b_inner = kColumns, p.b_strip = kColumns * spec.k;
    p.c_row = spec.n, p.streams = streams;
    for (int64_t column = 0; column < spec.n; column += most_columns) {
      p.columns = std::min(most_columns, spec.n - column);
      for (int64_t j = 0; j < p.columns; j += kColumns) {
        Pack(b + column + j, spec.n, std::min(kColumns, p.columns - j), kColumns,
             packed_b + j * spec.k);
      }
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t row = panel * kRows;
        p.rows = std::min(kRows, spec.m - row);
        Pack(a + row, spec.m, p.rows, kRows, packed_a);
        p.c = c + row * spec.n + column;
        MultiplyAlongColumns(p);
      }
    }
  }

  static float* Lines(float* from) {
    return from + (kLine - reinterpret_cast<uintptr_t>(from) % kLine) % kLine / sizeof(float);
  }

  // `count` columns of all terms, `of` elements apart.
  void Pack(const float* from, int64_t row, int64_t count, int64_t of, float* to) const {
    for (int64_t k = 0; k < spec.k; ++k, from += row, to += of) {
      std::memcpy(to, from, count * sizeof(float));
    }
  }
};

// Elements of c from which on a share of a last-level cache does not hold it: those of 16 MiB, as
// in convert.cc.  Below, a library that packs for the caches is as fast.
constexpr double kBeyondCaches = 0x1p22;
// How many terms pay: against oneDNN 2.6 on a Zen with 512-bit units, 1 and 2 threads, [4096, 9216]
// takes 0.4 to 0.7 of its time at 16, 0.6 at 32, 0.8 at 64, 0.9 at 128; [4096, 4096] 0.6 to 0.7 at
// 16, 0.9 at 32, as much at 64.
constexpr int64_t kMostTerms = 64;
// Of c: many tiles, and rows long enough that what is written lies in few pages.
constexpr int64_t kLeastRows = 16 * kRows, kLeastColumns = 1024;

class FewTerms : public UnpreparedGemm {
 public:
  using UnpreparedGemm::UnpreparedGemm;

 private:
  absl::Status RunSpec(Stream& stream, const GemmSpec& spec, const void* a, const void* b,
                       const void*, void* c) const override {
    const bool streams = reinterpret_cast<uintptr_t>(c) % kLine == 0 && spec.n % (kLine / 4) == 0;
    return OnTeam(stream, CeilDiv(spec.m, kRows),
                  MultiplyPanels{spec, static_cast<const float*>(a), static_cast<const float*>(b),
                                 static_cast<float*>(c), streams});
  }
};

}  // namespace

std::unique_ptr<Gemm> PrepareFewTerms(const GemmSpec& spec) {
  const bool plain_sums =
      spec.IsPlain() && !spec.bias && spec.activation == Activation::kNone && !spec.packs_b;
  const bool upright = spec.transpose_a && !spec.transpose_b && !spec.lower_a && !spec.lower_c;
  const bool many = spec.m >= kLeastRows && spec.n >= kLeastColumns &&
                    static_cast<double>(spec.m) * static_cast<double>(spec.n) >= kBeyondCaches;
  const bool few = spec.k <= kMostTerms;
  if (spec.dtype != DType::kF32 || !plain_sums || !upright || !few || !many) return nullptr;
  return std::make_unique<FewTerms>(spec);
}

}  // namespace gyre
