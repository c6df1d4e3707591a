#include "memory/planner/geeps_plan.h"

#include <algorithm>
#include <map>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

std::vector<std::vector<int>> TouchedBlocks(const LayoutInput& input) {
  std::vector<std::vector<int>> touched(input.begins.size() - 1);
  for (size_t b = 0; b < input.accesses.size(); ++b) {
    for (const BlockAccess& access : input.accesses[b]) {
      touched[access.step].push_back(static_cast<int>(b));
    }
  }
  return touched;
}

// Algorithm 2, in its words.
class PlacementPolicy {
 public:
  explicit PlacementPolicy(const GeepsInput& input)
      : input_(input), touched_(TouchedBlocks(input.all)), pinned_(input.resident) {
    usage_.resize(touched_.size());
    available_ = static_cast<int64_t>(input.capacity_bytes);
    for (size_t b = 0; b < pinned_.size(); ++b) {
      if (!pinned_[b]) continue;
      available_ -= Size(b);
      if (input.all.persistent[b]) persistent_ += input.all.bytes[b];
    }
    for (size_t s = 0; s < touched_.size(); ++s) {
      for (const int b : touched_[s]) usage_[s] += pinned_[b] ? 0 : Size(b);
    }
    available_ -= 2 * PeakSize();
    GYRE_CHECK(available_ >= 0);
  }

  std::vector<bool> Run() {
    PinWhatThePeakUses();
    for (const bool persistent : {false, true}) {
      for (size_t b = 0; b < pinned_.size(); ++b) {
        if (pinned_[b] || input_.all.persistent[b] != persistent) continue;
        if (input_.all.accesses[b].empty() || available_ < Size(b)) continue;
        if (persistent) {
          if (persistent_ + input_.all.bytes[b] > input_.most_persistent_bytes) continue;
          persistent_ += input_.all.bytes[b];
        }
        pinned_[b] = true;
        available_ -= Size(b);
      }
    }
    return std::move(pinned_);
  }

 private:
  int64_t Size(size_t b) const { return static_cast<int64_t>(input_.all.bytes[b]); }
  int64_t PeakSize() const { return usage_.empty() ? 0 : std::ranges::max(usage_); }

  // Ends where the next one does not fit, though another might.
  void PinWhatThePeakUses() {
    while (!usage_.empty()) {
      std::vector<int> of_peak = touched_[std::ranges::max_element(usage_) - usage_.begin()];
      if (input_.last_first) std::ranges::reverse(of_peak);
      const auto data = std::ranges::find_if(
          of_peak, [&](int b) { return !pinned_[b] && !input_.all.persistent[b]; });
      if (data == of_peak.end()) return;
      const int64_t peak = PeakSize();
      AddToUsage(*data, -Size(*data));
      const int64_t memory_delta = Size(*data) + 2 * (PeakSize() - peak);
      if (available_ < memory_delta) return AddToUsage(*data, Size(*data));
      pinned_[*data] = true;
      available_ -= memory_delta;
    }
  }

  void AddToUsage(int b, int64_t bytes) {
    for (const BlockAccess& access : input_.all.accesses[b]) usage_[access.step] += bytes;
  }

  const GeepsInput& input_;
  const std::vector<std::vector<int>> touched_;  // by step
  std::vector<bool> pinned_;
  std::vector<int64_t> usage_;  // by step: of the buffer
  int64_t available_ = 0;
  size_t persistent_ = 0;
};

// The allocator, and the reclaimer behind it.
class AccessBuffer {
 public:
  AccessBuffer(const LayoutInput& input, bool next_fit)
      : input_(input), next_fit_(next_fit), touched_(TouchedBlocks(input)) {
    buffered_.resize(input.accesses.size());
    cursor_ = input.begin;
  }

  std::vector<Stay> Run() {
    const size_t steps = touched_.size();
    for (step_ = 0; step_ < steps; ++step_) {
      RunAhead();
      if (ahead_step_ <= step_) LayOutAnew();
      for (const int b : touched_[step_]) {
        BufferedBlock& buffered = buffered_[b];
        stays_[buffered.stay].last_step = static_cast<int>(step_);
        if (--buffered.references == 0) Leave(b);
      }
    }
    std::erase_if(stays_, [](const Stay& stay) { return stay.block < 0; });
    return std::move(stays_);
  }

 private:
  struct BufferedBlock {
    int references = 0;  // of steps that are not over
    int stay = -1;
  };

  // Gives blocks to steps in order, until the buffer has no room for the next.
  void RunAhead() {
    for (; ahead_step_ < touched_.size(); ++ahead_step_, ahead_ = 0) {
      for (; ahead_ < touched_[ahead_step_].size(); ++ahead_) {
        if (!Give(touched_[ahead_step_][ahead_])) return;
      }
    }
  }

  bool Give(int b) {
    if (buffered_[b].references == 0) {
      const size_t offset = FindOffset(input_.bytes[b]);
      if (offset == kNoOffset) return false;
      Begin(b, offset);
    }
    ++buffered_[b].references;
    return true;
  }

  void Begin(int b, size_t offset) {
    const int step = static_cast<int>(ahead_step_);
    buffered_[b].stay = static_cast<int>(stays_.size());
    stays_.push_back({.block = b, .first_step = step, .last_step = step, .offset = offset});
    occupied_[offset] = offset + input_.bytes[b];
    cursor_ = offset + input_.bytes[b];
  }

  void Leave(int b) {
    occupied_.erase(stays_[buffered_[b].stay].offset);
    buffered_[b] = {};
  }

  // Takes back what was given to steps from this one on; it fits, side by side.
  void LayOutAnew() {
    for (size_t b = 0; b < buffered_.size(); ++b) {
      if (buffered_[b].references == 0) continue;
      Stay& stay = stays_[buffered_[b].stay];
      if (stay.first_step >= static_cast<int>(step_)) stay.block = -1;  // it has not been
      Leave(static_cast<int>(b));
    }
    ahead_step_ = step_;
    ahead_ = 0;
    cursor_ = input_.begin;
    RunAhead();
    GYRE_CHECK(ahead_step_ > step_);
  }

  size_t FindOffset(size_t bytes) const {
    const size_t from = next_fit_ ? cursor_ : input_.begin;
    const size_t offset = FirstFrom(from, bytes);
    return offset != kNoOffset ? offset : FirstFrom(input_.begin, bytes);
  }
  size_t FirstFrom(size_t offset, size_t bytes) const {
    auto at = occupied_.upper_bound(offset);
    if (at != occupied_.begin()) offset = std::max(offset, std::prev(at)->second);
    for (; at != occupied_.end() && at->first < offset + bytes; ++at) offset = at->second;
    return offset + bytes <= input_.end ? offset : kNoOffset;
  }

  const LayoutInput& input_;
  const bool next_fit_;
  const std::vector<std::vector<int>> touched_;  // by step
  size_t step_ = 0;                              // that works
  size_t ahead_step_ = 0, ahead_ = 0;            // the next to be given: step, and which of its
  size_t cursor_ = 0;
  std::vector<BufferedBlock> buffered_;  // by block
  std::map<size_t, size_t> occupied_;    // from an offset to its end
  std::vector<Stay> stays_;              // block -1: was taken back
};

}  // namespace

std::vector<bool> PinAsGeeps(const GeepsInput& input) { return PlacementPolicy(input).Run(); }

std::vector<Stay> LayOutAsGeeps(const LayoutInput& input, bool next_fit) {
  std::vector<Stay> stays = AccessBuffer(input, next_fit).Run();
  FindCopies(input, /*keep_dead=*/false, stays);
  return stays;
}

std::vector<Stay> LayOutNaively(const LayoutInput& input) {
  std::vector<Stay> stays;
  const std::vector<std::vector<int>> touched = TouchedBlocks(input);
  for (int step = 0; step < static_cast<int>(touched.size()); ++step) {
    size_t offset = input.begin;
    for (const int b : touched[step]) {
      stays.push_back({.block = b, .first_step = step, .last_step = step, .offset = offset});
      offset += input.bytes[b];
    }
    GYRE_CHECK(offset <= input.end);
  }
  FindCopies(input, /*keep_dead=*/true, stays);
  return stays;
}

}  // namespace gyre
