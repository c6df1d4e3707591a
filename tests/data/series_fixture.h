// series_fixture.h: data sets made of files in a folder of the test's own.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/data/sets/dataset.h"
#include "tests/data/read_sample.h"
#include "tests/data/temp_folder.h"

namespace gyre {

using Ints = std::vector<int32_t>;
using Reals = std::vector<float>;

class Series : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<Dataset>> Open(
      const std::string& data, bool train = true, const Fit& fit = {},
      const std::shared_ptr<DataMemory>& memory = {}) const {
    DataConfig config;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(data, &config)) << data;
    return OpenDataset(config, train, folder_ / "trainer", inputs_, fit, {}, memory);
  }
  // With '@' for the folder.
  std::string Shown(absl::string_view text) const {
    return absl::StrReplaceAll(text, {{folder_.path() + "/", "@"}});
  }
  std::string Error(const std::string& data, bool train = true, const Fit& fit = {}) const {
    return Shown(Open(data, train, fit).status().message());
  }
  void Write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories(std::filesystem::path(folder_ / name).parent_path());
    WriteBytes(folder_ / name, bytes);
  }

  TempFolder folder_;
  NetInputs inputs_;  // the net's
};

// Another byte, some fewer or more, one to three times.
inline std::string Damaged(std::string bytes, std::mt19937& random) {
  for (uint32_t edits = random() % 3 + 1; edits > 0 && !bytes.empty(); --edits) {
    const size_t at = random() % bytes.size();
    switch (random() % 4) {
      case 0:
        bytes[at] = static_cast<char>(random());
        break;
      case 1:
        bytes.erase(at, random() % 8);
        break;
      case 2:
        bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 8));
        break;
      default:
        bytes.insert(at, 1, "\n,\t#\"\\x-9\xff\xfe\0\r"[random() % 13]);
        if (random() % 4 == 0) bytes.insert(0, "\xef\xbb\xbf");
    }
  }
  return bytes;
}

// All samples of an array, one after another.
template <typename T>
std::vector<T> All(const Dataset& dataset, const std::string& input, int64_t more = 0) {
  for (size_t i = 0; i < dataset.arrays().size(); ++i) {
    if (dataset.arrays()[i].input != input) continue;
    EXPECT_EQ(dataset.arrays()[i].dtype, kDTypeOf<T>);
    std::vector<T> all;
    for (int64_t s = 0; s < dataset.size() + more; ++s) {
      const Tensor sample = *ReadSample(dataset, s, i);
      all.insert(all.end(), sample.as<T>(), sample.as<T>() + sample.elements());
    }
    return all;
  }
  ADD_FAILURE() << input;
  return {};
}

}  // namespace gyre
