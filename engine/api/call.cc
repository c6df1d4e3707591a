#include "engine/api/call.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/version.h"
#include "gyre/gyre_c.h"

namespace gyre {
namespace {

// The engine names options as the tools' flags.  Here they have no dashes, and advice on a flag
// that the library lacks is left out.
std::string InWordsOfOptions(absl::string_view text) {
  const std::string words =
      absl::StrReplaceAll(absl::StrCat(" ", text), {{" (--set test_batch=...)", ""},
                                                    {" --device", " device"},
                                                    {" --out", " out"},
                                                    {" --resume", " resume"},
                                                    {" --threads", " threads"},
                                                    {" --weights", " weights"},
                                                    {" --weights_", " --weights_"}});
  std::vector<std::string> clauses = absl::StrSplit(words.substr(1), "; ");
  clauses.erase(
      std::remove_if(clauses.begin() + 1, clauses.end(),
                     [](const std::string& advice) { return absl::StrContains(advice, " --"); }),
      clauses.end());
  return absl::StrJoin(clauses, "; ");
}

}  // namespace

std::string& LastError() {
  thread_local std::string text;
  return text;
}

int EndCall(const absl::Status& status) {
  LastError() = status.ok() ? "" : InWordsOfOptions(status.message());
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return GYRE_OK;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kOutOfRange:
      return GYRE_INVALID_ARGUMENT;
    case absl::StatusCode::kNotFound:
      return GYRE_NOT_FOUND;
    case absl::StatusCode::kAlreadyExists:
      return GYRE_ALREADY_EXISTS;
    case absl::StatusCode::kResourceExhausted:
      return GYRE_RESOURCE_EXHAUSTED;
    case absl::StatusCode::kFailedPrecondition:
      return GYRE_FAILED_PRECONDITION;
    case absl::StatusCode::kUnimplemented:
      return GYRE_UNIMPLEMENTED;
    case absl::StatusCode::kInternal:
      return GYRE_INTERNAL;
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return GYRE_UNAVAILABLE;
    default:
      return GYRE_UNKNOWN;
  }
}

}  // namespace gyre

const char* gyre_version(void) { return gyre::kVersion; }

const char* gyre_last_error(void) { return gyre::LastError().c_str(); }
