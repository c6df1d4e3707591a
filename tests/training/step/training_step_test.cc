// Training steps on a device that reports late: random delays in every stream change no bit, with
// and without clipping, on one rank and on ranks as threads, resident, paged, and with updates on
// the host.
#include "engine/training/step/training_step.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <string>

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
// Whose updates pay on the host.
constexpr char kWideNet[] = R"(
  name: "wide"
  input { name: "image" dims: [9, 9, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" flatten {} }
  layer { name: "fc1" dense { outputs: 93 } }
  layer { name: "relu" relu {} }
  layer { name: "fc2" dense { outputs: 130 } }
  layer { name: "fc3" dense { outputs: 61 } }
  layer { name: "fc4" dense { outputs: 10 } }
  layer { name: "loss" input: "fc4" input: "label" softmax_cross_entropy {} })";
// Without chance.
constexpr char kLinearNet[] = R"(
  input { name: "image" dims: [6, 6, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 4 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";
constexpr int64_t kBatch = 5;
constexpr int kSteps = 7;  // each lane's first, captured and replayed ones

OptimizerConfig Config(const std::string& text) {
  OptimizerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
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

struct Setting {
  int ranks = 1;
  int64_t accumulate = 1;
  DType dtype = DType::kF32;
  std::optional<double> clip_norm = {};
  const char* allreduce = "ring";
  bool shard = false;
  bool in_place = false;   // gradients are summed in device memory, not through pinned copies
  int poisoned_rank = -1;  // from a step on: a NaN where the last of a window is its maximum
  int poisoned_step = 0;
  const char* net = kNet;
  const char* optimizer = "sgd { momentum: 0.9 }";
  size_t bucket_bytes = 64;
  PagingCosts costs = {};
};

// Parsed once.  Plans point to it.
const Parsed<NetConfig>& NetOf(const std::string& text) {
  static std::mutex mutex;
  static auto* const nets = new std::map<std::string, Parsed<NetConfig>>;
  const std::lock_guard lock(mutex);
  auto at = nets->find(text);
  if (at == nets->end()) at = nets->emplace(text, *ParseNetText(text, "test.textproto")).first;
  return at->second;
}

absl::StatusOr<ModelPlan> Plan(const Setting& of, DeviceKind device, int rank,
                               const Primitives& primitives, size_t capacity_bytes = ~size_t{0}) {
  const Parsed<NetConfig>& net = NetOf(of.net);
  return PlanModel(
      net, {.shape = {.global = kBatch,
                      .rank = rank,
                      .ranks = of.ranks,
                      .accumulate = of.accumulate,
                      .compute = of.dtype,
                      .seed = 3,
                      .shard_optimizer = of.shard,
                      .clip_norm = of.clip_norm,
                      .scales_by_norms = NewOptimizer(Config(of.optimizer))->scales_by_norms()},
            .slots = NewOptimizer(Config(of.optimizer))->slot_names(),
            .bucket_bytes = of.bucket_bytes,
            .feed = FeedOn(device, RandomValues(*net.message)),
            .capacity_bytes = capacity_bytes,
            .pages = {.planner = PlannerOn(device)},
            .paging = of.costs,
            .primitives = &primitives});
}

struct Outcome {
  absl::Status status;
  int finished = 0;  // iterations before an error
  std::string digest;
  double loss = 0;  // this rank's sum
  bool planned_anew = false;
};

// Trains a few steps on one rank of `communication`.
Outcome Train(const Setting& of, ProcessGroup& communication, Device* device,
              const Primitives& primitives) {
  Outcome outcome;
  const int64_t accumulate = of.accumulate;
  const auto optimizer = NewOptimizer(Config(of.optimizer));
  auto plan = *Plan(of, device->kind(), communication.rank(), primitives, device->capacity_bytes());
  const auto stream = *device->NewStream();
  const auto model = *Model::Create(std::move(plan), *device, *stream, &communication);
  EXPECT_TRUE(model->Initialize(*stream).ok());
  EXPECT_EQ(model->one_copy(),
            of.shard && communication.size() > 1 && device->kind() == DeviceKind::kCpu);

  const Share share = ShareOf(kBatch, communication.rank(), communication.size());
  const Tensor input = model->train().input(0);
  std::vector<Tensor> arrays = BatchArrays(model->train().plan());
  const Buffer memory = *Buffer::Allocate(*device, MemoryKind::kPinnedHost, BatchBytes(arrays));
  Batch batch = BatchAt(memory.data(), std::move(arrays));
  const std::vector<double>& values = model->plan().options.feed.inputs[0].pixel_values;
  const auto set = [&](int64_t at, uint8_t pixel) {
    const Tensor& to = batch.arrays[0];
    if (to.dtype == DType::kU8) to.as<uint8_t>()[at] = pixel;
    if (to.dtype == DType::kF64) to.as<double>()[at] = values[pixel];
    if (to.dtype == DType::kF32) to.as<float>()[at] = static_cast<float>(values[pixel]);
  };
  const int64_t pixels = input.elements() / share.count;
  for (int64_t i = 0; i < share.count; ++i) {
    std::mt19937 random(static_cast<unsigned>(share.first + i));
    for (int64_t k = 0; k < pixels; ++k) set(i * pixels + k, static_cast<uint8_t>(random() % kNaN));
    batch.arrays[1].as<int32_t>()[i] = static_cast<int32_t>(random() % 4);
    batch.samples.push_back(share.first + i);
  }
  // After the batch: steps in flight end before its memory does.
  auto step = *TrainingStep::Create(*model, *optimizer, *device, *stream, communication);
  for (int64_t i = 0; i < kSteps * accumulate; ++i) {
    batch.first_position = i * kBatch + share.first;
    if (communication.rank() == of.poisoned_rank && i == of.poisoned_step) set(35, kNaN);
    const bool update = (i + 1) % accumulate == 0;
    const double learning_rate = 0.1 / static_cast<double>(1 + i / accumulate);
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
    if (!model->PlanPagesAnew(*stream, seconds).value()) continue;
    outcome.planned_anew = true;
    step = *TrainingStep::Create(*model, *optimizer, *device, *stream, communication);
  }
  if (of.ranks == 1) step.reset();  // before host updates that are under way
  outcome.digest = *model->Sha256OfWeights(*stream);
  return outcome;
}

using MakeDevice = std::function<std::unique_ptr<Device>(int rank)>;

std::unique_ptr<Device> Cpu(int) { return NewCpuDevice({.threads = 1}); }
MakeDevice Sim(uint64_t seed, size_t capacity_bytes = size_t{1} << 30) {
  return [=](int rank) {
    return NewSimDevice({.threads = 1,
                         .capacity_bytes = capacity_bytes,
                         .delay_seed = seed * 10 + static_cast<uint64_t>(rank)});
  };
}

std::vector<Outcome> TrainRanks(const Setting& of, const MakeDevice& make = Cpu) {
  std::vector<Outcome> outcomes(static_cast<size_t>(of.ranks));
  std::vector<std::unique_ptr<Device>> devices(outcomes.size());  // which groups may use
  RunRanksOn(of.allreduce, of.ranks, 20'000, [&](ProcessGroup& communication) {
    const int r = communication.rank();
    const std::unique_ptr<Device>& device = devices[r] = make(r);
    if (of.in_place) {
      EXPECT_TRUE(communication.UseDevice(*device).ok());
    }
    outcomes[r] = Train(of, communication, device.get(), Primitives(device->kind(), 1));
  });
  return outcomes;
}

constexpr std::optional<double> kNorms[] = {std::nullopt, 0.5};

// On sim; with GYRE_TEST_DEVICE=cuda, on the GPU, where sums have another order.
TEST(TrainingStep, AnyDeviceTrainsAsACpuDoes) {
  const TestDevice opened = OpenTestDevice(NamedDevice().value_or(DeviceKind::kSim));
  const auto communication = GroupOfOne();
  const auto train = [&](const Setting& setting) {
    return Train(setting, *communication, opened.device.get(), *opened.primitives);
  };
  for (const std::optional<double> clip_norm : kNorms) {
    for (const DType dtype : {DType::kF64, DType::kF32}) {
      Setting setting = {.dtype = dtype, .clip_norm = clip_norm};
      const Outcome expected = TrainRanks(setting)[0];
      const Outcome once = train(setting), again = train(setting);
      ASSERT_TRUE(once.status.ok()) << once.status;
      // Of the last step: all parameters of the steps before are in it.
      EXPECT_NEAR(once.loss, expected.loss, expected.loss * (dtype == DType::kF64 ? 1e-12 : 1e-4));
      EXPECT_EQ(once.digest, again.digest);
      EXPECT_EQ(once.loss, again.loss);
      setting.poisoned_rank = 0;
      EXPECT_EQ(train(setting).status.message(), TrainRanks(setting)[0].status.message());
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
    for (const std::optional<double> clip_norm : kNorms) {
      Setting setting = {
          .ranks = ranks, .accumulate = accumulate, .dtype = dtype, .clip_norm = clip_norm};
      const std::vector<Outcome> expected = TrainRanks(setting);
      for (int seed = 1; seed <= (kSanitized ? std::min(seeds, 2) : seeds); ++seed) {
        setting.in_place = ranks > 1 && accumulate == 1 && seed % 2 == 0;
        const std::vector<Outcome> outcomes = TrainRanks(setting, Sim(static_cast<uint64_t>(seed)));
        for (size_t r = 0; r < outcomes.size(); ++r) {
          ASSERT_TRUE(outcomes[r].status.ok()) << outcomes[r].status;
          EXPECT_EQ(outcomes[r].digest, expected[0].digest) << ranks << " ranks, seed " << seed;
          EXPECT_EQ(outcomes[r].loss, expected[r].loss);
        }
      }
    }
  }
}

// The same batch again and again, of which each time has a power of two's part in the mean.  In F32
// sums of so many numbers of BF16 are exact; in BF16 the 257th of equal ones would vanish.
TEST(TrainingStep, AMeanOfManyBatchesIsInF32) {
  const auto train = [](int64_t accumulate) {
    return TrainRanks({.accumulate = accumulate, .dtype = DType::kBF16, .net = kLinearNet})[0]
        .digest;
  };
  EXPECT_EQ(train(512), train(1));
}

// Of buckets of several parameters, which shards cut.
TEST(TrainingStep, RanksThatScaleByNormsChangeNoBits) {
  for (const char* const optimizer : {"lamb {} weight_decay: 0.01", "lars { momentum: 0.5 }"}) {
    for (const int ranks : {2, 3}) {
      Setting setting = {.ranks = ranks,
                         .allreduce = "direct",
                         .net = kWideNet,
                         .optimizer = optimizer,
                         .bucket_bytes = 40000};
      const Outcome expected = TrainRanks(setting)[0];
      ASSERT_TRUE(expected.status.ok()) << expected.status;
      setting.clip_norm = 1e6;  // at a gate, without effect
      EXPECT_EQ(TrainRanks(setting)[0].digest, expected.digest) << optimizer;
      setting.shard = true;
      EXPECT_EQ(TrainRanks(setting)[0].digest, expected.digest) << optimizer;
      EXPECT_EQ(TrainRanks(setting, Sim(1))[0].digest, expected.digest) << optimizer;
    }
  }
}

// On devices that hold what the plan says and no more.
TEST(TrainingStep, RanksThatShareOutTheOptimizerChangeNoBits) {
  const Primitives primitives(DeviceKind::kSim, 1);
  for (const auto& [ranks, accumulate, clip_norm] :
       {std::tuple(2, 1, kNorms[0]), std::tuple(3, 2, kNorms[1]), std::tuple(5, 1, kNorms[1])}) {
    const Setting whole = {
        .ranks = ranks, .accumulate = accumulate, .clip_norm = clip_norm, .allreduce = "direct"};
    Setting shared = whole;
    shared.shard = true;
    const std::string expected = TrainRanks(whole)[0].digest;
    EXPECT_EQ(TrainRanks(shared)[0].digest, expected);
    for (uint64_t seed = 1; seed <= 2; ++seed) {
      const auto sim = [&, ranks = ranks](int rank) {
        const ModelPlan of_whole = *Plan(whole, DeviceKind::kSim, rank, primitives);
        const ModelPlan plan = *Plan(shared, DeviceKind::kSim, rank, primitives);
        // Padding, and a rank's element more than another's, in each of some ten buckets.
        EXPECT_LE(plan.slot_bytes(), of_whole.slot_bytes() / ranks + 20 * sizeof(float));
        return Sim(seed, plan.device_bytes() + plan.communication_bytes())(rank);
      };
      for (const Outcome& outcome : TrainRanks(shared, sim)) {
        ASSERT_TRUE(outcome.status.ok()) << outcome.status;
        EXPECT_EQ(outcome.digest, expected) << ranks << " ranks, seed " << seed;
      }
    }
  }
}

// On devices that hold the largest step and no more, or some more.
TEST(TrainingStep, PagingChangesNoBits) {
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
    const Setting setting = {.ranks = ranks,
                             .accumulate = accumulate,
                             .clip_norm = clip_norm,
                             .allreduce = allreduce,
                             .shard = shard};
    const std::string expected = TrainRanks(setting)[0].digest;
    for (const double share : kSanitized ? std::vector{0.2} : std::vector{0.0, 0.2, 0.6}) {
      for (uint64_t seed = 1; seed <= (kSanitized ? 1 : 2); ++seed) {
        const auto sim = [&](int rank) {
          const ModelPlan resident = *Plan(setting, DeviceKind::kSim, rank, primitives);
          const size_t least = LeastCapacity(resident);
          const double more = share * static_cast<double>(resident.resident_bytes - least);
          const size_t capacity = least + static_cast<size_t>(more);
          const ModelPlan paged = *Plan(setting, DeviceKind::kSim, rank, primitives, capacity);
          EXPECT_GT(paged.train->paging->fetched_bytes, 0u);
          repeats += paged.train->paging->order.size() - paged.train->trace.trace.steps.size();
          EXPECT_EQ(paged.communication_bytes(), 0u);
          EXPECT_LE(paged.device_bytes(), capacity);
          return Sim(seed, capacity)(rank);
        };
        for (const Outcome& outcome : TrainRanks(setting, sim)) {
          ASSERT_TRUE(outcome.status.ok()) << outcome.status;
          EXPECT_EQ(outcome.digest, expected) << setting.ranks << " ranks, seed " << seed;
          planned_anew |= outcome.planned_anew;
        }
      }
    }
  }
  EXPECT_GT(repeats, 0u);
  EXPECT_TRUE(planned_anew);
}

// Copies so slow that any of them that is saved counts.
constexpr PagingCosts kSlowCopies = {
    .to_device_bytes_per_s = 1e7, .to_host_bytes_per_s = 1e7, .host_step_bytes_per_s = 1e12};

// Updates that a plan has on the host, on pages.
TEST(TrainingStep, HostUpdatesChangeNoBits) {
  const Primitives primitives(DeviceKind::kSim, 1);
  for (const auto& [optimizer, dtype, accumulate] :
       {std::tuple("sgd { momentum: 0.9 } weight_decay: 0.01", DType::kF32, 1),
        std::tuple("adam {} weight_decay: 0.01", DType::kF32, 2),
        std::tuple("adamw {} weight_decay: 0.01", DType::kF32, 1),
        std::tuple("adam {} weight_decay: 0.01", DType::kBF16, 1)}) {
    const Setting setting = {.accumulate = accumulate,
                             .dtype = dtype,
                             .net = kWideNet,
                             .optimizer = optimizer,
                             .bucket_bytes = 4096,
                             .costs = kSlowCopies};
    const ModelPlan whole = *Plan(setting, DeviceKind::kSim, 0, primitives);
    const std::string expected = TrainRanks(setting, Sim(0))[0].digest;
    const size_t least = LeastCapacity(whole);
    size_t hosted = 0;
    for (const size_t capacity : {least, least + (whole.resident_bytes - least) / 3}) {
      hosted += Plan(setting, DeviceKind::kSim, 0, primitives, capacity)
                    ->train->paging->host_steps.size();
      for (uint64_t seed = 1; seed <= (kSanitized ? 2 : 6); ++seed) {
        EXPECT_EQ(TrainRanks(setting, Sim(seed, capacity))[0].digest, expected)
            << optimizer << ", " << capacity << " bytes, seed " << seed;
      }
    }
    EXPECT_GT(hosted, 0u) << optimizer;
  }
}

// Clipping and a dynamic loss scale hold updates up until all gradients are known, on the device.
TEST(TrainingStep, HostUpdatesAreNotBehindAGate) {
  const Primitives primitives(DeviceKind::kSim, 1);
  const Setting clipped = {
      .clip_norm = 1, .net = kWideNet, .bucket_bytes = 4096, .costs = kSlowCopies};
  const size_t least = LeastCapacity(*Plan(clipped, DeviceKind::kSim, 0, primitives));
  const auto plan = Plan(clipped, DeviceKind::kSim, 0, primitives, least).value();
  ASSERT_TRUE(plan.pages());
  EXPECT_TRUE(plan.train->paging->host_steps.empty());
}

TEST(TrainingStep, ANaNOnOneRankStopsAllInItsStepWithTheSameReason) {
  for (const std::optional<double> clip_norm : kNorms) {
    for (const int step : {0, 3, kSteps - 1}) {
      for (const Outcome& outcome : TrainRanks(
               {.ranks = 3, .clip_norm = clip_norm, .poisoned_rank = 1, .poisoned_step = step})) {
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
