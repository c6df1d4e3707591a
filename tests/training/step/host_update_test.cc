// Updates that a plan has on the host, on pages, with random delays in every stream of `sim`: the
// bits of those on a device that holds all.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/training/optimizers/optimizer.h"
#include "engine/training/step/training_step.h"
#include "models/schema/parse.h"
#include "tests/distributed/process_group_ranks.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

constexpr char kNet[] = R"(
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
constexpr int64_t kBatch = 3;
constexpr int kSteps = 6;

struct Case {
  const char* name;
  OptimizerConfig optimizer;
  DType dtype = DType::kF32;
  int64_t accumulate = 1;
};

OptimizerConfig Config(const std::function<void(OptimizerConfig&)>& set) {
  OptimizerConfig config;
  config.set_weight_decay(0.01);
  set(config);
  return config;
}

ModelOptions OptionsOf(const Case& of, const NetConfig& net, const Primitives& primitives) {
  // So slow that any copy that is saved counts.
  const PagingCosts costs = {
      .to_device_bytes_per_s = 1e7, .to_host_bytes_per_s = 1e7, .host_step_bytes_per_s = 1e12};
  return {.shape = {.global = kBatch, .accumulate = of.accumulate, .compute = of.dtype, .seed = 5},
          .slots = NewOptimizer(of.optimizer)->slot_names(),
          .bucket_bytes = 4096,
          .feed = FeedOn(DeviceKind::kSim, FeedOfBytes(net)),
          .pages = {.planner = PlannerKind::kAuto},
          .paging = costs,
          .primitives = &primitives};
}

// The digest of what some steps make, with rates of their own.  hosted: updates on the host.
std::string Train(const Case& of, size_t capacity_bytes, uint64_t delay_seed, size_t* hosted) {
  const auto net = *ParseNetText(kNet, "test.textproto");
  const Primitives primitives(DeviceKind::kSim, 1);
  ModelOptions options = OptionsOf(of, *net.message, primitives);
  options.capacity_bytes = capacity_bytes;
  auto plan = PlanModel(net, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  *hosted = plan->pages() ? plan->train->paging->host_steps.size() : 0;
  const auto device = NewSimDevice({.delay_seed = delay_seed});
  const auto stream = *device->NewStream();
  const auto communication = GroupOfOne();
  const auto model = *Model::Create(*std::move(plan), *device, *stream, communication.get());
  EXPECT_TRUE(model->Initialize(*stream).ok());
  const auto optimizer = NewOptimizer(of.optimizer);
  std::vector<Tensor> arrays = BatchArrays(model->train().plan());
  const Buffer memory = *Buffer::Allocate(*device, MemoryKind::kPinnedHost, BatchBytes(arrays));
  Batch batch = BatchAt(memory.data(), std::move(arrays));
  std::mt19937 random(1);
  for (int64_t i = 0; i < batch.arrays[0].elements(); ++i) {
    batch.arrays[0].as<uint8_t>()[i] = static_cast<uint8_t>(random());
  }
  for (int64_t i = 0; i < kBatch; ++i) {
    batch.arrays[1].as<int32_t>()[i] = static_cast<int32_t>(random() % 10);
    batch.samples.push_back(i);
  }
  auto step = *TrainingStep::Create(*model, *optimizer, *device, *stream, *communication);
  for (int64_t i = 0; i < kSteps * of.accumulate; ++i) {
    const bool update = (i + 1) % of.accumulate == 0;
    const double rate = 0.1 / static_cast<double>(1 + i);
    batch.first_position = i * kBatch;
    EXPECT_TRUE(
        step->Start(batch, i / of.accumulate, update ? std::optional(rate) : std::nullopt).ok());
    if (step->in_flight() == kMostStepsInFlight) {
      EXPECT_TRUE(step->Finish().ok());
    }
  }
  while (step->in_flight() > 0) EXPECT_TRUE(step->Finish().ok());
  step.reset();  // before updates that are under way
  return *model->Sha256OfWeights(*stream);
}

class HostUpdate : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    , HostUpdate,
    testing::Values(Case{"Momentum", Config([](auto& c) { c.mutable_sgd()->set_momentum(0.9); })},
                    Case{"Adam", Config([](auto& c) { c.mutable_adam(); })},
                    Case{"AdamW", Config([](auto& c) { c.mutable_adamw(); })},
                    Case{"AdamInBF16", Config([](auto& c) { c.mutable_adam(); }), DType::kBF16},
                    Case{"AdamOfTwoBatches", Config([](auto& c) { c.mutable_adam(); }), DType::kF32,
                         2}),
    [](const auto& of) { return of.param.name; });

TEST_P(HostUpdate, ChangesNoBits) {
  const auto net = *ParseNetText(kNet, "test.textproto");
  const Primitives primitives(DeviceKind::kSim, 1);
  const auto plan = PlanModel(net, OptionsOf(GetParam(), *net.message, primitives));
  ASSERT_TRUE(plan.ok()) << plan.status();
  size_t hosted = 0;
  const std::string expected = Train(GetParam(), ~size_t{0}, 0, &hosted);
  EXPECT_EQ(hosted, 0u);
  const size_t least = LeastCapacity(*plan), resident = plan->resident_bytes;
  size_t most = 0;
  for (const size_t capacity : {least, least + (resident - least) / 3}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      EXPECT_EQ(Train(GetParam(), capacity, seed, &hosted), expected) << capacity << " " << seed;
      most = std::max(most, hosted);
    }
  }
  EXPECT_GT(most, 0u);
}

// Which clipping and a dynamic loss scale hold up until all gradients are known, on the device.
TEST(HostUpdates, AreNotBehindAGate) {
  const auto net = *ParseNetText(kNet, "test.textproto");
  const Primitives primitives(DeviceKind::kSim, 1);
  const Case momentum{"", Config([](auto& c) { c.mutable_sgd()->set_momentum(0.9); })};
  ModelOptions options = OptionsOf(momentum, *net.message, primitives);
  options.shape.clip_norm = 1;
  options.capacity_bytes = LeastCapacity(*PlanModel(net, options));
  const auto plan = PlanModel(net, options);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_TRUE(plan->pages());
  EXPECT_TRUE(plan->train->paging->host_steps.empty());
}

}  // namespace
}  // namespace gyre
