// reduction.h: the loops over elements of allreduce.  They also measure the sum of squares, in
// double, for clipping.  It is not finite if an element is not, or for an F64 beyond 1e154.
//
// The order of additions depends on the length alone, not on alignment or vector width.  So the
// same input gives the same bits on all machines.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "engine/runtime/dtype.h"

namespace gyre {

// Errors: InvalidArgument unless ranks can sum elements of this type.
absl::Status CheckSummable(DType dtype);

// All take `count` elements of a real type, add F16 and BF16 in F32, and round once in each call.

// sum[i] += addend[i].
void AddTo(DType dtype, void* sum, const void* addend, int64_t count);
// Likewise, and returns the sum of squares, in the same pass over memory.
double AddToAndMeasure(DType dtype, void* sum, const void* addend, int64_t count);
double Measure(DType dtype, const void* data, int64_t count);
// AddAll adds squares of elements i, i + kSquareLanes, ... in order, and then these sums, in order.
inline constexpr int kSquareLanes = 32;
// Sets each output[i] to the sum of all inputs[i], added in order and rounded once.  Returns the
// sum of squares.  An output may be an input.
double AddAll(DType dtype, std::span<const void* const> inputs, std::span<void* const> outputs,
              int64_t count);

// Round F32 to F16 or BF16, and widen it.
void RoundFloats(DType to_type, const float* from, void* to, int64_t count);
void WidenToFloats(DType from_type, const void* from, float* to, int64_t count);

// A contiguous range of elements of a tensor.
struct ElementRange {
  int64_t begin = 0, end = 0;
  int64_t count() const { return end - begin; }
};

// Slice `index` of `count` elements in `parts` slices, whose lengths differ by at most one.
constexpr ElementRange EqualPart(int64_t count, int64_t parts, int64_t index) {
  const int64_t base = count / parts, longer = count % parts;
  const int64_t begin = index * base + (index < longer ? index : longer);
  return {begin, begin + base + (index < longer ? 1 : 0)};
}

// Slice `index` of `range`, cut every `length` elements.  Empty beyond its end.
constexpr ElementRange FixedPart(ElementRange range, int64_t length, int64_t index) {
  const int64_t begin = range.begin + index * length, end = begin + length;
  return {begin < range.end ? begin : range.end, end < range.end ? end : range.end};
}

}  // namespace gyre
