// refusal.h: why a picture is not read.  It is an absl::Status without Abseil's code: Debian's
// static archives of that are not position-independent, so that no shared object can have them.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"

namespace gyre {

struct Refusal {
  absl::StatusCode code = absl::StatusCode::kOk;  // kOk: it is read
  std::string text = "";

  bool refused() const { return code != absl::StatusCode::kOk; }
};

inline Refusal Invalid(std::string text) {
  return {absl::StatusCode::kInvalidArgument, std::move(text)};
}
inline Refusal Damaged(std::string text) { return {absl::StatusCode::kDataLoss, std::move(text)}; }

// "3 x 5": width and height, for texts.
inline std::string SizeText(int64_t height, int64_t width) {
  return std::to_string(width) + " x " + std::to_string(height);
}

}  // namespace gyre
