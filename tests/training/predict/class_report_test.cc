// Counts by hand, and the files that hold them.
#include "engine/training/predict/class_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ClassReport Made() {
  ClassReport report({"cat", "dog, big", "owl"}, /*top=*/2);
  report.Add("a.png", 0, std::vector<double>{0.7, 0.2, 0.1});    // right
  report.Add("b.png", 0, std::vector<double>{0.2, 0.3, 0.5});    // owl, and not in the top two
  report.Add("c.png", 1, std::vector<double>{0.5, 0.5, 0});      // cat: of equal shares the first
  report.Add("d.png", 1, std::vector<double>{0.25, 0.5, 0.25});  // right
  return report;
}

TEST(ClassReport, Text) {
  const std::string text = Made().Text();
  EXPECT_THAT(text, StartsWith("top-1 0.5000\ntop-2 0.7500\n"));
  EXPECT_THAT(text, HasSubstr("1 of cat taken for owl\n"));
}

TEST(ClassReport, Json) {
  const auto json = nlohmann::json::parse(Made().Json());
  EXPECT_EQ(json["top_1"], 0.5);
  EXPECT_EQ(json["top_2"], 0.75);
  EXPECT_EQ(json["classes"][1].dump(),
            R"({"class":"dog, big","in_top_2":2,"predicted":1,"right":1,"samples":2})");
  EXPECT_EQ(json["confused"].dump(), R"([{"label":"cat","predicted":"owl","samples":1},)"
                                     R"({"label":"dog, big","predicted":"cat","samples":1}])");
  EXPECT_EQ(json["worst"].size(), 4u);
  EXPECT_EQ(json["worst"][0]["sample"], "b.png");
  EXPECT_EQ(json["worst"][0]["share_of_label"], 0.2);
}

TEST(ClassReport, Files) {
  TempFolder folder;
  ASSERT_TRUE(Made().Write(folder / "report").ok());
  const auto read = [&](const std::string& name) { return *ReadFile(folder / ("report/" + name)); };
  EXPECT_EQ(
      read("classes.csv"),
      "class,samples,right,in_top_2,predicted\ncat,2,1,1,2\n\"dog, big\",2,1,2,1\nowl,0,0,0,1\n");
  EXPECT_EQ(read("confusion.csv"),
            "label,cat,\"dog, big\",owl\ncat,1,0,1\n\"dog, big\",1,1,0\nowl,0,0,0\n");
  EXPECT_THAT(read("worst.csv"),
              StartsWith("sample,label,predicted,share_of_label,loss\nb.png,cat,owl,0.2,"));
  EXPECT_THAT(read("confusion.png"), StartsWith("\x89PNG"));
}

std::string WorstOf(const ClassReport& report) {
  const TempFolder folder;
  EXPECT_TRUE(report.Write(folder / "r").ok());
  return *ReadFile(folder / "r/worst.csv");
}

TEST(ClassReport, NanCostsMost) {
  ClassReport report({"a", "b"}, 1);
  for (int i = 0; i < 60; ++i) {
    report.Add(absl::StrCat(i), 0, std::vector<double>{i % 3 == 0 ? std::nan("") : 0.5, 0.5});
  }
  const std::string worst = WorstOf(report);
  ASSERT_THAT(worst, HasSubstr(",nan,inf\n"));
  EXPECT_LT(worst.rfind(",inf\n"), worst.find(",0.5,"));
}

TEST(ClassReport, ClassesAreBounded) {
  EXPECT_EQ(ClassReport::CheckClasses(4096), absl::OkStatus());
  EXPECT_EQ(ClassReport::CheckClasses(4097),
            absl::InvalidArgumentError(
                "expected at most 4096 classes, as each pair of them is counted, got 4097"));
}

TEST(ClassReport, KeepsTheCostliest) {
  ClassReport report({"a", "b"}, 1);
  for (int i = 0; i < 150; ++i) {
    const double share = (i * 37 % 150 + 1) / 200.0;
    report.Add(absl::StrCat(i), 0, std::vector<double>{share, 1 - share});
  }
  const std::string worst = WorstOf(report);
  EXPECT_EQ(std::count(worst.begin(), worst.end(), '\n'), 101);
  EXPECT_THAT(worst, HasSubstr("\n0,a,b,0.005,"));  // 1 / 200
}

}  // namespace
}  // namespace gyre
