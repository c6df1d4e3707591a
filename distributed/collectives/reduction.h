// reduction.h: the loops over elements that allreduce algorithms share, and the measure of a sum
// that clipping needs: its sum of squares, added in double.  That is not finite if an
// element is not, or if it is an F64 beyond 1e154.
//
// The order of additions depends on the length alone, never on alignment or on the width of the
// machine's vectors: the same input has the same bits everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/runtime/dtype.h"

namespace gyre {

// InvalidArgument unless elements of this type can be summed over ranks.
absl::Status CheckSummable(DType dtype);

// All take `count` elements of a real dtype; halves are added in F32 and rounded once a call.

// sum[i] += addend[i].
void AddTo(DType dtype, void* sum, const void* addend, int64_t count);
// The same, and measures the sum in the same pass over memory.
double AddToAndMeasure(DType dtype, void* sum, const void* addend, int64_t count);
double Measure(DType dtype, const void* data, int64_t count);
// AddAll adds the squares of elements i, i + so many, ... in order, and then these sums, in order.
inline constexpr int kSquareLanes = 32;
// Each output[i] = the sum of all inputs[i], added in their order and rounded once; measures it.
// An output may be an input.
double AddAll(DType dtype, std::span<const void* const> inputs, std::span<void* const> outputs,
              int64_t count);

// F32 rounded to a half, and a half as F32.
void RoundFloats(DType to_type, const float* from, void* to, int64_t count);
void WidenToFloats(DType from_type, const void* from, float* to, int64_t count);

// A contiguous range of elements of a tensor.
struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

// Part `index` of `parts` nearly equal parts of `count` elements: lengths differ by at most one.
constexpr ElementRange EqualPart(int64_t count, int64_t parts, int64_t index) {
  const int64_t base = count / parts, longer = count % parts;
  const int64_t begin = index * base + (index < longer ? index : longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

// Part `index` of `range` cut every `length` elements; empty beyond its end.
constexpr ElementRange FixedPart(ElementRange range, int64_t length, int64_t index) {
  const int64_t begin = range.begin + index * length, end = begin + length;
  return {begin < range.end ? begin : range.end, end < range.end ? end : range.end};
}

}  // namespace gyre
