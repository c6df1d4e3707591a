// Pooling by oneDNN.  The positions of maxima are oneDNN's workspace, which only its own backward
// understands.
#include <algorithm>
#include <cmath>

#include "engine/runtime/primitives/onednn/onednn.h"

namespace gyre {
namespace {

using dnnl::memory;

class OneDnnPool2d : public Pool2d {
 public:
  OneDnnPool2d(const OneDnnContext& context, const Pool2dSpec& spec)
      : context_(context),
        spec_(spec),
        what_(ToString(spec)),
        x_({spec.n, spec.c, spec.h, spec.w}, memory::data_type::f32, memory::format_tag::nhwc),
        y_({spec.n, spec.c, spec.out_h(), spec.out_w()}, memory::data_type::f32,
           memory::format_tag::nhwc) {
    const dnnl::algorithm algorithm = spec.kind == PoolKind::kMax
                                          ? dnnl::algorithm::pooling_max
                                          : dnnl::algorithm::pooling_avg_exclude_padding;
    const Window2d& w = spec.window;
    const memory::dims strides = {w.stride_h, w.stride_w}, kernel = {w.kernel_h, w.kernel_w};
    const memory::dims before = {w.padding_top, w.padding_left};
    const memory::dims after = {w.padding_bottom, w.padding_right};
    const dnnl::primitive_attr attributes = OneDnnAttributes();

    const dnnl::pooling_forward::primitive_desc forward(
        {spec.train ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
         algorithm, x_, y_, strides, kernel, before, after},
        attributes, context.engine);
    forward_ = dnnl::pooling_forward(forward);
    forward_scratchpad_ = forward.scratchpad_desc();
    workspace_ = forward.workspace_desc();
    if (!spec.train) return;

    const dnnl::pooling_backward::primitive_desc backward(
        {algorithm, x_, y_, strides, kernel, before, after}, attributes, context.engine, forward);
    backward_ = dnnl::pooling_backward(backward);
    backward_scratchpad_ = backward.scratchpad_desc();
  }

  size_t saved_bytes() const override { return workspace_.get_size(); }

  absl::Status Forward(Stream& stream, const void* x, void* y, void* saved) const override {
    return EnqueueOneDnn(stream, context_, what_, [=, this](dnnl::stream& s) {
      forward_.execute(s, {{DNNL_ARG_SRC, OneDnnMemory(x_, context_, x)},
                           {DNNL_ARG_DST, OneDnnMemory(y_, context_, y)},
                           {DNNL_ARG_WORKSPACE, OneDnnMemory(workspace_, context_, saved)},
                           {DNNL_ARG_SCRATCHPAD, Scratch(forward_scratchpad_)}});
      s.wait();
      if (spec_.kind == PoolKind::kMax) {
        PassNaNs(static_cast<const float*>(x), static_cast<float*>(y));
      }
    });
  }

  absl::Status Backward(Stream& stream, const void* dy, const void* saved,
                        void* dx) const override {
    return EnqueueOneDnn(stream, context_, what_, [=, this](dnnl::stream& s) {
      backward_.execute(s, {{DNNL_ARG_DIFF_DST, OneDnnMemory(y_, context_, dy)},
                            {DNNL_ARG_DIFF_SRC, OneDnnMemory(x_, context_, dx)},
                            {DNNL_ARG_WORKSPACE, OneDnnMemory(workspace_, context_, saved)},
                            {DNNL_ARG_SCRATCHPAD, Scratch(backward_scratchpad_)}});
    });
  }

 private:
  // oneDNN's maximum drops a NaN, and with it would hide a run that has diverged.  Without one this
  // is a look at x; with one, the windows that hold it become NaN.
  void PassNaNs(const float* x, float* y) const {
    int found = 0;
#pragma omp parallel for simd reduction(| : found)
    for (int64_t i = 0; i < spec_.n * spec_.h * spec_.w * spec_.c; ++i) found |= x[i] != x[i];
    if (found == 0) return;
    const Window2d& w = spec_.window;
    const int64_t out_h = spec_.out_h(), out_w = spec_.out_w();
#pragma omp parallel for
    for (int64_t out = 0; out < spec_.n * out_h * out_w; ++out) {
      const int64_t top = out / out_w % out_h * w.stride_h - w.padding_top;
      const int64_t left = out % out_w * w.stride_w - w.padding_left;
      for (int64_t row = std::max<int64_t>(top, 0); row < std::min(top + w.kernel_h, spec_.h);
           ++row) {
        for (int64_t column = std::max<int64_t>(left, 0);
             column < std::min(left + w.kernel_w, spec_.w); ++column) {
          const int64_t image = out / (out_h * out_w);
          const float* pixel = x + ((image * spec_.h + row) * spec_.w + column) * spec_.c;
          for (int64_t c = 0; c < spec_.c; ++c) {
            if (std::isnan(pixel[c])) y[out * spec_.c + c] = pixel[c];
          }
        }
      }
    }
  }

  memory Scratch(const memory::desc& desc) const {
    return OneDnnMemory(desc, context_, ThreadScratch(desc.get_size()));
  }

  const OneDnnContext context_;
  const Pool2dSpec spec_;
  const std::string what_;
  const memory::desc x_, y_;
  memory::desc workspace_, forward_scratchpad_, backward_scratchpad_;
  dnnl::pooling_forward forward_;
  dnnl::pooling_backward backward_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Pool2d>> PrepareOneDnnPool2d(const OneDnnContext& context,
                                                            const Pool2dSpec& spec) {
  return PrepareOneDnn<OneDnnPool2d>(context, spec);
}

}  // namespace gyre
