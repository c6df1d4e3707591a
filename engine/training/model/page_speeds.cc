#include "engine/training/model/page_speeds.h"

#include <algorithm>
#include <chrono>

#include "engine/runtime/device/buffer.h"
#include "engine/training/net/infer/net_kernels.h"
#include "memory/pager/disk/page_file.h"

namespace gyre {
namespace {

constexpr size_t kMostBytes = 32 << 20;
constexpr int kRounds = 2;  // the first touches the memory

// Of what `work` enqueues.
template <typename Work>
absl::StatusOr<double> BytesPerSecond(Stream& stream, size_t bytes, Work work) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point start = Clock::now();
  RETURN_IF_ERROR(work());
  RETURN_IF_ERROR(stream.Synchronize());
  return static_cast<double>(bytes) / std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

NarrowKernels KernelsTo(DType narrow) {
  if (narrow == DType::kF32) return {};
  const auto convert = [](DType from_type, DType to_type) {
    return
        [from_type, to_type](Stream& stream, const std::byte* from, std::byte* to, int64_t count) {
          const Shape shape({count});
          return Convert(stream, {const_cast<std::byte*>(from), shape, from_type},
                         {to, shape, to_type});
        };
  };
  return {.narrow = convert(DType::kF32, narrow), .widen = convert(narrow, DType::kF32)};
}

absl::StatusOr<PagingCosts> MeasureCosts(Device& device, Stream& stream, const PagingPlan& plan,
                                         const PageMemory& memory, const NarrowKernels& kernels,
                                         PagingCosts costs) {
  std::byte* const arena = memory.arena.data();
  const size_t bytes = std::min(memory.arena.size(), kMostBytes);
  ASSIGN_OR_RETURN(const Buffer host, Buffer::Allocate(device, MemoryKind::kPinnedHost, bytes));
  for (int round = 0; round < kRounds; ++round) {
    ASSIGN_OR_RETURN(costs.to_host_bytes_per_s, BytesPerSecond(stream, bytes, [&] {
                       return stream.Copy(host.data(), arena, bytes);
                     }));
    ASSIGN_OR_RETURN(costs.to_device_bytes_per_s, BytesPerSecond(stream, bytes, [&] {
                       return stream.Copy(arena, host.data(), bytes);
                     }));
    if (!plan.rounds()) continue;
    // Into the staging, where nothing lasts.
    const size_t slot = plan.device_staging.slot_bytes;
    const size_t wide = std::min(2 * slot, plan.device_staging.offset);
    ASSIGN_OR_RETURN(costs.convert_bytes_per_s, BytesPerSecond(stream, wide, [&] {
                       return kernels.narrow(stream, arena, arena + plan.device_staging.offset,
                                             static_cast<int64_t>(wide / sizeof(float)));
                     }));
  }
  if (plan.disk_bytes == 0) return costs;
  const absl::Status measured =
      MeasureDisk(memory.folder, plan.staging, memory.pages.data() + plan.staging.offset,
                  std::min(plan.disk_bytes, kMostBytes), costs);
  if (!measured.ok() && !absl::IsResourceExhausted(measured)) return measured;
  return costs;
}

}  // namespace gyre
