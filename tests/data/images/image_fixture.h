// image_fixture.h: data sets of pictures, in a folder of the test's own.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_replace.h"
#include "engine/data/pictures/encode.h"
#include "engine/data/sets/dataset.h"
#include "tests/data/read_sample.h"
#include "tests/data/temp_folder.h"

namespace gyre {

class Images : public testing::Test {
 protected:
  // The net's.
  NetInputs inputs_ = {{.name = "image", .dims = {4, 6, 3}}, {.name = "label", .label = true}};
  TempFolder folder_;
  std::mt19937 random_{7};

  std::vector<uint8_t> RandomPixels(size_t count) {
    std::vector<uint8_t> pixels(count);
    for (uint8_t& pixel : pixels) pixel = static_cast<uint8_t>(random_());
    return pixels;
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    WriteBytes(folder_ / name, bytes);
  }
  // Writes a PNG of random pixels, which it returns.
  std::vector<uint8_t> Picture(const std::string& name, int64_t height = 4, int64_t width = 6,
                               int channels = 3) {
    std::vector<uint8_t> pixels = RandomPixels(static_cast<size_t>(height * width * channels));
    Write(name, *PngOf({height, width, channels, pixels.data()}));
    return pixels;
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& text, bool train = true,
                                                const Fit& fit = {}) const {
    DataConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
    return OpenDataset(config, train, folder_ / "trainer", inputs_, fit);
  }
  std::string Error(const absl::Status& status) const {
    return absl::StrReplaceAll(std::string(status.message()), {{folder_.path() + "/", "@"}});
  }
  std::string Error(const std::string& text, bool train = true, const Fit& fit = {}) const {
    return Error(Open(text, train, fit).status());
  }
};

inline std::vector<uint8_t> PixelsOf(const Dataset& dataset, int64_t index, size_t array = 0) {
  const Tensor sample = *ReadSample(dataset, index, array);
  return {sample.as<uint8_t>(), sample.as<uint8_t>() + sample.elements()};
}
inline int32_t LabelOf(const Dataset& dataset, int64_t index) {
  return *ReadSample(dataset, index, 1)->as<int32_t>();
}

}  // namespace gyre
