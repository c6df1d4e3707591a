#include "memory/planner/stay_packing.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

namespace gyre {
namespace {

constexpr int kTries = 40;

class Packer {
 public:
  Packer(size_t begin, size_t end, Wishes wishes, std::vector<PackedStay>& places)
      : begin_(begin), end_(end), wishes_(wishes), places_(places), order_(places.size()) {
    for (PackedStay& place : places_) {
      if (wishes != Wishes::kMost) place.written = -1;
      if (wishes != Wishes::kNone) continue;
      place.claim = place.first;
      place.keep = place.last;
    }
  }

  bool Pack() {
    std::iota(order_.begin(), order_.end(), 0);
    std::ranges::stable_sort(order_, std::greater(), [&](int i) {
      return std::pair(places_[i].bytes, places_[i].last - places_[i].first);
    });
    const std::vector<PackedStay> wanted = places_;
    for (try_ = 0; try_ < kTries; ++try_) {
      places_ = wanted;
      size_t placed = 0;
      while (placed < order_.size() && PlaceNearly(placed)) ++placed;
      if (placed == order_.size()) return true;
      // What finds no place is the first to choose.
      const auto last = order_.begin() + static_cast<std::ptrdiff_t>(placed);
      std::rotate(order_.begin(), last, last + 1);
    }
    return false;
  }

 private:
  bool PlaceNearly(size_t placed) {
    PackedStay& place = places_[order_[placed]];
    if (wishes_ == Wishes::kAll) return Place(placed, place);
    const int claim = place.claim;
    for (const bool bare : {false, true}) {
      if (bare) {
        place.keep = place.last;
        place.written = -1;
      }
      for (place.claim = claim; place.claim <= place.first; ++place.claim) {
        if (Place(placed, place)) return true;
      }
    }
    return false;
  }

  // Beside the first `placed`.
  bool Place(size_t placed, PackedStay& place) {
    taken_.clear();
    for (size_t j = 0; j < placed; ++j) {
      const PackedStay& other = places_[order_[j]];
      if (Before(other, place) || Before(place, other)) continue;
      taken_.emplace_back(other.offset, other.offset + other.bytes);
    }
    if (High(order_[placed])) {
      std::ranges::sort(taken_, std::greater(), &std::pair<size_t, size_t>::second);
      size_t high = end_;
      for (const auto& [from, to] : taken_) {
        if (to + place.bytes <= high) break;
        high = std::min(high, from);
      }
      place.offset = high - place.bytes;
      return high >= begin_ + place.bytes;
    }
    std::ranges::sort(taken_);
    place.offset = begin_;
    for (const auto& [from, to] : taken_) {
      if (from >= place.offset + place.bytes) break;
      place.offset = std::max(place.offset, to);
    }
    return place.offset + place.bytes <= end_;
  }

  static bool Before(const PackedStay& a, const PackedStay& b) {
    return (b.fetched ? std::max(a.keep, a.written) : a.keep) < b.claim;
  }

  // Whether from above: in the first try none is; then about half are, by a fixed sequence.
  bool High(int i) const {
    const uint32_t mixed = (static_cast<uint32_t>(try_) * 0x9E3779B9U) ^
                           ((static_cast<uint32_t>(i) + 1) * 0x85EBCA6BU);
    return try_ > 0 && ((mixed * 0xC2B2AE35U) >> 31) != 0;
  }

  const size_t begin_, end_;
  const Wishes wishes_;
  std::vector<PackedStay>& places_;
  std::vector<int> order_;
  int try_ = 0;
  std::vector<std::pair<size_t, size_t>> taken_;
};

}  // namespace

bool PackStays(size_t begin, size_t end, Wishes wishes, std::vector<PackedStay>& places) {
  return Packer(begin, end, wishes, places).Pack();
}

}  // namespace gyre
