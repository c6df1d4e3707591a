// What all libraries of primitives share: the arithmetic of extents, validation and messages.
#include "engine/runtime/primitives/primitives.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gyre {
namespace {

// Positions of a window that spans `window` elements in an image of `extent` padded elements; 0 as
// well for a stride that Validate refuses.
int64_t Positions(int64_t extent, int64_t window, int64_t stride) {
  return extent < window || stride < 1 ? 0 : (extent - window) / stride + 1;
}

// Elements from the first to the last that a dilated kernel touches.
int64_t Span(int64_t kernel, int64_t dilation) { return dilation * (kernel - 1) + 1; }

template <typename Spec>
absl::Status Invalid(const Spec& spec, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat(ToString(spec), ": ", why));
}

// What a convolution and a pooling have in common.
template <typename Spec>
absl::Status ValidateWindow(const Spec& spec) {
  if (spec.n < 0 || spec.h < 0 || spec.w < 0 || spec.c < 0) {
    return Invalid(spec, "extents must not be negative");
  }
  if (spec.kernel_h < 1 || spec.kernel_w < 1 || spec.stride_h < 1 || spec.stride_w < 1) {
    return Invalid(spec, "kernel and stride must be at least 1");
  }
  if (spec.padding_top < 0 || spec.padding_bottom < 0 || spec.padding_left < 0 ||
      spec.padding_right < 0) {
    return Invalid(spec, "padding must not be negative");
  }
  return absl::OkStatus();
}

template <typename Spec>
std::string WindowString(const Spec& spec, int64_t out_channels) {
  return absl::StrFormat(
      "%s [%d, %d, %d, %d] -> [%d, %d, %d, %d], kernel %dx%d, stride %dx%d, padding %d+%dx%d+%d",
      DTypeName(spec.dtype), spec.n, spec.h, spec.w, spec.c, spec.n, spec.out_h(), spec.out_w(),
      out_channels, spec.kernel_h, spec.kernel_w, spec.stride_h, spec.stride_w, spec.padding_top,
      spec.padding_bottom, spec.padding_left, spec.padding_right);
}

const char* ActivationString(Activation activation) {
  return activation == Activation::kRelu ? ", relu" : "";
}

}  // namespace

int64_t Conv2dSpec::out_h() const {
  return Positions(h + padding_top + padding_bottom, Span(kernel_h, dilation_h), stride_h);
}

int64_t Conv2dSpec::out_w() const {
  return Positions(w + padding_left + padding_right, Span(kernel_w, dilation_w), stride_w);
}

double Conv2dSpec::forward_flops() const {
  const double pixels = static_cast<double>(n) * static_cast<double>(out_h() * out_w());
  return pixels *
         (2.0 * static_cast<double>(weights()) + (bias ? static_cast<double>(filters) : 0));
}

int64_t Pool2dSpec::out_h() const {
  return Positions(h + padding_top + padding_bottom, kernel_h, stride_h);
}

int64_t Pool2dSpec::out_w() const {
  return Positions(w + padding_left + padding_right, kernel_w, stride_w);
}

absl::Status Validate(const GemmSpec& spec) {
  if (spec.m < 0 || spec.n < 0 || spec.k < 0) {
    return Invalid(spec, "extents must not be negative");
  }
  return absl::OkStatus();
}

absl::Status Validate(const Conv2dSpec& spec) {
  RETURN_IF_ERROR(ValidateWindow(spec));
  if (spec.dilation_h < 1 || spec.dilation_w < 1) {
    return Invalid(spec, "dilation must be at least 1");
  }
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
  if (spec.padding_top >= spec.kernel_h || spec.padding_bottom >= spec.kernel_h ||
      spec.padding_left >= spec.kernel_w || spec.padding_right >= spec.kernel_w) {
    return Invalid(spec, "padding must be smaller than the window");
  }
  if (spec.out_h() == 0 || spec.out_w() == 0) {
    return Invalid(spec, "the window exceeds the padded image");
  }
  return absl::OkStatus();
}

absl::Status Validate(const LogSoftmaxSpec& spec) {
  if (spec.rows < 0) return Invalid(spec, "extents must not be negative");
  if (spec.columns < 1) return Invalid(spec, "a row needs at least one column");
  return absl::OkStatus();
}

std::string ToString(const GemmSpec& spec) {
  return absl::StrFormat("gemm %s [%d, %d]%s x [%d, %d]%s%s%s", DTypeName(spec.dtype), spec.m,
                         spec.k, spec.transpose_a ? "^T" : "", spec.k, spec.n,
                         spec.transpose_b ? "^T" : "", spec.bias ? " + bias" : "",
                         ActivationString(spec.activation));
}

std::string ToString(const Conv2dSpec& spec) {
  return absl::StrFormat("conv2d %s, dilation %dx%d, groups %d%s%s%s%s",
                         WindowString(spec, spec.filters), spec.dilation_h, spec.dilation_w,
                         spec.groups, spec.bias ? ", bias" : "", ActivationString(spec.activation),
                         spec.weight_layout.empty() ? "" : ", weights ", spec.weight_layout);
}

std::string ToString(const Pool2dSpec& spec) {
  return absl::StrFormat("%s pool2d %s", spec.kind == PoolKind::kMax ? "max" : "average",
                         WindowString(spec, spec.c));
}

std::string ToString(const LogSoftmaxSpec& spec) {
  return absl::StrFormat("log_softmax %s [%d, %d]", DTypeName(spec.dtype), spec.rows, spec.columns);
}

}  // namespace gyre
