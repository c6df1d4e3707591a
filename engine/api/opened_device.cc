#include "engine/api/opened_device.h"

#include <omp.h>

#include <algorithm>

#include "absl/strings/str_format.h"
#include "distributed/transport/launcher.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_device.h"
#include "engine/runtime/machine.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"

namespace gyre {
namespace {

// Far beyond any machine's cores.  OpenMP crashes where the system runs out of threads.
constexpr int kMostThreads = 1024;

}  // namespace

absl::StatusOr<OpenedDevice> OpenWished(const DeviceWish& wish) {
  const int most = std::min(kMostThreads, omp_get_thread_limit());
  if (wish.threads < 0 || wish.threads > most) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "threads: expected 1 to %d, or 0 for the cores, got %d", most, wish.threads));
  }
  const RankAndSize local = AnnouncedLocalRank();
  const int ranks = std::max(local.size, 1);
  OpenedDevice opened;
  opened.threads = wish.threads > 0 ? wish.threads : std::clamp(Cores() / ranks, 1, most);
  const auto kind = ParseDeviceKind(wish.kind == nullptr ? "cpu" : wish.kind);
  if (!kind.ok()) return Annotate(kind.status(), "device");
  if (*kind == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(opened.device, NewCudaDevice({.local_rank = std::max(local.rank, 0),
                                                   .local_ranks = ranks,
                                                   .capacity_bytes = wish.memory_bytes}));
    ASSIGN_OR_RETURN(opened.primitives, NewCudaPrimitives(*opened.device, {.tf32 = wish.tf32}));
    return opened;
  }
  if (*kind == DeviceKind::kCpu) {
    if (wish.memory_bytes > 0) {
      return absl::InvalidArgumentError(
          "device_memory: that of cpu has no bound; leave it out, or use sim");
    }
    opened.device = NewCpuDevice({.threads = opened.threads});
  } else {
    SimOptions sim{.threads = opened.threads};
    if (wish.memory_bytes > 0) sim.capacity_bytes = wish.memory_bytes;
    opened.device = NewSimDevice(sim);
  }
  opened.primitives = std::make_unique<Primitives>(*kind, opened.threads);
  return opened;
}

}  // namespace gyre
