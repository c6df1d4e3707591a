#include "engine/runtime/primitives/cuda/tuner.h"

#include <algorithm>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Heuristics' suggestions beyond the first few are slow; a plan for one takes cuDNN up to a second.
constexpr size_t kMostCandidates = 8;
// For all of a net's operations: some of the minutes that a run takes at least.
constexpr std::chrono::seconds kMostTime{20};
// A candidate that is so much slower at first is not timed again.
constexpr double kHopeless = 1.3;
// The favourite stays unless another is faster by more than times vary.
constexpr double kGain = 0.97;

}  // namespace

absl::Status CudaTuner::Tune(const std::function<absl::Status()>& prepare) {
  start_ = Clock::now();
  tuning_ = true;
  const absl::Status prepared = prepare();
  tuning_ = false;
  return prepared;
}

size_t CudaTuner::most_candidates() const {
  if (!tuning_) {
    size_t last = 0;
    for (const auto& [what, index] : fastest_) last = std::max(last, index);
    return last + 1;
  }
  // The others must know whatever rank 0 may take.
  return rank_ == 0 && Clock::now() - start_ > kMostTime ? 1 : kMostCandidates;
}

absl::StatusOr<size_t> CudaTuner::Select(const CudaTrial& trial) {
  const auto known = fastest_.find(trial.what);
  size_t chosen =
      known == fastest_.end() || known->second >= trial.candidates.size() ? 0 : known->second;
  if (!tuning_) return chosen;
  if (rank_ == 0 && trial.candidates.size() > 1 && known == fastest_.end()) {
    const auto fastest = Fastest(trial);
    // Out of memory, or one that fails; an error that stays is the next call's as well.
    if (fastest.ok()) chosen = *fastest;
  }
  if (share_ != nullptr) {
    auto index = static_cast<double>(chosen);
    RETURN_IF_ERROR(share_(trial.what, &index));
    // A rank with other libraries has other candidates; what was chosen is compared later.
    chosen = index < static_cast<double>(trial.candidates.size()) ? static_cast<size_t>(index) : 0;
  }
  fastest_.insert_or_assign(trial.what, chosen);
  return chosen;
}

absl::StatusOr<size_t> CudaTuner::Fastest(const CudaTrial& trial) const {
  ASSIGN_OR_RETURN(const auto bench, TrialBench::Create(device_));
  RETURN_IF_ERROR(bench->Load(trial));
  std::vector<size_t> usable;
  for (size_t i = 0; i < trial.candidates.size(); ++i) {
    bool whole = true;
    if (trial.relu) {
      ASSIGN_OR_RETURN(whole, bench->HandsNaNOn(trial.candidates[i]));
    }
    if (whole) usable.push_back(i);
  }
  if (trial.relu) RETURN_IF_ERROR(bench->Load(trial));
  size_t best = 0;
  double best_seconds = 0;
  for (const size_t i : usable) {
    const double give_up = i == usable[0] ? kLong : best_seconds * kHopeless;
    ASSIGN_OR_RETURN(const double seconds, bench->Seconds(trial.candidates[i], give_up));
    if (i != usable[0] && seconds >= best_seconds * kGain) continue;
    best = i;
    best_seconds = seconds;
  }
  return best;
}

}  // namespace gyre
