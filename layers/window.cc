#include "layers/window.h"

#include "absl/strings/str_format.h"
#include "layers/infer.h"

namespace gyre {
namespace {

using Field = google::protobuf::RepeatedField<int64_t>;

// One value for both, or height and width, each >= 1.
absl::Status Read(std::string_view name, const Field& values, int64_t& h, int64_t& w) {
  if (values.size() != 1 && values.size() != 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected one value, or height and width, got %d values", name, values.size()));
  }
  for (const int64_t value : values) RETURN_IF_ERROR(CheckExtent(name, value));
  h = values.Get(0);
  w = values.Get(values.size() - 1);
  return absl::OkStatus();
}

// Likewise, and as it is if absent.
absl::Status ReadOptional(std::string_view name, const Field& values, int64_t& h, int64_t& w) {
  return values.empty() ? absl::OkStatus() : Read(name, values, h, w);
}

// One value; height and width; or top, bottom, left, right: each >= 0, 0 if absent.
absl::Status ReadPadding(const Field& values, Window2d& window) {
  for (const int64_t value : values) RETURN_IF_ERROR(CheckExtent("padding", value, /*least=*/0));
  const int size = values.size();
  if (size != 0 && size != 1 && size != 2 && size != 4) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "padding: expected one value, height and width, or top, bottom, left, right, got %d values",
        size));
  }
  if (size == 0) return absl::OkStatus();
  window.padding_top = values.Get(0);
  window.padding_bottom = values.Get(size == 4 ? 1 : 0);
  window.padding_left = values.Get(size / 2);
  window.padding_right = values.Get(size - 1);
  return absl::OkStatus();
}

absl::Status CheckAxisFits(std::string_view axis, int64_t image, int64_t before, int64_t after,
                           int64_t kernel, int64_t dilation, int64_t span) {
  const int64_t padded = image + before + after;
  if (span <= padded) return absl::OkStatus();
  const std::string dilated =
      dilation == 1 ? "" : absl::StrFormat(", %d dilated by %d", kernel, dilation);
  return absl::InvalidArgumentError(
      absl::StrFormat("kernel %d exceeds padded input %d (%s%s)", span, padded, axis, dilated));
}

}  // namespace

absl::StatusOr<Window2d> ReadWindow(const Conv2dConfig& config) {
  Window2d w;
  RETURN_IF_ERROR(Read("kernel", config.kernel(), w.kernel_h, w.kernel_w));
  RETURN_IF_ERROR(ReadOptional("stride", config.stride(), w.stride_h, w.stride_w));
  RETURN_IF_ERROR(ReadOptional("dilation", config.dilation(), w.dilation_h, w.dilation_w));
  RETURN_IF_ERROR(ReadPadding(config.padding(), w));
  return w;
}

absl::StatusOr<Window2d> ReadWindow(const Pool2dConfig& config) {
  Window2d w;
  RETURN_IF_ERROR(Read("kernel", config.kernel(), w.kernel_h, w.kernel_w));
  w.stride_h = w.kernel_h;
  w.stride_w = w.kernel_w;
  RETURN_IF_ERROR(ReadOptional("stride", config.stride(), w.stride_h, w.stride_w));
  RETURN_IF_ERROR(ReadPadding(config.padding(), w));
  return w;
}

absl::Status CheckImages(const Shape& shape) {
  if (shape.rank() != 4) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects images [N, H, W, C], got %s", shape.ToString()));
  }
  if (shape.elements(1, 4) < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects images of one pixel and channel or more, got %s", shape.ToString()));
  }
  return absl::OkStatus();
}

absl::Status CheckWindowFits(const Shape& images, const Window2d& w) {
  RETURN_IF_ERROR(CheckAxisFits("height", images[1], w.padding_top, w.padding_bottom, w.kernel_h,
                                w.dilation_h, w.span_h()));
  return CheckAxisFits("width", images[2], w.padding_left, w.padding_right, w.kernel_w,
                       w.dilation_w, w.span_w());
}

}  // namespace gyre
