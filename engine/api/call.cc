#include "engine/api/call.h"

#include "engine/runtime/version.h"
#include "gyre/gyre_c.h"

namespace gyre {

std::string& LastError() {
  thread_local std::string text;
  return text;
}

int EndCall(const absl::Status& status) {
  std::string& text = LastError();
  text.assign(status.message().data(), status.message().size());
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
