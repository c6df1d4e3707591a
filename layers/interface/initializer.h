// initializer.h: first values of parameters, the same for a seed on every device and rank count.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "engine/runtime/tensor.h"
#include "models/schema/layer.pb.h"

namespace gyre {

struct Initializer {
  enum class Kind : uint8_t { kConstant, kGaussian, kXavier, kMsra };
  Kind kind = Kind::kConstant;
  double value = 0;                 // kConstant
  double mean = 0, std = 0;         // kGaussian
  int64_t fan_in = 1, fan_out = 1;  // kXavier, kMsra: inputs and outputs an element connects to
};

// Without a kind, `fallback`.  Errors: InvalidArgument for a std below 0, or a number not finite.
//   xavier  uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot & Bengio 2010)
//   msra    normal with std sqrt(2 / fan_in) (He et al. 2015)
absl::StatusOr<Initializer> MakeInitializer(const InitializerConfig& config, Initializer fallback);

// Fills a canonical host tensor of a real type, on the calling thread's team.  Element i depends on
// (key, first + i) alone.  An F32 value is the F64 value rounded, a 16-bit one the F32 value
// rounded.
void Initialize(const Initializer& initializer, uint64_t key, Tensor tensor, int64_t first = 0);

}  // namespace gyre
