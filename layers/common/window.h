// window.h: what layers that slide a window over N,H,W,C images share: reading the window from the
// configuration, and the checks of images and windows.  Lines [N, ..., L, C] are images one pixel
// high.  Errors are InvalidArgument with expected and got.  Pure functions.
#pragma once

#include "layers/interface/infer.h"
#include "models/schema/layer.pb.h"

namespace gyre {

absl::StatusOr<Window2d> ReadWindow(const Conv2dConfig& config);
absl::StatusOr<Window2d> ReadWindow(const Pool2dConfig& config);

// The layers of lines are those of images with these.  Errors: a number of paddings.
absl::StatusOr<Conv2dConfig> OfImages(const Conv1dConfig& config);
absl::StatusOr<Pool2dConfig> OfImages(const Pool1dConfig& config);

struct Images {
  int64_t n, h, w, c;
  bool lines;
  Shape shape;  // of the input

  // That of an output of so many rows, columns and channels.
  Shape OutputShape(int64_t rows, int64_t columns, int64_t channels) const;
};

// The first input, [N, H, W, C] or lines, with at least one pixel and channel.
absl::StatusOr<Images> ReadImages(const InferInput& input, bool lines);

// The window lies within the padded image at least once along each axis.
absl::Status CheckWindowFits(const Images& images, const Window2d& window);

}  // namespace gyre
