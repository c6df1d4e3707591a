#include "layers/window.h"

#include "absl/strings/str_format.h"
#include "layers/infer.h"

namespace gyre {
namespace {

absl::Status CheckAxisFits(std::string_view axis, int64_t image, int64_t before, int64_t after,
                           int64_t kernel, int64_t dilation) {
  const int64_t span = (kernel - 1) * dilation + 1;
  const int64_t padded = image + before + after;
  if (span <= padded) return absl::OkStatus();
  const std::string dilated =
      dilation == 1 ? "" : absl::StrFormat(", %d dilated by %d", kernel, dilation);
  return absl::InvalidArgumentError(
      absl::StrFormat("kernel %d exceeds padded input %d (%s%s)", span, padded, axis, dilated));
}

}  // namespace

absl::StatusOr<HeightWidth> ReadHeightWidth(std::string_view field, const WindowField& values,
                                            HeightWidth fallback) {
  if (values.empty()) return fallback;
  return ReadHeightWidth(field, values);
}

absl::StatusOr<HeightWidth> ReadHeightWidth(std::string_view field, const WindowField& values) {
  if (values.size() != 1 && values.size() != 2) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected one value, or height and width, got %d values", field, values.size()));
  }
  for (const int64_t value : values) RETURN_IF_ERROR(CheckExtent(field, value));
  return HeightWidth{values.Get(0), values.Get(values.size() - 1)};
}

absl::StatusOr<Padding> ReadPadding(const WindowField& values) {
  for (const int64_t value : values) RETURN_IF_ERROR(CheckExtent("padding", value, /*least=*/0));
  switch (values.size()) {
    case 0:
      return Padding{};
    case 1:
      return Padding{values.Get(0), values.Get(0), values.Get(0), values.Get(0)};
    case 2:
      return Padding{values.Get(0), values.Get(0), values.Get(1), values.Get(1)};
    case 4:
      return Padding{values.Get(0), values.Get(1), values.Get(2), values.Get(3)};
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "padding: expected one value, height and width, or top, bottom, left, right, got %d values",
      values.size()));
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

absl::Status CheckWindowFits(const Shape& images, HeightWidth kernel, HeightWidth dilation,
                             const Padding& padding) {
  RETURN_IF_ERROR(CheckAxisFits("height", images[1], padding.top, padding.bottom, kernel.height,
                                dilation.height));
  return CheckAxisFits("width", images[2], padding.left, padding.right, kernel.width,
                       dilation.width);
}

}  // namespace gyre
