// picture_input.h: from the bytes of a picture's file to a net's input.  Pure functions of the
// bytes and the draw.  Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/data/pictures/geometry.h"
#include "engine/data/pictures/picture.h"
#include "engine/data/pictures/resize.h"
#include "engine/data/sets/dataset.h"

namespace gyre {

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
