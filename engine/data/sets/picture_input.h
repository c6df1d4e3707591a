// picture_input.h: from the bytes of a picture's file to a net's input.  Pure functions of the
// bytes and the draw.  Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/data/pictures/picture.h"
#include "engine/data/pictures/resize.h"
#include "engine/data/sample_draw.h"
#include "engine/data/sets/dataset.h"

namespace gyre {

// `source` is resized to [height, width].  The result is what of it lies in the input, whose
// upper left pixel is at (top, left), both negative where there is a border.
struct Geometry {
  Window source;
  int64_t height = 0, width = 0;
  int64_t top = 0, left = 0;
};

enum class PictureFit { kCrop, kStretch, kLetterbox, kAsIs };

// A window of random area and aspect ratio, resized to the input.
struct RandomCrop {
  double least_area = 0.08, most_area = 1;             // of the picture
  double least_aspect = 3. / 4, most_aspect = 4. / 3;  // width / height
};

// The input's size, and how a picture becomes as large.
struct InputFit {
  int64_t height = 0, width = 0;
  PictureFit fit = PictureFit::kCrop;
  int64_t shortest = 0;  // kCrop: pixels of the shorter side before the crop.  0: just covered
  std::optional<RandomCrop> random = {};  // for a sample that varies, in place of `fit`
};

// The geometry of a picture of [height, width].  The random crop is drawn if there is a draw.
// Errors: InvalidArgument for a picture that is not of the input's size (kAsIs), or smaller than
// the crop once `shortest` is applied.  Messages are for after a file's name.
// Source: the random crop is torchvision's RandomResizedCrop: ten attempts, then the centre.
absl::StatusOr<Geometry> GeometryOf(int64_t height, int64_t width, const InputFit& fit,
                                    const std::optional<SampleDraw>& draw);

// How a file's pixels become an input's.
struct PictureInput {
  InputFit fit;
  PixelFormat format;
  ResizeFilter filter = ResizeFilter::kAntialiased;
  int64_t most_pixels = 0;
};

// Errors: InvalidArgument for an input that is no picture, or an unknown colour.  ResourceExhausted
// for an input larger than this process's memory.
absl::StatusOr<PictureInput> PictureInputOf(const ImagesConfig& config, const NetInput& input,
                                            const AugmentationConfig& augmentation);
// The same part of a mask: its numbers as they are, without new ones.
PictureInput MaskInputOf(PictureInput picture);

// Writes what lies in the input of `file` to `to`, [height, width, channels].  `file` is not in
// memory.pixels or memory.resized, which this uses.  Errors: those of picture.h, and
// ResourceExhausted with the picture's size for lack of memory.
absl::Status FillInput(std::string_view file, const PictureInput& input,
                       const std::optional<SampleDraw>& draw, SampleMemory& memory, uint8_t* to);

// Likewise of all pixels of a picture, with the same result.
absl::Status FillInput(const Pixels& picture, const PictureInput& input,
                       const std::optional<SampleDraw>& draw, SampleMemory& memory, uint8_t* to);

}  // namespace gyre
