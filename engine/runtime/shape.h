// shape.h: the extents of a tensor, outermost first.  They need no heap memory, so kernels and
// specs copy them freely.  Images are N,H,W,C in memory on every device, sequences T,N,C.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace gyre {

class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;  // rank 0: a scalar, one element
  Shape(std::initializer_list<int64_t> dims);
  explicit Shape(std::span<const int64_t> dims);

  int rank() const { return rank_; }
  int64_t operator[](int axis) const { return dims_[axis]; }
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(rank_)}; }

  int64_t elements() const;
  // True for at most 2^56 elements, so that bytes and their sums do not overflow.  A shape of a
  // user's numbers needs this before elements().
  bool IsCountable() const;
  // Product of the extents in [begin, end), 1 if the range is empty.
  int64_t elements(int begin, int end) const;

  // This shape with the extent of one axis replaced.  Precondition: 0 <= axis < rank().
  Shape With(int axis, int64_t extent) const;

  std::string ToString() const;  // "[64, 28, 28, 1]"

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace gyre
