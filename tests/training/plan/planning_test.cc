// Ranks whose devices have unlike memories plan one run, and a run that does not fit is told why.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/training/run/trainer.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [16, 16, 4] }
  input { name: "label" type: LABEL }
  layer { name: "conv" conv2d { filters: 8 kernel: 3 } }
  layer { name: "relu" relu {} }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 2 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

class Blank : public Dataset {
 public:
  int64_t size() const override { return 4096; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t, size_t array, SampleMemory&,
                              const std::optional<SampleDraw>&) const override {
    return Tensor{values_, arrays_[array].shape, arrays_[array].dtype};
  }

 private:
  const std::vector<DataArray> arrays_ = {
      {.input = "image", .file = "i", .shape = {16, 16, 4}, .dtype = DType::kF32},
      {.input = "label", .file = "l", .shape = {}, .dtype = DType::kI32}};
  mutable float values_[1024] = {};
};

struct Planned {
  absl::Status status;
  std::string text;  // of the plan
  int tuned = 0;
};

// By rank, of devices with such memories.
std::vector<Planned> Plan(const std::vector<size_t>& capacities,
                          const std::vector<std::string>& overrides, bool largest = false,
                          PlannerKind planner = PlannerKind::kAuto) {
  const auto ranks = static_cast<int>(capacities.size());
  std::vector<Planned> all(capacities.size());
  std::vector<std::unique_ptr<Device>> devices(capacities.size());  // which groups may use
  RunRanksOn("ring", ranks, 20'000, [&](ProcessGroup& communication) {
    Planned& planned = all[communication.rank()];
    const auto trainer = *ParseTrainerText(R"(
          net: "net" batch: 64 steps: 1 optimizer { sgd {} } learning_rate { base: 0.1 }
          data { train { idx { images: "i" labels: "l" } } test { idx { images: "i" labels: "l" } } })",
                                           "trainer", overrides);
    const auto net = ParseNetText(kNet, "net").value();
    const auto& device = devices[communication.rank()] =
        NewSimDevice({.threads = 1, .capacity_bytes = capacities[communication.rank()]});
    const Primitives primitives(device->kind(), 1);
    RunData data{std::make_unique<Blank>(), std::make_unique<Blank>(), {}};
    data.feed = *FeedOf(net, trainer, data.train.get(), data.test.get());
    TrainingOptions options;
    options.pages.planner = planner;
    options.largest_batch = largest;
    options.tune = [&](const std::function<absl::Status()>& prepare) {
      ++planned.tuned;
      return prepare();
    };
    const auto run = Trainer::Prepare(trainer, net, std::move(data), *device, primitives,
                                      communication, options);
    planned.status = run.status();
    if (run.ok()) planned.text = absl::StrJoin((*run)->Summary().notes, "\n");
  });
  return all;
}

std::string BatchLine(const Planned& planned) {
  const size_t at = planned.text.find("batch: ");
  return at == std::string::npos ? "" : planned.text.substr(at, planned.text.find('\n', at) - at);
}

TEST(Planning, RanksOfUnlikeMemoriesTakeOneBatch) {
  const size_t less = size_t{3} << 20, more = size_t{9} << 20;
  const std::string small = BatchLine(Plan({less, less}, {}, /*largest=*/true)[0]);
  const std::string large = BatchLine(Plan({more, more}, {}, /*largest=*/true)[0]);
  EXPECT_THAT(small, HasSubstr("the largest with which nothing is paged"));
  EXPECT_NE(small, large);
  for (const auto& capacities : {std::vector{less, more}, std::vector{more, less}}) {
    const auto all = Plan(capacities, {}, /*largest=*/true);
    for (const Planned& planned : all) {
      ASSERT_TRUE(planned.status.ok()) << planned.status;
      EXPECT_EQ(BatchLine(planned), BatchLine(all[0]));
      EXPECT_EQ(planned.tuned, 1);
    }
    // Of an odd batch rank 0 has the sample more.
    if (capacities[0] == less) {
      EXPECT_EQ(BatchLine(all[0]), small);
    } else {
      EXPECT_NE(BatchLine(all[0]), large);
    }
  }
}

TEST(Planning, OneRankThatLacksMemoryEndsAllWithItsAdvice) {
  const size_t less = size_t{1} << 20, more = size_t{64} << 20;
  for (const int lacking : {0, 1}) {
    std::vector<size_t> capacities(2, more);
    capacities[static_cast<size_t>(lacking)] = less;
    const auto all = Plan(capacities, {"batch=512", "test_batch=2"}, false, PlannerKind::kNone);
    const std::string own(all[static_cast<size_t>(lacking)].status.message());
    const std::string other(all[static_cast<size_t>(1 - lacking)].status.message());
    EXPECT_THAT(own, HasSubstr("device memory: expected at least "));
    const size_t advice = own.find("; the largest batch that fits is ");
    ASSERT_NE(advice, std::string::npos) << own;
    EXPECT_EQ(other,
              absl::StrCat("device memory: another rank's is too small", own.substr(advice)));
  }
}

TEST(Planning, ATestsBatchThatIsInTheWayIsNamed) {
  const auto error = [](const std::string& batch) {
    return std::string(
        Plan({size_t{1} << 20}, {"batch=" + batch, "test_batch=4096"}, false, PlannerKind::kNone)[0]
            .status.message());
  };
  EXPECT_THAT(error("2"), ContainsRegex(" for step [0-9]+ \"[^\"]*\" of the test, "));
  EXPECT_THAT(error("2"), HasSubstr("; training alone fits: lower test_batch, which is 4096"));
  EXPECT_THAT(error("512"), HasSubstr("; no batch fits beside test_batch, which is 4096; the "
                                      "largest that trains alone is "));
}

// That none fits is said of the planner that was asked for.
TEST(Planning, AnotherPlannersBatchIsNoContradiction) {
  int seen = 0;
  for (size_t bytes = 16 << 10; bytes < size_t{2} << 20; bytes += bytes / 16) {
    const std::string error(
        Plan({bytes}, {"batch=512", "test_batch=2"}, false, PlannerKind::kNone)[0]
            .status.message());
    if (!absl::StrContains(error, "no batch fits") ||
        !absl::StrContains(error, "; with --planner=auto one of ")) {
      continue;
    }
    ++seen;
    EXPECT_THAT(error, HasSubstr("; no batch fits with this --planner"));
  }
  EXPECT_GT(seen, 0);
}

}  // namespace
}  // namespace gyre
