#include "tools/command_line/flag_values.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/device.h"
#include "memory/pager/disk/page_folder.h"

namespace gyre {
namespace {

constexpr double kHuge = 1e30;

// "a, b or c".
std::string OneOf(std::vector<std::string> names) {
  const std::string last = std::move(names.back());
  names.pop_back();
  return absl::StrCat(absl::StrJoin(names, ", "), names.empty() ? "" : " or ", last);
}

}  // namespace

absl::StatusOr<size_t> ParseBytes(absl::string_view flag, absl::string_view text) {
  absl::string_view digits = text;
  double factor = 1;
  const struct {
    char letter;
    double factor;
  } kSuffixes[] = {{'K', 1024.0}, {'M', 1048576.0}, {'G', 1073741824.0}};
  for (const auto& suffix : kSuffixes) {
    if (!digits.empty() && absl::ascii_toupper(digits.back()) == suffix.letter) {
      digits.remove_suffix(1);
      factor = suffix.factor;
      break;
    }
  }
  double value = 0;
  if (!absl::SimpleAtod(digits, &value) || !(value > 0) || value * factor > 1e18) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s=%s: expected bytes, such as 1048576, 64M or 1.5G", flag, text));
  }
  return static_cast<size_t>(value * factor);
}

std::vector<std::string> SplitSet(absl::string_view flag) {
  if (flag.empty()) return {};
  return absl::StrSplit(flag, kBetweenSets);
}

absl::Status WrongValue(absl::string_view flag, const absl::AlphaNum& got,
                        absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", got, ": expected ", expected));
}

absl::Status CheckValue(bool good, absl::string_view flag, const absl::AlphaNum& got,
                        absl::string_view expected) {
  return good ? absl::OkStatus() : WrongValue(flag, got, expected);
}

absl::Status CheckThreads(int threads, absl::string_view flag) {
  return CheckValue(threads >= 0 && threads <= kMostThreads, flag, threads,
                    absl::StrCat("1 to ", kMostThreads, ", or 0"));
}

absl::Status CheckWritten(absl::string_view flag, const std::string& path) {
  std::error_code ignored;
  const auto there = std::filesystem::symlink_status(path, ignored);
  return CheckValue(!std::filesystem::exists(there) || std::filesystem::is_regular_file(there),
                    flag, path, "the name of a file, got that of a device, pipe, link or folder");
}

absl::Status CheckLeast(double least, std::initializer_list<FlagNumber> numbers) {
  for (const auto& [flag, value] : numbers) {
    RETURN_IF_ERROR(CheckValue(value >= least, flag, value, absl::StrCat(least, " or more")));
    RETURN_IF_ERROR(CheckValue(value <= kHuge, flag, value, "a smaller number"));
  }
  return absl::OkStatus();
}

absl::Status CheckPositive(std::initializer_list<FlagNumber> numbers) {
  for (const auto& [flag, value] : numbers) {
    RETURN_IF_ERROR(CheckValue(value > 0, flag, value, "a number above 0"));
    RETURN_IF_ERROR(CheckValue(value <= kHuge, flag, value, "a smaller number"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<double>> PositiveNumbers(absl::string_view flag,
                                                    const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    double& number = numbers.emplace_back();
    const bool good = absl::SimpleAtod(text, &number) && number > 0;
    RETURN_IF_ERROR(CheckValue(good, flag, text, "a number above 0"));
  }
  return numbers;
}

absl::StatusOr<std::vector<size_t>> ParseSizes(absl::string_view flag, absl::string_view text,
                                               DType type) {
  const std::string name(DTypeName(type));
  std::vector<size_t> sizes;
  for (const absl::string_view size : absl::StrSplit(text, ',')) {
    ASSIGN_OR_RETURN(sizes.emplace_back(), ParseBytes(absl::StrCat("--", flag), size));
    RETURN_IF_ERROR(
        CheckValue(sizes.back() % SizeOf(type) == 0, flag, size,
                   absl::StrCat("a multiple of ", SizeOf(type), ", the bytes of ", name)));
  }
  return sizes;
}

absl::StatusOr<DType> TypeNamed(absl::string_view flag, absl::string_view name,
                                std::initializer_list<DType> types) {
  std::vector<std::string> names;
  for (const DType type : types) {
    names.emplace_back(DTypeName(type));
    if (names.back() == name) return type;
  }
  return WrongValue(flag, name, OneOf(names));
}

absl::StatusOr<PlannerKind> PlannerNamed(absl::string_view flag, const std::string& name) {
  if (name == "auto") return PlannerKind::kAuto;
  if (name == "geeps") return PlannerKind::kGeeps;
  if (name == "none") return PlannerKind::kNone;
  return WrongValue(flag, name, "auto, geeps or none");
}

absl::Status CheckEnding(absl::string_view flag, const std::string& path,
                         std::initializer_list<absl::string_view> endings) {
  const bool good = std::ranges::any_of(
      endings, [&](absl::string_view ending) { return absl::EndsWith(path, ending); });
  return CheckValue(good, flag, path,
                    absl::StrCat("a name that ends in ", OneOf({endings.begin(), endings.end()})));
}

absl::Status CheckUnused(std::initializer_list<absl::string_view> flags,
                         const absl::AlphaNum& beside) {
  for (const absl::string_view name : flags) {
    const absl::CommandLineFlag& flag = *absl::FindCommandLineFlag(name);
    const std::string value = flag.CurrentValue();
    if (value == flag.DefaultValue()) continue;
    return absl::InvalidArgumentError(absl::StrCat("--", name, "=", value, ": is of no use with ",
                                                   beside, "; leave one of them out"));
  }
  return absl::OkStatus();
}

absl::Status CheckPages(absl::string_view flag, const std::string& device) {
  if (device != DeviceKindName(DeviceKind::kCpu)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      flag, ": with --device=cpu nothing is paged; leave it out, or use --device=sim"));
}

absl::StatusOr<PageStorage> ParsePageStorage(const std::string& device,
                                             absl::string_view host_memory,
                                             const std::string& page_folder,
                                             const std::string& default_folder) {
  PageStorage places = {.folder = page_folder};
  if (host_memory.empty()) {
    if (page_folder.empty()) return places;
    return absl::InvalidArgumentError(
        "--page_folder: without --host_memory nothing lies on disk; give that too, or leave it "
        "out");
  }
  RETURN_IF_ERROR(CheckPages("--host_memory", device));
  ASSIGN_OR_RETURN(places.host_bytes, ParseBytes("--host_memory", host_memory));
  if (!page_folder.empty()) return places;
  ASSIGN_OR_RETURN(places.folder, DefaultPageFolder(default_folder));
  return places;
}

}  // namespace gyre
