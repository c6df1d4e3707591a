// balanced_order.h: an endless order in which all classes come equally often, whatever their
// numbers of samples.  The sample at a position depends on the position, the classes and the seed
// alone.  Used by one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gyre {

// A round is a position for each class, in an order of its own.  A class gives its samples in turn,
// shuffled anew each time that all have come.
class BalancedOrder {
 public:
  // `classes` has the class of each sample, from 0, each with at least one.
  BalancedOrder(std::span<const int32_t> classes, uint64_t seed);
  // The sample at a position >= 0.  Caches a round, and a permutation of each class.
  int64_t At(int64_t position);

 private:
  struct SampleClass {
    std::vector<int64_t> samples;
    int64_t turn = -1;                   // of shuffled
    std::vector<int64_t> shuffled = {};  // all samples, once
  };

  uint64_t seed_;
  std::vector<SampleClass> classes_;
  int64_t round_ = -1;          // of order_
  std::vector<int64_t> order_;  // the round's classes
};

}  // namespace gyre
