// pairs.h: small matrix products of BF16, by AVX-512's dot products of pairs; inside the library
// only.
#pragma once

#include <cstdint>

#include "engine/runtime/half.h"

namespace gyre {

// c[i][j] = the sum over k < inner of a[i][k] * b[k][j], and what c held if it accumulates, rounded
// once.
struct PairProducts {
  int64_t rows = 0, columns = 0, inner = 0;
  const BFloat16* a = nullptr;
  int64_t a_row = 0;  // stride
  // [pair of k][kProductColumns][2]; of an odd inner the last one's second is 0.
  const BFloat16* b = nullptr;
  BFloat16* c = nullptr;
  int64_t c_row = 0;
  bool accumulate = false;
};

// Whether this processor has them.
bool HasPairProducts();

// On the calling thread, in an order of sums that depends on inner alone.  Numbers below the normal
// ones count as 0.  Preconditions: HasPairProducts(); at most kProductColumns columns.
void MultiplyPairs(const PairProducts& products);

}  // namespace gyre
