#include "engine/data/sample_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "engine/runtime/check.h"
#include "engine/runtime/random.h"

namespace gyre {
namespace {

// Uniform in [0, bound) by multiply-shift: of the 2^64 inputs any two results get counts that
// differ by at most one, so the bias is below bound / 2^64.
// Source: Lemire 2019, "Fast random integer generation in an interval", arXiv:1805.10941, without
// its rejection step, which would make the number of draws depend on the draws.
int64_t Below(const RandomBits& bits, int64_t bound) {
  const uint64_t x = (uint64_t{bits.v[0]} << 32) | bits.v[1];
  return static_cast<int64_t>((static_cast<unsigned __int128>(x) * static_cast<uint64_t>(bound)) >>
                              64);
}

}  // namespace

SampleOrder::SampleOrder(int64_t size, uint64_t seed)
    : size_(size), key_(RandomKey(seed, "sample order")) {
  GYRE_CHECK(size >= 1);
}

SampleOrder SampleOrder::Contiguous(int64_t size, int64_t rows) {
  GYRE_CHECK(rows >= 1 && rows <= size);
  SampleOrder order(size, /*seed=*/0);
  order.rows_ = rows;
  return order;
}

int64_t SampleOrder::At(int64_t position) {
  GYRE_CHECK(position >= 0);
  if (rows_ > 0) {
    const int64_t length = size_ / rows_;
    return position % rows_ * length + position / rows_ % length;
  }
  const int64_t epoch = position / size_;
  if (epoch != epoch_) Permute(epoch);
  return permutation_[static_cast<size_t>(position % size_)];
}

// Fisher-Yates (Durstenfeld 1964, CACM algorithm 235); step i draws from counter (epoch, i).
void SampleOrder::Permute(int64_t epoch) {
  permutation_.resize(static_cast<size_t>(size_));
  std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
  for (int64_t i = size_ - 1; i > 0; --i) {
    const RandomBits bits = Philox(key_, static_cast<uint64_t>(epoch), static_cast<uint64_t>(i));
    std::swap(permutation_[static_cast<size_t>(i)],
              permutation_[static_cast<size_t>(Below(bits, i + 1))]);
  }
  epoch_ = epoch;
}

Share ShareOf(int64_t total, int rank, int ranks) {
  GYRE_CHECK(total >= 0 && ranks >= 1 && rank >= 0 && rank < ranks);
  const int64_t each = total / ranks, larger = total % ranks;
  return {rank * each + std::min<int64_t>(rank, larger), each + (rank < larger ? 1 : 0)};
}

}  // namespace gyre
