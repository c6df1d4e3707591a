// What "auto" chooses: by a model, and by a file.

#include "distributed/collectives/selector.h"

#include <gtest/gtest.h>

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

TEST(Selector, ChoosesFromItsBoundsOn) {
  const Selector selector({{0, "direct"}, {100, "shared"}, {5000, "ring"}});
  EXPECT_EQ(selector.Choose(0), "direct");
  EXPECT_EQ(selector.Choose(99), "direct");
  EXPECT_EQ(selector.Choose(100), "shared");
  EXPECT_EQ(selector.Choose(1 << 30), "ring");
  EXPECT_EQ(selector.Describe(), "direct, from 100 bytes on shared, from 5000 bytes on ring");
}

TEST(Selector, ReadsWhatWasWritten) {
  const Selector two({{0, "shared"}}), four({{0, "direct"}, {100, "ring"}}), again({{0, "ring"}});
  std::string text;
  const auto write = [&](ClusterShape shape, const Selector& selector) {
    auto written = WriteCalibration(text, shape, selector);
    ASSERT_TRUE(written.ok()) << written.status();
    text = *written;
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
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Selector::Calibrated(c.text, {2, 1}).status(),
              absl::InvalidArgumentError(
                  std::string("not what bench_allreduce --calibrate writes: ") + c.error));
  }
}

}  // namespace
}  // namespace gyre
