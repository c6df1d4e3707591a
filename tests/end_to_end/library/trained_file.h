// trained_file.h: a trained net in a folder, its test data in memory, and what `predict` says.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {

// Of a net of small pictures, after some steps.
class TrainedFile {
 public:
  static constexpr int64_t kSamples = 17;

  explicit TrainedFile(uint64_t seed = 1)
      : folder_({.samples = 40, .channels = 3, .seed = seed}, kSamples) {
    WriteTrainer(folder_ / "", ConvNetText(folder_.data()),
                 {.rest = absl::StrCat("batch: 8 steps: 6 seed: ", seed)});
    folder_.Digest("run");
    Succeeded(
        RunTool("export", {absl::StrCat("--weights=", run()), absl::StrCat("--to=", file())}));
    const std::string idx = folder_.Images("test");
    pixels_.assign(idx.begin(), idx.end());
  }

  std::string run() const { return folder_ / "run"; }
  std::string file() const { return folder_ / "net.gyre"; }
  std::string operator/(const std::string& name) const { return folder_ / name; }
  const SyntheticData& data() const { return folder_.data(); }
  size_t sample_bytes() const { return pixels_.size() / kSamples; }
  // The bytes of the test set's pictures.
  const std::vector<uint8_t>& pixels() const { return pixels_; }

  // The shares of all test samples by `predict`, with a thread and batches of `batch`.
  std::vector<float> Predicted(int64_t batch, const std::vector<std::string>& more = {}) const {
    const std::string to = folder_ / "predicted.npy";
    Succeeded(RunTool("predict", Joined({absl::StrCat("--run=", file()), absl::StrCat("--out=", to),
                                         "--threads=1", absl::StrCat("--batch=", batch)},
                                        more)));
    const std::string bytes = ReadBytes(to);
    std::vector<float> values(static_cast<size_t>(kSamples * data().classes));
    EXPECT_GT(bytes.size(), values.size() * sizeof(float));
    std::memcpy(values.data(), bytes.data() + bytes.size() - values.size() * sizeof(float),
                values.size() * sizeof(float));
    return values;
  }

 private:
  TrainingFolder folder_;
  std::vector<uint8_t> pixels_;
};

}  // namespace gyre
