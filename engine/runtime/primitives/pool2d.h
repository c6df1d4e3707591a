// pool2d.h: two-dimensional pooling.  primitives.h has the rules of all primitives.
#pragma once

#include <string>

#include "engine/runtime/device/device.h"
#include "engine/runtime/primitives/window2d.h"

namespace gyre {

enum class PoolKind : uint8_t { kMax, kAverage };

// Pools x[n,h,w,c] to y[n,out_h,out_w,c].  An average divides by the number of elements inside the
// image, without padding.  Among equal maxima the first in row-major order wins.  A NaN beats all.
struct Pool2dSpec {
  DType dtype = DType::kF32;
  PoolKind kind = PoolKind::kMax;
  int64_t n = 0, h = 0, w = 0, c = 0;
  Window2d window = {};  // not dilated
  bool train = true;

  int64_t out_h() const { return window.out_h(h); }
  int64_t out_w() const { return window.out_w(w); }
};

class Pool2d {
 public:
  virtual ~Pool2d() = default;
  // Bytes that Forward saves for Backward (positions of maxima), 0 for averages and inference.
  virtual size_t saved_bytes() const = 0;
  virtual absl::Status Forward(Stream& stream, const void* x, void* y, void* saved) const = 0;
  virtual absl::Status Backward(Stream& stream, const void* dy, const void* saved,
                                void* dx) const = 0;
};

absl::Status Validate(const Pool2dSpec& spec);
std::string ToString(const Pool2dSpec& spec);

}  // namespace gyre
