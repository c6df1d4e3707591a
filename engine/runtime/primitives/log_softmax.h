// log_softmax.h: the logarithm of softmax.  primitives.h has the rules of all primitives.
#pragma once

#include <string>

#include "engine/runtime/device/device.h"

namespace gyre {

// y = log softmax(x) over the last axis, for x and y [rows, columns], columns >= 1.
struct LogSoftmaxSpec {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
};

class LogSoftmax {
 public:
  virtual ~LogSoftmax() = default;
  virtual absl::Status Forward(Stream& stream, const void* x, void* y) const = 0;
};

absl::Status Validate(const LogSoftmaxSpec& spec);
std::string ToString(const LogSoftmaxSpec& spec);

}  // namespace gyre
