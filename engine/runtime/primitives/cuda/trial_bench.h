// trial_bench.h: memory in which the candidates of a CudaTrial are run, timed and checked.  Used by
// one thread.  Methods wait for the device.
#pragma once

#include <memory>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "engine/runtime/device/stop_watch.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"

namespace gyre {

// Fills device memory with numbers of `dtype`, uniform in [-1, 1), which `key` determines.  A GPU
// multiplies zeros with less power, and so faster.  Blocks until the stream is done.
absl::Status FillUniform(Stream& stream, void* to, size_t bytes, DType dtype, uint64_t key);

// Returns the shortest of a few times of `run` on the stream, in seconds, after a warm-up.
// Measuring stops early if that exceeds give_up.
absl::StatusOr<double> ShortestTime(Stream& stream, StopWatch& watch, double give_up,
                                    const std::function<absl::Status()>& run);

// A run of this many seconds is timed once.
inline constexpr double kLong = 0.1;

class TrialBench {
 public:
  // The device must outlive the result.
  static absl::StatusOr<std::unique_ptr<TrialBench>> Create(Device& device);

  // Fills memory for the trial, which must outlive its use.  FillUniform gets operands' numbers as
  // keys.  Errors: ResourceExhausted if there is too little memory.
  absl::Status Load(const CudaTrial& trial);
  // As ShortestTime.
  absl::StatusOr<double> Seconds(const CudaTrial::TrialCandidate& candidate, double give_up);
  // True if a first operand of NaNs gives a result of NaNs.  Load again after it.
  absl::StatusOr<bool> HandsNaNOn(const CudaTrial::TrialCandidate& candidate);

  // Enqueues one run on stream().
  absl::Status Run(const CudaTrial::TrialCandidate& candidate);

  Stream& stream() { return *stream_; }
  void* operand(size_t index) const { return operands_[index].data(); }

 private:
  Device* device_ = nullptr;
  const CudaTrial* trial_ = nullptr;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<StopWatch> watch_;
  std::vector<Buffer> operands_;
  Buffer scratch_;
};

}  // namespace gyre
