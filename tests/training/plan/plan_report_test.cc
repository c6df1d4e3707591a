// The largest batch against a search one by one; what is said of a net that pages, against its
// plan.
#include "engine/training/plan/plan_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/training/plan/plan_summary.h"
#include "engine/training/plan/planning.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [16, 16, 3] }
  input { name: "label" type: LABEL }
  layer { name: "conv1" conv2d { filters: 8 kernel: 3 padding: 1 } }
  layer { name: "relu1" relu {} }
  layer { name: "conv2" conv2d { filters: 8 kernel: 3 padding: 1 } }
  layer { name: "relu2" relu {} }
  layer { name: "conv3" conv2d { filters: 8 kernel: 3 padding: 1 } }
  layer { name: "relu3" relu {} }
  layer { name: "conv4" conv2d { filters: 8 kernel: 3 padding: 1 } }
  layer { name: "relu4" relu {} }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 10 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

class PlanReport : public testing::Test {
 protected:
  ModelOptions Options(int64_t batch, size_t capacity,
                       PlannerKind planner = PlannerKind::kAuto) const {
    return {.shape = {.global = batch},
            .test_batch = 3,
            .test_samples = 7,
            .slots = {"momentum"},
            .capacity_bytes = capacity,
            .pages = {.planner = planner},
            .primitives = &primitives_};
  }
  absl::StatusOr<ModelPlan> Plan(int64_t batch, size_t capacity,
                                 PlannerKind planner = PlannerKind::kAuto) const {
    return PlanModel(*net_, Options(batch, capacity, planner));
  }

  const Primitives primitives_{DeviceKind::kSim, /*threads=*/1};
  const absl::StatusOr<Parsed<NetConfig>> net_ = ParseNetText(kNet, "net");
};

TEST_F(PlanReport, LargestBatchIsTheLastThatIsPlanned) {
  ASSERT_TRUE(net_.ok()) << net_.status();
  const auto of_7 = Plan(7, ~size_t{0}).value();
  for (const size_t capacity : {of_7.resident_bytes, of_7.resident_bytes - 1}) {
    const auto options = [&](int64_t batch) { return Options(batch, capacity); };
    const auto largest = FindLargestBatch(*net_, options, 1, 1000).value();
    EXPECT_EQ(largest.resident, capacity == of_7.resident_bytes ? 7 : 6);
    EXPECT_FALSE(Plan(largest.resident, capacity)->pages());
    EXPECT_TRUE(Plan(largest.resident + 1, capacity)->pages());
    EXPECT_GT(largest.paged, largest.resident);
    EXPECT_TRUE(Plan(largest.paged, capacity).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(Plan(largest.paged + 1, capacity).status()));
    // No more than there are.
    EXPECT_EQ(FindLargestBatch(*net_, options, 1, 4)->resident, 4);
    EXPECT_EQ(FindLargestBatch(*net_, options, 1, 4)->paged, 4);
    const auto resident = [&](int64_t batch) {
      return Options(batch, capacity, PlannerKind::kNone);
    };
    EXPECT_EQ(FindLargestBatch(*net_, resident, 1, 1000)->paged, largest.resident);
  }
  const auto nothing = [&](int64_t batch) { return Options(batch, 4096); };
  EXPECT_EQ(FindLargestBatch(*net_, nothing, 1, 1000)->paged, 0);
}

TEST_F(PlanReport, WhatIsWrongWithTheNetIsTold) {
  const auto net = *ParseNetText(absl::StrCat(kNet,
                                              "\n layer { name: \"x\" conv2d { filters: 1 "
                                              "kernel: 3 } input: \"fc\" }"),
                                 "net");
  const auto options = [&](int64_t batch) { return Options(batch, 1 << 20); };
  const auto largest = FindLargestBatch(net, options, 1, 100);
  EXPECT_EQ(largest.status().code(), absl::StatusCode::kInvalidArgument) << largest.status();
  EXPECT_THAT(largest.status().message(), HasSubstr("layer \"x\""));
}

TEST_F(PlanReport, LeastCapacityIsTheLeastThatIsPlanned) {
  for (const PlannerKind planner : {PlannerKind::kAuto, PlannerKind::kGeeps, PlannerKind::kNone}) {
    const auto plan = Plan(9, ~size_t{0}, planner).value();
    EXPECT_TRUE(Plan(9, LeastCapacity(plan), planner).ok());
    EXPECT_FALSE(Plan(9, LeastCapacity(plan) - 1, planner).ok());
  }
}

TEST_F(PlanReport, CapacitiesAgainstThroughput) {
  const auto plan = Plan(9, ~size_t{0}).value();
  std::istringstream lines(DescribeCapacities(plan));
  std::string line;
  for (int header = 0; header < 2; ++header) std::getline(lines, line);
  std::vector<double> kept;
  int refused = 0;
  while (std::getline(lines, line)) {
    if (line.find("less than the largest step needs") != std::string::npos) {
      ++refused;
      continue;
    }
    const std::string least = absl::StrCat(
        "least ", absl::StrFormat("%10.1f", static_cast<double>(LeastCapacity(plan)) / (1 << 20)));
    if (line.find("least ") != std::string::npos) {
      EXPECT_THAT(line, HasSubstr(least));
    }
    kept.push_back(std::stod(line.substr(line.rfind('%') - 8)));
  }
  EXPECT_EQ(kept.size() + refused, 7u);
  ASSERT_GE(kept.size(), 3u);
  EXPECT_EQ(kept.front(), 100);
  EXPECT_LT(kept.back(), 100);
  EXPECT_TRUE(std::ranges::is_sorted(kept, std::greater()));
}

// Of what the optimizer alone touches nothing moves, and all lies where the updating one has it.
TEST_F(PlanReport, AnIterationThatOnlyAccumulatesMovesLess) {
  ModelOptions options = Options(9, ~size_t{0});
  options.shape.accumulate = 3;
  options.paging.host_step_bytes_per_s = 1;  // on the host an update would move less, too
  for (const PlannerKind planner : {PlannerKind::kAuto, PlannerKind::kGeeps, PlannerKind::kNaive}) {
    options.pages.planner = planner;
    options.capacity_bytes = ~size_t{0};
    options.capacity_bytes = LeastCapacity(*PlanModel(*net_, options));
    const auto plan = PlanModel(*net_, options).value();
    const PagingPlan &updating = *plan.train->paging, &other = *plan.accumulating->paging;
    EXPECT_LT(other.fetched_bytes, updating.fetched_bytes);
    EXPECT_LT(other.written_bytes, updating.written_bytes);
    EXPECT_LT(ExpectIteration(plan).fetched_bytes, updating.fetched_bytes);
    EXPECT_EQ(other.homes, updating.homes);
    EXPECT_LE(other.device_bytes, options.capacity_bytes);
    const NetTrace& trace = plan.train->trace;
    for (size_t b = 0; b < trace.buckets.size(); ++b) {
      EXPECT_EQ(plan.accumulating->trace.buckets[b].slots, trace.buckets[b].slots);
      for (const int slot : trace.buckets[b].slots) {
        const int block = other.states[slot].block;
        EXPECT_TRUE(std::ranges::none_of(
            other.stays, [&](const Stay& stay) { return block >= 0 && stay.block == block; }));
      }
    }
    for (size_t s = 0; s < trace.trace.states.size(); ++s) {
      if (!trace.trace.states[s].persistent) continue;
      const auto [block, offset] = updating.states[s];
      ASSERT_EQ(other.states[s].block < 0, block < 0);
      EXPECT_EQ(other.states[s].offset, offset);
      if (block < 0) continue;
      EXPECT_EQ(other.blocks[other.states[s].block].page, updating.blocks[block].page);
    }
    EXPECT_THAT(DescribePaging(plan), HasSubstr("an iteration that only adds to the gradients"));
  }
}

// Whatever is how long, nothing wraps on 80 columns.
TEST(PlanSummary, IsInEightyColumns) {
  PlanSummary plan = {.net = "t",
                      .device = "sim",
                      .ranks = 1,
                      .batch = 1,
                      .rank_samples = 1,
                      .steps = 1,
                      .communication = {.buckets = 1, .gradient_bytes = 1 << 20},
                      .bytes = {.nets = 3 << 20, .capacity = 4 << 20, .batches = 1 << 20}};
  plan.layers = {{.layer = "fc", .type = "dense", .output = "[1, 2]", .parameters = 7}};
  EXPECT_EQ(PlanText(plan, "details\n"),
            "layer  type   output  parameters       MFLOP\n"
            "fc     dense  [1, 2]           7         0.0\n"
            "parameters     7; forward 0.0, backward 0.0 MFLOP for 1 sample\n"
            "steps          1 of 1 sample over 1 rank\n"
            "device memory  3.0 of 4.0 MiB: nets 3.0\n"
            "host memory    1.0 MiB, pinned: batches 1.0\n"
            "gradients      1.0 MiB\n"
            "details\n");
  plan.layers[0] = {.layer = std::string(40, 'l'),
                    .type = std::string(30, 't'),
                    .output = "[1024, 1024, 1024, 1024] [1024, 1024, 1024]",
                    .parameters = 1234567890,
                    .forward_flops = 1e13};
  plan.ranks = 12;
  plan.communication.buckets = 2;
  EXPECT_THAT(PlanText(plan, ""), HasSubstr("\ngradients      1.0 MiB in 2 buckets\n"));
  plan.communication.how = "direct, from 100 bytes on shared, from 5000 bytes on ring allreduce";
  const size_t big = size_t{123} << 30;
  plan.bytes = {big, big, big, big, big, big, big, big, big, big, big, big, big};
  plan.paged_seconds = plan.resident_seconds = 12.3456;
  plan.shares_optimizer = true;
  plan.page_folder = "/scratch";
  for (const bool one_memory : {false, true}) {
    plan.host_is_device = one_memory;
    for (const absl::string_view line : absl::StrSplit(PlanText(plan, ""), '\n')) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
  plan.precisions = {
      {.precision = DType::kBF16, .activations = big, .gradients = big, .sent = 1e15}};
  for (const absl::string_view line : absl::StrSplit(PrecisionsText(plan), '\n')) {
    EXPECT_LE(line.size(), 80u) << line;
  }
}

// Also beside a type and an output that are as long, and where no column would hold them.
TEST(PlanSummary, NamesTellLayersApart) {
  for (const char* block : {"a2-1-residual-a", "b2-inverted-separable-depthwise-conv"}) {
    PlanSummary plan;
    for (const char* type : {"conv2d", "batch_norm", "softmax_cross_entropy"}) {
      plan.layers.push_back({.layer = absl::StrCat(block, "-", type),
                             .type = type,
                             .output = "[16, 112, 112, 144]",
                             .forward_flops = 1e10});
    }
    const std::string text = PlanText(plan, "");
    for (const LayerRow& row : plan.layers) EXPECT_THAT(text, HasSubstr(row.layer));
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      EXPECT_LE(line.size(), 80u) << line;
    }
  }
}

// So that the rows add up to the total.
TEST(LayerRows, CountsASharedParameterAtItsFirstLayer) {
  const auto net = *ParseNetText(R"(
    input { name: "image" dims: 5 }
    input { name: "label" type: LABEL }
    layer { name: "a" dense { outputs: 5 weight { name: "w" } } }
    layer { name: "b" dense { outputs: 5 weight { name: "w" } } }
    layer { name: "loss" input: ["b", "label"] softmax_cross_entropy {} })",
                                 "n");
  const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  const auto plan = PlanModel(net, {.shape = {.global = 4}, .primitives = &primitives}).value();
  const std::vector<LayerRow> rows = LayerRows(plan);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].layer, "a");
  EXPECT_EQ(rows[0].parameters, 30);
  EXPECT_EQ(rows[1].output, "[4, 5]");
  EXPECT_EQ(rows[1].parameters, 5);
}

// Of a CPU owners' memory and that of what moves is one.
TEST(PlanSummary, NamesAParameterServerOnce) {
  PlanSummary plan;
  plan.ranks = 2;
  plan.host_is_device = true;
  plan.communication.how = "parameter server, ssp 1";
  plan.bytes.exchange = 1 << 20;
  plan.bytes.server = 2 << 20;
  EXPECT_THAT(PlanText(plan, ""),
              HasSubstr("memory         3.0 MiB beside program and data: parameter server 3.0\n"));
}

TEST_F(PlanReport, KindsFollowFromWhatStatesAre) {
  const auto plan = Plan(9, ~size_t{0}).value();
  const NetTrace& trace = plan.train->trace;
  const StateKinds kinds = KindsOf(trace);
  const auto name = [&](int state) { return kinds.names[kinds.of[state]]; };
  EXPECT_EQ(name(trace.parameters[0]), "parameters");
  EXPECT_EQ(name(trace.buckets[0].slots[0]), "optimizer");
  EXPECT_EQ(name(trace.gradients.parameters[0]), "gradients");
  EXPECT_EQ(name(trace.values[2]), "activations");
  EXPECT_EQ(name(trace.step_scalars), "pinned");
}

TEST(DescribeRun, SaysWhatWasMeasuredAndExpected) {
  PagingPlan updating, accumulating;
  updating.seconds = 0.02;
  updating.stalled_seconds = 0.006;
  updating.fetched_bytes = 9 << 20;
  updating.written_bytes = 3 << 19;
  accumulating.seconds = 0.005;
  const ExpectedIteration expected = ExpectIteration(updating, &accumulating, /*accumulate=*/3);
  PagedIterations measured = {.count = 4, .seconds = 0.048, .stalled_seconds = 0.01, .timed = true};
  EXPECT_EQ(DescribeRun(expected, measured, /*stalls=*/true),
            "paging: an iteration fetched 3.0 MiB and wrote 0.5 MiB back; it took 12.000 ms "
            "(expected: 10.000), of which it waited for copies 2.500 ms (expected: 2.000), mean of "
            "4");
  EXPECT_THAT(DescribeRun(expected, measured, /*stalls=*/false), Not(HasSubstr("waited")));
  measured.timed = false;
  EXPECT_THAT(DescribeRun(expected, measured, /*stalls=*/true),
              AllOf(HasSubstr("took 12.000 ms (by FLOPs alone: 10.000), of"),
                    HasSubstr("copies 2.500 ms (by FLOPs alone: 2.000), mean")));
  EXPECT_THAT(DescribeRun({.host_steps = 2}, {.count = 1, .hosted_seconds = 0.004}, false),
              HasSubstr("; 2 updates on the host took 4.000 ms, mean of 1"));
  EXPECT_EQ(ExpectIteration(updating, nullptr, 3).fetched_bytes, 9 << 20);
}

}  // namespace
}  // namespace gyre
