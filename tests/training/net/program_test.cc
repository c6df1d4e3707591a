// The programs that modes give one small net: which steps an iteration has, and in which order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/model/model_plan.h"
#include "tests/training/net/net_rank.h"

namespace gyre {
namespace {

using testing::HasSubstr;
using testing::Not;

// Two buckets: of "b", which backward completes first, and of "a".
constexpr char kTwoLayers[] = R"(
  layer { name: "flat" flatten {} }
  layer { name: "a" dense { outputs: 4 use_bias: false } }
  layer { name: "b" dense { outputs: 4 use_bias: false } }
  layer { name: "loss" input: "b" input: "label" softmax_cross_entropy {} })";

struct Programs {
  std::string resident, accumulating, paged;
};

std::string Steps(const NetPlan* plan) {
  if (plan == nullptr) return "";
  EXPECT_EQ(plan->trace.program.size(), plan->trace.trace.steps.size());
  return absl::StrJoin(plan->trace.trace.steps, "; ",
                       [](std::string* text, const TraceStep& step) { text->append(step.name); });
}

Programs ProgramsOf(RunShape shape) {
  const Parsed<NetConfig> net = ParseLayers(kTwoLayers);
  const Primitives primitives(DeviceKind::kSim, /*threads=*/1);
  shape.global = 6;
  shape.compute = DType::kF32;
  const auto plan = *PlanModel(net, {.shape = shape,
                                     .slots = {"momentum"},
                                     .bucket_bytes = 64,
                                     .feed = FeedOfBytes(*net.message),
                                     .pages = {.planner = PlannerKind::kAuto},
                                     .primitives = &primitives});
  return {Steps(plan.train.get()), Steps(plan.accumulating.get()), Steps(plan.paged.get())};
}

constexpr char kForward[] = "forward flat; forward a; forward b; forward loss; loss gradients; ";

TEST(Program, OneRankUpdatesBehindBackward) {
  EXPECT_EQ(ProgramsOf({}).resident,
            absl::StrCat("upload; ", kForward,
                         "backward loss; backward b; measure bucket 0; update bucket 0; "
                         "backward a; measure bucket 1; update bucket 1; gate; report"));
}

TEST(Program, AGateHoldsAllUpdates) {
  EXPECT_EQ(
      ProgramsOf({.clip_norm = 1}).resident,
      absl::StrCat("upload; ", kForward,
                   "backward loss; backward b; measure bucket 0; backward a; measure bucket 1; "
                   "gate; update bucket 0; update bucket 1; report"));
}

TEST(Program, RanksTakeSumsAsTheyCome) {
  const Programs programs = ProgramsOf({.rank = 1, .ranks = 2});
  EXPECT_EQ(programs.resident,
            "upload; forward flat; take bucket 1; forward a; take bucket 0; forward b; "
            "forward loss; loss gradients; backward loss; backward b; send bucket 0; poll; "
            "backward a; send bucket 1; poll; report");
  EXPECT_EQ(programs.paged,
            absl::StrCat("upload; ", kForward,
                         "backward loss; backward b; send bucket 0; backward a; "
                         "send bucket 1; finish bucket 0; update bucket 0; "
                         "finish bucket 1; update bucket 1; upload norms; gate; report"));
}

TEST(Program, OnlyAStepsFirstIterationAwaitsTheLastStep) {
  const Programs programs = ProgramsOf({.ranks = 2, .accumulate = 3});
  EXPECT_THAT(programs.resident, Not(HasSubstr("take")));
  EXPECT_THAT(programs.resident, HasSubstr("send bucket 0"));
  EXPECT_THAT(programs.accumulating, HasSubstr("take bucket 1; forward a; take bucket 0"));
  EXPECT_THAT(programs.accumulating, Not(HasSubstr("send")));
}

TEST(Program, ShardsAreGathered) {
  const Programs programs = ProgramsOf({.ranks = 2, .shard_optimizer = true});
  EXPECT_EQ(programs.resident,
            "upload; forward flat; take bucket 1; forward a; take bucket 0; forward b; "
            "forward loss; loss gradients; backward loss; backward b; send bucket 0; backward a; "
            "send bucket 1; finish bucket 0; update bucket 0; gather bucket 0; finish bucket 1; "
            "update bucket 1; gather bucket 1; sum norms; upload norms; gate; report");
  // While their parameters are on the device.
  EXPECT_THAT(programs.paged, HasSubstr("gather bucket 0; receive bucket 0; finish bucket 1; "));
  EXPECT_THAT(programs.paged, Not(HasSubstr("take")));
}

// A shard is measured before any is updated, as pieces of a parameter are on several ranks.
TEST(Program, WholeParametersAreMeasuredBeforeTheyAreUpdated) {
  const RunShape of = {.scales_by_norms = true, .log_norms_every = 1};
  EXPECT_THAT(ProgramsOf(of).resident,
              HasSubstr("backward b; measure bucket 0; measure the gradients of bucket 0; "
                        "measure the change of bucket 0; update bucket 0; backward a"));
  RunShape shards = of;
  shards.ranks = 2;
  EXPECT_THAT(ProgramsOf(shards).paged,
              HasSubstr("finish bucket 0; measure the gradients of bucket 0; measure the change of "
                        "bucket 0; update bucket 0; finish bucket 1"));
  shards.shard_optimizer = true;
  EXPECT_THAT(
      ProgramsOf(shards).resident,
      HasSubstr("finish bucket 0; finish bucket 1; sum norms; upload norms; gate; measure the "
                "change of bucket 0; measure the change of bucket 1; sum norms of changes; measure "
                "the gradients of bucket 0; update bucket 0; gather bucket 0; measure"));
}

TEST(Program, OwnersGateTogetherInBspAndWorkersAloneElsewhere) {
  const auto served = [](Sync sync, std::optional<double> clip_norm) {
    return ProgramsOf({.ranks = 2,
                       .shard_optimizer = true,
                       .server = RunShape::Server{.sync = sync},
                       .clip_norm = clip_norm});
  };
  const std::string head =
      "upload; forward flat; take bucket 1; forward a; take bucket 0; forward b; "
      "forward loss; loss gradients; backward loss; backward b; ";
  EXPECT_EQ(served(Sync::kBsp, {}).resident,
            absl::StrCat(head, "send bucket 0; backward a; send bucket 1; clock; report"));
  EXPECT_EQ(served(Sync::kBsp, 1).resident,
            absl::StrCat(head,
                         "send bucket 0; backward a; send bucket 1; sum norms; upload norms; gate; "
                         "clock; report"));
  EXPECT_EQ(served(Sync::kAsync, 1).resident,
            head +
                "measure bucket 0; backward a; measure bucket 1; gate; scale bucket 0; "
                "send bucket 0; scale bucket 1; send bucket 1; clock; report");
}

}  // namespace
}  // namespace gyre
