// batch_norm.h: batch normalisation by the statistics of one rank.  primitives.h has the rules of
// all primitives.  The reference has none.  The layer batch_norm has kernels of its own, which also
// serve statistics of all ranks, and asks whether a library takes the job.
#pragma once

#include <compare>
#include <string>

#include "engine/runtime/device/device.h"

namespace gyre {

// y = scale (x - m) inverse + bias, with inverse = 1 / sqrt(v + epsilon).  m and v are a channel's
// mean and biased variance over the rows of x[rows, channels].
struct BatchNormSpec {
  DType dtype = DType::kF32;
  int64_t rows = 0, channels = 0;
  double epsilon = 0, momentum = 0;
  auto operator<=>(const BatchNormSpec&) const = default;
};

// x, y and their gradients are [rows, channels], other arrays [channels].  x, y, scale, bias and
// all gradients have dtype, other arrays AccumulateType of it.
class BatchNorm {
 public:
  virtual ~BatchNorm() = default;
  virtual size_t scratch_bytes() const = 0;  // enough for both, may be 0
  // Assigns y, mean and inverse.  The running arrays become (1 - momentum) times themselves plus
  // momentum times the batch's, the variance unbiased.  Both may be null, to the same bits.
  virtual absl::Status Forward(Stream& stream, const void* x, const void* scale, const void* bias,
                               void* y, void* mean, void* inverse, void* running_mean,
                               void* running_variance, void* scratch) const = 0;
  // Takes mean and inverse of Forward.  Assigns dx, and dscale and dbias unless they are null.
  virtual absl::Status Backward(Stream& stream, const void* x, const void* dy, const void* scale,
                                const void* mean, const void* inverse, void* dx, void* dscale,
                                void* dbias, void* scratch) const = 0;
};

absl::Status Validate(const BatchNormSpec& spec);
std::string ToString(const BatchNormSpec& spec);

}  // namespace gyre
