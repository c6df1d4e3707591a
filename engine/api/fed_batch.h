// fed_batch.h: a batch in memory that a device can copy, filled from a program's arrays.  Used by
// one thread at a time.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "engine/api/array_list.h"
#include "engine/data/batches/decoder.h"
#include "engine/training/step/owned_batch.h"

namespace gyre {

// The arrays that the net's inputs take.
std::vector<NetArray> InputArrays(const NetConfig& net);
// Of a gyre_type that ArrayList::Match has let through.
DType TypeOf(int type);

class FedBatch {
 public:
  // Of this rank's samples.  `device` outlives the result.  Errors: those of allocation.
  static absl::StatusOr<FedBatch> Create(Device& device, const NetPlan& plan);

  // `given` has an array for each input, of this batch's samples.
  // Errors: those of Decoder::Decode, naming the array.
  absl::Status Fill(std::span<const gyre_array* const> given);
  Batch& batch() { return owned_.batch; }

 private:
  // From the input's own type, and from bytes.
  struct InputDecoders {
    Decoder own;
    std::optional<Decoder> bytes = {};
  };

  OwnedBatch owned_;
  std::vector<InputDecoders> decoders_;
};

}  // namespace gyre
