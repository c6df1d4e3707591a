#include "engine/data/batches/split_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "engine/data/sets/memory_dataset.h"
#include "tests/data/read_sample.h"

namespace gyre {
namespace {

using testing::HasSubstr;

// Sample i is i; its class is the i-th of `classes`.
std::shared_ptr<MemoryDataset> Numbers(const std::vector<int32_t>& classes) {
  auto dataset = std::make_shared<MemoryDataset>();
  const auto size = static_cast<int64_t>(classes.size());
  HostArray numbers = NewArray<int32_t>(size, {}), labels = numbers;
  for (int64_t i = 0; i < size; ++i) {
    ElementsOf<int32_t>(numbers)[i] = static_cast<int32_t>(i);
    ElementsOf<int32_t>(labels)[i] = classes[static_cast<size_t>(i)];
  }
  EXPECT_TRUE(dataset->Add("number", "numbers", std::move(numbers)).ok());
  EXPECT_TRUE(dataset->Add("label", "labels", std::move(labels)).ok());
  return dataset;
}

std::vector<int32_t> All(const Dataset& dataset, size_t array) {
  std::vector<int32_t> all;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    all.push_back(*ReadSample(dataset, i, array)->as<int32_t>());
  }
  return all;
}

HoldOutConfig Config(double test, HoldOutConfig::By by, uint64_t seed = 1) {
  HoldOutConfig config;
  config.set_test(test);
  config.set_by(by);
  config.set_seed(seed);
  return config;
}

// Both together are the whole, in its order, and neither has what the other has.
void ExpectParts(const SplitDatasets& split, size_t size) {
  const std::vector<int32_t> train = All(*split.train, 0), test = All(*split.test, 0);
  EXPECT_TRUE(std::ranges::is_sorted(train) && std::ranges::is_sorted(test));
  std::set<int32_t> both(train.begin(), train.end());
  both.insert(test.begin(), test.end());
  EXPECT_EQ(both.size(), size);
  EXPECT_EQ(train.size() + test.size(), size);
}

TEST(SplitDatasetTest, HoldsAShareBySeed) {
  const auto all = Numbers(std::vector<int32_t>(1000));
  const SplitDatasets split = *Split(all, Config(0.1, HoldOutConfig::SAMPLE), "label");
  ExpectParts(split, 1000);
  EXPECT_EQ(split.test->size(), 100);
  EXPECT_EQ(All(*Split(all, Config(0.1, HoldOutConfig::SAMPLE), "label")->test, 0),
            All(*split.test, 0));
  EXPECT_NE(All(*Split(all, Config(0.1, HoldOutConfig::SAMPLE, 2), "label")->test, 0),
            All(*split.test, 0));
  // Spread over the data set: each tenth has some, and none has most.
  std::map<int32_t, int> tenths;
  for (const int32_t number : All(*split.test, 0)) ++tenths[number / 100];
  EXPECT_EQ(tenths.size(), 10U);
  for (const auto& [tenth, count] : tenths) EXPECT_LT(count, 30) << tenth;
  EXPECT_THAT(split.test->notes()[0], HasSubstr("100 of 1000 samples, split by sample"));
}

TEST(SplitDatasetTest, HoldsAShareOfEachClass) {
  std::vector<int32_t> classes;
  for (int i = 0; i < 500; ++i) classes.push_back(i % 50 == 0 ? 2 : i % 5 == 0 ? 1 : 0);
  classes.push_back(3);  // alone: it stays to be trained on
  const auto all = Numbers(classes);
  const SplitDatasets split = *Split(all, Config(0.2, HoldOutConfig::CLASS), "label");
  ExpectParts(split, classes.size());
  std::map<int32_t, int> counts;
  for (const int32_t label : All(*split.test, 1)) ++counts[label];
  EXPECT_EQ(counts, (std::map<int32_t, int>{{0, 80}, {1, 18}, {2, 2}}));
}

TEST(SplitDatasetTest, HoldsTheLastByTime) {
  const SplitDatasets split =
      *Split(Numbers(std::vector<int32_t>(10)), Config(0.25, HoldOutConfig::TIME), "label");
  EXPECT_EQ(All(*split.test, 0), (std::vector<int32_t>{7, 8, 9}));
}

TEST(SplitDatasetTest, KeepsOneSampleAtLeast) {
  for (const double share : {0.001, 0.999}) {
    const SplitDatasets split =
        *Split(Numbers({0, 1}), Config(share, HoldOutConfig::SAMPLE), "label");
    EXPECT_EQ(split.train->size(), 1);
    EXPECT_EQ(split.test->size(), 1);
  }
}

// Sequences stay whole, and the blank sample behind them is read by either part.
TEST(SplitDatasetTest, HoldsWholeSequences) {
  const std::vector<int64_t> lengths = {2, 1, 3, 1, 2};
  const auto all = Numbers(std::vector<int32_t>(10));
  all->SetSequences(lengths);
  all->SetGroups({0, 0, 1, 2, 2, 2, 3, 4, 4});
  const SplitDatasets split = *Split(all, Config(0.4, HoldOutConfig::GROUP), "label");
  ExpectParts(split, 9);
  std::multiset<int64_t> both;
  for (const Dataset* part : {split.train.get(), split.test.get()}) {
    const std::vector<int32_t> samples = All(*part, 0);
    size_t next = 0;
    for (const int64_t samples_of_sequence : part->sequences()) {
      both.insert(samples_of_sequence);
      for (int64_t i = 1; i < samples_of_sequence; ++i) {
        EXPECT_EQ(all->groups()[samples[next + i]], all->groups()[samples[next]]);
      }
      next += samples_of_sequence;
    }
    EXPECT_EQ(next, samples.size());
    EXPECT_EQ(*ReadSample(*part, part->size(), 0)->as<int32_t>(), 9);
  }
  EXPECT_EQ(split.test->sequences().size(), 2u);
  EXPECT_EQ(both, (std::multiset<int64_t>{1, 1, 2, 2, 3}));
}

TEST(SplitDatasetTest, RefusesWhatCannotBeSplit) {
  const auto error = [](const std::vector<int32_t>& classes, HoldOutConfig::By by,
                        const std::string& labels) {
    const auto split = Split(Numbers(classes), Config(0.5, by), labels);
    EXPECT_EQ(split.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(split.status().message());
  };
  EXPECT_EQ(error({0}, HoldOutConfig::SAMPLE, "label"),
            "expected at least 2 samples to split, got 1");
  EXPECT_THAT(error({0, 1}, HoldOutConfig::CLASS, "label"), HasSubstr("2 samples to train on"));
  EXPECT_THAT(error({0, 1}, HoldOutConfig::CLASS, "other"), HasSubstr("one integer a sample"));
  EXPECT_THAT(error({0, 1}, HoldOutConfig::GROUP, "label"), HasSubstr("a table's `group`"));
  const auto sequences = Numbers({0, 1, 2});
  sequences->SetSequences({1, 1});
  EXPECT_THAT(Split(sequences, Config(0.5, HoldOutConfig::SAMPLE), "label").status().message(),
              HasSubstr("write by: GROUP"));
  sequences->SetGroups({0, 0});
  EXPECT_THAT(Split(sequences, Config(0.5, HoldOutConfig::GROUP), "label").status().message(),
              HasSubstr("got one group; write data.test"));
}

}  // namespace
}  // namespace gyre
