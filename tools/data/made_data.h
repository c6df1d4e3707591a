// made_data.h: what the tools that make data up share: random numbers that follow from a seed,
// flags within bounds, and the way from flags to a folder.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tools/command_line/command_line.h"

namespace gyre {

// One after another, those of a key.
class Numbers {
 public:
  explicit Numbers(uint64_t key) : key_(key) {}
  double Uniform(double least = 0, double most = 1);
  double Normal();
  int64_t Below(int64_t bound);  // from 0 on

 private:
  const uint64_t key_;
  uint64_t next_ = 0;
};

// InvalidArgument unless `good`.
absl::Status CheckFlag(bool good, absl::string_view flag, const absl::AlphaNum& got,
                       absl::string_view expected);

struct Maker {
  std::function<absl::Status()> check;  // of flags
  std::function<absl::Status(const std::string& folder)> write;
  std::function<std::string()> made;  // "3 reviews"
};

// The tool's main function: `out` is what `write` has filled, or nothing.
int RunMaker(int argc, char** argv, const char* usage, const std::vector<FlagGroup>& groups,
             const absl::Flag<std::string>& out, const Maker& maker);

}  // namespace gyre
