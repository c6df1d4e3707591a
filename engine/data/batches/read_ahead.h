// read_ahead.h: which samples are asked for before they are needed, so that a disk reads them in
// the order of their bytes.  Used by one thread.
//
// Batches are grouped by the order's windows.  While one group is trained on, the samples of the
// next are asked for, sorted, as many for each batch.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "engine/data/batches/sample_order.h"

namespace gyre {

class ReadAhead {
 public:
  // Of this rank's batches: `count` samples each, from `first_position` on, every `advance`.
  // Preconditions: the order has windows, advance >= 1.
  ReadAhead(SampleOrder order, int64_t first_position, int64_t count, int64_t advance)
      : order_(std::move(order)), count_(count), advance_(advance), next_(first_position) {}

  // The samples to ask for when the next batch begins.  They ascend, but where a group begins.
  std::vector<int64_t> Next();

 private:
  struct BatchGroup {
    int64_t batches = 0;
    std::vector<int64_t> samples = {};  // sorted
  };
  // The next batches that begin in one window, at least one.
  BatchGroup Group();

  SampleOrder order_;
  const int64_t count_, advance_;
  int64_t next_;       // position of the first batch that is in no group yet
  int64_t left_ = -1;  // batches before `ahead_` begins.  -1: nothing has begun
  BatchGroup ahead_;   // asked for, up to `asked_`
  size_t asked_ = 0;
};

}  // namespace gyre
