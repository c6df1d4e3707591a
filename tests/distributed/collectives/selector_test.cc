// What "auto" chooses: by a model, and by a file.

#include "distributed/collectives/choice/selector.h"

#include <gtest/gtest.h>

#include <vector>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

TEST(Selector, ModelsAHost) {
  for (const int ranks : {2, 8, 64}) {
    EXPECT_EQ(Selector::Modelled({ranks, 1}).Describe(), "shared");
  }
}

// Few messages for what is small, few bytes over a host's link for what is large.
TEST(Selector, ModelsHosts) {
  for (const int hosts : {2, 4}) {
    const Selector selector = Selector::Modelled({4 * hosts, hosts});
    EXPECT_EQ(selector.Choose(64 << 20), "hierarchical") << hosts;
    EXPECT_EQ(selector.choices().front().from_bytes, 0u);
  }
  // At some length the ring's bytes are worth its latencies, but not in a crowd.
  const Selector alone = Selector::Modelled({1024, 1024});
  EXPECT_EQ(alone.Choose(4), "recursive_doubling");
  EXPECT_EQ(alone.Choose(1 << 20), "halving_doubling");
}

// Whose start is at most a twentieth of its time.
TEST(Selector, SaysWhatIsWorthASum) {
  const auto bytes = [](const char* algorithm, ClusterShape shape) {
    return WorthwhileBytes(algorithm, Selector::Modelled(shape), shape);
  };
  EXPECT_EQ(bytes("ring", {2, 1}), 1u << 20);
  EXPECT_EQ(bytes("mpi", {2, 1}), 1u << 20);
  EXPECT_EQ(bytes("hierarchical", {2, 1}), bytes("ring", {2, 1}));
  EXPECT_EQ(bytes("shared", {2, 2}), bytes("ring", {2, 2}));
  EXPECT_EQ(bytes("auto", {2, 1}), bytes("shared", {2, 1}));
  EXPECT_EQ(bytes("auto", {8, 4}), bytes("hierarchical", {8, 4}));
  EXPECT_GT(bytes("ring", {16, 16}), bytes("ring", {4, 4}));
  const Selector chosen({{0, "direct"}});
  EXPECT_EQ(WorthwhileBytes("auto", chosen, {4, 4}), bytes("direct", {4, 4}));
}

// In place of the model, of the algorithms that were measured.
TEST(Selector, SaysByWhatWasMeasuredWhatIsWorthASum) {
  // 10 us beside it that the caller takes: 90 us are a twentieth of 1800 us, 1710 us more.
  const Selector selector({{0, "direct"}, {1 << 20, "ring"}},
                          {{"direct", 80e-6, 1710e-6 / (1 << 21)}, {"ring", 80e-6, 1e-9}});
  EXPECT_EQ(WorthwhileBytes("direct", selector, {2, 1}), 1u << 21);
  EXPECT_EQ(WorthwhileBytes("auto", selector, {2, 1}), 1u << 21);  // 1 << 21 nanoseconds are more
  EXPECT_EQ(WorthwhileBytes("shared", selector, {2, 1}),
            WorthwhileBytes("shared", Selector::Modelled({2, 1}), {2, 1}));
}

TEST(FitCost, FindsTheLine) {
  std::vector<MeasuredSum> sums;
  for (double bytes = 64; bytes < 1e8; bytes *= 4) sums.push_back({bytes, 3e-6 + 2e-9 * bytes});
  const Selector::Cost cost = FitCost("ring", sums);
  EXPECT_EQ(cost.algorithm, "ring");
  EXPECT_NEAR(cost.start_s, 3e-6, 1e-14);
  EXPECT_NEAR(cost.byte_s, 2e-9, 1e-17);
  // By a tenth too long at the end: less than a tenth more for a byte, hardly more to start.
  sums.back().seconds *= 1.1;
  EXPECT_NEAR(FitCost("ring", sums).start_s, 3e-6, 0.02e-6);
  EXPECT_NEAR(FitCost("ring", sums).byte_s, 2e-9, 0.1e-9);
}

// 16 KB and 64 KB for which the link takes less than its rate says.
TEST(FitCost, KeepsToTheRate) {
  std::vector<MeasuredSum> sums;
  for (double bytes = 64; bytes < 1e8; bytes *= 4) {
    const bool at_once = bytes == 16384 || bytes == 65536;
    sums.push_back({bytes, 100e-6 + (at_once ? 4e-9 : 9e-9) * bytes});
  }
  const Selector::Cost cost = FitCost("ring", sums);
  EXPECT_NEAR(cost.byte_s, 9e-9, 0.1e-9);
  EXPECT_NEAR(cost.start_s, 100e-6, 20e-6);
}

TEST(FitCost, IsNeverNegative) {
  const Selector::Cost late = FitCost("ring", std::vector<MeasuredSum>{{100, 1}, {200, 4}});
  EXPECT_EQ(late.start_s, 0);
  EXPECT_NEAR(late.byte_s, (100 + 50) / (1e4 + 2.5e3), 1e-9);
  const Selector::Cost early = FitCost("ring", std::vector<MeasuredSum>{{100, 4}, {200, 1}});
  EXPECT_NEAR(early.start_s, 1.25 / 1.0625, 1e-9);
  EXPECT_EQ(early.byte_s, 0);
}

TEST(Selector, ChoosesFromItsBoundsOn) {
  const Selector selector({{0, "direct"}, {100, "shared"}, {5000, "ring"}});
  EXPECT_EQ(selector.Choose(0), "direct");
  EXPECT_EQ(selector.Choose(99), "direct");
  EXPECT_EQ(selector.Choose(100), "shared");
  EXPECT_EQ(selector.Choose(1 << 30), "ring");
  EXPECT_EQ(selector.Describe(), "direct, from 100 bytes on shared, from 5000 bytes on ring");
}

TEST(Selector, ReadsWhatWasWritten) {
  const Selector two({{0, "shared"}}), four({{0, "direct"}, {100, "ring"}}),
      again({{0, "ring"}}, {{"ring", 70e-6, 2e-9}, {"shared", 0, 1e-9}});
  std::string text;
  const auto write = [&](ClusterShape shape, const Selector& selector) {
    text = WriteCalibration(text, shape, selector).value();
  };
  const auto read = [&](ClusterShape shape) {
    const auto selector = Selector::Calibrated(text, shape);
    return selector.ok() ? selector->Describe() : std::string(selector.status().message());
  };
  write({2, 1}, two);
  write({4, 2}, four);
  EXPECT_EQ(read({2, 1}), two.Describe());
  EXPECT_EQ(read({4, 2}), four.Describe());
  EXPECT_EQ(read({4, 1}), "shared");  // the model's
  write({4, 2}, again);
  EXPECT_EQ(read({4, 2}), "ring");
  EXPECT_EQ(read({2, 1}), two.Describe());
  const Selector costs = *Selector::Calibrated(text, {4, 2});
  ASSERT_EQ(costs.costs().size(), 2u);
  EXPECT_EQ(costs.costs()[0].algorithm, "ring");
  EXPECT_DOUBLE_EQ(costs.costs()[0].start_s, 70e-6);
  EXPECT_DOUBLE_EQ(costs.costs()[0].byte_s, 2e-9);
  // Files from before costs were measured have none.
  text = R"({"allreduce": [{"ranks": 4, "hosts": 2,
                            "fastest": [{"from_bytes": 0, "algorithm": "ring"}]}]})";
  EXPECT_EQ(read({4, 2}), "ring");
  EXPECT_TRUE(Selector::Calibrated(text, {4, 2})->costs().empty());
}

TEST(Selector, SaysWhatIsWrongWithAFile) {
  const struct {
    const char *text, *error;
  } cases[] = {
      {"{", "no JSON"},
      {"[]", "allreduce: expected an array"},
      {R"({"allreduce": 3})", "allreduce: expected an array"},
      {R"({"allreduce": [3]})", "ranks: expected an integer of 1 or more"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 0}]})", "hosts: expected an integer of 1 or more"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1}]})", "fastest: expected an array"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "fastest": []}]})", "fastest: expected some"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "fastest": [{"from_bytes": 0}]}]})",
       "algorithm: not one that is chosen between"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "fastest": [
           {"from_bytes": 0, "algorithm": "nccl"}]}]})",
       "algorithm: not one that is chosen between"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "fastest": [
           {"from_bytes": 8, "algorithm": "ring"}]}]})",
       "from_bytes: expected 0, then more and more, got 8"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "fastest": [
           {"from_bytes": 0, "algorithm": "ring"}, {"from_bytes": 0, "algorithm": "direct"}]}]})",
       "from_bytes: expected 0, then more and more, got 0"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "costs": 7, "fastest": [
           {"from_bytes": 0, "algorithm": "ring"}]}]})",
       "costs: expected an array"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "costs": [{"algorithm": "rinng"}], "fastest": [
           {"from_bytes": 0, "algorithm": "ring"}]}]})",
       "algorithm: not one that is chosen between"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "fastest": [
           {"from_bytes": 0, "algorithm": "ring"}],
           "costs": [{"algorithm": "ring", "start_us": -1, "byte_ns": 1}]}]})",
       "start_us: expected a number of 0 or more"},
      {R"({"allreduce": [{"ranks": 2, "hosts": 1, "fastest": [
           {"from_bytes": 0, "algorithm": "ring"}],
           "costs": [{"algorithm": "ring", "start_us": 1}]}]})",
       "byte_ns: expected a number of 0 or more"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Selector::Calibrated(c.text, {2, 1}).status(),
              absl::InvalidArgumentError(
                  std::string("not what bench_allreduce --calibrate writes: ") + c.error));
  }
}

}  // namespace
}  // namespace gyre
