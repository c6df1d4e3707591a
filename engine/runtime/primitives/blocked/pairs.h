// pairs.h: small products of BF16, by AVX-512's dot products of pairs.  Inside the library only.
#pragma once

#include <cstdint>

#include "engine/runtime/half.h"

namespace gyre {

// c[i][j] = the sum over k < inner of a[i][k] * b[k][j], and the old c[i][j] if it accumulates.
// The result is rounded once.
struct PairProducts {
  int64_t rows = 0, columns = 0, inner = 0;
  const BFloat16* a = nullptr;
  int64_t a_row = 0;  // stride
  // [pair of k][kProductColumns][2].  The second of an odd inner's last pair is 0.
  const BFloat16* b = nullptr;
  BFloat16* c = nullptr;
  int64_t c_row = 0;
  bool accumulate = false;
};

bool HasPairProducts();

// Runs on the calling thread, in an order of sums that inner alone decides.  Subnormal numbers
// count as 0.  Preconditions: HasPairProducts(), and at most kProductColumns columns.
void MultiplyPairs(const PairProducts& products);

}  // namespace gyre
