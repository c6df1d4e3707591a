// What roc_auc and alarm leave for the host; what it makes of that:
// tests/training/metrics/record_metrics_test.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Samples of two steps, along axis 0 or 1.
const Doubles kScores = {1, 2, 3, 4, 5, 6};
const std::vector<int32_t> kLabels = {0, 1, 1, 7, 0, 0};

void ExpectRecords(const LayerCase& layer, const Doubles& expected) {
  for (const DType compute : kRealTypes) {
    for (const DeviceKind device : {DeviceKind::kCpu, DeviceKind::kSim}) {
      for (const int ranks : {1, 2, 5}) {
        const RunResult result =
            Ran(layer, {.device = device, .compute = compute, .train = false, .ranks = ranks});
        EXPECT_EQ(result.records, expected) << ranks;
        EXPECT_EQ(result.fault.word, Fault::kNone);
      }
    }
  }
}

TEST(RocAuc, RecordsScoresAndLabels) {
  const char* const layer = "roc_auc { ignore_label: 7 }";
  ExpectRecords({layer, {Real({3, 2, 1}, kScores), Labels({3, 2}, kLabels)}},
                {1, 0, 2, 1, 3, 1, 4, -1, 5, 0, 6, 0});
  ExpectRecords({layer, {Along(1, Real({2, 3, 1}, kScores)), Along(1, Labels({2, 3}, kLabels))}},
                {1, 0, 4, -1, 2, 1, 5, 0, 3, 1, 6, 0});
  ExpectRecords({layer, {Real({2, 1}, {-kInfinity, 0.5}), Labels({1, 0})}},
                {-kInfinity, 1, 0.5, 0});
}

TEST(Alarm, RecordsScoresTimesAndResets) {
  const char* const layer = "alarm { earliest: 1 }";
  const Doubles times = {0.5, 0.25, -1, kInfinity, 8, 4};
  ExpectRecords({layer, {Real({3, 2, 1}, kScores), Real({3, 2}, times)}},
                {1, 0.5, 1, 2, 0.25, 0, 3, -1, 1, 4, kInfinity, 0, 5, 8, 1, 6, 4, 0});
  ExpectRecords({layer,
                 {Along(1, Real({2, 3, 1}, kScores)), Along(1, Real({2, 3}, times)),
                  Along(1, Labels({2, 3}, {0, 1, 0, 1, 0, 0}))}},
                {1, 0.5, 0, 4, kInfinity, 1, 2, 0.25, 1, 5, 8, 0, 3, -1, 0, 6, 4, 0});
}

// Training has no use for them: nothing is bound, and the harness lets nothing be touched.
TEST(Records, TrainingDoesNothing) {
  for (const LayerCase& layer :
       {LayerCase{"roc_auc {}", {Real({2, 1}, {1, 2}), Labels({0, 9})}},
        LayerCase{"alarm { earliest: 1 }", {Real({2, 1}, {1, 2}), Real({2}, {1, 2})}}}) {
    const RunResult result = Ran(layer);
    EXPECT_EQ(result.spec.states.size(), 2u);
    EXPECT_TRUE(result.output.empty());
    EXPECT_TRUE(result.records.empty());
    EXPECT_EQ(result.fault.word, Fault::kNone);
  }
}

TEST(Records, BadLabelsAndResets) {
  const RunOptions test = {.train = false};
  const RunResult label = Ran({"roc_auc {}", {Real({3, 1}, {1, 2, 3}), Labels({0, 2, 5})}}, test);
  EXPECT_EQ(label.fault.index(), 1);
  EXPECT_EQ(label.spec.states[1].largest, 1);
  const RunResult reset = Ran({"alarm { earliest: 1 }",
                               {Real({3, 1}, {1, 2, 3}), Real({3}, {1, 2, 3}), Labels({1, 0, -1})}},
                              test);
  EXPECT_EQ(reset.fault.index(), 2);
  EXPECT_EQ(reset.spec.states[2].largest, 1);
}

TEST(Records, Errors) {
  const TestInput x = Real({2, 2, 1}, {1, 2, 3, 4}), t = Real({2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(Refusal({"roc_auc {}", {t, Labels({0, 1})}}),
            "expects scores [..., 1], one for each label, got [2, 2]");
  EXPECT_EQ(Refusal({"alarm { earliest: 1 }", {x}}), "expects 2 inputs (scores, time), got 1");
  EXPECT_EQ(Refusal({"alarm { earliest: 1 }", {x, t, t}}), "expects reset of type I32, got F64");
  EXPECT_EQ(Refusal({"alarm { earliest: 1 }", {t, t}}),
            "expects scores [..., 1], one for each step, got [2, 2]");
  EXPECT_EQ(Refusal({"alarm { earliest: 1 }", {x, Real({2}, {1, 2})}}),
            "expects a time [2, 2], one for each of scores [2, 2, 1], got [2]");
  EXPECT_EQ(Refusal({"alarm { earliest: 1 }", {x, t, Labels({2, 1}, {1, 2})}}),
            "expects reset [2, 2], one for each of scores [2, 2, 1], got [2, 1]");
  EXPECT_EQ(Refusal({"alarm {}", {x, t}}),
            "earliest: expected more than latest, 0.03 seconds, got 0");
  EXPECT_EQ(Refusal({"alarm { earliest: 1 threshold: nan }", {x, t}}),
            "threshold: expected a finite number, got nan");
  EXPECT_EQ(Refusal({"alarm { earliest: 1 latest: -1 }", {x, t}}),
            "latest: expected 0 or more seconds, got -1");
  EXPECT_EQ(Refusal({"alarm { earliest: 1 before: [0.5, -2] }", {x, t}}),
            "before: expected 0 or more seconds, got -2");
}

}  // namespace
}  // namespace gyre
