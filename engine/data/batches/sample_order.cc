#include "engine/data/batches/sample_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "engine/data/batches/shuffle.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

// Where part i of `parts` begins, if `whole` is cut into parts as equal as can be.
int64_t FirstOfPart(int64_t whole, int64_t i, int64_t parts) {
  return static_cast<int64_t>(static_cast<__int128>(whole) * i / parts);
}

}  // namespace

SampleOrder::SampleOrder(int64_t size, uint64_t seed) : SampleOrder(size, /*rows=*/0, seed) {
  GYRE_CHECK(size >= 1);
}

SampleOrder::SampleOrder(int64_t period, int64_t rows, uint64_t seed)
    : period_(period), rows_(rows), seed_(seed) {}

SampleOrder SampleOrder::Contiguous(int64_t size, int64_t rows) {
  GYRE_CHECK(rows >= 1 && rows <= size);
  return SampleOrder(size - size % rows, rows, /*seed=*/0);
}

SampleOrder SampleOrder::Sequences(std::span<const int64_t> samples, int64_t rows, uint64_t seed) {
  GYRE_CHECK(rows >= 1 && rows <= static_cast<int64_t>(samples.size()));
  SampleOrder order(0, rows, seed);
  order.samples_.assign(samples.begin(), samples.end());
  order.Schedule(0);
  order.period_ = static_cast<int64_t>(order.permutation_.size());
  return order;
}

SampleOrder SampleOrder::Bucketed(std::span<const int32_t> lengths, int64_t batch, uint64_t seed) {
  GYRE_CHECK(!lengths.empty() && batch >= 1);
  SampleOrder order(static_cast<int64_t>(lengths.size()), /*rows=*/0, seed);
  order.lengths_.assign(lengths.begin(), lengths.end());
  order.batch_ = batch;
  return order;
}

SampleOrder SampleOrder::Windowed(std::span<const int64_t> files, int64_t window, uint64_t seed) {
  GYRE_CHECK(window >= 1);
  // A window has samples of so many places.  A block of 1/16 of 10,000 pictures is some 50 MB,
  // which a disk reads in a hundred times the time of a seek.
  constexpr int64_t kBlocksAWindow = 16;
  const int64_t most = CeilDiv(window, kBlocksAWindow);
  std::vector<int64_t> blocks;
  int64_t size = 0;
  for (const int64_t samples : files) {
    const int64_t count = CeilDiv(samples, most);
    for (int64_t i = 0; i < count; ++i) blocks.push_back(size + FirstOfPart(samples, i, count));
    size += samples;
  }
  SampleOrder order(size, seed);
  order.blocks_ = std::move(blocks);
  order.windows_ = CeilDiv(size, window);
  return order;
}

int64_t SampleOrder::FirstOfWindow(int64_t window) const {
  return FirstOfPart(period_, window, windows_);
}

int64_t SampleOrder::Beside(int64_t position) const {
  const int64_t at = position % period();
  if (at >= times_) return position - times_;
  return at + times_ < period() ? position + times_ : position;
}

int64_t SampleOrder::WindowEnd(int64_t position) const {
  if (windows_ == 0) return 0;
  position /= times_;
  const int64_t at = position % period_;
  int64_t window = static_cast<int64_t>(static_cast<__int128>(at) * windows_ / period_);
  while (FirstOfWindow(window + 1) <= at) ++window;
  return (position - at + FirstOfWindow(window + 1)) * times_;
}

SampleOrder SampleOrder::Balanced(std::span<const int32_t> classes, uint64_t seed) {
  SampleOrder order(static_cast<int64_t>(classes.size()), seed);
  order.balanced_.emplace(classes, seed);
  return order;
}

SampleOrder SampleOrder::Repeated(int64_t times) const {
  GYRE_CHECK(rows_ == 0 && times >= 1);
  SampleOrder order = *this;
  order.times_ *= times;
  return order;
}

int64_t SampleOrder::At(int64_t position) {
  GYRE_CHECK(position >= 0);
  position /= times_;
  if (balanced_) return balanced_->At(position);
  if (rows_ > 0 && samples_.empty()) {
    const int64_t length = period_ / rows_;
    return position % rows_ * length + position / rows_ % length;
  }
  const int64_t epoch = position / period_;
  if (epoch != epoch_) {
    if (!samples_.empty()) {
      Schedule(epoch);
    } else {
      windows_ > 0 ? PermuteBlocks(epoch) : Permute(epoch);
      if (!lengths_.empty()) SortByLength(epoch);
    }
    epoch_ = epoch;
  }
  return permutation_[static_cast<size_t>(position % period_)];
}

void SampleOrder::Permute(int64_t epoch) {
  permutation_.resize(static_cast<size_t>(period_));
  std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
  Shuffle(permutation_, RandomKey(seed_, "sample order"), epoch);
}

void SampleOrder::PermuteBlocks(int64_t epoch) {
  std::vector<int64_t> order(blocks_.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  Shuffle(order, RandomKey(seed_, "blocks"), epoch);
  permutation_.clear();
  for (const int64_t block : order) {
    const auto next = static_cast<size_t>(block) + 1;
    const int64_t end = next < blocks_.size() ? blocks_[next] : period_;
    for (int64_t i = blocks_[static_cast<size_t>(block)]; i < end; ++i) permutation_.push_back(i);
  }
  const uint64_t key = RandomKey(seed_, "windows");
  for (int64_t window = 0; window < windows_; ++window) {
    const int64_t first = FirstOfWindow(window), end = FirstOfWindow(window + 1);
    Shuffle(std::span(permutation_)
                .subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)),
            key, epoch, first);
  }
}

// permutation_ <- the epoch's samples, step by step, each of all rows.
void SampleOrder::Schedule(int64_t epoch) {
  struct Sequence {
    int64_t first, samples;
    uint64_t among_equals, in_row;  // random
  };
  const uint64_t among_equals = RandomKey(seed_, "sequences");
  const uint64_t in_row = RandomKey(seed_, "sequences in a row");
  std::vector<Sequence> sequences;
  int64_t size = 0;
  for (const int64_t samples : samples_) {
    GYRE_CHECK(samples >= 1);
    const auto index = static_cast<int64_t>(sequences.size());
    sequences.push_back(
        {size, samples, RandomWord(among_equals, epoch, index), RandomWord(in_row, epoch, index)});
    size += samples;
  }
  // How the rows' loads grow depends on the lengths alone, so all epochs are of one length.
  std::ranges::stable_sort(sequences, [](const Sequence& a, const Sequence& b) {
    return std::pair(-a.samples, a.among_equals) < std::pair(-b.samples, b.among_equals);
  });
  using Load = std::pair<int64_t, size_t>;  // samples, row
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  std::vector<std::vector<Sequence>> rows(static_cast<size_t>(rows_));
  for (size_t r = 0; r < rows.size(); ++r) loads.push({0, r});
  int64_t steps = 0;
  for (const Sequence& sequence : sequences) {
    const auto [load, row] = loads.top();
    loads.pop();
    rows[row].push_back(sequence);
    loads.push({load + sequence.samples, row});
    steps = std::max(steps, load + sequence.samples);
  }
  permutation_.assign(static_cast<size_t>(steps * rows_), size);
  for (size_t r = 0; r < rows.size(); ++r) {
    std::ranges::stable_sort(rows[r], {}, &Sequence::in_row);
    size_t at = r;
    for (const Sequence& sequence : rows[r]) {
      for (int64_t i = 0; i < sequence.samples; ++i, at += rows.size()) {
        permutation_[at] = sequence.first + i;
      }
    }
  }
}

void SampleOrder::SortByLength(int64_t epoch) {
  // Of 50 batches, the samples of one differ by some 2 % of the spread of all.
  constexpr int64_t kBatchesAPool = 50;
  const auto length = [&](int64_t sample) { return lengths_[static_cast<size_t>(sample)]; };
  // The part of the batch that the epoch before has begun stays in front.
  const int64_t head = std::min((batch_ - epoch * period_ % batch_) % batch_, period_);
  const int64_t batches = (period_ - head) / batch_;
  const int64_t pool = kBatchesAPool * batch_;
  for (int64_t at = head; at < period_; at += pool) {
    const auto first = permutation_.begin() + at;
    std::stable_sort(first, first + std::min(pool, period_ - at),
                     [&](int64_t a, int64_t b) { return length(a) < length(b); });
  }
  std::vector<int64_t> order(static_cast<size_t>(batches));
  std::iota(order.begin(), order.end(), int64_t{0});
  const uint64_t key = RandomKey(seed_, "buckets");
  std::ranges::stable_sort(order, {}, [&](int64_t batch) { return RandomWord(key, epoch, batch); });
  std::vector<int64_t> shuffled = permutation_;
  for (int64_t b = 0; b < batches; ++b) {
    std::copy_n(permutation_.begin() + head + order[static_cast<size_t>(b)] * batch_, batch_,
                shuffled.begin() + head + b * batch_);
  }
  permutation_ = std::move(shuffled);
}

Share ShareOf(int64_t total, int rank, int ranks) {
  GYRE_CHECK(total >= 0 && ranks >= 1 && rank >= 0 && rank < ranks);
  const int64_t each = total / ranks, larger = total % ranks;
  return {rank * each + std::min<int64_t>(rank, larger), each + (rank < larger ? 1 : 0)};
}

}  // namespace gyre
