// Tables of which a share is held back.
#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "engine/data/batches/split_dataset.h"
#include "tests/data/table_fixture.h"

namespace gyre {
namespace {

using testing::HasSubstr;

using Doubles = std::vector<double>;

// Nothing but the classes is of the rows that a split holds back.
TEST_F(Table, TheFitIsOfTheRowsThatAreNotHeldBack) {
  std::mt19937 random(3);
  for (const char* by : {"SAMPLE", "CLASS", "GROUP", "TIME"}) {
    std::string text = "n,w,g,t,y\n";
    for (int i = 0; i < 60; ++i) {
      absl::StrAppend(&text, random() % 4 == 0 ? "" : absl::StrCat(random() % 1000), ",w",
                      random() % 12, ",", random() % 9, ",", random() % 1000, ",c",
                      i == 0 ? 9 : random() % 4, "\n");
    }
    Write("t.csv", text);
    const std::string config =
        absl::StrCat("split { test: 0.4 by: ", by, " seed: ", random() % 100, " } ",
                     Data("label: 'y' index: 'w' group: 'g' time: 't' missing: MEAN"));
    const std::string numbers = absl::StrReplaceAll(config, {{"index: 'w'", "column: 'n'"}});
    DataConfig parsed;
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(numbers, &parsed));
    const auto split = *Split(*Open(numbers), parsed.split(), "label");
    // A missing number is the mean, which it does not change.
    const Doubles trained = All<double>(*split.train, "columns");
    const double mean = std::accumulate(trained.begin(), trained.end(), 0.0) / trained.size();
    const std::string line = split.train->fit().at("table.txt");
    double fitted = 0;
    ASSERT_TRUE(absl::SimpleAtod(
        std::vector<std::string>(absl::StrSplit(line, absl::ByAnyChar("\t\n")))[4], &fitted))
        << line;
    EXPECT_NEAR(fitted, mean, 1e-9) << by;

    const auto words = *Split(*Open(config), parsed.split(), "label");
    const auto used = All<int32_t>(*words.train, "w"), held = All<int32_t>(*words.test, "w");
    const int32_t count = std::ranges::max(used);
    for (int32_t word = 1; word <= count; ++word) {
      EXPECT_TRUE(std::ranges::find(used, word) != used.end()) << by << word;
    }
    EXPECT_LE(std::ranges::max(held), count);
    EXPECT_EQ(std::ranges::min(used), 1);
    const std::string fit = words.train->fit().at("table.txt");
    for (const char* name : {"c0", "c1", "c2", "c3", "c9"}) {
      EXPECT_THAT(fit, HasSubstr(absl::StrCat("class\t", name, "\n"))) << by;
    }
  }
}

// Series are held back whole, as their rows are without windows.
TEST_F(Table, SeriesAreSplitByGroup) {
  std::mt19937 random(4);
  std::string text = "n,g,t,y\n";
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&text, i % 4 ? "" : absl::StrCat(i * i), ",", random() % 9, ",", i, ",1\n");
  }
  Write("t.csv", text);
  const std::string config = absl::StrCat("split { test: 0.4 by: GROUP } ",
                                          Data("label: 'y' group: 'g' time: 't' missing: MEAN"));
  const std::string windows = absl::StrReplaceAll(config, {{"time: 't'", "time: 't' window: 3"}});
  DataConfig parsed;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(windows, &parsed));
  const auto split = *Split(*Open(windows), parsed.split(), "label");
  const auto rows = *Split(*Open(config), parsed.split(), "label");
  EXPECT_EQ(split.train->fit(), rows.train->fit());
  const Ints lengths = All<int32_t>(*split.test, "length");
  EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), 0), rows.test->size());
  EXPECT_EQ(split.train->sequences().size() + split.test->sequences().size(), 9u);
}

}  // namespace
}  // namespace gyre
