// bench.h: what programs that measure share: their main function, a clock, slept work, rounds,
// medians, rows.
#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/ranks.h"

namespace gyre {

using BenchClock = std::chrono::steady_clock;

inline double SecondsSince(BenchClock::time_point start) {
  return std::chrono::duration<double>(BenchClock::now() - start).count();
}

// Work of a simulated device that takes time but no core.
inline std::function<absl::Status()> SleptWork(std::chrono::duration<double> work) {
  return [work] {
    std::this_thread::sleep_until(BenchClock::now() + work);
    return absl::OkStatus();
  };
}

// Order statistics, which an outlier does not move.  Precondition: values is not empty.
double Quantile(std::vector<double> values, double q);
// The larger of two in the middle.
double Median(std::vector<double> values);
// {NAME: median, NAME_min: least, NAME_max: most}.
nlohmann::ordered_json Spread(const std::string& name, const std::vector<double>& values);

// Prints a JSON line at once, so that a program that is cut off has its results.
void PrintRow(const nlohmann::ordered_json& row);

// True while there is another round.  For 0 rounds: once a line of standard input has come, which
// tools/peer sends.  It says when one may come.
bool AnotherRound(int round, int rounds);

// The main function of a program: parses flags and measures.  Returns the exit code.
int RunBench(int argc, char** argv, absl::string_view usage, const std::vector<FlagGroup>& groups,
             const std::function<absl::Status()>& bench);

}  // namespace gyre
