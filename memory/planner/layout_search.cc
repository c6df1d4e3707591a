#include "memory/planner/layout_search.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <utility>

namespace gyre {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1e-9;  // of a sum of times, relative
constexpr int kPackingCost = 10;    // of the budget
// Fetches and write-backs are moved about where a layout is that near to the best.
constexpr double kNear = 1.1;
constexpr uint32_t kMostChanges = 3;  // at once, to begin anew from the best
constexpr int kMostBegins = 1000;
constexpr int kTries = 40;  // of a packing

// --- Offsets of stays with known steps, in memory of a given size --------------------------------
//
// strip_packing.h minimizes the extent.  Here the extent is given, and an offset is better if the
// fetch can begin early and waits for no write-back.  A stay asks for its memory for longer than it
// must, and gets that or less.

struct PackedStay {
  size_t bytes = 0;
  int first = 0, last = 0;  // steps that need the memory
  int claim = 0, keep = 0;  // steps that should have it: claim <= first, last <= keep
  bool fetched = false;
  int written = -1;  // no fetch into the memory should be for a step up to this one
  size_t offset = 0;
};

enum class Wishes : uint8_t {
  kAll,       // claim and keep as asked, or it fails; `written` is ignored
  kMost,      // as many as possible
  kInMemory,  // as many as possible; `written` is ignored
  kNone,
};
constexpr Wishes kAllWishes[] = {Wishes::kAll, Wishes::kMost, Wishes::kInMemory, Wishes::kNone};

// Sets offsets in [begin, end), and claim and keep to the steps granted.
// Source: squeaky wheel optimization (Joslin & Clements 1999), over first fit by size.
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

  // False: found none, though there may be some.  Cost: at most kTries times stays^2 times steps.
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

// --- The search ----------------------------------------------------------------------------------

// Of an access.
struct AccessDecision {
  bool leaves = false;  // the block, after it
  // Steps, at most: by which its fetch, if any, has its place earlier, and by which its place is
  // kept for its write-back, if any.
  int lead = 0, linger = 1;
};

struct LayoutCandidate {
  std::vector<bool> resident;                          // by block
  std::vector<std::vector<AccessDecision>> decisions;  // by block and access
};

class Searcher {
 public:
  Searcher(const LayoutSearch& search, double best, int budget, const SecondsOfLayout& seconds)
      : search_(search),
        seconds_(seconds),
        steps_(static_cast<int>(search.seconds.size())),
        best_(best),
        budget_(budget) {
    for (size_t b = 0; b < search.all.accesses.size(); ++b) {
      const size_t count = search.all.accesses[b].size();
      if (count > 0 && search.may_choose[b]) gaps_.push_back({b, count});
      for (size_t i = 0; i < count; ++i) {
        if (Free(b, i)) gaps_.push_back({b, i});
      }
    }
  }

  void Run(const std::vector<bool>& resident, const std::vector<Stay>& stays) {
    LayoutCandidate best{.resident = resident, .decisions = {}};
    std::set<std::pair<int, int>> ends;
    for (const Stay& stay : stays) ends.emplace(stay.block, stay.last_step);
    for (size_t b = 0; b < search_.all.accesses.size(); ++b) {
      std::vector<AccessDecision>& decisions = best.decisions.emplace_back();
      for (const BlockAccess& access : search_.all.accesses[b]) {
        decisions.push_back(
            {.leaves = ends.contains({static_cast<int>(b), access.step}), .lead = steps_});
      }
    }
    if (gaps_.empty()) return;
    // Where all that can leaves there is most room.
    LayoutCandidate begin = best;
    for (std::vector<AccessDecision>& decisions : begin.decisions) {
      for (AccessDecision& decision : decisions) decision.leaves = true;
    }
    double least = Climb(best);
    std::minstd_rand next;  // a fixed sequence
    for (int i = 0; i < kMostBegins && budget_ > 0; ++i) {
      const double took = Climb(begin);
      if (took < least) {
        least = took;
        best = begin;
      }
      begin = best;
      for (uint32_t n = next() % kMostChanges + 1; n > 0; --n) {
        Change(gaps_[next() % gaps_.size()], begin);
      }
      const int lead = i % 3 == 0 ? 1 : steps_;
      for (std::vector<AccessDecision>& decisions : begin.decisions) {
        for (AccessDecision& decision : decisions)
          decision = {.leaves = decision.leaves, .lead = lead};
      }
    }
  }

 private:
  // What there is to choose: whether a block leaves after an access; beyond the last: whether it
  // stays for good.
  struct Gap {
    size_t block, access;
  };

  static bool Away(const Gap& gap, const LayoutCandidate& candidate) {
    const std::vector<AccessDecision>& decisions = candidate.decisions[gap.block];
    return gap.access == decisions.size() ? !candidate.resident[gap.block]
                                          : decisions[gap.access].leaves;
  }
  static void Change(const Gap& gap, LayoutCandidate& candidate) {
    std::vector<AccessDecision>& decisions = candidate.decisions[gap.block];
    if (gap.access == decisions.size()) {
      candidate.resident[gap.block] = !candidate.resident[gap.block];
    } else {
      decisions[gap.access].leaves ^= true;
    }
  }

  // Goes from candidate to candidate that is better, until none near it is.
  double Climb(LayoutCandidate& candidate) {
    double here = Try(candidate, kInfinity);
    for (bool better = true; better && budget_ > 0;) {
      better = false;
      const auto consider = [&](const LayoutCandidate& other) {
        if (budget_ <= 0) return false;
        const double took = Try(other, here * (1 - kRounding));
        if (!(took < here * (1 - kRounding))) return false;
        here = took;
        candidate = other;
        return better = true;
      };
      for (const Gap& gap : gaps_) {
        if (gap.access < candidate.decisions[gap.block].size() && candidate.resident[gap.block])
          continue;
        LayoutCandidate other = candidate;
        Change(gap, other);
        consider(other);
      }
      if (!better) Exchange(candidate, consider);
      if (better || here > best_ * kNear) continue;
      for (size_t b = 0; b < candidate.decisions.size(); ++b) {
        for (size_t i = 0; !candidate.resident[b] && i < candidate.decisions[b].size(); ++i) {
          ChangeTimes(candidate, b, i, consider);
        }
      }
    }
    return here;
  }

  // Of the stay that begins or ends there.
  template <typename Consider>
  void ChangeTimes(const LayoutCandidate& candidate, size_t b, size_t i, const Consider& consider) {
    const AccessDecision decision = candidate.decisions[b][i];
    const bool ends = decision.leaves || i + 1 == candidate.decisions[b].size();
    const auto change = [&](int AccessDecision::*steps) {
      for (int count = 0; count <= 2; ++count) {
        if (count == decision.*steps) continue;
        LayoutCandidate other = candidate;
        other.decisions[b][i].*steps = count;
        consider(other);
      }
    };
    if (search_.all.accesses[b][i].reads) change(&AccessDecision::lead);
    if (ends) change(&AccessDecision::linger);
  }

  // One leaves in another's stead.
  template <typename Consider>
  void Exchange(const LayoutCandidate& candidate, const Consider& consider) {
    for (const Gap& stays : gaps_) {
      for (const Gap& leaves : gaps_) {
        if (Away(stays, candidate) || !Away(leaves, candidate)) continue;
        LayoutCandidate other = candidate;
        Change(stays, other);
        Change(leaves, other);
        if (consider(other)) return;
      }
    }
  }

  // Whether the block may leave or stay after the access, as one likes.
  bool Free(size_t b, size_t i) const {
    const std::vector<BlockAccess>& accesses = search_.all.accesses[b];
    return i + 1 < accesses.size() && accesses[i + 1].reads && !accesses[i].on_host &&
           !accesses[i + 1].on_host && accesses[i + 1].step > accesses[i].step + 1;
  }

  // Infinity where it does not fit.
  double Try(const LayoutCandidate& candidate, double goal) {
    size_t resident = 0, chosen = 0;
    for (size_t b = 0; b < candidate.resident.size(); ++b) {
      if (!candidate.resident[b]) continue;
      resident += search_.all.bytes[b];
      if (search_.may_choose[b]) chosen += search_.all.bytes[b];
    }
    if (resident > search_.all.end || (chosen > 0 && resident > search_.most_resident)) {
      return kInfinity;
    }
    std::vector<Stay> stays = Stays(candidate);
    --budget_;
    const std::optional<std::vector<PackedStay>> items = Items(candidate, stays, resident);
    if (!items.has_value()) return kInfinity;
    if (TimeByBytes(stays, *items, search_.all.end - resident) >= goal) return kInfinity;
    double least = kInfinity;
    for (const Wishes wishes : kAllWishes) {
      std::vector<PackedStay> packed = *items;
      budget_ -= kPackingCost;
      if (!Packer(resident, search_.all.end, wishes, packed).Pack()) continue;
      for (size_t s = 0; s < stays.size(); ++s) stays[s].offset = packed[s].offset;
      least = std::min(least, seconds_(candidate.resident, stays));
    }
    best_ = std::min(best_, least);
    return least;
  }

  // What an iteration would take if blocks could lie in pieces.
  double TimeByBytes(const std::vector<Stay>& stays, const std::vector<PackedStay>& items,
                     size_t room) {
    double computed = 0, began = 0, in = 0, out = 0;
    size_t claimed = 0;
    written_.assign(search_.all.bytes.size(), 0);
    freed_.clear();
    const auto room_from = [&](size_t bytes) {
      size_t needed = claimed += bytes;
      for (size_t i = 0; needed > room && i < freed_.size(); ++i) {
        needed -= freed_[i].second;
        if (needed <= room) return freed_[i].first;
      }
      return needed <= room ? 0 : kInfinity;
    };
    const auto free = [&](double when, size_t bytes) {
      const auto at = std::ranges::upper_bound(freed_, when, {}, &Freed::first);
      freed_.insert(at, {when, bytes});
    };
    for (int iteration = 0; iteration < 2; ++iteration) {
      began = computed;
      size_t fetch = 0, first = 0;
      fetched_.assign(static_cast<size_t>(steps_), 0);
      for (int step = 0; step < steps_; ++step) {
        for (; fetch < stays.size() && items[fetch].claim <= step; ++fetch) {
          if (!stays[fetch].fetched) continue;
          const int b = stays[fetch].block;
          in = std::max({in, began, room_from(items[fetch].bytes), written_[b]}) +
               search_.all.copies[b].in;
          fetched_[stays[fetch].first_step] = in;
        }
        computed = std::max(computed, fetched_[step]);
        size_t created = 0;
        for (; first < stays.size() && stays[first].first_step == step; ++first) {
          if (!stays[first].fetched) created += items[first].bytes;
        }
        if (created > 0) computed = std::max(computed, room_from(created));
        computed += search_.seconds[step];
        if (computed == kInfinity) return computed;
        for (size_t s = 0; s < stays.size(); ++s) {
          if (stays[s].last_step != step) continue;
          if (stays[s].written_back) {
            out = std::max(out, computed) + search_.all.copies[stays[s].block].out;
            written_[stays[s].block] = out;
          }
          free(stays[s].written_back ? out : computed, items[s].bytes);
        }
      }
    }
    return computed - began;
  }

  // By first step.
  std::vector<Stay> Stays(const LayoutCandidate& candidate) const {
    std::vector<Stay> stays;
    for (size_t b = 0; b < candidate.decisions.size(); ++b) {
      const std::vector<BlockAccess>& accesses = search_.all.accesses[b];
      bool here = false;
      for (size_t i = 0; !candidate.resident[b] && i < accesses.size(); ++i) {
        const int step = accesses[i].step;
        if (accesses[i].on_host) continue;
        if (!here) stays.push_back({.block = static_cast<int>(b), .first_step = step});
        stays.back().last_step = step;
        here = i + 1 < accesses.size() && accesses[i + 1].reads && !accesses[i + 1].on_host &&
               !(Free(b, i) && candidate.decisions[b][i].leaves);
      }
    }
    FindCopies(search_.all, /*keep_dead=*/false, stays);
    return stays;
  }

  // Nothing where there are too many bytes at a step.
  std::optional<std::vector<PackedStay>> Items(const LayoutCandidate& candidate,
                                               const std::vector<Stay>& stays,
                                               size_t resident) const {
    std::vector<PackedStay> items;
    std::vector<size_t> here(static_cast<size_t>(steps_), resident);
    for (const Stay& stay : stays) {
      const size_t bytes = search_.all.bytes[stay.block];
      items.push_back({.bytes = bytes,
                       .first = stay.first_step,
                       .last = stay.last_step,
                       .claim = stay.first_step,
                       .keep = stay.last_step,
                       .fetched = stay.fetched});
      for (int step = stay.first_step; step <= stay.last_step; ++step) {
        if ((here[step] += bytes) > search_.all.end) return std::nullopt;
      }
    }
    std::vector<int> last(search_.all.bytes.size(), -1);  // by block: its stay before
    for (size_t s = 0; s < stays.size(); ++s) {
      const size_t b = static_cast<size_t>(stays[s].block);
      int left = stays[s].fetched ? DecisionAt(candidate, b, stays[s].first_step).lead : 0;
      for (; left > 0 && items[s].claim > last[b] + 1; --left) {
        if (here[items[s].claim - 1] + items[s].bytes > search_.all.end) break;
        here[--items[s].claim] += items[s].bytes;
      }
      last[b] = stays[s].last_step;
    }
    for (size_t s = 0; s < stays.size(); ++s) {
      if (!stays[s].written_back) continue;
      const size_t b = static_cast<size_t>(stays[s].block);
      int left = DecisionAt(candidate, b, stays[s].last_step).linger;
      items[s].written = items[s].last + left;
      for (; left > 0 && items[s].keep + 1 < steps_; --left) {
        if (here[items[s].keep + 1] + items[s].bytes > search_.all.end) break;
        here[++items[s].keep] += items[s].bytes;
      }
    }
    return items;
  }

  const AccessDecision& DecisionAt(const LayoutCandidate& candidate, size_t b, int step) const {
    const auto at = std::ranges::lower_bound(search_.all.accesses[b], step, {}, &BlockAccess::step);
    return candidate.decisions[b][static_cast<size_t>(at - search_.all.accesses[b].begin())];
  }

  using Freed = std::pair<double, size_t>;

  const LayoutSearch& search_;
  const SecondsOfLayout& seconds_;
  const int steps_;
  std::vector<Gap> gaps_;  // of all blocks
  double best_;
  int budget_;
  std::vector<double> written_;  // by block: when its page has been
  std::vector<double> fetched_;  // by step: when its fetches are over
  std::vector<Freed> freed_;     // by time: bytes
};

}  // namespace

void SearchLayouts(const LayoutSearch& search, const std::vector<bool>& resident,
                   const std::vector<Stay>& stays, double best, int budget,
                   const SecondsOfLayout& seconds) {
  Searcher(search, best, budget, seconds).Run(resident, stays);
}

}  // namespace gyre
