// made_data.h: random numbers, files and the main function of tools that make data.
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

// Makes a folder within a folder that is being filled.
absl::Status MakeFolder(const std::string& path);

// Writes a file there.  The whole folder is synced before it is renamed.
absl::Status WriteText(const std::string& path, const std::string& text);

struct Maker {
  const char* what;                    // "synthetic reviews"
  const absl::Flag<std::string>& out;  // a folder, which must not exist
  const absl::Flag<int>& train;        // how many
  const absl::Flag<int>& test;
  std::function<absl::Status()> check;  // of flags
  std::function<absl::Status(const std::string& folder)> write;
};

// The tool's main function.  The folder `out` gets all that `write` makes, or nothing: it is
// another until `write` has filled it.
int RunMaker(int argc, char** argv, const char* usage, const std::vector<FlagGroup>& groups,
             const Maker& maker);

}  // namespace gyre
