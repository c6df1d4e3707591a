#include "tests/end_to_end/training_folder.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace gyre {
namespace {

std::vector<nlohmann::ordered_json> ReadLines(const std::string& path) {
  std::vector<nlohmann::ordered_json> lines;
  for (const auto line : absl::StrSplit(ReadBytes(path), '\n', absl::SkipEmpty())) {
    lines.push_back(nlohmann::ordered_json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(lines.back().is_object()) << path << ": " << line;
  }
  return lines;
}

}  // namespace

std::vector<std::string> OnSim(int64_t bytes, const std::vector<std::string>& more) {
  return Joined(more, {"--device=sim", absl::StrCat("--device_memory=", bytes)});
}

TrainingFolder::TrainingFolder(const SyntheticData& data, int64_t test_samples) : data_(data) {
  WriteIdx(folder_.path(), "train", data);
  SyntheticData test = data;
  test.samples = test_samples;
  test.seed = data.seed + 1;
  test.labels.clear();
  WriteIdx(folder_.path(), "test", test);
}

std::string TrainingFolder::Images(const std::string& set) const {
  return ReadBytes(folder_ / set + "-images.idx").substr(data_.channels == 1 ? 16 : 20);
}

std::string TrainingFolder::Labels(const std::string& set) const {
  return ReadBytes(folder_ / set + "-labels.idx").substr(8);
}

std::vector<std::string> TrainingFolder::TrainArguments(
    const std::string& out, const std::vector<std::string>& more) const {
  return Joined(
      {"--trainer=" + folder_ / "trainer.textproto", "--out=" + folder_ / out, "--threads=1"},
      more);
}

ToolResult TrainingFolder::Train(const std::string& out, const std::vector<std::string>& more,
                                 const ToolOptions& options) const {
  return RunTool("train", TrainArguments(out, more), options);
}

std::string TrainingFolder::Digest(const std::string& out, const std::vector<std::string>& more,
                                   const ToolOptions& options) const {
  return DigestOf(Train(out, more, options));
}

void TrainingFolder::TrainAndKill(const std::string& out, int64_t step,
                                  const std::vector<std::string>& more) const {
  for (bool through = true; through;) {
    std::filesystem::remove_all(folder_ / out);
    Tool tool("train", TrainArguments(out, more));
    AwaitCheckpoint(tool, out, step);
    tool.Signal(SIGKILL);
    const ToolResult result = tool.Wait();
    through = result.exit_code == 0;
    EXPECT_TRUE(through || result.exit_code == 128 + SIGKILL) << result.ToString();
  }
}

bool TrainingFolder::AwaitCheckpoint(Tool& tool, const std::string& out, int64_t step) const {
  return tool.Await([&] { return NewestCheckpoint(out) >= step; });
}

bool TrainingFolder::AwaitMetrics(Tool& tool, const std::string& out) const {
  return tool.Await([&] { return std::filesystem::exists(folder_ / out + "/metrics.jsonl"); });
}

std::string TrainingFolder::Evaluate(const std::string& weights,
                                     const std::vector<std::string>& more,
                                     const ToolOptions& options) const {
  const ToolResult result = Succeeded(RunTool(
      "evaluate",
      Joined({"--trainer=" + folder_ / "trainer.textproto", "--weights=" + weights, "--threads=1"},
             more),
      options));
  EXPECT_TRUE(absl::StartsWith(result.out, "test loss ")) << result.ToString();
  return result.out;
}

std::vector<std::string> TrainingFolder::MetricLines(const std::string& out) const {
  std::vector<std::string> lines;
  for (nlohmann::ordered_json& json : ReadLines(folder_ / out + "/metrics.jsonl")) {
    for (const char* key : {"samples_per_second", "seconds", "data_wait_seconds"}) json.erase(key);
    lines.push_back(json.dump());
  }
  return lines;
}

std::vector<double> TrainingFolder::Metrics(const std::string& out, const std::string& key) const {
  return MetricsIn(folder_ / out + "/metrics.jsonl", key);
}

int64_t TrainingFolder::NewestCheckpoint(const std::string& out) const {
  int64_t newest = 0;
  std::error_code error;  // the folder may not be there yet, or change meanwhile
  std::filesystem::directory_iterator entry(folder_ / out + "/checkpoints", error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    if (absl::StartsWith(name, "step_")) {
      newest = std::max<int64_t>(newest, std::stoll(name.substr(5)));
    }
  }
  return newest;
}

std::vector<double> MetricsIn(const std::string& path, const std::string& key) {
  std::vector<double> values;
  int64_t step = 0;
  for (const nlohmann::ordered_json& json : ReadLines(path)) {
    if (json.contains("loss")) {
      EXPECT_EQ(json["step"].get<int64_t>(), ++step);
    }
    if (json.contains(key)) values.push_back(json[key].get<double>());
  }
  return values;
}

int64_t NumberIn(const std::string& words, const char* pattern) {
  std::smatch match;
  const bool found = std::regex_search(words, match, std::regex(pattern));
  EXPECT_TRUE(found) << pattern << "\n" << words;
  return found ? std::stoll(match[1]) : -1;
}

std::string DigestOf(const ToolResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.ToString();
  const std::vector<std::string> lines = absl::StrSplit(absl::StripSuffix(result.out, "\n"), '\n');
  absl::string_view digest = lines.back();
  EXPECT_TRUE(absl::ConsumePrefix(&digest, "weights sha256 ")) << result.ToString();
  EXPECT_EQ(digest.size(), 64) << result.ToString();
  return result.exit_code == 0 ? std::string(digest) : "";
}

double LargestRelativeDifference(const std::vector<double>& a, const std::vector<double>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(largest, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return largest;
}

}  // namespace gyre
