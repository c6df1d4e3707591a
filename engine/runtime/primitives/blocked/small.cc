// Small products each on one thread: what a library does before and after one, packing its operands
// for the caches, would take as long as the product.
#include <algorithm>
#include <cstring>

#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/blocked/blocked.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/blocked/products.h"

namespace gyre {
namespace {

// Elements of a matrix: 128 KB, so that three are a small part of a second-level cache.
constexpr double kMostElements = 1 << 15;

struct MultiplyEach {
  GemmSpec spec;
  const float* a;
  const float* b;
  float* c;

  void operator()(int64_t begin, int64_t end) const {
    const GemmBatch &outer = spec.outer, &inner = spec.inner;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t o = i / inner.count, p = i % inner.count;
      Multiply(a + o * outer.a + p * inner.a, b + o * outer.b + p * inner.b,
               c + o * outer.c + p * inner.c);
    }
  }

  void Multiply(const float* from_a, const float* from_b, float* to) const {
    Products p{.rows = spec.m, .columns = spec.n, .inner = spec.k};
    p.a = from_a;
    p.a_row = spec.transpose_a ? 1 : spec.row_a();
    p.a_inner = spec.transpose_a ? spec.row_a() : 1;
    p.b = spec.transpose_b ? Turned(from_b) : from_b;
    p.b_inner = spec.transpose_b ? spec.n : spec.row_b();
    if (spec.accumulate) p.start = to, p.start_row = spec.row_c();
    p.c = to;
    p.c_row = spec.row_c();
    if (!spec.lower_a && !spec.lower_c) return MultiplyAlongColumns(p);
    for (int64_t row = 0; row < p.rows; row += kProductRows) {
      if (!spec.transpose_a) Prefetch(from_a, row + kProductRows, spec.m, spec.row_a(), spec.k);
      MultiplyAlongColumns(Strip(p, row));
    }
  }

  // A tile's number of rows from `row` on, without what lies right of the diagonals.
  Products Strip(Products p, int64_t row) const {
    const int64_t end = std::min(row + kProductRows, p.rows);
    p.rows = end - row;
    p.a += row * p.a_row;
    if (p.start != nullptr) p.start += row * p.start_row;
    p.c += row * p.c_row;
    if (spec.lower_c) p.columns = std::min(p.columns, end);
    if (spec.lower_a && !spec.transpose_a) p.inner = std::min(p.inner, end);
    if (spec.lower_a && spec.transpose_a) {  // op(a)[i, k] is 0 where k < i
      const int64_t first = std::min(row, p.inner);
      p.a += first * p.a_inner;
      p.b += first * p.b_inner;
      p.inner -= first;
    }
    return p;
  }

  // Of a matrix of so many rows, kProductRows from `first` on, or what there is.  Rows of a head
  // lie far apart, and no processor guesses where the next one is.
  static void Prefetch(const float* from, int64_t first, int64_t rows, int64_t stride,
                       int64_t columns) {
    constexpr int64_t kLine = 64 / sizeof(float);
    for (int64_t row = first; row < std::min(first + kProductRows, rows); ++row) {
      for (int64_t l = 0; l < columns; l += kLine) __builtin_prefetch(from + row * stride + l);
    }
  }

  // [k, n] from [n, k].
  const float* Turned(const float* from) const {
    float* const turned = parallel_internal::PartialValues<float>(spec.k * spec.n);
    const int64_t whole_n = spec.n / 4 * 4, whole_k = spec.k / 4 * 4;
    constexpr int64_t kAhead = 2 * kProductRows;
    for (int64_t j = 0; j < whole_n; j += 4) {
      if (j % kProductRows == 0) Prefetch(from, j + kAhead, spec.n, spec.row_b(), spec.k);
      for (int64_t l = 0; l < whole_k; l += 4) {
        TurnFour(from + j * spec.row_b() + l, turned + l * spec.n + j);
      }
    }
    for (int64_t j = 0; j < spec.n; ++j) {
      for (int64_t l = j < whole_n ? whole_k : 0; l < spec.k; ++l) {
        turned[l * spec.n + j] = from[j * spec.row_b() + l];
      }
    }
    return turned;
  }

  // 4 rows of 4 columns.
  void TurnFour(const float* from, float* to) const {
    typedef float Four __attribute__((vector_size(16)));
    Four row[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) memcpy(&row[i], from + i * spec.row_b(), sizeof(Four));
    const Four low01 = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5);
    const Four low23 = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5);
    const Four high01 = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7);
    const Four high23 = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
    const Four column[4] = {__builtin_shufflevector(low01, low23, 0, 1, 4, 5),
                            __builtin_shufflevector(low01, low23, 2, 3, 6, 7),
                            __builtin_shufflevector(high01, high23, 0, 1, 4, 5),
                            __builtin_shufflevector(high01, high23, 2, 3, 6, 7)};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) memcpy(to + i * spec.n, &column[i], sizeof(Four));
  }
};

class SmallProducts : public UnpreparedGemm {
 public:
  using UnpreparedGemm::UnpreparedGemm;

 private:
  absl::Status RunSpec(Stream& stream, const GemmSpec& spec, const void* a, const void* b,
                       const void*, void* c) const override {
    return OnTeam(stream, spec.products(),
                  MultiplyEach{spec, static_cast<const float*>(a), static_cast<const float*>(b),
                               static_cast<float*>(c)});
  }
};

}  // namespace

std::unique_ptr<Gemm> PrepareSmallProducts(const GemmSpec& spec) {
  const auto is_small = [](int64_t rows, int64_t columns) {
    return static_cast<double>(rows) * static_cast<double>(columns) <= kMostElements;
  };
  const bool small =
      is_small(spec.m, spec.k) && is_small(spec.k, spec.n) && is_small(spec.m, spec.n);
  const bool plain_sums = !spec.bias && spec.activation == Activation::kNone;
  if (spec.dtype != DType::kF32 || spec.IsPlain() || !plain_sums || !small) return nullptr;
  return std::make_unique<SmallProducts>(spec);
}

}  // namespace gyre
