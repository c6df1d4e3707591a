#include "engine/data/batches/augmentation.h"

#include "engine/runtime/random.h"

namespace gyre {

Move MoveAt(const Augmentation& augmentation, uint64_t seed, int64_t position) {
  const RandomBits bits =
      Philox(RandomKey(seed, "augmentation"), /*counter_hi=*/0, static_cast<uint64_t>(position));
  const auto draw = [&](uint32_t word) {  // -shift to shift
    const auto places = static_cast<uint64_t>(2 * augmentation.shift + 1);
    return static_cast<int64_t>(uint64_t{word} * places >> 32) - augmentation.shift;
  };
  return {.flip = augmentation.flip && (bits.v[0] & 1) != 0,
          .down = draw(bits.v[1]),
          .right = draw(bits.v[2])};
}

}  // namespace gyre
