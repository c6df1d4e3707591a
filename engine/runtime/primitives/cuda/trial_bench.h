// trial_bench.h: memory in which the candidates of a CudaTrial are run, timed and looked at.  Used
// by one thread; methods wait for the device.
#pragma once

#include <memory>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "engine/runtime/device/stop_watch.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"

namespace gyre {

// Numbers of `dtype`, uniform in [-1, 1) and the same for the same key, into device memory.  Not
// zeros: a GPU multiplies those with less power, and so faster.  Waits for the stream.
absl::Status FillUniform(Stream& stream, void* to, size_t bytes, DType dtype, uint64_t key);

// The shortest of a few times that `run` takes on the stream, after a warm-up, in seconds; the
// first of them if that exceeds give_up.
absl::StatusOr<double> ShortestTime(Stream& stream, StopWatch& watch, double give_up,
                                    const std::function<absl::Status()>& run);

// Seconds: once will do.
inline constexpr double kLong = 0.1;

class TrialBench {
 public:
  // The device outlives the result.
  static absl::StatusOr<std::unique_ptr<TrialBench>> Create(Device& device);

  // Fills memory for the trial, which must stay: operands as FillUniform does with their numbers.
  // Errors: ResourceExhausted if there is too little.
  absl::Status Load(const CudaTrial& trial);
  // ShortestTime's.
  absl::StatusOr<double> Seconds(const CudaTrial::TrialCandidate& candidate, double give_up);
  // Whether a first operand of NaNs gives a result of them.  Load again after it.
  absl::StatusOr<bool> HandsNaNOn(const CudaTrial::TrialCandidate& candidate);

  // One run, enqueued on stream().
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
