#include "memory/trace/trace_text.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gyre {
namespace {

constexpr size_t kStatesInError = 5;

// Of an update that is cut so that its parts page, the name of the whole.
std::string WithoutPart(const std::string& name) { return name.substr(0, name.find(", part ")); }

}  // namespace

std::string ShortBytes(size_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " B");
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double amount = static_cast<double>(bytes) / 1024;
  int unit = 0;
  // At 1023.95 one decimal would round up to 1024.0.
  for (; amount >= 1023.95 && unit < 5; ++unit) amount /= 1024;
  return absl::StrFormat("%.1f %s", amount, kUnits[unit]);
}

std::string ShortText(const std::string& text, size_t columns) {
  return text.size() <= columns ? text : absl::StrCat(text.substr(0, columns - 1), "~");
}

std::string StateName(const AccessTrace& trace, int state) {
  return absl::StrCat("state ", state, " \"", trace.states[state].name, "\"");
}

std::string StepName(const AccessTrace& trace, int step) {
  return absl::StrCat("step ", step, " \"", WithoutPart(trace.steps[step].name), "\"",
                      OfText(trace));
}

std::string OfText(const AccessTrace& trace) {
  return trace.of.empty() ? "" : absl::StrCat(" of ", trace.of);
}

std::string BytesText(size_t bytes) {
  if (bytes < 1024) return absl::StrCat(bytes, " bytes");
  return absl::StrCat(bytes, " bytes (", ShortBytes(bytes), ")");
}

absl::Status CapacityError(const AccessTrace& trace, size_t capacity_bytes, size_t enough_bytes,
                           size_t reserved_bytes, std::string_view where, std::vector<int> there) {
  std::string message = absl::StrCat(
      "device memory: expected at least ", BytesText(enough_bytes),
      reserved_bytes > 0 ? absl::StrCat(", of which ", BytesText(reserved_bytes), " are reserved,")
                         : "",
      std::string(where), ", got ", BytesText(capacity_bytes), "; the largest states there:");
  std::ranges::stable_sort(there, std::greater(), [&](int i) { return trace.states[i].bytes; });
  std::vector<std::pair<std::string, size_t>> largest;  // names, bytes
  for (const int state : there) {
    const std::string name = WithoutPart(trace.states[state].name);
    const auto found = std::ranges::find(largest, name, [](const auto& of) { return of.first; });
    if (found == largest.end()) {
      largest.emplace_back(name, trace.states[state].bytes);
    } else {
      found->second += trace.states[state].bytes;
    }
  }
  std::ranges::stable_sort(largest, std::greater(), [](const auto& of) { return of.second; });
  for (size_t i = 0; i < std::min(largest.size(), kStatesInError); ++i) {
    absl::StrAppend(&message, i == 0 ? " " : ", ", "\"", largest[i].first, "\" ",
                    BytesText(largest[i].second));
  }
  return absl::ResourceExhaustedError(message);
}

}  // namespace gyre
