// gemm.h: matrix multiplication.  The rules of all primitives: primitives.h.
#pragma once

#include <string>

#include "engine/runtime/device/device.h"

namespace gyre {

// What an operation applies to its result before it stores it.
enum class Activation : uint8_t { kNone, kRelu };  // kRelu: max(x, 0), NaN stays NaN

// c[m,n] = activation(op(a) op(b) + bias), with a: [m,k] ([k,m] if transpose_a), b: [k,n] ([n,k] if
// transpose_b), bias: [n].  Accumulates in AccumulateType of dtype.
struct GemmSpec {
  DType dtype = DType::kF32;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, bias = false;
  Activation activation = Activation::kNone;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual size_t scratch_bytes() const = 0;  // may be 0
  virtual absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                           void* scratch) const = 0;
};

absl::Status Validate(const GemmSpec& spec);
std::string ToString(const GemmSpec& spec);

}  // namespace gyre
