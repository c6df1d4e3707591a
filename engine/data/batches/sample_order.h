// sample_order.h: the endless order of samples, epoch after epoch: each a permutation of its own,
// or in contiguous rows, or in rows of whole sequences.  What comes at position p depends on what
// an order is made of and on p alone, so any rank count, and a resumed run, sees the same global
// batch at step s: positions s * batch .. (s + 1) * batch - 1.
#pragma once

#include <cstdint>
#include <span>
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
  // Sequences of so many samples each, one after another in the data set, in `rows` rows: of every
  // `rows` positions, position r goes on in row r, with the sequence that it is in or, when that
  // has ended, the next of the row.  In an epoch each sequence comes once.  A row that has no more
  // while another has goes on with sample `size`, the sum of `samples`: a blank one.  All epochs
  // have as many steps.  Rows get sequences longest first, each to the row that has least: no row
  // is longer than 4/3 of the shortest that could be, and each epoch shuffles which of the equally
  // long ones it gets, and in which order they come. Preconditions: 1 <= rows <= sequences; each
  // has a sample. Source: Graham 1969, "Bounds on multiprocessing timing anomalies", SIAM J. Appl.
  // Math. 17(2).
  static SampleOrder Sequences(std::span<const int64_t> samples, int64_t rows, uint64_t seed);
  // Permutations whose batches, positions from a multiple of `batch` to the next, have samples of
  // like length: an epoch's permutation is sorted by length in pools of some tens of batches, and
  // the batches are shuffled; but those that an epoch shares with its neighbours, which stay at its
  // ends.  Preconditions: a length at least, batch >= 1.
  // Source: Khomenko et al. 2016, arXiv:1708.05604, section 3.
  static SampleOrder Bucketed(std::span<const int32_t> lengths, int64_t batch, uint64_t seed);

  // Positions of an epoch.
  int64_t period() const { return period_; }
  // The sample at a position >= 0.  Keeps the permutation of one epoch; not thread-safe.
  int64_t At(int64_t position);
  // Whether a contiguous row begins (anew) at a position.
  bool BeginsAt(int64_t position) const {
    return rows_ > 0 && samples_.empty() && position / rows_ % (period_ / rows_) == 0;
  }

 private:
  SampleOrder(int64_t period, int64_t rows, uint64_t seed);
  uint64_t Random(const char* purpose, int64_t epoch, int64_t index) const;
  void Permute(int64_t epoch);
  void Schedule(int64_t epoch);
  void SortByLength(int64_t epoch);

  int64_t period_;
  int64_t rows_;  // 0: permutations
  uint64_t seed_;
  std::vector<int64_t> samples_;  // of each sequence
  std::vector<int32_t> lengths_;  // of each sample, if batches are of like ones
  int64_t batch_ = 1;
  int64_t epoch_ = -1;  // of permutation_
  std::vector<int64_t> permutation_;
};

// Rank's contiguous share of `total` samples: sizes differ by at most one, larger shares first.
struct Share {
  int64_t first = 0, count = 0;
};
Share ShareOf(int64_t total, int rank, int ranks);

}  // namespace gyre
