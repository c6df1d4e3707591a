// window.h: reads and checks the window and images of layers that slide a window over N,H,W,C
// images.  Lines [N, ..., L, C] are images one pixel high.  Errors are InvalidArgument with
// expected and got.  Pure functions.
#pragma once

#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"
#include "models/schema/layer.pb.h"

namespace gyre {

absl::StatusOr<Window2d> ReadWindow(const Conv2dConfig& config);
absl::StatusOr<Window2d> ReadWindow(const Pool2dConfig& config);

// The equal layer of images for a layer of lines.  Errors: too many paddings.
absl::StatusOr<Conv2dConfig> OfImages(const Conv1dConfig& config);
absl::StatusOr<Pool2dConfig> OfImages(const Pool1dConfig& config);

struct Images {
  int64_t n, h, w, c;
  bool lines;
  Shape shape;  // of the input

  Shape OutputShape(int64_t rows, int64_t columns, int64_t channels) const;
};

// The first input, [N, H, W, C] or lines.  Errors: another rank or type, no pixel or no channel.
absl::StatusOr<Images> ReadImages(const InferInput& input, bool lines);

// The attributes of a window over values of `axes` axes, channels first: kernel_shape, strides and
// pads.  Axes of lines before the last one have a window of 1.
std::vector<OnnxAttribute> OnnxWindow(const Window2d& window, int axes);
// Likewise dilations.
OnnxAttribute OnnxDilations(const Window2d& window, int axes);
// The form that convolutions and poolings read.  Errors: Unimplemented for lines of six axes.
absl::StatusOr<OnnxForm> OnnxImages(const OnnxWriter& onnx);

// Checks that the window fits into the padded image along each axis.
absl::Status CheckWindowFits(const Images& images, const Window2d& window);

}  // namespace gyre
