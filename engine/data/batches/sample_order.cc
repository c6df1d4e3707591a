#include "engine/data/batches/sample_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "engine/runtime/check.h"
#include "engine/runtime/random.h"

namespace gyre {
namespace {

// Uniform in [0, bound) by multiply-shift: of the 2^64 inputs any two results get counts that
// differ by at most one, so the bias is below bound / 2^64.
// Source: Lemire 2019, "Fast random integer generation in an interval", arXiv:1805.10941, without
// its rejection step, which would make the number of draws depend on the draws.
int64_t Below(uint64_t x, int64_t bound) {
  return static_cast<int64_t>((static_cast<unsigned __int128>(x) * static_cast<uint64_t>(bound)) >>
                              64);
}

uint64_t Random(uint64_t key, int64_t epoch, int64_t index) {
  const RandomBits bits = Philox(key, static_cast<uint64_t>(epoch), static_cast<uint64_t>(index));
  return uint64_t{bits.v[0]} << 32 | bits.v[1];
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

int64_t SampleOrder::At(int64_t position) {
  GYRE_CHECK(position >= 0);
  if (rows_ > 0 && samples_.empty()) {
    const int64_t length = period_ / rows_;
    return position % rows_ * length + position / rows_ % length;
  }
  const int64_t epoch = position / period_;
  if (epoch != epoch_) {
    if (!samples_.empty()) {
      Schedule(epoch);
    } else {
      Permute(epoch);
      if (!lengths_.empty()) SortByLength(epoch);
    }
    epoch_ = epoch;
  }
  return permutation_[static_cast<size_t>(position % period_)];
}

// Fisher-Yates (Durstenfeld 1964, CACM algorithm 235); step i draws from counter (epoch, i).
void SampleOrder::Permute(int64_t epoch) {
  const uint64_t key = RandomKey(seed_, "sample order");
  permutation_.resize(static_cast<size_t>(period_));
  std::iota(permutation_.begin(), permutation_.end(), int64_t{0});
  for (int64_t i = period_ - 1; i > 0; --i) {
    std::swap(permutation_[static_cast<size_t>(i)],
              permutation_[static_cast<size_t>(Below(Random(key, epoch, i), i + 1))]);
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
        {size, samples, Random(among_equals, epoch, index), Random(in_row, epoch, index)});
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
  std::ranges::stable_sort(order, {}, [&](int64_t batch) { return Random(key, epoch, batch); });
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
