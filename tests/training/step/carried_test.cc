// What layers carry from batch to batch: from step to step, skipped ones too, whatever the device.
// On any ranks, in any batches of a step, and through tests: end_to_end/runs/carried_test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "absl/strings/substitute.h"
#include "engine/training/step/training_step.h"
#include "models/schema/parse.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

constexpr int kClasses = 3, kChannels = 3;

// Two layers that carry, the first with `more`, over samples of so many times.
std::string NetText(int64_t times, const std::string& more = "") {
  return absl::Substitute(R"(
    name: "t"
    input { name: "x" dims: [$0, 3] }
    input { name: "label" type: LABEL }
    layer { name: "low" rnn { hidden: 5 carry: true $1 } }
    layer { name: "high" lstm { hidden: 4 layers: 2 carry: true } }
    layer { name: "end" slice { axis: 1 begin: -1 } }
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 3 } }
    layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })",
                          times, more);
}
constexpr char kFrozen[] =
    "weight { learning_rate_multiplier: 0 } recurrent { learning_rate_multiplier: 0 } "
    "bias { learning_rate_multiplier: 0 }";

struct Options {
  int64_t times = 4, batch = 6, accumulate = 1, steps = 5;
  int ranks = 1;
  DType dtype = DType::kF64;
  double learning_rate = 0.5;
  std::string more = {};
  std::function<std::unique_ptr<Device>(int rank)> device = [](int) { return NewCpuDevice({}); };
  LossScale loss_scale = {};
};

// By state, then row of a step's.
using Rows = std::map<std::string, std::map<int64_t, std::vector<double>>>;

struct Outcome {
  std::vector<double> losses;  // by iteration, of all ranks
  std::string digest;
  Rows rows;
  int64_t skipped = 0;  // steps
};

void AddRows(const Net& net, Stream& stream, Rows& to) {
  for (const Net::Carried& carried : net.carried()) {
    const Tensor& all = carried.rows;
    std::vector<std::byte> bytes(all.bytes());
    ASSERT_TRUE(stream.Copy(bytes.data(), all.data, bytes.size()).ok());
    ASSERT_TRUE(stream.Synchronize().ok());
    const int axis = carried.batch_axis;
    const int64_t rows = all.shape[axis], inner = all.shape.elements(axis + 1, all.shape.rank());
    VisitReal(all.dtype, [&]<typename T>() {
      const T* values = reinterpret_cast<const T*>(bytes.data());
      for (int64_t i = 0; i < all.elements(); ++i) {
        const int64_t row = carried.first + i / inner % rows;
        EXPECT_LT(row, carried.all_rows);
        to[carried.name][row].push_back(static_cast<double>(values[i]));
      }
    });
  }
}

// Of sample `row` at that time of its sequence.
double Value(int64_t row, int64_t time, int channel) {
  std::mt19937 random(static_cast<unsigned>((row * 1000 + time) * kChannels + channel));
  return std::normal_distribution<double>()(random);
}

// A rank's batch at a position: each row of a step goes on in a sequence of its own.
struct Fed {
  Buffer memory;
  Batch batch;
};
Fed Feed(const Net& net, Device& device, int64_t position, int64_t rows, int64_t times) {
  Fed fed;
  std::vector<Tensor> arrays = BatchArrays(net.plan());
  fed.memory = *Buffer::Allocate(device, MemoryKind::kPinnedHost, BatchBytes(arrays));
  fed.batch = BatchAt(fed.memory.data(), std::move(arrays));
  const RunShape& shape = net.plan().spec.shape;
  const Share share = ShareOf(shape.global, shape.rank, shape.ranks);
  fed.batch.first_position = position + share.first;
  for (int64_t i = 0; i < share.count; ++i) {
    const int64_t row = (position + share.first + i) % rows;
    const int64_t first = (position + share.first + i) / rows * times;
    for (int64_t k = 0; k < times * kChannels; ++k) {
      const double value = Value(row, first + k / kChannels, static_cast<int>(k % kChannels));
      const int64_t at = i * times * kChannels + k;
      if (fed.batch.arrays[0].dtype == DType::kF64) {
        fed.batch.arrays[0].as<double>()[at] = value;
      } else {
        fed.batch.arrays[0].as<float>()[at] = static_cast<float>(value);
      }
    }
    fed.batch.arrays[1].as<int32_t>()[i] = static_cast<int32_t>(row % kClasses);
    fed.batch.samples.push_back(row);
  }
  return fed;
}

void TrainRank(const Options& o, ProcessGroup& communication, Outcome& outcome) {
  const Parsed<NetConfig> net = *ParseNetText(NetText(o.times, o.more), "n");
  const std::unique_ptr<Device> device = o.device(communication.rank());
  const Primitives primitives(device->kind(), 1);
  OptimizerConfig sgd;
  sgd.mutable_sgd()->set_momentum(0.9);
  const auto optimizer = NewOptimizer(sgd);
  auto plan = *PlanModel(
      net, {.shape = {.global = o.batch,
                      .rank = communication.rank(),
                      .ranks = communication.size(),
                      .accumulate = o.accumulate,
                      .compute = o.dtype,
                      .loss_scale = o.loss_scale},
            .slots = optimizer->slot_names(),
            .bucket_bytes = 64,
            .feed = FeedOn(device->kind(),
                           {.inputs = {{.name = "x"}, {.name = "label", .label = true}}}),
            .primitives = &primitives});
  const auto stream = *device->NewStream();
  const auto model = *Model::Create(std::move(plan), *device, *stream, &communication);
  ASSERT_TRUE(model->Initialize(*stream).ok());
  std::vector<Fed> batches;
  for (int64_t i = 0; i < o.steps * o.accumulate; ++i) {
    batches.push_back(Feed(model->train(), *device, i * o.batch, o.batch * o.accumulate, o.times));
  }
  const auto step = *TrainingStep::Create(*model, *optimizer, *device, *stream, communication);
  const auto finish = [&] {
    const Tensor metrics = step->Finish().value();
    std::vector<double> sums(metrics.as<double>(), metrics.as<double>() + 1);
    ASSERT_TRUE(communication.Sum("loss", sums).ok());
    outcome.losses.push_back(sums[0]);
  };
  for (int64_t i = 0; i < std::ssize(batches); ++i) {
    const bool update = (i + 1) % o.accumulate == 0;
    ASSERT_TRUE(step->Start(batches[i].batch, i / o.accumulate,
                            update ? std::optional(o.learning_rate) : std::nullopt)
                    .ok());
    if (step->in_flight() == kMostStepsInFlight) finish();
  }
  while (step->in_flight() > 0) finish();
  AddRows(model->train(), *stream, outcome.rows);
  outcome.skipped = step->loss_scale().skipped;
  outcome.digest = *model->Sha256OfWeights(*stream);
}

// What all ranks have together; the losses and the digest of the first.
Outcome Train(const Options& options) {
  std::vector<Outcome> outcomes(static_cast<size_t>(options.ranks));
  RunRanksOn("ring", options.ranks, 20'000, [&](ProcessGroup& communication) {
    TrainRank(options, communication, outcomes[communication.rank()]);
  });
  for (size_t r = 1; r < outcomes.size(); ++r) {
    for (auto& [name, rows] : outcomes[r].rows) {
      for (auto& [row, values] : rows) {
        EXPECT_TRUE(outcomes[0].rows[name].emplace(row, values).second) << name << " " << row;
      }
    }
  }
  return outcomes[0];
}

void ExpectNear(const Rows& a, const Rows& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, rows] : a) {
    ASSERT_TRUE(b.contains(name)) << name;
    ASSERT_EQ(rows.size(), b.at(name).size()) << name;
    for (const auto& [row, values] : rows) {
      ASSERT_THAT(b.at(name).at(row), testing::Pointwise(testing::DoubleNear(tolerance), values))
          << name << " row " << row;
    }
  }
}

// Nothing is learnt here, so that two steps see what one twice as long does.
TEST(Carried, AStepGoesOnWhereTheOneBeforeEnded) {
  for (const std::string more : {"", kFrozen}) {  // which has no backward
    for (const int64_t accumulate : {1, 3}) {
      const Options options{.batch = 2, .accumulate = accumulate, .learning_rate = 0, .more = more};
      const auto after = [&](int64_t times, int64_t steps) {
        Options other = options;
        other.times = times;
        other.steps = steps;
        return Train(other);
      };
      const Outcome whole = after(12, 1);
      ASSERT_EQ(whole.rows.size(), 5u);  // "low" has h, each layer of "high" h and c
      EXPECT_EQ(whole.rows.begin()->second.size(), 2 * accumulate);
      ExpectNear(after(4, 3).rows, whole.rows, 1e-12);
      ExpectNear(after(1, 12).rows, whole.rows, 1e-12);
      EXPECT_NEAR(after(4, 3).losses.back(), whole.losses.back(), 1e-12);
    }
  }
}

// A gradient that overflows leaves the weights as they are; the sequences go on all the same.
TEST(Carried, ASkippedStepGoesOnInItsSequences) {
  for (const int ranks : {1, 3}) {
    Options options{.steps = 3, .ranks = ranks, .dtype = DType::kF16, .learning_rate = 0};
    const Outcome still = Train(options);
    options.learning_rate = 0.5;
    options.loss_scale = {0x1p60, 100};
    const Outcome skipped = Train(options);
    EXPECT_EQ(skipped.skipped, 3);
    EXPECT_EQ(skipped.digest, still.digest);
    EXPECT_EQ(skipped.rows, still.rows);
    EXPECT_EQ(skipped.losses, still.losses);
  }
}

TEST(Carried, DelaysInStreamsChangeNoBits) {
  for (const int64_t accumulate : {1, 2}) {
    Options options{.batch = 4, .accumulate = accumulate, .dtype = DType::kF32};
    const Outcome expected = Train(options);
    for (uint64_t seed = 1; seed <= 3; ++seed) {
      options.device = [seed](int) { return NewSimDevice({.threads = 1, .delay_seed = seed}); };
      const Outcome outcome = Train(options);
      EXPECT_EQ(outcome.digest, expected.digest);
      EXPECT_EQ(outcome.rows, expected.rows);
      EXPECT_EQ(outcome.losses, expected.losses);
    }
  }
}

}  // namespace
}  // namespace gyre
