// The loss's scale: powers of two change no bit, a step that overflows on one rank is skipped by
// all as if it had not been, and a run that goes on goes on with it.  How the scale moves:
// update_gate_test.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/training/feed/data_feed.h"
#include "tests/data/temp_folder.h"
#include "tests/training/run/run_on_threads.h"

namespace gyre {
namespace {

constexpr char kNet[] = R"(
  name: "t"
  input { name: "x" dims: 3 }
  input { name: "y" dims: 2 }
  layer { name: "fc1" input: "x" dense { outputs: 4 } }
  layer { name: "fc2" dense { outputs: 2 } }
  layer { name: "loss" input: ["fc2", "y"] mean_squared_error {} })";
constexpr float kInf = std::numeric_limits<float>::infinity();

struct Training {
  LossScale loss_scale = {};
  int ranks = 1;
  int64_t steps = 12;
  std::function<bool(int64_t step)> overflows = [](int64_t) { return false; };
  bool leaves_out = false;  // what overflows is not there at all
  std::string optimizer = "sgd { momentum: 0.9 }";
  std::optional<double> clip_norm = {};
  int64_t accumulate = 1;
  bool shard = false;
  DeviceKind device = DeviceKind::kCpu;
  DType compute = DType::kF32;
};

struct Outcome {
  absl::Status status;
  std::string digest;
  std::vector<LossScaleState> states;  // after each step
};

// One rank's part.  Of an iteration that overflows a sample that one rank has is infinite.
Outcome Train(ProcessGroup& communication, const Training& run) {
  constexpr int64_t kBatch = 7;
  const auto net = *ParseNetText(kNet, "test.textproto");
  OptimizerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(run.optimizer, &config));
  const auto optimizer = NewOptimizer(config);
  const int rank = communication.rank();
  const auto device =
      run.device == DeviceKind::kCpu
          ? NewCpuDevice({.threads = 1})
          : NewSimDevice({.threads = 1, .delay_seed = static_cast<uint64_t>(rank) + 1});
  const Primitives primitives(device->kind(), 1);
  Feed feed;
  feed.inputs = {{.name = "x"}, {.name = "y"}};
  auto plan = *PlanModel(net, {.shape = {.global = kBatch,
                                         .rank = rank,
                                         .ranks = communication.size(),
                                         .accumulate = run.accumulate,
                                         .compute = run.compute,
                                         .shard_optimizer = run.shard,
                                         .loss_scale = run.loss_scale,
                                         .clip_norm = run.clip_norm},
                               .slots = optimizer->slot_names(),
                               .bucket_bytes = 32,
                               .feed = feed,
                               .primitives = &primitives});
  const auto stream = *device->NewStream();
  const auto model = *Model::Create(std::move(plan), *device, *stream, &communication);
  EXPECT_TRUE(model->Initialize(*stream).ok());

  const Share share = ShareOf(kBatch, rank, communication.size());
  Batch batches[kMostStepsInFlight + 1];
  std::vector<Buffer> memory;
  for (Batch& batch : batches) {
    std::vector<Tensor> arrays = BatchArrays(model->train().plan());
    memory.push_back(*Buffer::Allocate(*device, MemoryKind::kPinnedHost, BatchBytes(arrays)));
    batch = BatchAt(memory.back().data(), std::move(arrays));
  }
  Outcome outcome;
  const auto step = *TrainingStep::Create(*model, *optimizer, *device, *stream, communication);
  const auto finish = [&] {
    outcome.status = step->Finish().status();
    outcome.states.push_back(step->loss_scale());
    return outcome.status.ok();
  };
  int64_t number = 0;
  for (int64_t s = 0; s < run.steps; ++s) {
    if (run.leaves_out && run.overflows(s)) continue;
    for (int64_t b = 0; b < run.accumulate; ++b) {
      Batch& batch = batches[(number * run.accumulate + b) % std::size(batches)];
      batch.first_position = (s * run.accumulate + b) * kBatch + share.first;
      batch.samples.resize(static_cast<size_t>(share.count));
      for (int64_t i = 0; i < share.count; ++i) {
        const int64_t sample = share.first + i;
        for (int64_t k = 0; k < 3; ++k) {
          batch.arrays[0].as<float>()[3 * i + k] =
              static_cast<float>(std::sin(s * 31 + b * 17 + sample * 5 + k));
        }
        for (int64_t k = 0; k < 2; ++k) {
          batch.arrays[1].as<float>()[2 * i + k] =
              static_cast<float>(std::cos(s + b + sample * 3 + k));
        }
        const bool bad = run.overflows(s) && b == 0 && sample == s % kBatch;
        if (bad) batch.arrays[0].as<float>()[3 * i] = kInf;
      }
      const bool update = b + 1 == run.accumulate;
      EXPECT_TRUE(step->Start(batch, number, update ? std::optional(0.1) : std::nullopt).ok());
      if (step->in_flight() == kMostStepsInFlight && !finish()) return outcome;
    }
    ++number;
  }
  while (step->in_flight() > 0) {
    if (!finish()) return outcome;
  }
  // Of the iterations that end a step.
  for (int64_t s = 0; s < number; ++s) {
    outcome.states[s] = outcome.states[(s + 1) * run.accumulate - 1];
  }
  outcome.states.resize(static_cast<size_t>(number));
  outcome.digest = *model->Sha256OfWeights(*stream);
  return outcome;
}

std::vector<Outcome> TrainRanks(const Training& run) {
  std::vector<Outcome> outcomes(static_cast<size_t>(run.ranks));
  RunRanksOn("direct", run.ranks, 20'000, [&](ProcessGroup& communication) {
    outcomes[communication.rank()] = Train(communication, run);
  });
  return outcomes;
}

bool Now(int64_t step) { return step % 5 == 1 || step == 7; }

constexpr LossScale kDynamic = {.initial = 65536, .growth_interval = 3};

TEST(LossScale, PowersOfTwoChangeNoBits) {
  for (const char* optimizer : {"sgd { momentum: 0.9 }", "adam {}"}) {
    for (const int ranks : {1, 3}) {
      Training run = {.ranks = ranks, .optimizer = optimizer, .clip_norm = {}};
      for (const std::optional<double> clip_norm : {std::optional<double>(), std::optional(0.01)}) {
        run.clip_norm = clip_norm;
        run.loss_scale = {};
        const std::string expected = TrainRanks(run)[0].digest;
        for (const LossScale scale :
             {LossScale{1024}, LossScale{0.25}, LossScale{65536, 4}, LossScale{1, 1}}) {
          run.loss_scale = scale;
          EXPECT_EQ(TrainRanks(run)[0].digest, expected)
              << optimizer << ", scale " << scale.initial;
        }
        run.loss_scale = {10};
        const Outcome ten = TrainRanks(run)[0];
        EXPECT_TRUE(ten.status.ok()) << ten.status;
        EXPECT_NE(ten.digest, expected);
      }
    }
  }
}

// Weights, momentum, moments and their bias: all of them, with what decides when an update comes.
TEST(LossScale, ASkippedStepIsAsIfItHadNotBeen) {
  const Training runs[] = {
      {},
      {.optimizer = "adam {}"},
      {.optimizer = "adamw {} weight_decay: 0.1", .device = DeviceKind::kSim},
      {.ranks = 2, .optimizer = "adam {}", .clip_norm = 0.01},
      {.ranks = 3, .accumulate = 2},
      {.ranks = 3, .optimizer = "adam {}", .shard = true},
      {.ranks = 2, .accumulate = 3, .shard = true, .device = DeviceKind::kSim},
      {.optimizer = "adam {}", .compute = DType::kBF16},
      {.ranks = 3, .accumulate = 2, .shard = true, .compute = DType::kBF16},
  };
  for (Training run : runs) {
    run.overflows = Now;
    run.leaves_out = true;
    const std::string expected = TrainRanks(run)[0].digest;
    run.leaves_out = false;
    run.loss_scale = kDynamic;
    for (const Outcome& outcome : TrainRanks(run)) {
      EXPECT_TRUE(outcome.status.ok()) << outcome.status;
      EXPECT_EQ(outcome.digest, expected) << run.optimizer << ", " << run.ranks << " ranks";
      ASSERT_EQ(outcome.states.size(), static_cast<size_t>(run.steps));
      EXPECT_EQ(outcome.states.back().skipped, 4);
    }
  }
}

TEST(LossScale, WithoutAnEndOfOverflowsTheRunEnds) {
  for (const int ranks : {1, 2}) {
    const Training run = {
        .loss_scale = {1, 100}, .ranks = ranks, .steps = 40, .overflows = [](int64_t step) {
          return step > 1;
        }};
    for (const Outcome& outcome : TrainRanks(run)) {
      EXPECT_EQ(outcome.states.size(), 2u + 25);
      EXPECT_EQ(outcome.status.message(),
                "a gradient is not finite, of however small a loss scale: one of fc2.weight; lower "
                "learning_rate.base, warm up, or set optimizer.clip_norm");
    }
  }
  const Training fixed = {.loss_scale = {1024}, .overflows = Now};
  EXPECT_EQ(TrainRanks(fixed)[0].status.message(),
            "a gradient is not finite: one of fc2.weight; lower loss_scale.fixed, or give "
            "loss_scale.dynamic; or lower learning_rate.base, warm up, or set optimizer.clip_norm");
}

// Each 13th sample is so large that its loss and gradients are infinite, whatever the scale.
std::unique_ptr<Dataset> Samples() {
  auto samples = std::make_unique<SamplesInMemory>(50);
  samples->Add<float>("x", {3}, [](int64_t at) {
    return at / 3 % 13 == 5 ? 3e38 : std::sin(static_cast<double>(at));
  });
  samples->Add<float>("y", {2}, [](int64_t at) { return static_cast<double>(at / 2 % 3 - 1); });
  return samples;
}

class LossScaleOfARun : public testing::Test {
 protected:
  static constexpr int kSteps = 40;

  // The digest, from a checkpoint of that step of another run.
  std::string Train(const std::string& out, int ranks, int64_t step = 0, const char* from = "",
                    const std::vector<std::string>& sets = {}) {
    WriteBytes(folder_ / "trainer", absl::StrCat(R"(
      net: "net" batch: 5 accumulate: 2 steps: )",
                                                 kSteps, R"( checkpoint_every: 7
      keep_checkpoints: 100 optimizer { adam {} } loss_scale { dynamic { growth_interval: 3 } }
      learning_rate { base: 0.01 warmup_steps: 5 cosine {} epoch_decay: 0.5 rank_damping: 4
                      batch_scaling { base_batch: 5 rule: SQUARE_ROOT } }
      distributed { allreduce: "direct" }
      data { train { arrays { array { input: "x" file: "x" } array { input: "y" file: "y" } } } })"));
    TrainingOptions options;
    options.out = folder_ / out;
    if (step > 0)
      options.resume = folder_ / absl::StrFormat("%s/checkpoints/step_%08d", from, step);
    const auto trainer = *ParseTrainer(folder_ / "trainer", sets);
    const auto net = *ParseNetText(kNet, "net");
    const auto digests = TrainOnThreads({trainer, net, Samples, options, ranks});
    statuses_.clear();
    for (const auto& digest : digests) statuses_.push_back(digest.status());
    return digests[0].value_or("");
  }

  TempFolder folder_;
  std::vector<absl::Status> statuses_;  // of the last run, by rank
};

TEST_F(LossScaleOfARun, GoesOnFromACheckpoint) {
  const std::vector<std::string> names = {"step", "loss_scale", "skipped_steps", "learning_rate"};
  const std::string straight = Train("straight", 1);
  const auto expected = NumbersOf(folder_ / "straight", names);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  EXPECT_GT(expected.back()[2], 10);
  EXPECT_LT(expected.back()[2], 35);
  for (const int64_t step : {7, 14, 28}) {
    const std::string out = absl::StrCat("from", step);
    EXPECT_EQ(Train(out, 1, step, "straight"), straight);
    EXPECT_EQ(NumbersOf(folder_ / out, names),
              std::vector(expected.begin() + step, expected.end()));
  }
  // On other ranks, too, and their rate is damped: of 1 of 4 by 1.25, of 3 by 1.75.
  Train("three", 3, 14, "straight");
  auto damped = std::vector(expected.begin() + 14, expected.end());
  for (std::vector<double>& numbers : damped) numbers[3] *= 1.25 / 1.75;
  const auto three = NumbersOf(folder_ / "three", names);
  ASSERT_EQ(three.size(), damped.size());
  for (size_t i = 0; i < three.size(); ++i) {
    for (int k = 0; k < 3; ++k) EXPECT_EQ(three[i][k], damped[i][k]) << names[k] << ", line " << i;
    EXPECT_NEAR(three[i][3], damped[i][3], 1e-12 * damped[i][3]);
  }
}

// All ranks find it, those that only serve at once, the others a step later.
TEST_F(LossScaleOfARun, WithoutADynamicOneEndsByAServer) {
  for (const int servers : {0, 1, 2}) {
    for (const int accumulate : {1, 2}) {
      Train(
          absl::StrCat("ends", servers, accumulate), 2 + servers, 0, "",
          {"loss_scale.fixed=2", "optimizer.clip_norm=1", "distributed.sync=BSP",
           absl::StrCat("accumulate=", accumulate), absl::StrCat("distributed.servers=", servers)});
      for (const absl::Status& status : statuses_) {
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
        EXPECT_THAT(status.message(), testing::HasSubstr("not finite"));
      }
    }
  }
}

}  // namespace
}  // namespace gyre
