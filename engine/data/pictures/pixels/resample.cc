#include "engine/data/pictures/pixels/resample.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/data/pictures/pixels/weighted_sums.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

struct ResampleMemory {
  std::vector<uint8_t> rows;
  RowScratch scratch;
};

// It is retained, so that a worker allocates nothing for its next picture.
ResampleMemory& ThisThreadsMemory() {
  thread_local ResampleMemory memory;
  return memory;
}

// Rows summed along, as far as results need them at a time.  Rows come before columns, as in
// Pillow, so that both round alike.
class SummedRows {
 public:
  SummedRows(const Pixels& from, const AxisWeights& across, int64_t first, int64_t most_rows)
      : from_(from),
        across_(across),
        stride_(RoundUp(across.results() * from.channels, kLanes) + kLanes),
        // More than the rows of one result, so that few are moved.
        capacity_(most_rows + std::max(most_rows / 2, kSpareRows) + kLanes),
        first_(first),
        end_(first) {
    const auto bytes = static_cast<size_t>(capacity_ * stride_);
    if (memory_.rows.size() < bytes) memory_.rows.resize(bytes);
  }

  int64_t stride() const { return stride_; }

  // Rows `first` to `end` - 1 of the source, summed.  They are valid until the next call.
  // Preconditions: first never decreases, and end - first is at most most_rows.
  const uint8_t* Get(int64_t first, int64_t end) {
    if (first > end_) first_ = end_ = first;  // results that do not touch, of kNearest
    while (end_ < end) {
      if (end_ - first_ + kLanes > capacity_) Drop(first);
      const int64_t count = std::min(kLanes, from_.height - end_),
                    row_bytes = from_.width * from_.channels;
      SumAlongRows(across_, from_.channels, from_.data + end_ * row_bytes, row_bytes, count,
                   memory_.scratch, Row(end_), stride_);
      end_ += count;
    }
    return Row(first);
  }

 private:
  // With fewer, moves would take much of the time.
  static constexpr int64_t kSpareRows = 4 * kLanes;

  uint8_t* Row(int64_t row) { return memory_.rows.data() + (row - first_) * stride_; }

  void Drop(int64_t before) {
    memmove(memory_.rows.data(), Row(before), (end_ - before) * stride_);
    first_ = before;
  }

  const Pixels from_;
  const AxisWeights& across_;
  const int64_t stride_, capacity_;
  int64_t first_, end_;  // rows that are there
  ResampleMemory& memory_ = ThisThreadsMemory();
};

}  // namespace

void Resample(const Pixels& from, const AxisWeights& across, const AxisWeights& down, uint8_t* to) {
  GYRE_CHECK(across.results() > 0 && down.results() > 0);
  GYRE_CHECK(across.end(across.results() - 1) <= from.width);
  GYRE_CHECK(down.end(down.results() - 1) <= from.height);
  int64_t most_rows = 0;
  for (int64_t y = 0; y < down.results(); ++y) most_rows = std::max(most_rows, down.count(y));
  SummedRows rows(from, across, down.first.front(), most_rows);
  const int64_t bytes = across.results() * from.channels;
  for (int64_t y = 0; y < down.results(); ++y) {
    SumDownColumns(down.weights.data() + down.offset[y], down.count(y),
                   rows.Get(down.first[y], down.end(y)), rows.stride(), bytes, to + y * bytes);
  }
}

}  // namespace gyre
