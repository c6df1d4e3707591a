// What all libraries of primitives share: the arithmetic of extents, validation and messages.
#include "engine/runtime/primitives/primitives.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gyre {
namespace {

template <typename Spec>
absl::Status Invalid(const Spec& spec, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(spec), ": ", why));
}

// What a convolution and a pooling have in common.
template <typename Spec>
absl::Status ValidateWindow(const Spec& spec) {
  const Window2d& w = spec.window;
  if (std::min({spec.n, spec.h, spec.w, spec.c}) < 0) {
    return Invalid(spec, "extents must not be negative");
  }
  if (std::min({w.kernel_h, w.kernel_w, w.stride_h, w.stride_w}) < 1) {
    return Invalid(spec, "kernel and stride must be at least 1");
  }
  if (std::min(w.dilation_h, w.dilation_w) < 1) return Invalid(spec, "dilation must be at least 1");
  if (std::min({w.padding_top, w.padding_bottom, w.padding_left, w.padding_right}) < 0) {
    return Invalid(spec, "padding must not be negative");
  }
  return absl::OkStatus();
}

template <typename Spec>
std::string WindowString(const Spec& spec, int64_t out_channels) {
  const Window2d& w = spec.window;
  return absl::StrFormat(
      "%s [%d, %d, %d, %d] -> [%d, %d, %d, %d], kernel %dx%d, stride %dx%d, padding %d+%dx%d+%d",
      DTypeName(spec.dtype), spec.n, spec.h, spec.w, spec.c, spec.n, spec.out_h(), spec.out_w(),
      out_channels, w.kernel_h, w.kernel_w, w.stride_h, w.stride_w, w.padding_top, w.padding_bottom,
      w.padding_left, w.padding_right);
}

// Whether elements of c may share memory.  They do not where each axis, the closest elements first,
// steps over all that the ones before it span.
bool OutputsOverlap(const GemmSpec& spec) {
  struct Axis {
    int64_t step, count;
  };
  std::array<Axis, 4> axes = {{{1, spec.n},
                               {spec.row_c(), spec.m},
                               {spec.inner.c, spec.inner.count},
                               {spec.outer.c, spec.outer.count}}};
  if (std::any_of(axes.begin(), axes.end(), [](Axis axis) { return axis.count == 0; }))
    return false;
  std::sort(axes.begin(), axes.end(), [](Axis a, Axis b) { return a.step < b.step; });
  int64_t spanned = 1;
  for (const Axis& axis : axes) {
    if (axis.count == 1) continue;
    if (axis.step < spanned) return true;
    spanned += (axis.count - 1) * axis.step;
  }
  return false;
}

std::string BatchString(const GemmBatch& batch) {
  return absl::StrFormat("%d by %d, %d, %d", batch.count, batch.a, batch.b, batch.c);
}

const char* ActivationString(Activation activation) {
  return activation == Activation::kRelu ? ", relu" : "";
}

}  // namespace

double Conv2dSpec::forward_flops() const {
  const double pixels = static_cast<double>(n) * static_cast<double>(out_h() * out_w());
  return pixels *
         (2.0 * static_cast<double>(weights()) + (bias ? static_cast<double>(filters) : 0));
}

absl::Status Validate(const GemmSpec& spec) {
  const GemmBatch &outer = spec.outer, &inner = spec.inner;
  if (std::min({spec.m, spec.n, spec.k, outer.count, inner.count}) < 0) {
    return Invalid(spec, "extents must not be negative");
  }
  if (std::min({outer.a, outer.b, outer.c, inner.a, inner.b, inner.c}) < 0) {
    return Invalid(spec, "batches must not go backwards");
  }
  if (spec.row_a() < (spec.transpose_a ? spec.m : spec.k) ||
      spec.row_b() < (spec.transpose_b ? spec.k : spec.n) || spec.row_c() < spec.n) {
    return Invalid(spec, "leading dimensions must not be shorter than rows");
  }
  if (spec.wide_c &&
      (SizeOf(spec.dtype) != 2 || spec.bias || spec.activation != Activation::kNone)) {
    return Invalid(spec, "c is wide for factors of 16 bits, without bias and activation");
  }
  if (OutputsOverlap(spec)) return Invalid(spec, "outputs overlap");
  return absl::OkStatus();
}

absl::Status Validate(const Conv2dSpec& spec) {
  RETURN_IF_ERROR(ValidateWindow(spec));
  if (spec.filters < 0) return Invalid(spec, "extents must not be negative");
  if (spec.groups < 1 || spec.c % spec.groups != 0 || spec.filters % spec.groups != 0) {
    return Invalid(spec, "groups must divide the channels and the filters");
  }
  if (spec.out_h() == 0 || spec.out_w() == 0) {
    return Invalid(spec, "the kernel exceeds the padded image");
  }
  return absl::OkStatus();
}

absl::Status Validate(const Pool2dSpec& spec) {
  RETURN_IF_ERROR(ValidateWindow(spec));
  if (spec.h == 0 || spec.w == 0) return Invalid(spec, "an image needs at least one pixel");
  const Window2d& w = spec.window;
  if (w.dilation_h != 1 || w.dilation_w != 1) return Invalid(spec, "pooling has no dilation");
  if (std::max(w.padding_top, w.padding_bottom) >= w.kernel_h ||
      std::max(w.padding_left, w.padding_right) >= w.kernel_w) {
    return Invalid(spec, "padding must be smaller than the window");
  }
  if (spec.out_h() == 0 || spec.out_w() == 0) {
    return Invalid(spec, "the window exceeds the padded image");
  }
  return absl::OkStatus();
}

absl::Status Validate(const BatchNormSpec& spec) {
  if (std::min(spec.rows, spec.channels) < 0) return Invalid(spec, "extents must not be negative");
  if (!(spec.epsilon > 0)) return Invalid(spec, "epsilon must be more than 0");
  return absl::OkStatus();
}

std::string ToString(const GemmSpec& spec) {
  std::string text =
      absl::StrFormat("gemm %s [%d, %d]%s x [%d, %d]%s%s%s", DTypeName(spec.dtype), spec.m, spec.k,
                      spec.transpose_a ? "^T" : "", spec.k, spec.n, spec.transpose_b ? "^T" : "",
                      spec.bias ? " + bias" : "", ActivationString(spec.activation));
  if (spec.IsPlain()) return text;
  absl::StrAppendFormat(&text, ", rows %d, %d, %d, batch %s x %s%s%s%s%s", spec.row_a(),
                        spec.row_b(), spec.row_c(), BatchString(spec.outer),
                        BatchString(spec.inner), spec.accumulate ? ", added to c" : "",
                        spec.wide_c ? ", c F32" : "", spec.lower_a ? ", lower a" : "",
                        spec.lower_c ? ", lower c" : "");
  return text;
}

std::string ToString(const Conv2dSpec& spec) {
  return absl::StrFormat("conv2d %s, dilation %dx%d, groups %d%s%s%s%s",
                         WindowString(spec, spec.filters), spec.window.dilation_h,
                         spec.window.dilation_w, spec.groups, spec.bias ? ", bias" : "",
                         ActivationString(spec.activation),
                         spec.weight_layout.empty() ? "" : ", weights ", spec.weight_layout);
}

std::string ToString(const Pool2dSpec& spec) {
  return absl::StrFormat("%s pool2d %s", spec.kind == PoolKind::kMax ? "max" : "average",
                         WindowString(spec, spec.c));
}

std::string ToString(const BatchNormSpec& spec) {
  return absl::StrFormat("batch_norm %s [%d, %d]", DTypeName(spec.dtype), spec.rows, spec.channels);
}

}  // namespace gyre
