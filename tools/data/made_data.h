// made_data.h: random numbers and the main function of tools that make data.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "tools/command_line/flags.h"

namespace gyre {

// The random numbers of a key, in sequence.
class Numbers {
 public:
  explicit Numbers(uint64_t key) : key_(key) {}
  double Uniform(double least = 0, double most = 1);
  double Normal();
  int64_t Below(int64_t bound);  // >= 0

 private:
  const uint64_t key_;
  uint64_t next_ = 0;
};

struct Maker {
  std::function<absl::Status()> check;  // of flags
  std::function<absl::Status(const std::string& folder)> write;
  std::function<std::string()> made;  // "3 reviews"
};

// The tool's main function.  The folder `out` gets all that `write` makes, or nothing.
int RunMaker(int argc, char** argv, const char* usage, const std::vector<FlagGroup>& groups,
             const absl::Flag<std::string>& out, const Maker& maker);

}  // namespace gyre
