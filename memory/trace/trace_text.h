// trace_text.h: how states, steps and bytes read in errors and tables of plans.  Private to
// memory.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "memory/trace/access_trace.h"

namespace gyre {

std::string StateName(const AccessTrace& trace, int state);  // state 3 "conv1.output"
std::string StepName(const AccessTrace& trace, int step);    // step 7 "conv1 backward"
std::string OfText(const AccessTrace& trace);                // " of the test", ""
// "512 B", "1.5 KiB": one decimal of the largest unit that is not above the number.
std::string ShortBytes(size_t bytes);
std::string BytesText(size_t bytes);  // "1536 bytes (1.5 KiB)", "12 bytes"

constexpr size_t kColumns = 80;  // that a table may be wide
// In at most so many columns; what is cut ends with "~".
std::string ShortText(const std::string& text, size_t columns);

// ResourceExhausted as PlanMemory describes it.  enough_bytes: that would do, the reserved ones
// among them; where: when they are needed; there: the states that are on the device then.
absl::Status CapacityError(const AccessTrace& trace, size_t capacity_bytes, size_t enough_bytes,
                           size_t reserved_bytes, std::string_view where, std::vector<int> there);

}  // namespace gyre
