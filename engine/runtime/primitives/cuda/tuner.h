// tuner.h: finds each operation's fastest candidate, in a pass after the plan.  Used by one thread.
//
// Rank 0 measures and the others use its choice, so that ranks choose alike.  A ReLU that drops
// NaNs is excluded, however fast.  The heuristics' favourite serves before the pass.  It also
// serves for operations that the pass did not measure, for want of memory or time.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "engine/runtime/primitives/cuda/cuda_primitives.h"
#include "engine/runtime/primitives/cuda/trial_bench.h"

namespace gyre {

class CudaTuner : public CudaSelector {
 public:
  // Gives rank 0's value to all.  Called by all.
  using Share = std::function<absl::Status(const std::string& what, double* value)>;

  // `device` is this rank's and must outlive the result.  `share` is null if there is one rank.
  CudaTuner(Device& device, int rank, Share share)
      : device_(device), rank_(rank), share_(std::move(share)) {}

  // Calls `prepare`, which prepares the same operations in the same order on all ranks, and
  // measures them.  Later calls of Select return the choices.  Errors: those of prepare and share.
  absl::Status Tune(const std::function<absl::Status()>& prepare);

  size_t most_candidates() const override;
  absl::StatusOr<size_t> Select(const CudaTrial& trial) override;

 private:
  using Clock = std::chrono::steady_clock;
  absl::StatusOr<size_t> Fastest(const CudaTrial& trial) const;

  Device& device_;
  const int rank_;
  const Share share_;
  bool tuning_ = false;
  Clock::time_point start_;                // of it
  std::map<std::string, size_t> fastest_;  // by CudaTrial::what
};

}  // namespace gyre
