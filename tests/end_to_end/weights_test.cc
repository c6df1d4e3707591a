// What leaves a run comes back the same: exported weights evaluate as the checkpoint does, and
// training starts from them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/tensor_file.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const SyntheticData kData{.samples = 50};

class Weights : public testing::Test {
 protected:
  Weights() {
    WriteTrainer(folder_ / "", ConvNetText(kData),
                 {.rest = "batch: 8 test_batch: 10 evaluate_every: 5 steps: 20"});
    digest_ = folder_.Digest("out");
  }
  std::string Export(const std::string& weights, const std::string& to) {
    const ToolResult result =
        RunTool("export", {"--weights=" + folder_ / weights, "--to=" + folder_ / to});
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    return folder_ / to;
  }

  TrainingFolder folder_{kData};
  std::string digest_;
};

TEST_F(Weights, EvaluateAlikeFromEveryPlace) {
  const std::string metrics = folder_.Evaluate(folder_ / "out");
  EXPECT_EQ(folder_.Evaluate(folder_ / "out/checkpoints/step_00000020"), metrics);
  EXPECT_EQ(folder_.Evaluate(Export("out", "model.safetensors")), metrics);
  EXPECT_EQ(folder_.Evaluate(folder_ / "out", {"--device=sim"}), metrics);
  // And as training saw them, which prints more digits than evaluate does.
  const double loss = folder_.Metrics("out", "test_loss").back();
  EXPECT_THAT(metrics, HasSubstr(absl::StrFormat("test loss %.6f\n", loss)));
  EXPECT_THAT(metrics, HasSubstr(absl::StrFormat("test accuracy %.6f\n",
                                                 folder_.Metrics("out", "test_accuracy").back())));
}

TEST_F(Weights, ExportIsDeterministicAndComplete) {
  const std::string path = Export("out", "a.safetensors");
  EXPECT_EQ(ReadBytes(path), ReadBytes(Export("out", "b.safetensors")));
  EXPECT_EQ(ReadBytes(path), ReadBytes(Export("a.safetensors", "c.safetensors")));
  const auto file = TensorFile::Read(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> names;
  for (const NamedTensor& tensor : file->tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names,
              testing::ElementsAre("conv1.bias", "conv1.weight", "conv2.bias", "conv2.weight",
                                   "fc1.bias", "fc1.weight", "scores.bias", "scores.weight"));
  EXPECT_EQ(file->Find("conv2.weight")->shape, Shape({9, 6, 3, 3}));  // O,I,H,W

  const std::string npz = ReadBytes(Export("out", "a.npz"));
  EXPECT_EQ(npz, ReadBytes(Export("a.safetensors", "b.npz")));
  EXPECT_THAT(npz, StartsWith("PK"));
  for (const NamedTensor& tensor : file->tensors()) {
    EXPECT_THAT(npz, HasSubstr(tensor.name + ".npy"));
    // Entries are stored: the tensor's very bytes are in the archive.
    const std::string bytes(static_cast<const char*>(tensor.tensor.data), tensor.tensor.bytes());
    EXPECT_TRUE(npz.find(bytes) != std::string::npos) << tensor.name;
  }
}

TEST_F(Weights, FineTuningStartsFromThem) {
  const std::string weights = Export("out", "model.safetensors");
  // A learning rate that moves nothing shows what the run began with.
  EXPECT_EQ(folder_.Digest("still",
                           {"--weights=" + weights, "--steps=1", "--set=learning_rate.base=1e-30"}),
            digest_);
  const std::string tuned = folder_.Digest("tuned", {"--weights=" + weights});
  EXPECT_EQ(folder_.Digest("again", {"--weights=" + weights}), tuned);
  EXPECT_NE(tuned, digest_);
  EXPECT_LT(folder_.Metrics("tuned", "loss").front(), folder_.Metrics("out", "loss").front());
}

}  // namespace
}  // namespace gyre
