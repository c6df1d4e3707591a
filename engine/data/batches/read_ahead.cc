#include "engine/data/batches/read_ahead.h"

#include <algorithm>
#include <cstddef>

#include "engine/runtime/math.h"

namespace gyre {

ReadAhead::BatchGroup ReadAhead::Group() {
  BatchGroup group;
  for (const int64_t end = order_.WindowEnd(next_); next_ < end; next_ += advance_) {
    for (int64_t i = 0; i < count_; ++i) group.samples.push_back(order_.At(next_ + i));
    ++group.batches;
  }
  std::ranges::sort(group.samples);
  return group;
}

std::vector<int64_t> ReadAhead::Next() {
  std::vector<int64_t> ask;
  if (left_ < 0) {
    ahead_ = Group();  // nothing has been asked for yet
    ask = ahead_.samples;
    left_ = 0;
  }
  if (left_ == 0) {
    left_ = ahead_.batches;
    ahead_ = Group();
    asked_ = 0;
  }
  const auto first = ahead_.samples.begin() + static_cast<std::ptrdiff_t>(asked_);
  const size_t count = CeilDiv(ahead_.samples.size() - asked_, static_cast<size_t>(left_));
  ask.insert(ask.end(), first, first + static_cast<std::ptrdiff_t>(count));
  asked_ += count;
  --left_;
  return ask;
}

}  // namespace gyre
