// Pooling by oneDNN.  The positions of maxima are oneDNN's workspace, which only its own backward
// understands.
#include "engine/runtime/primitives/onednn/onednn.h"

namespace gyre {
namespace {

using dnnl::memory;

class OneDnnPool2d : public Pool2d {
 public:
  OneDnnPool2d(const OneDnnContext& context, const Pool2dSpec& spec)
      : context_(context),
        what_(ToString(spec)),
        x_({spec.n, spec.c, spec.h, spec.w}, memory::data_type::f32, memory::format_tag::nhwc),
        y_({spec.n, spec.c, spec.out_h(), spec.out_w()}, memory::data_type::f32,
           memory::format_tag::nhwc) {
    const dnnl::algorithm algorithm = spec.kind == PoolKind::kMax
                                          ? dnnl::algorithm::pooling_max
                                          : dnnl::algorithm::pooling_avg_exclude_padding;
    const memory::dims strides = {spec.stride_h, spec.stride_w};
    const memory::dims kernel = {spec.kernel_h, spec.kernel_w};
    const memory::dims before = {spec.padding_top, spec.padding_left};
    const memory::dims after = {spec.padding_bottom, spec.padding_right};
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
  memory Scratch(const memory::desc& desc) const {
    return OneDnnMemory(desc, context_, ThreadScratch(desc.get_size()));
  }

  const OneDnnContext context_;
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
