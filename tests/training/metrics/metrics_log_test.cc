// What a run's metrics.jsonl holds while the run goes on.
#include "engine/training/metrics/metrics_log.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"

namespace gyre {
namespace {

// Whoever follows the file sees every line once it is told, however few they are.
TEST(MetricsLog, ALineIsInTheFileAtOnce) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/run_log");
  std::filesystem::create_directory(folder);
  auto log = *MetricsLog::Open(folder, /*from_step=*/0, /*test_again=*/false, /*total_steps=*/1000,
                               /*batch=*/1);
  std::string told;
  const auto expect_line = [&](const std::string& beginning) {
    const std::string text = *ReadFile(folder + "/metrics.jsonl");
    ASSERT_GT(text.size(), told.size());
    EXPECT_EQ(text.substr(0, told.size()), told);
    EXPECT_EQ(text.substr(told.size(), beginning.size()), beginning);
    EXPECT_EQ(text.back(), '\n');
    told = text;
  };
  const std::vector<Metric> metrics = {{.name = "loss", .is_loss = true, .sum = 3, .count = 2}};
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(log->Step(step, 0.25, metrics, 0.5, std::nullopt).ok());
    expect_line(absl::StrCat("{\"step\":", step, ",\"loss\":1.5,\"learning_rate\":0.5,"));
  }
  ASSERT_TRUE(log->Test(3, metrics).ok());
  expect_line("{\"step\":3,\"test_loss\":1.5}\n");
  ASSERT_TRUE(log->Numbers(3, {{"seconds", 0.25}}).ok());
  expect_line("{\"step\":3,\"seconds\":0.25}\n");
}

// A resumed run's clock goes on, after the lines that it repeats are gone.
TEST(MetricsLog, SecondsGoOnFromTheLastLineThatStays) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/goes_on");
  std::filesystem::create_directory(folder);
  const std::vector<Metric> metrics = {{.name = "loss", .is_loss = true, .sum = 3, .count = 2}};
  const auto line = [](int step, const std::string& seconds) {
    return absl::StrCat("{\"step\":", step, ",\"learning_rate\":1", seconds, "}\n");
  };
  const auto seconds_of = [&](const std::string& before, int64_t from_step) {
    std::ofstream(folder + "/metrics.jsonl") << before;
    auto log = MetricsLog::Open(folder, from_step, /*test_again=*/false, /*total_steps=*/9,
                                /*batch=*/1);
    EXPECT_TRUE(log.ok() && (*log)->Step(from_step + 1, 1.5, metrics, 1, std::nullopt).ok());
    const std::string text = *ReadFile(folder + "/metrics.jsonl");
    const auto last = nlohmann::json::parse(text.substr(text.rfind('\n', text.size() - 2) + 1));
    EXPECT_EQ(last["epoch"].get<double>(), 1.5);
    return last["seconds"].get<double>();
  };
  const std::string two = line(1, ",\"seconds\":1000") + line(2, ",\"seconds\":2000");
  constexpr double kHour = 3600;  // which a test does not take
  EXPECT_LT(seconds_of("", 0), kHour);
  EXPECT_GE(seconds_of(two, 2), 2000);
  EXPECT_GE(seconds_of(two, 1), 1000);
  EXPECT_LT(seconds_of(two, 1), 2000);
  EXPECT_LT(seconds_of(line(1, ""), 1), kHour);  // of an earlier release
}

// A run that goes on makes the test after its checkpoint again, and nothing else of that step.
TEST(MetricsLog, OnlyATestIsMadeAgain) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/again");
  std::filesystem::create_directory(folder);
  const std::string step = "{\"step\":2,\"loss\":1,\"learning_rate\":1}\n";
  const std::string norms = "{\"step\":2,\"norms\":{\"fc.bias\":{\"value\":1,\"change\":0}}}\n";
  const std::string test = "{\"step\":2,\"test_loss\":1}\n";
  const std::string paging = "{\"step\":2,\"fetched_bytes\":8,\"written_bytes\":8}\n";
  const std::string later = "{\"step\":3,\"loss\":1,\"learning_rate\":1}\n";
  for (const bool test_again : {false, true}) {
    std::ofstream(folder + "/metrics.jsonl") << step << norms << test << paging << later;
    ASSERT_TRUE(MetricsLog::Open(folder, 2, test_again, /*total_steps=*/9, /*batch=*/1).ok());
    EXPECT_EQ(*ReadFile(folder + "/metrics.jsonl"),
              absl::StrCat(step, norms, test_again ? "" : test, paging));
  }
}

TEST(MetricsLog, AFullDiskLeavesNoLineCutShort) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/full");
  std::filesystem::create_directory(folder);
  auto log = MetricsLog::Open(folder, 0, /*test_again=*/false, /*total_steps=*/9, /*batch=*/1);
  ASSERT_TRUE(log.ok() && (*log)->Step(1, 0, {}, 1, std::nullopt).ok());
  const std::string one = *ReadFile(folder + "/metrics.jsonl");
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit little = {one.size() + 9, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const absl::Status full = (*log)->Step(2, 0, {}, 1, std::nullopt);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  log->reset();
  EXPECT_EQ(*ReadFile(folder + "/metrics.jsonl"), one);
}

// The first step, which sets up, is not the rate of a short run.
TEST(MetricsLog, TheFirstRateIsOfTheStepsSoFar) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/rate");
  std::filesystem::create_directory(folder);
  auto log = *MetricsLog::Open(folder, /*from_step=*/0, /*test_again=*/false, /*total_steps=*/1000,
                               /*batch=*/1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  for (int64_t step = 1; step <= 100; ++step) {
    ASSERT_TRUE(log->Step(step, 0, {}, 1, std::nullopt).ok());
  }
  std::ifstream file(folder + "/metrics.jsonl");
  std::vector<double> rates;
  for (std::string line; std::getline(file, line);) {
    rates.push_back(nlohmann::json::parse(line)["samples_per_second"].get<double>());
  }
  EXPECT_GT(rates.back(), 10 * rates.front());
}

TEST(MetricsLog, ProgressEndsWithItsLine) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/terminal");
  std::filesystem::create_directory(folder);
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsetenv("OMPI_COMM_WORLD_RANK");
    auto log = MetricsLog::Open(folder, 0, false, /*total_steps=*/1, /*batch=*/1);
    if (!log.ok() || !(*log)->Step(1, 0, {}, 1, std::nullopt).ok()) _exit(1);
    (*log)->EndProgress();
    std::fputs("error: of a step\n", stderr);
    _exit(0);
  }
  std::string text;
  char piece[256];
  for (ssize_t got; (got = read(terminal, piece, sizeof(piece))) > 0;) text.append(piece, got);
  close(terminal);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_NE(text.find("step 1/1"), std::string::npos) << text;
  EXPECT_NE(text.find("ETA 0s\r\nerror: of a step"), std::string::npos) << text;
}

// A line that wraps could not be written over.
TEST(ProgressText, FitsTheTerminal) {
  const std::vector<std::string> metrics = {"loss 0.2599", "accuracy 0.8906", "top_5 0.9901"};
  const auto text = [&](size_t columns, double left = 19.6) {
    return ProgressText(3258, 9375, metrics, 35465, left, columns);
  };
  EXPECT_EQ(text(200),
            "step 3258/9375  loss 0.2599  accuracy 0.8906  top_5 0.9901  35465 samples/s  ETA 20s");
  EXPECT_EQ(text(79), "step 3258/9375  loss 0.2599  accuracy 0.8906  35465 samples/s  ETA 20s");
  EXPECT_EQ(text(53), "step 3258/9375  loss 0.2599  35465 samples/s  ETA 20s");
  EXPECT_EQ(text(52), "step 3258/9375  loss 0.2599  35465 samples/s");
  EXPECT_EQ(text(40), "step 3258/9375  loss 0.2599");
  EXPECT_EQ(text(9), "step 3258");
  for (size_t columns = 1; columns < 100; ++columns) EXPECT_LE(text(columns).size(), columns);
  EXPECT_TRUE(text(200, 0).ends_with("  ETA 0s"));
  EXPECT_TRUE(text(200, 61).ends_with("  ETA 1m1s"));
}

TEST(ProgressText, ASlowNetHasARate) {
  EXPECT_EQ(ProgressText(1, 2, {}, 0.416, 1, 80), "step 1/2  0.42 samples/s  ETA 1s");
  EXPECT_EQ(ProgressText(1, 2, {}, 9.96, 1, 80), "step 1/2  10 samples/s  ETA 1s");
}

TEST(TestText, BreaksWhereTheTerminalEnds) {
  const std::vector<std::string> metrics = {"test loss 4.1854", "test accuracy 0.0151"};
  EXPECT_EQ(TestText(12, 12, metrics, 50), "step 12/12  test loss 4.1854  test accuracy 0.0151");
  EXPECT_EQ(TestText(12, 12, metrics, 49), "step 12/12  test loss 4.1854\n  test accuracy 0.0151");
  EXPECT_EQ(TestText(12, 12, {}, 1), "step 12/12");
}

}  // namespace
}  // namespace gyre
