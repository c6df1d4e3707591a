#include "tools/bench/random_batch.h"

#include "engine/runtime/random.h"
#include "tools/bench/device_peaks.h"

namespace gyre {

absl::StatusOr<OwnedBatch> RandomBatch(
    Device& device, const NetPlan& plan,
    const std::function<int64_t(int input, int64_t element)>& integer) {
  ASSIGN_OR_RETURN(OwnedBatch owned, OwnedBatch::Create(device, plan));
  for (size_t i = 0; i < owned.batch.arrays.size(); ++i) {
    const Tensor& array = owned.batch.arrays[i];
    if (array.dtype != DType::kI32 && array.dtype != DType::kU8) {
      FillUniform(array);
      continue;
    }
    for (int64_t e = 0; e < array.elements(); ++e) {
      if (array.dtype == DType::kI32) {
        array.as<int32_t>()[e] = static_cast<int32_t>(integer(static_cast<int>(i), e));
      } else {
        array.as<uint8_t>()[e] =
            static_cast<uint8_t>(Philox(/*key=*/1, 0, static_cast<uint64_t>(e)).v[0]);
      }
    }
  }
  return owned;
}

}  // namespace gyre
