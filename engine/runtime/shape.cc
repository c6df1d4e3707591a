#include "engine/runtime/shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/check.h"

namespace gyre {

Shape::Shape(std::initializer_list<int64_t> dims)
    : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

Shape::Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  GYRE_CHECK(dims.size() <= kMaxRank);
  GYRE_CHECK(std::ranges::all_of(dims, [](int64_t extent) { return extent >= 0; }));
  std::ranges::copy(dims, dims_.begin());
}

bool Shape::IsCountable() const {
  constexpr double kMost = 0x1p56;
  double product = 1;
  for (const int64_t extent : dims()) product *= static_cast<double>(extent);
  return product <= kMost;
}

int64_t Shape::elements() const { return elements(0, rank_); }

int64_t Shape::elements(int begin, int end) const {
  GYRE_CHECK(0 <= begin && end <= rank_);
  // A zero extent hides no overflow: [2^40, 2^40, 0] has no elements.
  if (std::ranges::find(dims_.begin() + begin, dims_.begin() + std::max(begin, end), 0) !=
      dims_.begin() + std::max(begin, end)) {
    return 0;
  }
  int64_t product = 1;
  for (int axis = begin; axis < end; ++axis) {
    GYRE_CHECK(!__builtin_mul_overflow(product, dims_[axis], &product));
  }
  return product;
}

Shape Shape::With(int axis, int64_t extent) const {
  GYRE_CHECK(0 <= axis && axis < rank_ && extent >= 0);
  Shape result = *this;
  result.dims_[axis] = extent;
  return result;
}

std::string Shape::ToString() const { return absl::StrCat("[", absl::StrJoin(dims(), ", "), "]"); }

bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

}  // namespace gyre
