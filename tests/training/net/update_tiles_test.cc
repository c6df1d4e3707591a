// Into how many steps updates are cut where nets page.

#include <gtest/gtest.h>

#include <set>

#include "engine/training/feed/data_feed.h"
#include "engine/training/model/model.h"
#include "models/schema/parse.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

// Of fc2's weight, beside which the layer's values are few.
constexpr char kNet[] = R"(
  name: "wide"
  input { name: "image" dims: [20, 20, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" flatten {} }
  layer { name: "fc1" dense { outputs: 200 } }
  layer { name: "relu" relu {} }
  layer { name: "fc2" dense { outputs: 600 } }
  layer { name: "fc3" dense { outputs: 10 } }
  layer { name: "loss" input: "fc3" input: "label" softmax_cross_entropy {} })";

// With activations that leave little freedom beside its gradients.
constexpr char kConvNet[] = R"(
  name: "deep"
  input { name: "image" dims: [28, 28, 1] }
  input { name: "label" type: LABEL }
  layer { name: "conv1" conv2d { filters: 20 kernel: 5 } }
  layer { name: "pool1" pool2d { kind: MAX kernel: 2 stride: 2 } }
  layer { name: "conv2" conv2d { filters: 50 kernel: 5 } }
  layer { name: "pool2" pool2d { kind: MAX kernel: 2 stride: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc1" dense { outputs: 500 } }
  layer { name: "relu1" relu {} }
  layer { name: "fc2" dense { outputs: 10 } }
  layer { name: "loss" input: "fc2" input: "label" softmax_cross_entropy {} })";

ModelPlan Plan(int slots, DType dtype, PlannerKind planner = PlannerKind::kAuto, int ranks = 1,
               const char* net_text = kNet, int64_t batch = 60) {
  static std::vector<std::unique_ptr<Parsed<NetConfig>>> nets;  // that plans point to
  static const Primitives primitives(DeviceKind::kSim, 1);
  nets.push_back(std::make_unique<Parsed<NetConfig>>(*ParseNetText(net_text, "test.textproto")));
  const NetConfig& net = *nets.back()->message;
  return *PlanModel(*nets.back(), {.shape = {.global = batch, .ranks = ranks, .compute = dtype},
                                   .slots = std::vector<std::string>(slots, "slot"),
                                   .bucket_bytes = 4096,
                                   .feed = FeedOn(DeviceKind::kSim, FeedOfBytes(net)),
                                   .pages = {.planner = planner},
                                   .primitives = &primitives});
}

// What a step touches, without what is there anyhow.
size_t Touched(const AccessTrace& trace, const TraceStep& step) {
  std::set<std::pair<bool, int>> blocks;  // groups, and states
  size_t bytes = 0;
  for (const TraceTouch& touch : step.touches) {
    int state = touch.state;
    while (trace.states[state].view_of >= 0) state = trace.states[state].view_of;
    const TraceState& of = trace.states[state];
    if (of.pinned || of.bytes == 0) continue;
    const int group = of.contiguous_group;
    if (!blocks.emplace(group >= 0, group >= 0 ? group : state).second) continue;
    size_t block = of.bytes;
    for (int other = 0; group >= 0 && other < static_cast<int>(trace.states.size()); ++other) {
      if (other == state || trace.states[other].contiguous_group != group) continue;
      block = RoundUp(block, kGroupAlignment) + trace.states[other].bytes;
    }
    bytes += RoundUp(block, kPlanAlignment);
  }
  return bytes;
}

// By bucket.
std::vector<std::vector<int>> UpdateSteps(const ModelPlan& plan) {
  const NetTrace& trace = plan.train->trace;
  std::vector<std::vector<int>> steps(trace.buckets.size());
  for (int step = 0; step < static_cast<int>(trace.program.size()); ++step) {
    const auto [kind, of, piece] = trace.program[step];
    if (kind == InstructionKind::kUpdate) steps[of].push_back(step);
  }
  return steps;
}

TEST(UpdateTiles, NoUpdateTouchesMoreThanTheLayersDo) {
  for (const auto& [slots, dtype] :
       {std::pair(1, DType::kF32), std::pair(2, DType::kF32), std::pair(2, DType::kBF16)}) {
    SCOPED_TRACE(slots);
    const ModelPlan plan = Plan(slots, dtype);
    const AccessTrace& trace = plan.train->trace.trace;
    std::set<int> updates;
    size_t cut = 0;
    for (const std::vector<int>& bucket : UpdateSteps(plan)) {
      updates.insert(bucket.begin(), bucket.end());
      cut += bucket.size() > 1 ? 1 : 0;
    }
    size_t largest_update = 0, largest = 0;
    for (int s = 0; s < static_cast<int>(trace.steps.size()); ++s) {
      size_t& most = updates.contains(s) ? largest_update : largest;
      most = std::max(most, Touched(trace, trace.steps[s]));
    }
    EXPECT_LE(largest_update, largest);
    EXPECT_GT(cut, 0u);
  }
}

TEST(UpdateTiles, CoverTheBucketInWholePages) {
  const ModelPlan plan = Plan(2, DType::kF32);
  const OptimizerSlots& slots = plan.train->slots;
  const std::vector<std::vector<int>> updates = UpdateSteps(plan);
  for (size_t b = 0; b < slots.buckets.size(); ++b) {
    int64_t end = 0;
    for (int tile = 0; tile < slots.tiles(b); ++tile) {
      const ElementRange range = slots.tile(b, tile);
      EXPECT_EQ(range.begin, end);
      EXPECT_GT(range.count(), 0);
      EXPECT_EQ(static_cast<size_t>(range.begin) * SizeOf(slots.dtype(b)) % kPlanAlignment, 0u);
      end = range.end;
    }
    EXPECT_EQ(end, slots.buckets[b].elements);
    EXPECT_EQ(updates[b].size(), static_cast<size_t>(slots.tiles(b)));
  }
}

TEST(UpdateTiles, NoneWhereNothingMovesOrRanksShare) {
  const auto none = [](const ModelPlan& plan) {
    return std::ranges::all_of(UpdateSteps(plan),
                               [](const auto& bucket) { return bucket.size() <= 1; });
  };
  EXPECT_TRUE(none(Plan(2, DType::kF32, PlannerKind::kNone)));
  EXPECT_TRUE(none(Plan(2, DType::kF32, PlannerKind::kAuto, 2)));
}

// So nothing pages where all would fit uncut.
TEST(UpdateTiles, TakeNoMemory) {
  for (const int slots : {1, 2, 5}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t batch : {1, 7, 48, 64, 80, 200}) {
        for (const char* net : {kNet, kConvNet}) {
          EXPECT_EQ(Plan(slots, dtype, PlannerKind::kAuto, 1, net, batch).resident_bytes,
                    Plan(slots, dtype, PlannerKind::kNone, 1, net, batch).resident_bytes);
        }
      }
    }
  }
  EXPECT_LT(LeastCapacity(Plan(2, DType::kBF16)), Plan(2, DType::kBF16).resident_bytes);
}

// An update goes through all rows of a table, so one that is cut would do so many times.
TEST(UpdateTiles, TablesStayWhole) {
  const ModelPlan plan = Plan(1, DType::kF32, PlannerKind::kAuto, 1, R"(
    name: "words"
    input { name: "words" type: LABEL dims: [3] }
    input { name: "label" type: LABEL }
    layer { name: "embed" input: "words" embedding { vocabulary: 3000 width: 40 lazy: true } }
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 10 } }
    layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })");
  ASSERT_FALSE(plan.train->tables.empty());
  const std::vector<std::vector<int>> updates = UpdateSteps(plan);
  for (size_t b = 0; b < plan.train->order.buckets.size(); ++b) {
    if (TableOf(*plan.train, b) == nullptr) continue;
    EXPECT_EQ(plan.train->slots.tiles(b), 1);
    for (const int step : updates[b]) EXPECT_EQ(plan.train->trace.trace.steps[step].host_bytes, 0u);
  }
}

}  // namespace
}  // namespace gyre
