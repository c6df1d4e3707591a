// Runs of 16 bits with masters of F32: resumed = straight, sharded = whole, weights that
// go to other precisions and back, and losses as F32 has them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;

const SyntheticData kData{.samples = 97};
constexpr int64_t kTestSamples = 43;
constexpr char kSizes[] = "batch: 17 test_batch: 7 evaluate_every: 100 steps: 1";

// Of the tensors in the newest checkpoint, in the order of their names.
std::string DigestOfFile(const std::string& run, int64_t step) {
  const auto file =
      *TensorFile::Read(absl::StrFormat("%s/checkpoints/step_%08d/weights.safetensors", run, step));
  std::map<std::string, Tensor> tensors;
  for (const NamedTensor& named : file.tensors()) tensors[named.name] = named.tensor;
  Sha256Digest digest;
  for (const auto& [name, tensor] : tensors) {
    digest.Add({static_cast<const char*>(tensor.data), tensor.bytes()});
  }
  return digest.Hex();
}

class Precision : public testing::TestWithParam<const char*> {
 protected:
  Precision() { Write("adam {}"); }

  void Write(const std::string& optimizer) {
    WriteTrainer(folder_ / "", ConvNetText(kData),
                 {.optimizer = optimizer,
                  .rest = absl::StrCat(kSizes, " distributed { allreduce: \"direct\" }")});
  }

  std::string Digest(const std::string& out, std::vector<std::string> more, int ranks = 1) const {
    more.push_back(absl::StrCat("--precision=", GetParam()));
    return folder_.Digest(out, more, {.ranks = ranks});
  }

  TrainingFolder folder_{kData, kTestSamples};
};

INSTANTIATE_TEST_SUITE_P(, Precision, testing::Values("BF16", "F16"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(Precision, DigestIsOfWhatFilesHold) {
  const std::string mixed = "--set=net.layer.fc1.precision=F32";
  for (const char* device : {"cpu", "sim"}) {
    const std::string told =
        Digest(device, {"--steps=3", mixed, absl::StrCat("--device=", device)});
    EXPECT_EQ(told, DigestOfFile(folder_ / device, 3));
  }
  // Buckets of several masters, which lie in another order than names, on no rank whole.
  const std::string told = Digest("shared", {"--steps=3", mixed, "--shard_optimizer"}, 2);
  EXPECT_EQ(told, DigestOfFile(folder_ / "shared", 3));
}

// One layer of F32 among them has conversions around it, and a bucket of its own.
TEST_P(Precision, ResumedIsStraight) {
  const std::string mixed = "--set=net.layer.fc1.precision=F32";
  const std::string straight = Digest("straight", {"--steps=20", mixed});
  Digest("parts", {"--steps=9", mixed});
  EXPECT_EQ(Digest("parts", {"--steps=20", mixed, "--resume=latest"}), straight);
  EXPECT_EQ(Digest("sim", {"--steps=20", mixed, "--device=sim"}), straight);
  EXPECT_NE(Digest("whole", {"--steps=20"}), straight);
}

TEST_P(Precision, ShardedIsWholeAndResumesToo) {
  Write("adam {} clip_norm: 0.5");
  const auto digest = [&](const char* out, const std::vector<std::string>& more) {
    return Digest(out, Joined(more, {"--set=distributed.bucket_bytes=300", "--set=accumulate=2"}),
                  3);
  };
  const std::string whole = digest("whole", {"--steps=6"});
  EXPECT_EQ(digest("sharded", {"--steps=6", "--shard_optimizer"}), whole);
  digest("parts", {"--steps=3", "--shard_optimizer"});
  EXPECT_EQ(digest("parts", {"--steps=6", "--shard_optimizer", "--resume=latest"}), whole);
}

// A rate of 0 leaves weights as they came: what files hold is the masters', of F32.
TEST_P(Precision, WeightsPassBetweenPrecisions) {
  const std::string still = "--set=learning_rate.base=0";
  const auto weights = [&](const char* out) { return absl::StrCat("--weights=", folder_ / out); };
  const std::string of_f32 = folder_.Digest("F32", {"--steps=5", "--precision=F32"});
  EXPECT_EQ(Digest("still", {"--steps=1", still, weights("F32")}), of_f32);
  const std::string moved = Digest("moved", {"--steps=5", weights("F32")});
  EXPECT_NE(moved, of_f32);
  EXPECT_EQ(folder_.Digest("back", {"--steps=1", "--precision=F32", still, weights("moved")}),
            moved);
  const auto loss = [&](const char* precision) {
    const std::string text =
        folder_.Evaluate(folder_ / "moved", {absl::StrCat("--precision=", precision)});
    return std::stod(text.substr(std::string("test loss ").size()));
  };
  EXPECT_NEAR(loss(GetParam()), loss("F32"), 0.01);
}

TEST_P(Precision, LearnsAsF32Does) {
  Write("sgd { momentum: 0.9 }");
  folder_.Digest("F32", {"--steps=150"});
  Digest("16", {"--steps=150"});
  const auto mean = [&](const char* out, size_t first, size_t last) {
    const std::vector<double> losses = folder_.Metrics(out, "loss");
    return std::accumulate(losses.begin() + first, losses.begin() + last, 0.0) / (last - first);
  };
  const double start = mean("F32", 0, 10), wide = mean("F32", 100, 150);
  EXPECT_LT(wide, 0.5 * start);  // it learns
  EXPECT_NEAR(mean("16", 100, 150), wide, 0.05 * start);
}

}  // namespace
}  // namespace gyre
