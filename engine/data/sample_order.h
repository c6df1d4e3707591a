// sample_order.h: the endless order of samples, epoch after epoch: each a permutation of its own,
// or in contiguous rows.  Position p depends on (size, seed or rows, p) alone, so any rank count,
// and a resumed run, sees the same global batch at step s: positions s * batch .. (s + 1) * batch
// - 1.
#pragma once

#include <cstdint>
#include <vector>

namespace gyre {

class SampleOrder {
 public:
  // Permutations.  Precondition: size >= 1.
  SampleOrder(int64_t size, uint64_t seed);
  // Cuts the samples into `rows` contiguous pieces of one length, and leaves out what is left of
  // them.  Of every `rows` positions, one after another, position r goes on in piece r, which
  // begins anew when it ends.  One row: 0, 1, ..., size - 1, again and again. Precondition: 1 <=
  // rows <= size. Source: Zaremba, Sutskever, Vinyals 2014, arXiv:1409.2329, section 4.1.
  static SampleOrder Contiguous(int64_t size, int64_t rows);
  // The sample at a position >= 0.  Keeps the permutation of one epoch; not thread-safe.
  int64_t At(int64_t position);

 private:
  void Permute(int64_t epoch);

  int64_t size_;
  uint64_t key_;
  int64_t rows_ = 0;    // 0: permutations
  int64_t epoch_ = -1;  // of permutation_
  std::vector<int64_t> permutation_;
};

// Rank's contiguous share of `total` samples: sizes differ by at most one, larger shares first.
struct Share {
  int64_t first = 0, count = 0;
};
Share ShareOf(int64_t total, int rank, int ranks);

}  // namespace gyre
