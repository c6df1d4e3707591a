// Data by name: the same numbers give the same bits from whatever file they come, on whatever
// device; training samples vary with the seed and the position alone.

#include <gtest/gtest.h>

#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/data/array_bytes.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

const SyntheticData kData{.samples = 50, .channels = 3};
constexpr char kNormalization[] = "normalization { mean: 0.3 std: 0.3 }";

class Arrays : public testing::Test {
 protected:
  Arrays() { Say(kNormalization); }

  // Instead of idx: what an array says beside its input, with SET for train and test.
  void UseArrays(const std::string& image, const std::string& label) {
    trainer_.source = absl::StrCat("arrays { array { input: \"label\" ", label,
                                   " } array { input: \"image\" ", image, " } }");
    Say(trainer_.data);
  }

  // In place of the normalization.
  void Say(const std::string& text) {
    trainer_.data = text;
    WriteTrainer(folder_ / "", ConvNetText(kData), trainer_);
  }

  // Each set's images as values that no normalization need touch, and its labels as I64.
  void WriteNpz() {
    for (const char* set : {"train", "test"}) {
      const std::string images = folder_.Images(set), labels = folder_.Labels(set);
      const auto samples = static_cast<int64_t>(labels.size());
      std::vector<double> values;
      for (const char pixel : images) {
        values.push_back((static_cast<uint8_t>(pixel) / 255. - 0.3) / 0.3);
      }
      std::vector<int64_t> wide(labels.begin(), labels.end());
      const NamedTensor tensors[] = {{"x", {values.data(), {samples, 12, 12, 3}, DType::kF64}},
                                     {"y", {wide.data(), {samples}, DType::kI64}}};
      ASSERT_TRUE(gyre::WriteNpz(folder_ / absl::StrCat(set, ".npz"), tensors).ok());
    }
  }

  TrainingFolder folder_{kData};
  TrainerText trainer_{.rest = "batch: 8 steps: 20"};
};

TEST_F(Arrays, TheSameNumbersGiveTheSameBits) {
  const std::string expected = folder_.Digest("idx"), tested = folder_.Evaluate(folder_ / "idx");

  UseArrays("file: \"SET-images.idx\"", "file: \"SET-labels.idx\"");
  EXPECT_EQ(folder_.Digest("named_idx", {"--device=sim"}), expected);

  for (const char* set : {"train", "test"}) {
    const std::string images = folder_.Images(set), labels = folder_.Labels(set);
    WriteBytes(folder_ / absl::StrCat(set, "-x.npy"),
               Npy("|u1", absl::StrCat("(", labels.size(), ", 12, 12, 3)"), images));
    std::string wide;
    for (const char label : labels) wide += std::string{label, 0, 0, 0};
    WriteBytes(folder_ / absl::StrCat(set, "-y"),
               Gzip(Npy("<i4", absl::StrCat("(", labels.size(), ",)"), wide)));
  }
  UseArrays("file: \"SET-x.npy\"", "file: \"SET-y\"");
  EXPECT_EQ(folder_.Digest("npy"), expected);
  EXPECT_EQ(folder_.Digest("npy_sim", {"--device=sim"}), expected);
  EXPECT_EQ(folder_.Evaluate(folder_ / "npy"), tested);

  ASSERT_NO_FATAL_FAILURE(WriteNpz());
  UseArrays("file: \"SET.npz\" entry: \"x\"", "file: \"SET.npz\" entry: \"y\"");
  Say("");
  EXPECT_EQ(folder_.Digest("npz"), expected);
  EXPECT_EQ(folder_.Digest("npz_sim", {"--device=sim"}), expected);
  // Train and test may differ in type: then no bytes go ahead.
  trainer_.test = absl::StrReplaceAll(trainer_.source,
                                      {{"file: \"SET.npz\" entry: \"x\"", "file: \"test-x.npy\""}});
  Say("");
  EXPECT_EQ(folder_.Digest("mixed", {"--device=sim"}), expected);
}

TEST_F(Arrays, NormalisesByChannel) {
  std::set<std::string> digests = {folder_.Digest("scalar")};
  Say("normalization { mean: [0.3, 0.3, 0.3] std: [0.3, 0.3, 0.3] }");
  EXPECT_TRUE(digests.contains(folder_.Digest("equal", {"--device=sim"})));
  Say("normalization { mean: [0.2, 0.3, 0.4] std: 0.3 input: \"image\" }");
  const std::string channels = folder_.Digest("channels");
  EXPECT_TRUE(digests.insert(channels).second);
  EXPECT_EQ(folder_.Digest("channels_sim", {"--device=sim"}), channels);
  EXPECT_EQ(folder_.Digest("set", {"--set=data.normalization.0.std=0.3,0.3,0.3"}), channels);
}

TEST_F(Arrays, AugmentationIsPartOfTheTheorems) {
  const std::string augmented =
      absl::StrCat(kNormalization, " augmentation { flip: true shift: 2 }");
  std::set<std::string> digests = {folder_.Digest("plain"),
                                   folder_.Digest("flipped", {"--set=data.augmentation.flip=true"}),
                                   folder_.Digest("shifted", {"--set=data.augmentation.shift=2"})};
  Say(augmented);
  const std::string straight = folder_.Digest("straight");
  digests.insert(straight);
  EXPECT_EQ(digests.size(), 4u);
  EXPECT_EQ(folder_.Digest("sim", {"--device=sim"}), straight);
  folder_.Digest("out", {"--steps=9"});
  EXPECT_EQ(folder_.Digest("out", {"--steps=20", "--resume=latest"}), straight);
  // Testing sees the samples as they are.
  const std::string tested = folder_.Evaluate(folder_ / "straight");
  Say(kNormalization);
  EXPECT_EQ(folder_.Evaluate(folder_ / "straight"), tested);

  Say(augmented);
  const auto losses = [&](int ranks) {
    const std::string out = absl::StrCat("ranks", ranks);
    folder_.Digest(out, {"--precision=F64", absl::StrCat("--ranks=", ranks)});
    return folder_.Metrics(out, "loss");
  };
  const std::vector<double> one = losses(1);
  for (const int ranks : {2, 3}) {
    EXPECT_LE(LargestRelativeDifference(losses(ranks), one), 1e-10);  // as in ranks_test
  }
}

}  // namespace
}  // namespace gyre
