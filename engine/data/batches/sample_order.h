// sample_order.h: the endless order of samples, epoch after epoch.  Any number of ranks, and a
// resumed run, sees the same global batch at step s, positions s * batch to (s + 1) * batch - 1.
// The sample at a position depends on the position and the factory's arguments alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/data/batches/balanced_order.h"

namespace gyre {

class SampleOrder {
 public:
  // Each epoch is a permutation of its own.  Precondition: size >= 1.
  SampleOrder(int64_t size, uint64_t seed);
  // Cuts the samples into `rows` contiguous rows of equal length, and drops the rest.  Position p
  // continues row p % rows, which starts again at its end.  One row gives 0, ..., size - 1, 0, ...
  // Precondition: 1 <= rows <= size.
  // Source: Zaremba, Sutskever, Vinyals 2014, arXiv:1409.2329, section 4.1.
  static SampleOrder Contiguous(int64_t size, int64_t rows);
  // `samples` has the length of each sequence, in the data set's order.  Position p continues row
  // p % rows, with its sequence or, at its end, the row's next.  Each sequence comes once an epoch.
  // An exhausted row repeats the blank sample (the sum of `samples`) until the longest row ends.
  // Sequences are assigned longest first, to the shortest row.  The longest row is at most 4/3 of
  // the optimum.  All epochs have equally many steps.  Each shuffles which of the equally long
  // sequences a row gets, and their order.
  // Preconditions: 1 <= rows <= sequences, and no sequence is empty.
  // Source: Graham 1969, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17(2).
  static SampleOrder Sequences(std::span<const int64_t> samples, int64_t rows, uint64_t seed);
  // Permutations whose batches (`batch` positions from a multiple of it) have samples of similar
  // length.  An epoch is sorted by length in pools of some tens of batches, then its batches are
  // shuffled.  Batches that it shares with other epochs stay at its ends.
  // Preconditions: lengths is not empty, batch >= 1.
  // Source: Khomenko et al. 2016, arXiv:1708.05604, section 3.
  static SampleOrder Bucketed(std::span<const int32_t> lengths, int64_t batch, uint64_t seed);

  // Permutations that read files about in the order of their bytes.  `files` has the samples of
  // each.  Files are cut into blocks, of some to a window.  An epoch shuffles the blocks, then the
  // samples within windows of at most `window` of them.
  // Preconditions: there is a sample, window >= 1.
  static SampleOrder Windowed(std::span<const int64_t> files, int64_t window, uint64_t seed);
  // All classes equally often (BalancedOrder).  An epoch has a position for each sample.
  // Precondition: classes is not empty.
  static SampleOrder Balanced(std::span<const int32_t> classes, uint64_t seed);
  // The same order with each sample at so many positions in a row.
  // Preconditions: no contiguous rows, times >= 1.
  SampleOrder Repeated(int64_t times) const;

  // Positions of an epoch.
  int64_t period() const { return period_ * times_; }
  // The sample at a position >= 0.  Caches the permutation of one epoch.  Not thread-safe.
  int64_t At(int64_t position);
  // The position of another sample: of the one before, or the next if an epoch begins there.  Both
  // are of one epoch.  `position` itself if the epoch has one sample.
  int64_t Beside(int64_t position) const;
  // The position at which the window of `position` ends.  0: there are no windows.
  int64_t WindowEnd(int64_t position) const;
  // Whether a contiguous row begins, or starts again, at a position.
  bool BeginsAt(int64_t position) const {
    return rows_ > 0 && samples_.empty() && position / rows_ % (period_ / rows_) == 0;
  }

 private:
  SampleOrder(int64_t period, int64_t rows, uint64_t seed);
  void Permute(int64_t epoch);
  void Schedule(int64_t epoch);
  void SortByLength(int64_t epoch);
  void PermuteBlocks(int64_t epoch);
  int64_t FirstOfWindow(int64_t window) const;

  int64_t period_;  // of distinct positions
  int64_t times_ = 1;
  int64_t rows_;  // 0: permutations
  uint64_t seed_;
  std::vector<int64_t> samples_;  // of each sequence
  std::vector<int32_t> lengths_;  // of each sample, for Bucketed
  int64_t batch_ = 1;
  std::vector<int64_t> blocks_;  // the first sample of each, for Windowed
  int64_t windows_ = 0;          // of an epoch
  std::optional<BalancedOrder> balanced_;
  int64_t epoch_ = -1;  // of permutation_
  std::vector<int64_t> permutation_;
};

// A rank's contiguous range of `total` samples.  Sizes differ by at most one, larger ones first.
struct Share {
  int64_t first = 0, count = 0;
};
Share ShareOf(int64_t total, int rank, int ranks);

}  // namespace gyre
