#include "engine/data/batches/augmentation.h"

#include "engine/data/sample_draw.h"

namespace gyre {

Move MoveAt(const Augmentation& augmentation, uint64_t seed, int64_t position) {
  const RandomBits bits = SampleDraw{.seed = seed, .position = position}.Bits("augmentation");
  const auto draw = [&](uint32_t word) {  // -shift to shift
    return UniformBelow(word, 2 * augmentation.shift + 1) - augmentation.shift;
  };
  return {.flip = augmentation.flip && (bits.v[0] & 1) != 0,
          .down = draw(bits.v[1]),
          .right = draw(bits.v[2])};
}

}  // namespace gyre
