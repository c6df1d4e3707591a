// image_fixture.h: data sets of pictures, in a folder of the test's own.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "engine/data/pictures/encode.h"
#include "tests/data/series_fixture.h"

namespace gyre {

class Images : public Series {
 protected:
  Images() { inputs_ = {{.name = "image", .dims = {4, 6, 3}}, {.name = "label", .label = true}}; }
  std::vector<uint8_t> RandomPixels(size_t count) {
    std::vector<uint8_t> pixels(count);
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random_());
    return pixels;
  }
  // Writes a PNG of random pixels, which it returns.
  std::vector<uint8_t> Picture(const std::string& name, int64_t height = 4, int64_t width = 6,
                               int channels = 3) {
    std::vector<uint8_t> pixels = RandomPixels(static_cast<size_t>(height * width * channels));
    Write(name, *PngOf({height, width, channels, pixels.data()}));
    return pixels;
  }
  using Series::Error;
  std::string Error(const absl::Status& status) const { return Shown(status.message()); }

  std::mt19937 random_{7};
};

inline std::vector<uint8_t> PixelsOf(const Dataset& dataset, int64_t index, size_t array = 0) {
  const Tensor sample = *ReadSample(dataset, index, array);
  return {sample.as<uint8_t>(), sample.as<uint8_t>() + sample.elements()};
}
inline int32_t LabelOf(const Dataset& dataset, int64_t index) {
  return *ReadSample(dataset, index, 1)->as<int32_t>();
}

}  // namespace gyre
