#include "tools/bench/bench.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include "tools/command_line/process.h"

namespace gyre {

double Quantile(std::vector<double> values, double q) {
  std::ranges::sort(values);
  return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
}

double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

nlohmann::ordered_json Spread(const std::string& name, const std::vector<double>& values) {
  const auto [least, most] = std::ranges::minmax(values);
  return {{name, Median(values)}, {name + "_min", least}, {name + "_max", most}};
}

void PrintRow(const nlohmann::ordered_json& row) {
  std::printf("%s\n", row.dump().c_str());
  std::fflush(stdout);
}

bool AnotherRound(int round, int rounds) {
  if (rounds > 0) return round < rounds;
  std::puts(round == 0 ? "ready" : "done");
  std::fflush(stdout);
  std::string line;
  return static_cast<bool>(std::getline(std::cin, line));
}

int RunBench(int argc, char** argv, absl::string_view usage, const std::vector<FlagGroup>& groups,
             const std::function<absl::Status()>& bench) {
  ParseFlags(argc, argv, usage, groups);
  if (const absl::Status status = bench(); !status.ok()) Fail(nullptr, status);
  return FinishOutput(0);
}

}  // namespace gyre
