// trace_text.h: texts of states, steps and bytes for errors and tables of plans.  Private to
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
std::string ShortBytes(size_t bytes);  // "512 B", "1.5 KiB": the largest unit that fits
std::string BytesText(size_t bytes);   // "1536 bytes (1.5 KiB)", "12 bytes"

constexpr size_t kColumns = 80;  // of a table
// Cut to `columns`, with "~" at the end if cut.
std::string ShortText(const std::string& text, size_t columns);

// PlanMemory's ResourceExhausted.  `enough_bytes` is a sufficient capacity with the reserved bytes.
// `where` says when it is needed, and `there` which states are on the device then.
absl::Status CapacityError(const AccessTrace& trace, size_t capacity_bytes, size_t enough_bytes,
                           size_t reserved_bytes, std::string_view where, std::vector<int> there);

}  // namespace gyre
