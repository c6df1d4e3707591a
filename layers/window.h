// window.h: what layers that slide a window over N,H,W,C images share: reading the window from the
// configuration, and the checks of images and windows.  Errors are InvalidArgument with expected
// and got.  Pure functions.
#pragma once

#include "layers/layer.h"
#include "models/schema/layer.pb.h"

namespace gyre {

absl::StatusOr<Window2d> ReadWindow(const Conv2dConfig& config);
absl::StatusOr<Window2d> ReadWindow(const Pool2dConfig& config);

// `shape` is [N, H, W, C] with at least one pixel and channel.
absl::Status CheckImages(const Shape& shape);

// The window lies within the padded image at least once along each axis.
absl::Status CheckWindowFits(const Shape& images, const Window2d& window);

}  // namespace gyre
