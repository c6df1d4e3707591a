// A resumed run sums as its checkpoint did, unless its trainer names an algorithm.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/training/checkpoint/checkpoint.h"
#include "engine/training/run/run_start.h"
#include "engine/training/run/trainer.h"
#include "tests/data/temp_folder.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

// Rank 1 alone has the checkpoint; the others have no folder.
TEST(KeepAllreduce, TakesThatOfTheCheckpoint) {
  TrainerConfig none, named, served;
  named.mutable_distributed()->set_allreduce("auto");
  served.mutable_distributed()->set_sync(DistributedConfig::ASYNC);
  const struct {
    const char* recorded;
    const TrainerConfig& config;
    const char* resume;
    const char* algorithm;
  } cases[] = {{"ring", none, "latest", "ring"},
               {"ring", none, "auto", "ring"},
               {"ring, ranks on hosts 0 1 0", none, "latest", "ring"},
               {"shared, in halves", none, "latest", "shared"},
               {"auto: shared", none, "latest", "auto"},
               {"parameter server, async", none, "latest", "auto"},
               {"nccl", none, "latest", "auto"},  // not of this device
               {"ring", none, "", "auto"},
               {"ring", named, "latest", "auto"},
               {"ring", served, "latest", "auto"}};
  for (const auto& [recorded, config, resume, algorithm] : cases) {
    SCOPED_TRACE(absl::StrCat(recorded, ", --resume=", resume));
    const TempFolder folder;
    CheckpointStore store(folder / "rank1/checkpoints");
    CheckpointState state;
    state.set_step(5);
    (*state.mutable_choices())["allreduce"] = recorded;
    ASSERT_TRUE(store.MakeFolder().ok());
    ASSERT_TRUE(store.Publish(state, {}).ok());
    RunRanksOn("auto", 3, kPatienceMs, [&, resume = resume](ProcessGroup& group) {
      TrainingOptions options;
      options.out = folder / absl::StrCat("rank", group.rank());
      options.resume = resume;
      const absl::Status status = KeepAllreduce(config, options, DeviceKind::kCpu, group);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_EQ(group.algorithm(), algorithm);
      std::vector<float> data(1000, 1.0f);
      ASSERT_TRUE(group.Wait(group.Submit("data", View(data), nullptr)).ok());
      EXPECT_EQ(data, std::vector<float>(1000, 3.0f));
    });
  }
}

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [30] }
  input { name: "label" type: LABEL }
  layer { name: "fc" dense { outputs: 20 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

constexpr char kTrainer[] = R"(
  net: "net" batch: 6 steps: 10 checkpoint_every: 5
  optimizer { sgd {} } learning_rate { base: 0.1 }
  data { train { idx { images: "i" labels: "l" } } })";

class RandomSamples : public Dataset {
 public:
  RandomSamples() {
    std::mt19937 random(5);
    for (float& v : images_) v = std::normal_distribution<float>()(random);
    for (int32_t& v : labels_) v = static_cast<int32_t>(random() % 20);
  }
  int64_t size() const override { return kSize; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array) const override {
    if (array == 0) return Tensor{&images_[index * 30], arrays_[0].shape, DType::kF32};
    return Tensor{&labels_[index], arrays_[1].shape, DType::kI32};
  }

 private:
  static constexpr int64_t kSize = 24;
  const std::vector<DataArray> arrays_ = {
      {.input = "image", .file = "i", .shape = {30}, .dtype = DType::kF32},
      {.input = "label", .file = "l", .shape = {}, .dtype = DType::kI32}};
  mutable float images_[kSize * 30];
  mutable int32_t labels_[kSize];
};

// Three ranks that start with `algorithm`, in `out`, from what that holds.  The digest.
std::string Train(const std::string& algorithm, const std::string& out) {
  const auto trainer = ParseTrainerText(kTrainer, "trainer");
  const auto net = ParseNetText(kNet, "net");
  EXPECT_TRUE(trainer.ok() && net.ok()) << trainer.status() << net.status();
  const std::string resume = std::filesystem::exists(out) ? "latest" : "";
  std::string digest;
  RunRanksOn(algorithm, 3, kPatienceMs, [&](ProcessGroup& group) {
    const auto device = NewCpuDevice({.threads = 1});
    const Primitives primitives(device->kind(), 1);
    RunData data{std::make_unique<RandomSamples>(), nullptr, {}};
    data.feed = *FeedOf(*net, *trainer, data.train.get(), nullptr);
    TrainingOptions options;
    options.out = out;
    options.resume = resume;
    options.net_text = net->message->DebugString();
    options.trainer_text = trainer->message->DebugString();
    auto run =
        Trainer::Prepare(*trainer, *net, std::move(data), *device, primitives, group, options);
    ASSERT_TRUE(run.ok()) << run.status();
    const std::vector<std::string> warnings = (*run)->Summary(*net).warnings;
    EXPECT_THAT(warnings, Each(Not(HasSubstr("resumed with"))));
    EXPECT_THAT(warnings, Each(Not(HasSubstr("has changed"))));
    const auto trained = (*run)->Run();
    ASSERT_TRUE(trained.ok()) << trained.status();
    if (group.rank() == 0) digest = *trained;
  });
  return digest;
}

// As one of an earlier release, whose default was the ring, goes on with this one's.
TEST(KeepAllreduce, ARingsRunHasItsBitsAndNoWarning) {
  const TempFolder folder;
  const std::string straight = Train("ring", folder / "ring");
  EXPECT_NE(Train("auto", folder / "auto"), straight);  // or equality would prove nothing
  std::filesystem::remove_all(folder / "ring/checkpoints/step_00000010");
  EXPECT_EQ(Train("auto", folder / "ring"), straight);
}

}  // namespace
}  // namespace gyre
