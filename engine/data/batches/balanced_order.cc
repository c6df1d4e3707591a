#include "engine/data/batches/balanced_order.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/batches/shuffle.h"
#include "engine/runtime/check.h"

namespace gyre {
BalancedOrder::BalancedOrder(std::span<const int32_t> classes, uint64_t seed) : seed_(seed) {
  GYRE_CHECK(!classes.empty());
  classes_.resize(static_cast<size_t>(std::ranges::max(classes)) + 1);
  for (size_t sample = 0; sample < classes.size(); ++sample) {
    classes_[static_cast<size_t>(classes[sample])].samples.push_back(static_cast<int64_t>(sample));
  }
  for (const SampleClass& of : classes_) GYRE_CHECK(!of.samples.empty());
}

int64_t BalancedOrder::At(int64_t position) {
  const auto classes = static_cast<int64_t>(classes_.size());
  const int64_t round = position / classes;
  if (round != round_) {
    round_ = round;
    order_.resize(classes_.size());
    std::iota(order_.begin(), order_.end(), int64_t{0});
    Shuffle(order_, RandomKey(seed_, "balanced rounds"), round);
  }
  const int64_t which = order_[static_cast<size_t>(position % classes)];
  SampleClass& of = classes_[static_cast<size_t>(which)];
  const auto size = static_cast<int64_t>(of.samples.size());
  if (round / size != of.turn) {
    of.turn = round / size;
    of.shuffled = of.samples;
    Shuffle(of.shuffled, RandomKey(seed_, absl::StrCat("balanced class ", which)), of.turn);
  }
  return of.shuffled[static_cast<size_t>(round % size)];
}

}  // namespace gyre
