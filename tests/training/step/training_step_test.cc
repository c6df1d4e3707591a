// Training steps on a device that reports late: random delays in every stream change no bit, with
// and without clipping, on one rank and on ranks as threads.
#include "engine/training/step/training_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>

#include "models/schema/parse.h"
#include "tests/distributed/process_group_ranks.h"
#include "tests/sanitized.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [6, 6, 1] }
  input { name: "label" type: LABEL }
  layer { name: "conv" conv2d { filters: 3 kernel: 3 } }
  layer { name: "relu" relu {} }
  layer { name: "pool" pool2d { kernel: 2 } }
  layer { name: "drop" dropout { rate: 0.2 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc1" dense { outputs: 7 } }
  layer { name: "fc2" dense { outputs: 4 } }
  layer { name: "loss" input: "fc2" input: "label" softmax_cross_entropy { ignore_label: 3 } })";
constexpr int64_t kBatch = 5;
constexpr int kSteps = 7;  // each lane's first, captured and replayed ones

OptimizerConfig Momentum() {
  OptimizerConfig config;
  config.mutable_sgd()->set_momentum(0.9f);
  return config;
}

constexpr uint8_t kNaN = 255;

// Pixels stand for random numbers, and one for none.
Feed RandomValues(const NetConfig& net) {
  Feed feed = FeedOfBytes(net);
  std::mt19937 random(7);
  for (double& value : feed.inputs[0].pixel_values) {
    value = std::normal_distribution<double>()(random);
  }
  feed.inputs[0].pixel_values[kNaN] = std::numeric_limits<double>::quiet_NaN();
  return feed;
}

absl::StatusOr<ModelPlan> Plan(const Parsed<NetConfig>& net, DeviceKind device, int rank, int ranks,
                               DType dtype, const Primitives& primitives, int64_t accumulate = 1,
                               bool shard = false, size_t capacity_bytes = ~size_t{0},
                               std::optional<double> clip_norm = {}) {
  return PlanModel(net, {.shape = {.global = kBatch,
                                   .rank = rank,
                                   .ranks = ranks,
                                   .accumulate = accumulate,
                                   .compute = dtype,
                                   .seed = 3,
                                   .shard_optimizer = shard,
                                   .clip_norm = clip_norm},
                         .slots = NewOptimizer(Momentum())->slot_names(),
                         .bucket_bytes = 64,
                         .feed = FeedOn(device, RandomValues(*net.message)),
                         .capacity_bytes = capacity_bytes,
                         .pages = {.planner = PlannerOn(device)},
                         .primitives = &primitives});
}

struct Outcome {
  absl::Status status;
  int finished = 0;  // iterations before an error
  std::string digest;
  double loss = 0;  // this rank's sum
  bool planned_anew = false;
};

constexpr int kNever = -1;

// Trains a few steps on one rank of `communication`; from the poisoned one on there is a NaN where
// the last of a window is its maximum.
Outcome Train(ProcessGroup& communication, Device* device, const Primitives& primitives,
              DType dtype, std::optional<double> clip_norm, int poisoned_step = kNever,
              int64_t accumulate = 1, bool shard = false) {
  Outcome outcome;
  const auto net = ParseNetText(kNet, "test.textproto");
  EXPECT_TRUE(net.ok()) << net.status();
  const auto optimizer = NewOptimizer(Momentum());
  auto plan = Plan(*net, device->kind(), communication.rank(), communication.size(), dtype,
                   primitives, accumulate, shard, device->capacity_bytes(), clip_norm);
  EXPECT_TRUE(plan.ok()) << plan.status();
  const auto stream = *device->NewStream();
  const auto model = *Model::Create(*std::move(plan), *device, *stream, &communication);
  EXPECT_TRUE(model->Initialize(*stream).ok());
  EXPECT_EQ(model->one_copy(),
            shard && communication.size() > 1 && device->kind() == DeviceKind::kCpu);

  const Share share = ShareOf(kBatch, communication.rank(), communication.size());
  const Tensor input = model->train().input(0);
  std::vector<uint8_t> images(static_cast<size_t>(input.elements()));
  std::vector<Tensor> arrays = BatchArrays(model->train().plan());
  const Buffer memory = *Buffer::Allocate(*device, MemoryKind::kPinnedHost, BatchBytes(arrays));
  Batch batch = BatchAt(memory.data(), std::move(arrays));
  const int64_t pixels = input.elements() / share.count;
  for (int64_t i = 0; i < share.count; ++i) {
    std::mt19937 random(static_cast<unsigned>(share.first + i));
    for (int64_t k = 0; k < pixels; ++k) {
      images[i * pixels + k] = static_cast<uint8_t>(random() % kNaN);
    }
    batch.arrays[1].as<int32_t>()[i] = static_cast<int32_t>(random() % 4);
    batch.samples.push_back(share.first + i);
  }
  const Tensor to = batch.arrays[0];
  const std::vector<double>& values = model->plan().options.feed.inputs[0].pixel_values;
  const auto value = [&](uint8_t pixel) { return values[pixel]; };
  if (to.dtype == DType::kU8) std::ranges::copy(images, to.as<uint8_t>());
  if (to.dtype == DType::kF64) std::ranges::transform(images, to.as<double>(), value);
  if (to.dtype == DType::kF32) std::ranges::transform(images, to.as<float>(), value);
  const auto poison = [&] {
    if (to.dtype == DType::kU8) to.as<uint8_t>()[35] = kNaN;
    if (to.dtype == DType::kF64) to.as<double>()[35] = value(kNaN);
    if (to.dtype == DType::kF32) to.as<float>()[35] = static_cast<float>(value(kNaN));
  };
  // After the batch: steps in flight end before its memory does.
  auto step = *TrainingStep::Create(*model, *optimizer, *device, *stream, communication);
  for (int64_t i = 0; i < kSteps * accumulate; ++i) {
    batch.first_position = i * kBatch + share.first;
    if (i == poisoned_step) poison();
    const bool update = (i + 1) % accumulate == 0;
    const double learning_rate = 0.1 / static_cast<double>(1 + i);
    EXPECT_TRUE(
        step->Start(batch, i / accumulate, update ? std::optional(learning_rate) : std::nullopt)
            .ok());
    const bool last = i + 1 == kSteps * accumulate;
    while (step->in_flight() == kMostStepsInFlight || (last && step->in_flight() > 0)) {
      const absl::StatusOr<Tensor> metrics = step->Finish();
      outcome.status = metrics.status();
      if (!metrics.ok()) return outcome;
      ++outcome.finished;
      outcome.loss = metrics->as<double>()[0];
    }
    if (!model->plan().pages() || communication.size() > 1 || i + 1 != 4 * accumulate) continue;
    while (step->in_flight() > 0) EXPECT_TRUE(step->Finish().ok());
    // As if that had been measured: other steps are the long ones than the plan thought.
    std::vector<double> seconds(model->plan().train->trace.trace.steps.size());
    std::mt19937 random(17);
    for (double& one : seconds) one = static_cast<double>(random() % 100) * 1e-6;
    const absl::StatusOr<bool> anew = model->PlanPagesAnew(*stream, seconds);
    EXPECT_TRUE(anew.ok()) << anew.status();
    if (!*anew) continue;
    outcome.planned_anew = true;
    step = *TrainingStep::Create(*model, *optimizer, *device, *stream, communication);
  }
  outcome.digest = *model->Sha256OfWeights(*stream);
  return outcome;
}

using MakeDevice = std::function<std::unique_ptr<Device>(int rank)>;

// in_place: gradients are summed in device memory instead of through pinned copies.
std::vector<Outcome> TrainRanks(int ranks, const MakeDevice& make, DType dtype,
                                std::optional<double> clip_norm, int poisoned_rank = -1,
                                bool in_place = false, int64_t accumulate = 1,
                                const char* allreduce = "ring", int poisoned_step = 0,
                                bool shard = false) {
  std::vector<Outcome> outcomes(static_cast<size_t>(ranks));
  std::vector<std::unique_ptr<Device>> devices(outcomes.size());  // which groups may use
  RunRanksOn(allreduce, ranks, 20'000, [&](ProcessGroup& communication) {
    const int r = communication.rank();
    const std::unique_ptr<Device>& device = devices[r] = make(r);
    if (in_place) {
      EXPECT_TRUE(communication.UseDevice(*device).ok());
    }
    outcomes[r] = Train(communication, device.get(), Primitives(device->kind(), 1), dtype,
                        clip_norm, r == poisoned_rank ? poisoned_step : kNever, accumulate, shard);
  });
  return outcomes;
}

std::unique_ptr<Device> Cpu(int) { return NewCpuDevice({.threads = 1}); }
MakeDevice Sim(uint64_t seed) {
  return [seed](int rank) {
    return NewSimDevice({.threads = 1, .delay_seed = seed * 10 + static_cast<uint64_t>(rank)});
  };
}

// On sim; with GYRE_TEST_DEVICE=cuda, on the GPU, where sums have another order.
TEST(TrainingStep, AnyDeviceTrainsAsACpuDoes) {
  const TestDevice opened = OpenTestDevice(NamedDevice().value_or(DeviceKind::kSim));
  const auto communication = GroupOfOne();
  const auto train = [&](DType dtype, std::optional<double> clip_norm, bool poison) {
    return Train(*communication, opened.device.get(), *opened.primitives, dtype, clip_norm,
                 poison ? 0 : kNever);
  };
  for (const std::optional<double> clip_norm : {std::optional<double>(), std::optional(0.5)}) {
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      const Outcome expected = TrainRanks(1, Cpu, dtype, clip_norm)[0];
      const Outcome once = train(dtype, clip_norm, false), again = train(dtype, clip_norm, false);
      ASSERT_TRUE(once.status.ok()) << once.status;
      // Of the last step: all parameters of the steps before are in it.
      EXPECT_NEAR(once.loss, expected.loss, expected.loss * (dtype == DType::kF64 ? 1e-12 : 1e-4));
      EXPECT_EQ(once.digest, again.digest);
      EXPECT_EQ(once.loss, again.loss);
      EXPECT_EQ(train(dtype, clip_norm, true).status.message(),
                TrainRanks(1, Cpu, dtype, clip_norm, /*poisoned_rank=*/0)[0].status.message());
    }
  }
}

// Where several batches add up, gradients are in device memory from one to the next, and each lane
// has two graphs.
TEST(TrainingStep, DelaysInStreamsChangeNoBits) {
  for (const auto& [ranks, accumulate, dtype, seeds] :
       {std::tuple(1, 1, DType::kF32, 10), std::tuple(1, 1, DType::kF64, 10),
        std::tuple(1, 3, DType::kF32, 3), std::tuple(2, 3, DType::kF32, 3),
        std::tuple(2, 1, DType::kF32, 4), std::tuple(3, 1, DType::kF32, 4)}) {
    for (const std::optional<double> clip_norm : {std::optional<double>(), std::optional(0.5)}) {
      const auto train = [&, ranks = ranks, accumulate = accumulate, dtype = dtype](
                             const MakeDevice& make, bool in_place) {
        return TrainRanks(ranks, make, dtype, clip_norm, /*poisoned_rank=*/-1, in_place,
                          accumulate);
      };
      const std::vector<Outcome> expected = train(Cpu, false);
      for (int seed = 1; seed <= (kSanitized ? std::min(seeds, 2) : seeds); ++seed) {
        const bool in_place = ranks > 1 && accumulate == 1 && seed % 2 == 0;
        const std::vector<Outcome> outcomes = train(Sim(static_cast<uint64_t>(seed)), in_place);
        for (size_t r = 0; r < outcomes.size(); ++r) {
          ASSERT_TRUE(outcomes[r].status.ok()) << outcomes[r].status;
          EXPECT_EQ(outcomes[r].digest, expected[0].digest) << ranks << " ranks, seed " << seed;
          EXPECT_EQ(outcomes[r].loss, expected[r].loss);
        }
      }
    }
  }
}

// The digest after one step of a batch, seen `times` times; each has a power of two's part in it.
std::string StepOfBatches(int64_t times, DType dtype) {
  const auto net = ParseNetText(R"(input { name: "x" dims: 3 } input { name: "label" type: LABEL }
                                   layer { name: "fc" dense { outputs: 4 } }
                                   layer { name: "loss" input: ["fc", "label"]
                                           softmax_cross_entropy {} })",
                                "net");
  const auto device = NewCpuDevice({.threads = 1});
  const Primitives primitives(device->kind(), 1);
  const auto communication = GroupOfOne();
  const auto optimizer = NewOptimizer(Momentum());
  auto plan = PlanModel(*net, {.shape = {.global = 2, .accumulate = times, .compute = dtype},
                               .slots = optimizer->slot_names(),
                               .feed = FeedOfBytes(*net->message),
                               .primitives = &primitives});
  const auto stream = *device->NewStream();
  const auto model = *Model::Create(*std::move(plan), *device, *stream);
  EXPECT_TRUE(model->Initialize(*stream).ok());
  std::vector<Tensor> arrays = BatchArrays(model->train().plan());
  const Buffer memory = *Buffer::Allocate(*device, MemoryKind::kPinnedHost, BatchBytes(arrays));
  Batch batch = BatchAt(memory.data(), std::move(arrays));
  for (int i = 0; i < 6; ++i) batch.arrays[0].as<float>()[i] = 0.3F * static_cast<float>(i) - 1;
  for (int i = 0; i < 2; ++i) batch.arrays[1].as<int32_t>()[i] = i;
  batch.samples = {0, 1};
  const auto step = *TrainingStep::Create(*model, *optimizer, *device, *stream, *communication);
  for (int64_t i = 0; i < times; ++i) {
    EXPECT_TRUE(step->Start(batch, 0, i + 1 == times ? std::optional(0.5) : std::nullopt).ok());
    EXPECT_TRUE(step->Finish().ok());
  }
  return *model->Sha256OfWeights(*stream);
}

// In F32 sums of so many numbers of BF16 are exact; in BF16 the 257th of equal ones would vanish.
TEST(TrainingStep, AMeanOfManyBatchesIsInF32) {
  EXPECT_EQ(StepOfBatches(1024, DType::kBF16), StepOfBatches(1, DType::kBF16));
}

// On devices that hold what the plan says and no more.
TEST(TrainingStep, RanksThatShareOutTheOptimizerChangeNoBits) {
  const Parsed<NetConfig> net = *ParseNetText(kNet, "test.textproto");
  const Primitives primitives(DeviceKind::kSim, 1);
  for (const auto& [ranks, accumulate, clip_norm] :
       {std::tuple(2, 1, std::optional<double>()), std::tuple(3, 2, std::optional<double>(0.5)),
        std::tuple(5, 1, std::optional<double>(0.5))}) {
    const auto train = [&](const MakeDevice& make, bool shard) {
      return TrainRanks(ranks, make, DType::kF32, clip_norm, /*poisoned_rank=*/-1,
                        /*in_place=*/false, accumulate, "direct", /*poisoned_step=*/0, shard);
    };
    const std::string expected = train(Cpu, false)[0].digest;
    EXPECT_EQ(train(Cpu, true)[0].digest, expected);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const auto sim = [&](int rank) {
        const ModelPlan whole =
            *Plan(net, DeviceKind::kSim, rank, ranks, DType::kF32, primitives, accumulate);
        const ModelPlan plan = *Plan(net, DeviceKind::kSim, rank, ranks, DType::kF32, primitives,
                                     accumulate, /*shard=*/true);
        // Padding, and a rank's element more than another's, in each of some ten buckets.
        EXPECT_LE(plan.slot_bytes(), whole.slot_bytes() / ranks + 20 * sizeof(float));
        return NewSimDevice({.capacity_bytes = plan.device_bytes() + plan.communication_bytes(),
                             .delay_seed = seed * 10 + static_cast<uint64_t>(rank)});
      };
      for (const Outcome& outcome : train(sim, true)) {
        ASSERT_TRUE(outcome.status.ok()) << outcome.status;
        EXPECT_EQ(outcome.digest, expected) << ranks << " ranks, seed " << seed;
      }
    }
  }
}

// On devices that hold the largest step and no more, or some more.
TEST(TrainingStep, PagingChangesNoBits) {
  const Parsed<NetConfig> net = *ParseNetText(kNet, "test.textproto");
  const Primitives primitives(DeviceKind::kSim, 1);
  std::atomic<size_t> repeats = 0;
  bool planned_anew = false;
  const std::optional<double> clip = 0.5, none = {};
  for (const auto& [ranks, accumulate, clip_norm, shard, allreduce] :
       {std::tuple(1, 1, none, false, "direct"), std::tuple(1, 2, none, false, "direct"),
        std::tuple(1, 3, clip, false, "direct"), std::tuple(1, 5, clip, false, "direct"),
        std::tuple(2, 1, none, false, "direct"), std::tuple(2, 3, none, false, "shared"),
        std::tuple(3, 1, clip, false, "recursive_doubling"), std::tuple(3, 2, clip, false, "ring"),
        std::tuple(2, 2, clip, true, "direct"), std::tuple(3, 1, none, true, "direct"),
        std::tuple(3, 2, none, true, "ring")}) {
    const auto train = [&](const MakeDevice& make) {
      return TrainRanks(ranks, make, DType::kF32, clip_norm, /*poisoned_rank=*/-1,
                        /*in_place=*/false, accumulate, allreduce, /*poisoned_step=*/0, shard);
    };
    const std::string expected = train(Cpu)[0].digest;
    for (const double share : kSanitized ? std::vector{0.2} : std::vector{0.0, 0.2, 0.6}) {
      for (uint64_t seed = 1; seed <= (kSanitized ? 1 : 2); ++seed) {
        const auto sim = [&](int rank) {
          const auto plan = [&](size_t capacity) {
            return *Plan(net, DeviceKind::kSim, rank, ranks, DType::kF32, primitives, accumulate,
                         shard, capacity, clip_norm);
          };
          const ModelPlan resident = plan(~size_t{0});
          const size_t least = LeastCapacity(resident);
          const double more = share * static_cast<double>(resident.resident_bytes - least);
          const size_t capacity = least + static_cast<size_t>(more);
          const ModelPlan paged = plan(capacity);
          EXPECT_GT(paged.train->paging->fetched_bytes, 0u);
          repeats += paged.train->paging->order.size() - paged.train->trace.trace.steps.size();
          EXPECT_EQ(paged.communication_bytes(), 0u);
          EXPECT_LE(paged.device_bytes(), capacity);
          return NewSimDevice(
              {.capacity_bytes = capacity, .delay_seed = seed * 10 + static_cast<uint64_t>(rank)});
        };
        for (const Outcome& outcome : train(sim)) {
          ASSERT_TRUE(outcome.status.ok()) << outcome.status;
          EXPECT_EQ(outcome.digest, expected) << ranks << " ranks, seed " << seed;
          planned_anew |= outcome.planned_anew;
        }
      }
    }
  }
  EXPECT_GT(repeats, 0u);
  EXPECT_TRUE(planned_anew);
}

// A norm that clips nothing holds every update back until all sums are there; without it each waits
// for its own.
TEST(TrainingStep, WhenABucketIsUpdatedChangesNoBits) {
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t accumulate : {1, 2}) {
      const auto train = [&](std::optional<double> clip_norm) {
        const Outcome outcome = TrainRanks(ranks, Cpu, DType::kF32, clip_norm, /*poisoned_rank=*/-1,
                                           /*in_place=*/false, accumulate)[0];
        EXPECT_TRUE(outcome.status.ok()) << outcome.status;
        return outcome.digest;
      };
      EXPECT_EQ(train(std::nullopt), train(1e9)) << ranks << " ranks";
    }
  }
}

TEST(TrainingStep, ANaNOnOneRankStopsAllInItsStepWithTheSameReason) {
  for (const std::optional<double> clip_norm : {std::optional<double>(), std::optional(0.5)}) {
    for (const int step : {0, 3, kSteps - 1}) {
      for (const Outcome& outcome :
           TrainRanks(3, Cpu, DType::kF32, clip_norm, /*poisoned_rank=*/1, /*in_place=*/false,
                      /*accumulate=*/1, "ring", step)) {
        EXPECT_EQ(outcome.finished, step);
        EXPECT_EQ(outcome.status.message(),
                  "a gradient is not finite: one of fc2.weight; lower learning_rate.base, warm up, "
                  "or set optimizer.clip_norm");
      }
    }
  }
}

}  // namespace
}  // namespace gyre
