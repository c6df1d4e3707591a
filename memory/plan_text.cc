#include "memory/plan_text.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

constexpr size_t kStatesInError = 5;
constexpr size_t kStatesInTable = 16;

void SortLargestFirst(const AccessTrace& trace, std::vector<int>& states) {
  std::ranges::stable_sort(states, std::greater(), [&](int i) { return trace.states[i].bytes; });
}

// The device states with memory of their own that are alive at the plan's peak, largest first.
std::vector<int> AliveAtPeak(const AccessTrace& trace, const MemoryPlan& plan) {
  std::vector<int> alive;
  for (size_t i = 0; i < trace.states.size(); ++i) {
    const TraceState& state = trace.states[i];
    const Placement& at = plan.placements[i];
    if (state.view_of >= 0 || at.arena != Arena::kDevice || state.bytes == 0) continue;
    // Without any step the persistent states are all there is.
    const bool in_lifetime = at.first_step <= plan.peak_step && plan.peak_step <= at.last_step;
    if (in_lifetime || state.persistent) alive.push_back(static_cast<int>(i));
  }
  SortLargestFirst(trace, alive);
  return alive;
}

// Of an update that is cut so that its parts page, the name of the whole.
std::string WithoutPart(const std::string& name) { return name.substr(0, name.find(", part ")); }

std::string PeakName(const AccessTrace& trace, const MemoryPlan& plan) {
  return trace.steps.empty() ? "no step" : StepName(trace, plan.peak_step);
}

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
  SortLargestFirst(trace, there);
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

absl::Status CapacityError(const AccessTrace& trace, const MemoryPlan& plan, size_t capacity_bytes,
                           size_t reserved_bytes) {
  return CapacityError(trace, capacity_bytes, plan.device_bytes + reserved_bytes, reserved_bytes,
                       absl::StrCat(" for ", PeakName(trace, plan), ", with ",
                                    BytesText(plan.lower_bound_bytes), " in use"),
                       AliveAtPeak(trace, plan));
}

std::string Explain(const AccessTrace& trace, const MemoryPlan& plan) {
  size_t persistent_bytes = 0;
  for (size_t i = 0; i < trace.states.size(); ++i) {
    const Placement& at = plan.placements[i];
    if (!trace.states[i].persistent || trace.states[i].view_of >= 0) continue;
    if (at.arena != Arena::kDevice) continue;
    persistent_bytes = std::max(persistent_bytes, at.offset + trace.states[i].bytes);
  }
  persistent_bytes = RoundUp(persistent_bytes, kPlanAlignment);

  std::string text;
  const auto line = [&text](const char* what, size_t bytes) {
    absl::StrAppendFormat(&text, "%-26s%10s %16d bytes\n", what, ShortBytes(bytes), bytes);
  };
  line("device memory of the net", plan.device_bytes);
  line("  kept between iterations", persistent_bytes);
  line("  reused within one", plan.device_bytes - persistent_bytes);
  line("  most in use at once", plan.lower_bound_bytes);
  if (plan.communication_bytes > 0) line("gradients of all ranks", plan.communication_bytes);

  const std::vector<int> alive = AliveAtPeak(trace, plan);
  absl::StrAppendFormat(&text, "most is in use at %s of an iteration:\n", PeakName(trace, plan));
  absl::StrAppendFormat(&text, "  %10s %12s  %-12s %s\n", "size", "offset", "steps", "state");
  for (size_t i = 0; i < std::min(alive.size(), kStatesInTable); ++i) {
    const TraceState& state = trace.states[alive[i]];
    const Placement& at = plan.placements[alive[i]];
    const std::string steps =
        state.persistent ? std::string("always") : absl::StrCat(at.first_step, "..", at.last_step);
    absl::StrAppendFormat(&text, "  %10s %12d  %-12s %s\n", ShortBytes(state.bytes), at.offset,
                          steps, ShortText(state.name, kColumns - 2 - 10 - 1 - 12 - 2 - 12 - 1));
  }
  if (alive.size() > kStatesInTable) {
    size_t rest = 0;
    for (size_t i = kStatesInTable; i < alive.size(); ++i) rest += trace.states[alive[i]].bytes;
    absl::StrAppendFormat(
        &text, "  %10s %12s  %-12s %s\n", ShortBytes(rest), "", "",
        Counted(static_cast<int64_t>(alive.size() - kStatesInTable), "smaller state"));
  }
  return text;
}

}  // namespace gyre
