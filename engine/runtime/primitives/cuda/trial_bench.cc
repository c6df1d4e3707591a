#include "engine/runtime/primitives/cuda/trial_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/runtime/check.h"
#include "engine/runtime/random.h"

namespace gyre {
namespace {

// Of numbers made on the host; the rest are copies of them.
constexpr size_t kBlockBytes = size_t{1} << 20;

// `block`, over and over.
absl::Status FillWith(Stream& stream, void* to, size_t bytes, const std::vector<std::byte>& block) {
  auto* const data = static_cast<std::byte*>(to);
  size_t filled = std::min(bytes, block.size());
  RETURN_IF_ERROR(stream.Copy(data, block.data(), filled));
  while (filled > 0 && filled < bytes) {
    const size_t more = std::min(filled, bytes - filled);
    RETURN_IF_ERROR(stream.Copy(data + filled, data, more));
    filled += more;
  }
  return stream.Synchronize();
}

}  // namespace

absl::Status FillUniform(Stream& stream, void* to, size_t bytes, DType dtype, uint64_t key) {
  std::vector<std::byte> block(std::min(bytes, kBlockBytes));
  VisitReal(dtype, [&]<typename T>() {
    for (size_t i = 0; i < block.size() / sizeof(T); ++i) {
      const RandomBits bits = Philox(key, 0, i);
      const T value = static_cast<T>(2 * UniformFloat(bits.v[0]) - 1);
      std::memcpy(block.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return FillWith(stream, to, bytes, block);
}

absl::StatusOr<double> ShortestTime(Stream& stream, StopWatch& watch, double give_up,
                                    const std::function<absl::Status()>& run) {
  constexpr int kRounds = 3;
  constexpr double kRoundSeconds = 1e-3;  // a thousand times what events resolve
  constexpr double kMostRuns = 20;
  RETURN_IF_ERROR(run());
  RETURN_IF_ERROR(stream.Synchronize());
  double shortest = 0;
  int runs = 1;
  for (int round = 0; round <= kRounds; ++round) {  // the first one tells how many runs to take
    RETURN_IF_ERROR(watch.Start());
    for (int i = 0; i < runs; ++i) RETURN_IF_ERROR(run());
    RETURN_IF_ERROR(watch.Stop());
    ASSIGN_OR_RETURN(const double seconds, watch.Seconds());
    if (round == 0 || seconds / runs < shortest) shortest = seconds / runs;
    if (round == 0) {
      const double wanted = kRoundSeconds / std::max(seconds, kRoundSeconds / kMostRuns);
      runs = std::max(1, static_cast<int>(wanted));
    }
    if (shortest > give_up) break;
  }
  return shortest;
}

absl::StatusOr<std::unique_ptr<TrialBench>> TrialBench::Create(Device& device) {
  auto bench = std::make_unique<TrialBench>();
  bench->device_ = &device;
  ASSIGN_OR_RETURN(bench->stream_, device.NewStream());
  ASSIGN_OR_RETURN(bench->watch_, NewStopWatch(*bench->stream_));
  return bench;
}

absl::Status TrialBench::Load(const CudaTrial& trial) {
  const auto allocate = [&](size_t bytes) {
    return Buffer::Allocate(*device_, MemoryKind::kDevice, bytes);
  };
  if (trial_ != &trial) {
    operands_.clear();
    scratch_ = Buffer();
    size_t scratch = 0;
    for (const CudaTrial::TrialCandidate& candidate : trial.candidates)
      scratch = std::max(scratch, candidate.scratch_bytes);
    ASSIGN_OR_RETURN(scratch_, allocate(scratch));
    for (const CudaTrial::Operand& operand : trial.operands) {
      ASSIGN_OR_RETURN(operands_.emplace_back(), allocate(operand.bytes));
    }
    trial_ = &trial;
  }
  for (size_t i = 0; i < operands_.size(); ++i) {
    RETURN_IF_ERROR(FillUniform(*stream_, operands_[i].data(), operands_[i].bytes(), trial.dtype,
                                static_cast<uint64_t>(trial.operands[i].number)));
  }
  return absl::OkStatus();
}

absl::Status TrialBench::Run(const CudaTrial::TrialCandidate& candidate) {
  std::vector<void*> operands;
  for (const Buffer& operand : operands_) operands.push_back(operand.data());
  return candidate.run(*stream_, operands, scratch_.data());
}

absl::StatusOr<double> TrialBench::Seconds(const CudaTrial::TrialCandidate& candidate,
                                           double give_up) {
  return ShortestTime(*stream_, *watch_, give_up, [&] { return Run(candidate); });
}

absl::StatusOr<bool> TrialBench::HandsNaNOn(const CudaTrial::TrialCandidate& candidate) {
  const std::vector<std::byte> nans(kBlockBytes, std::byte{0xFF});  // in every real type
  RETURN_IF_ERROR(FillWith(*stream_, operands_[0].data(), operands_[0].bytes(), nans));
  RETURN_IF_ERROR(Run(candidate));
  std::vector<std::byte> first(SizeOf(trial_->dtype));
  RETURN_IF_ERROR(stream_->Copy(first.data(), operands_.back().data(), first.size()));
  RETURN_IF_ERROR(stream_->Synchronize());
  return VisitReal(trial_->dtype, [&]<typename T>() {
    T value;
    std::memcpy(&value, first.data(), sizeof(T));
    return std::isnan(static_cast<double>(value));
  });
}

}  // namespace gyre
