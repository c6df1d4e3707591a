// check.h: GYRE_CHECK for broken invariants (a bug in Gyre), which prints where and aborts.  Input
// and environment errors are absl::Status.  RETURN_IF_ERROR and ASSIGN_OR_RETURN pass a Status up.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gyre {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
// Puts "`where`: " before the status's message, and keeps its code.
absl::Status Annotate(const absl::Status& status, std::string_view where);
}  // namespace gyre

#define GYRE_CHECK(condition) \
  ((condition) ? (void)0 : ::gyre::CheckFailed(__FILE__, __LINE__, #condition))

#define GYRE_CONCAT_(a, b) a##b
#define GYRE_CONCAT(a, b) GYRE_CONCAT_(a, b)

#define RETURN_IF_ERROR(expression)            \
  do {                                         \
    absl::Status gyre_status = (expression);   \
    if (!gyre_status.ok()) return gyre_status; \
  } while (false)

#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_(GYRE_CONCAT(gyre_result_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_(result, target, expression)  \
  auto result = (expression);                          \
  if (!result.ok()) return std::move(result).status(); \
  target = *std::move(result)
