#include "engine/runtime/random.h"

namespace gyre {

uint64_t RandomKey(uint64_t seed, std::string_view purpose) {
  // FNV-1a spreads the name over 64 bits, Philox makes keys of neighbouring seeds independent.
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : purpose) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  const RandomBits bits = Philox(seed, purpose.size(), hash);
  return uint64_t{bits.v[1]} << 32 | bits.v[0];
}

}  // namespace gyre
