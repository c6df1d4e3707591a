// window.h: what layers that slide a window over N,H,W,C images share: their configuration's
// repeated fields and the checks of images and windows.  Errors are InvalidArgument with expected
// and got.  Pure functions.
#pragma once

#include <string_view>

#include "google/protobuf/repeated_field.h"
#include "layers/layer.h"

namespace gyre {

struct HeightWidth {
  int64_t height = 1, width = 1;
};

struct Padding {
  int64_t top = 0, bottom = 0, left = 0, right = 0;
};

using WindowField = google::protobuf::RepeatedField<int64_t>;

// One value for both, or height and width, each >= 1; `fallback` if absent.
absl::StatusOr<HeightWidth> ReadHeightWidth(std::string_view field, const WindowField& values,
                                            HeightWidth fallback);

// Likewise for a field without a fallback.
absl::StatusOr<HeightWidth> ReadHeightWidth(std::string_view field, const WindowField& values);

// One value; height and width; or top, bottom, left, right: each >= 0, 0 if absent.
absl::StatusOr<Padding> ReadPadding(const WindowField& values);

// `shape` is [N, H, W, C] with at least one pixel and channel.
absl::Status CheckImages(const Shape& shape);

// The window lies within the padded image at least once along each axis.
absl::Status CheckWindowFits(const Shape& images, HeightWidth kernel, HeightWidth dilation,
                             const Padding& padding);

}  // namespace gyre
