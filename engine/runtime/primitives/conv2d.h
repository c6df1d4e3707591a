// conv2d.h: two-dimensional convolution.  primitives.h has the rules of all primitives.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "engine/runtime/primitives/gemm.h"
#include "engine/runtime/primitives/window2d.h"

namespace gyre {

// The layout of an operation's weights.  An empty tag is the canonical row-major layout.  Equal
// tags mean equal bytes for equal weights.
struct WeightLayout {
  size_t bytes = 0;
  std::string tag;
};

// Cross-correlation of x[n,h,w,c] with canonical weights [filters, c/groups, kernel_h, kernel_w] to
// y[n, out_h, out_w, filters].
struct Conv2dSpec {
  DType dtype = DType::kF32;
  int64_t n = 0, h = 0, w = 0, c = 0, filters = 0;
  Window2d window = {};
  int64_t groups = 1;
  bool bias = false;
  Activation activation = Activation::kNone;  // of forward, backward gets dy before it
  std::string weight_layout = "";             // required tag (another shape chose it), "": any
  bool train = true;                          // false: no backward pass follows
  bool data_gradient = true;                  // false: no BackwardData follows

  int64_t out_h() const { return window.out_h(h); }
  int64_t out_w() const { return window.out_w(w); }
  int64_t weights() const { return filters * (c / groups) * window.kernel_h * window.kernel_w; }
  double forward_flops() const;
};

class Conv2d {
 public:
  virtual ~Conv2d() = default;
  // The layout of weights and their gradient.  It is the same for every n, and so on all ranks.
  const WeightLayout& weight_layout() const { return layout_; }
  virtual size_t scratch_bytes() const { return 0; }  // enough for each of the three
  virtual absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                               void* y, void* scratch) const = 0;
  // Assigns dx.
  virtual absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                                    void* scratch) const = 0;
  // Assigns dweights, and dbias if the spec has a bias.
  virtual absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy,
                                       void* dweights, void* dbias, void* scratch) const = 0;
  // Convert between opaque weights and [filters, c/groups, kh, kw], in host memory, on the calling
  // thread.  Pack zeroes the layout's padding.  By default both copy, for canonical weights.
  virtual absl::Status Pack(const void* canonical, void* opaque) const {
    return Copy(canonical, opaque);
  }
  virtual absl::Status Unpack(const void* opaque, void* canonical) const {
    return Copy(opaque, canonical);
  }

 protected:
  explicit Conv2d(WeightLayout layout) : layout_(std::move(layout)) {}

  WeightLayout layout_;

 private:
  absl::Status Copy(const void* from, void* to) const {
    std::copy_n(static_cast<const std::byte*>(from), layout_.bytes, static_cast<std::byte*>(to));
    return absl::OkStatus();
  }
};

absl::Status Validate(const Conv2dSpec& spec);
std::string ToString(const Conv2dSpec& spec);

}  // namespace gyre
