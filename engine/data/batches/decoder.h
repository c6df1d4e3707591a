// decoder.h: augments, converts to a net input's type, and normalises a sample.  Pure.  Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "engine/data/batches/augmentation.h"
#include "engine/runtime/tensor.h"

namespace gyre {

// x -> (x - mean) / std, in double, rounded once (to 16 bits via F32).  A byte's x is byte / 255.
struct Normalization {
  std::vector<double> mean = {0}, std = {1};  // both of size 1 or the channels (last axis)
};

// The normalised values of bytes 0 to 255, for each of the normalization's means in turn.
std::vector<double> PixelValues(const Normalization& normalization);

class Decoder {
 public:
  // Copies U8 to U8, U8 to I32 and I32 to I32.  Normalises U8, F32 and F64 to real types.
  static bool CanDecode(DType from, DType to);
  // Precondition: CanDecode(from, to).
  Decoder(DType from, DType to, const Normalization& normalization);

  // Preconditions: equal shapes, the constructor's types, and [H, W, C] or integers [H, W] if
  // moved. Errors: InvalidArgument "holds NAN" for a real that is not finite before or after
  // decoding.
  absl::Status Decode(const Tensor& from, const Move& move, const Tensor& to) const;

 private:
  Normalization normalization_;
  std::vector<std::byte> values_;  // PixelValues in the input's type, for bytes
};

}  // namespace gyre
