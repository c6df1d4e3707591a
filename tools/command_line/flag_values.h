// flag_values.h: reads and checks the values of flags.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/dtype.h"
#include "memory/planner/paging_plan.h"

namespace gyre {

// Parses bytes, as in 1048576, 64M (2^20), 1.5G or 2e9.  `flag` is its name with --.
// Errors: InvalidArgument naming the flag.
absl::StatusOr<size_t> ParseBytes(absl::string_view flag, absl::string_view text);

// Separates the values of each --set in the flag's value.  No argument can hold it.
inline constexpr char kBetweenSets = '\0';
// The values of each --set.
std::vector<std::string> SplitSet(absl::string_view flag);

// Checks of the values of --`flag`.  Errors: InvalidArgument naming the flag and its value.

// "--FLAG=GOT: expected WHAT".
absl::Status WrongValue(absl::string_view flag, const absl::AlphaNum& got,
                        absl::string_view expected);
// WrongValue unless `good`.
absl::Status CheckValue(bool good, absl::string_view flag, const absl::AlphaNum& got,
                        absl::string_view expected);
struct FlagNumber {
  FlagNumber(absl::string_view flag, double value) : flag(flag), value(value) {}
  template <typename T>
  FlagNumber(const absl::Flag<T>& of)  // of an ABSL_FLAG, as in CheckLeast(1, {FLAGS_rounds})
      : flag(absl::GetFlagReflectionHandle(of).Name()),
        value(static_cast<double>(absl::GetFlag(of))) {}
  absl::string_view flag;
  double value;
};
// Of a process.  Far beyond any machine's cores.  OpenMP crashes where the system runs out.
inline constexpr int kMostThreads = 1024;
// A value of --threads of a program with one rank, or of another flag of threads.
absl::Status CheckThreads(int threads, absl::string_view flag = "threads");
// Checks that a file can be written at --`flag`, and replaces no device, pipe, link or folder.
// `path` may be "".
absl::Status CheckWritten(absl::string_view flag, const std::string& path);
// Numbers that are not so large that products of some are infinite.
absl::Status CheckLeast(double least, std::initializer_list<FlagNumber> numbers);
absl::Status CheckPositive(std::initializer_list<FlagNumber> numbers);
// Numbers, each above 0.
absl::StatusOr<std::vector<double>> PositiveNumbers(absl::string_view flag,
                                                    const std::vector<std::string>& texts);
// Sizes with commas, each of at least one element of `type`.
absl::StatusOr<std::vector<size_t>> ParseSizes(absl::string_view flag, absl::string_view text,
                                               DType type);
// The element of `types` with this name.
absl::StatusOr<DType> TypeNamed(absl::string_view flag, absl::string_view name,
                                std::initializer_list<DType> types);
// "auto", "geeps" or "none".
absl::StatusOr<PlannerKind> PlannerNamed(absl::string_view flag, const std::string& name);
// Checks that a file's name ends in one of `endings`.
absl::Status CheckEnding(absl::string_view flag, const std::string& path,
                         std::initializer_list<absl::string_view> endings);
// Checks that none of the flags is given, which `beside`, such as "--stream", has no use for.
absl::Status CheckUnused(std::initializer_list<absl::string_view> flags,
                         const absl::AlphaNum& beside);

// For a flag about paging.  Checks that `device`, the value of --device, pages.
absl::Status CheckPages(absl::string_view flag, const std::string& device);

struct PageStorage {
  size_t host_bytes = ~size_t{0};
  std::string folder;  // of a file for pages beyond host_bytes
};
// From the values of --device, --host_memory and --page_folder.  An empty page_folder means
// DefaultPageFolder(default_folder).  Errors: InvalidArgument and DefaultPageFolder's.
absl::StatusOr<PageStorage> ParsePageStorage(const std::string& device,
                                             absl::string_view host_memory,
                                             const std::string& page_folder,
                                             const std::string& default_folder);

}  // namespace gyre
