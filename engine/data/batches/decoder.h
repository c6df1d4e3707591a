// decoder.h: from a stored sample to what a net's input takes: moved as augmentation says, of the
// input's type, normalised.  Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/data/batches/augmentation.h"
#include "engine/runtime/tensor.h"

namespace gyre {

// x -> (x - mean) / std, computed in double and rounded once (to 16 bits
// by way of F32); of bytes, x is byte / 255.
struct Normalization {
  std::vector<double> mean = {0}, std = {1};  // equally many: one, or one a channel, the last axis
};

// What each value of a byte stands for: 256 for each of a normalization's values.
std::vector<double> PixelValues(const Normalization& normalization);

class Decoder {
 public:
  // U8 to U8 and I32, I32 to I32, as they are; U8, F32 and F64 to real types, normalised.
  static bool CanDecode(DType from, DType to);
  // Precondition: CanDecode(from, to).
  Decoder(DType from, DType to, const Normalization& normalization);

  // Equal shapes.  Preconditions: both of the constructor's types; [H, W, C] if it is moved.
  // Errors: InvalidArgument "holds NAN", for a real that is not finite, or not once it is decoded.
  absl::Status Decode(const Tensor& from, const Move& move, const Tensor& to) const;

 private:
  Normalization normalization_;
  std::vector<std::byte> values_;  // of bytes: PixelValues, of the input's type
};

}  // namespace gyre
