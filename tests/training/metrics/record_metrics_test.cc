#include "engine/training/metrics/record_metrics.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace gyre {
namespace {

using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using Steps = std::vector<AlarmStep>;

// All pairs, one after another.
std::optional<double> AreaOfPairs(const std::vector<Scored>& scored) {
  int64_t pairs = 0, halves = 0;
  for (const Scored& a : scored) {
    for (const Scored& b : scored) {
      if (!a.positive || b.positive) continue;
      ++pairs;
      halves += a.score > b.score ? 2 : a.score == b.score ? 1 : 0;
    }
  }
  if (pairs == 0) return std::nullopt;
  return static_cast<double>(halves) / static_cast<double>(2 * pairs);
}

TEST(RocAuc, IsTheShareOfAllPairs) {
  std::mt19937 random(1);
  for (const int size : {0, 1, 2, 3, 10, 101}) {
    for (const int scores : {1, 2, 5, 1000}) {  // how many different ones
      for (const int of_ten : {0, 1, 5, 10}) {  // positives
        std::vector<Scored> scored;
        for (int i = 0; i < size; ++i) {
          const int score = static_cast<int>(random() % scores);
          scored.push_back({score == 0   ? -kInfinity
                            : score == 4 ? kInfinity
                                         : score / 7.,
                            static_cast<int>(random() % 10) < of_ten});
        }
        EXPECT_EQ(RocAuc(scored), AreaOfPairs(scored)) << size << " " << scores << " " << of_ten;
      }
    }
  }
}

TEST(RocAuc, OfZerosAndOfWhatIsNoNumber) {
  EXPECT_EQ(RocAuc({{0., false}, {-0., true}}), 0.5);
  EXPECT_TRUE(std::isnan(*RocAuc({{0.5, false}, {std::nan(""), true}})));
}

AlarmConfig Config(const std::string& text) {
  AlarmConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  return config;
}

// The first alarm decides, and steps that do not count raise none.
TEST(Alarm, FirstCrossingByItsTime) {
  const AlarmConfig config = Config("threshold: 1 earliest: 2 latest: 0.5");
  const struct {
    Steps steps;
    AlarmCounts counts;
  } cases[] = {
      {{{0, 3}, {2, 2}, {0, 1}, {0, 0}}, {.in_time = 1}},    // at earliest itself
      {{{0, 3}, {0, 2}, {2, 0.5}, {2, 0}}, {.in_time = 1}},  // at latest itself
      {{{0, 3}, {0, 2}, {1, 1}, {2, 0.25}}, {.late = 1}},    // at the threshold there is none
      {{{2, 3}, {2, 2}, {2, 1}, {2, 0}}, {.early = 1}},
      {{{0, 3}, {1, 2}, {0, 1}, {0, 0}}, {.missed = 1}},
      {{{0, 3}, {0, 2}}, {.missed = 1}},  // an event is near from `earliest` itself on
      {{{0, 3}, {2, -1}, {2, -kInfinity}, {0, 0}}, {.missed = 1}},
      {{{0, kInfinity}, {1, 3}}, {.quiet = 1}},
      {{{0, kInfinity}, {2, kInfinity}}, {.false_alarms = 1}},
      {{{0, kInfinity}, {2, -1}}, {.quiet = 1}},
      {{{2, -1}}, {}},
      {{}, {}},
  };
  std::vector<Steps> all;
  AlarmCounts sum;
  for (const auto& c : cases) {
    EXPECT_EQ(CountAlarms(config, {&c.steps, 1}), c.counts);
    all.push_back(c.steps);
    sum.in_time += c.counts.in_time;
    sum.early += c.counts.early;
    sum.late += c.counts.late;
    sum.missed += c.counts.missed;
    sum.false_alarms += c.counts.false_alarms;
    sum.quiet += c.counts.quiet;
  }
  EXPECT_EQ(CountAlarms(config, all), sum);
}

// Times come as F32, which 0.2 and 0.03 are not.
TEST(Alarm, BordersAreDecimals) {
  const double early = 0.2F, late = 0.03F, between = 0.07F;
  const AlarmConfig config = Config("earliest: 0.2 latest: 0.03");
  const Steps at_earliest = {{1, early}, {1, 0}}, at_latest = {{0, between}, {1, late}, {1, 0}},
              quiet = {{0, early}}, before = {{1, 0.21F}, {1, 0}}, after = {{0, 0.1F}, {1, 0.029F}};
  EXPECT_EQ(CountAlarms(config, {&at_earliest, 1}), AlarmCounts{.in_time = 1});
  EXPECT_EQ(CountAlarms(config, {&at_latest, 1}), AlarmCounts{.in_time = 1});
  EXPECT_EQ(CountAlarms(config, {&quiet, 1}), AlarmCounts{.missed = 1});
  EXPECT_EQ(CountAlarms(config, {&before, 1}), AlarmCounts{.early = 1});
  EXPECT_EQ(CountAlarms(config, {&after, 1}), AlarmCounts{.late = 1});
  for (const double border : {0.07, 0.03}) {  // as F32 the one is above, the other below
    const double kept = static_cast<float>(border);
    const std::vector<Steps> pair = {{{3, kept}, {0, 0}}, {{2, kInfinity}}};
    EXPECT_EQ(AlarmArea(config, border, pair), 1) << border;
  }
}

std::vector<Steps> RandomSequences(int count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Steps> sequences;
  for (int k = 0; k < count; ++k) {
    const int length = static_cast<int>(random() % 9);
    const bool event = random() % 2 == 0;
    Steps& steps = sequences.emplace_back();
    for (int t = 0; t < length; ++t) {
      const double left = (length - 1 - t) * 0.25;
      const bool counts = random() % 4 != 0;
      steps.push_back({static_cast<double>(random() % 6), !counts ? -1 : event ? left : kInfinity});
    }
  }
  return sequences;
}

// The curve itself: at each threshold the sequences with an event that are alarmed of in time, by
// going through their steps, and the others that are alarmed of at all; trapezoids between.
TEST(Alarm, AreaIsThatUnderTheCurveOverThresholds) {
  const AlarmConfig config = Config("earliest: 1");
  for (const int count : {0, 1, 2, 7, 40}) {
    for (const double before : {0., 0.25, 0.5, 1.25}) {
      const std::vector<Steps> sequences = RandomSequences(count, 100 * count + 1);
      double area = 0, last_hits = 0, last_alarms = 0;
      int64_t events = 0, others = 0;
      for (double threshold = 6; threshold >= -1; threshold -= 0.5) {
        int64_t hits = 0, alarms = 0;
        events = others = 0;
        for (const Steps& steps : sequences) {
          bool any = false, event = false, crossed = false;
          for (const AlarmStep& step : steps) {
            if (step.time < 0) continue;
            any = true;
            event = event || step.time <= 1;
          }
          for (const AlarmStep& step : steps) {
            if (step.time < 0 || (event && step.time < before)) continue;
            crossed = crossed || step.score > threshold;
          }
          if (!any) continue;
          ++(event ? events : others);
          if (crossed) ++(event ? hits : alarms);
        }
        area +=
            static_cast<double>(alarms - last_alarms) * static_cast<double>(hits + last_hits) / 2;
        last_hits = static_cast<double>(hits);
        last_alarms = static_cast<double>(alarms);
      }
      // Those that no threshold finds, with an event but no step in time, are found at last.
      area += (static_cast<double>(others) - last_alarms) *
              (static_cast<double>(events) + last_hits) / 2;
      const std::optional<double> told = AlarmArea(config, before, sequences);
      ASSERT_EQ(told.has_value(), events > 0 && others > 0);
      if (!told) continue;
      EXPECT_NEAR(*told, area / static_cast<double>(events * others), 1e-12)
          << count << " " << before;
    }
  }
}

// Two runs: of three rows over two batches, and a last batch of one.  A record's score is its
// number.
TEST(Alarm, RowsGoOnFromBatchToBatchUntilTheyAreReset) {
  constexpr int kSteps = 2;
  std::vector<double> records;
  for (int sample = 0; sample < 7; ++sample) {
    for (int step = 0; step < kSteps; ++step) {
      const int number = sample * kSteps + step;
      const bool reset = number == 7 || number == 0 || number == 10;
      records.insert(records.end(), {1. * number, 0.5, reset ? 1. : 0.});
    }
  }
  const TestRun runs[] = {{.batch = 3, .batches = 2}, {.batch = 1, .batches = 1}};
  std::vector<std::vector<double>> scores;
  for (const Steps& steps : SequencesOf(records, kSteps, runs)) {
    scores.emplace_back();
    for (const AlarmStep& step : steps) scores.back().push_back(step.score);
  }
  EXPECT_THAT(scores, ElementsAre(ElementsAre(0, 1, 6), ElementsAre(7), ElementsAre(2, 3, 8, 9),
                                  ElementsAre(4, 5), ElementsAre(10, 11), ElementsAre(12, 13)));
  EXPECT_TRUE(SequencesOf({}, kSteps, {}).empty());
}

// What the metrics of a net with an alarm are after a test of these steps, each a sequence's first
// where `reset` is 1.
std::vector<Metric> Told(const std::string& alarm, std::vector<double> records) {
  LayerConfig config;
  config.set_name("a");
  *config.mutable_alarm() = Config(alarm);
  const auto steps = static_cast<int64_t>(records.size()) / 3;
  NetSpec net;
  NetNode& node = net.nodes.emplace_back();
  node.config = &config;
  node.spec.records = 0;
  node.spec.states.emplace_back().shape = Shape{1, steps, 3};
  TestRecords told(net, 1);
  told.Put(0, 0, {records.data(), Shape{1, steps, 3}, DType::kF64});
  told.EndRun(1, 1);
  std::vector<Metric> metrics;
  told.Tell(metrics);
  return metrics;
}

// One sequence with an event, whose score rises, and five without, whose highest lie between its.
TEST(Alarm, AreasAreThoseFarEnoughBeforeTheEvent) {
  std::vector<double> records;
  const double times[] = {1, 0.5, 0.2, 0.07, 0.03, 0.01};
  for (int i = 0; i < 6; ++i) records.insert(records.end(), {1. * i, times[i], i == 0 ? 1. : 0.});
  for (int i = 0; i < 5; ++i) records.insert(records.end(), {i + 0.5, kInfinity, 1});
  std::vector<std::string> names;
  std::vector<double> values;
  const auto metrics = Told("earliest: 2 latest: 0.05", records);
  for (size_t i = 6; i < metrics.size(); ++i) {  // after the counts
    names.push_back(metrics[i].name);
    values.push_back(metrics[i].value());
  }
  EXPECT_THAT(names, ElementsAre("a_auc", "a_auc_30ms", "a_auc_70ms", "a_auc_200ms", "a_auc_500ms",
                                 "a_auc_1000ms"));
  EXPECT_THAT(values, ElementsAre(0.6, 0.8, 0.6, 0.4, 0.2, 0));
}

// It would be below every threshold, and look like silence.
TEST(Alarm, AScoreThatIsNoNumberIsTold) {
  for (const auto& [score, time] : {std::pair(std::nan(""), 0.5), {0.5, std::nan("")}}) {
    const auto metrics = Told("earliest: 2", {0, 1, 1, score, time, 0, 0, kInfinity, 1});
    EXPECT_EQ(CheckFiniteMetrics(metrics).message(), "a is not finite");
  }
  EXPECT_TRUE(CheckFiniteMetrics(Told("earliest: 2", {0, 1, 1, std::nan(""), -1, 0})).ok());
}

// Of batches, or of ranks: all labels count alike, wherever they are.
TEST(Metrics, AMeanIsThatOfAllLabels) {
  std::vector<Metric> metrics = {{.name = "loss", .is_loss = true, .perplexity = true}};
  const double sums[][2] = {{1, 1}, {0, 0}, {9, 3}};
  for (const auto& of_batch : sums) AddSums(of_batch, metrics);
  EXPECT_DOUBLE_EQ(TotalLoss(metrics), 2.5);
  EXPECT_DOUBLE_EQ(NamedValues(metrics)[1].second, std::exp(2.5));
}

TEST(Metrics, WhatIsToldBesideALoss) {
  std::vector<Metric> metrics = {
      {.name = "loss", .is_loss = true, .weight = 2, .perplexity = true, .sum = 3, .count = 2},
      {.name = "other", .is_loss = true, .bits_per_character = true, .sum = 2, .count = 4},
      {.name = "auc", .undefined = "all 3 labels are 0"},
      {.name = "acc", .sum = 1, .count = 2}};
  const auto values = NamedValues(metrics);
  std::vector<std::string> names;
  for (const auto& [name, value] : values) names.push_back(name);
  EXPECT_THAT(names, ElementsAre("loss", "perplexity", "other", "other_bits_per_character", "acc"));
  EXPECT_DOUBLE_EQ(values[0].second, 3.5);
  EXPECT_DOUBLE_EQ(values[1].second, std::exp(1.5));
  EXPECT_DOUBLE_EQ(values[3].second, 0.5 / std::log(2));
  EXPECT_THAT(FormatMetrics(metrics, "test "),
              ElementsAre("test loss 3.5000", "test perplexity 4.4817",
                          "test other_bits_per_character 0.7213",
                          "test auc undefined: all 3 labels are 0", "test acc 0.5000"));
  EXPECT_TRUE(CheckFiniteMetrics(metrics).ok());
}

}  // namespace
}  // namespace gyre
