#include "tools/command_line/devices.h"

#include <omp.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_device.h"
#include "engine/runtime/machine.h"
#include "engine/runtime/math.h"
#include "engine/runtime/primitives/cuda/tuner.h"
#include "tools/command_line/flag_values.h"

namespace gyre {
namespace {

// A rank's share of the host's cores, or of those that mpirun has bound it to: a core of its own,
// or a socket, which it shares with as many ranks as the socket has of the cores that mpirun has.
int DefaultThreads(int ranks_in_process) {
  const bool bound = std::getenv("OMPI_MCA_orte_bound_at_launch") != nullptr;
  const int ranks = std::max(1, AnnouncedLocalRank().size);
  int64_t share = Cores() / ranks;
  cpu_set_t own, launcher;
  if (bound && sched_getaffinity(0, sizeof(own), &own) == 0 &&
      sched_getaffinity(getppid(), sizeof(launcher), &launcher) == 0) {
    const int64_t cores = CPU_COUNT(&own), all = std::max(CPU_COUNT(&launcher), CPU_COUNT(&own));
    // Fewer by a control group's quota: that is all ranks' together.
    if (Cores() == cores) share = cores / CeilDiv(ranks * cores, all);
  }
  return static_cast<int>(std::max<int64_t>(1, share / ranks_in_process));
}

absl::StatusOr<int> Threads(const DeviceFlags& flags) {
  const int most = kMostThreads / flags.in_process.size;
  if (flags.threads < 0 || flags.threads > most) {
    return absl::InvalidArgumentError(
        absl::StrFormat("--threads=%d: expected 1 to %d%s, or 0 for cores / ranks", flags.threads,
                        most, flags.in_process.size > 1 ? " for each of these ranks" : ""));
  }
  const int limit = omp_get_thread_limit();  // of each rank
  if (flags.threads > limit) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "--threads=%d: OMP_THREAD_LIMIT allows %d in this environment; unset it, or ask for fewer",
        flags.threads, limit));
  }
  if (flags.threads > 0) return flags.threads;
  return std::min({DefaultThreads(flags.in_process.size), most, limit});
}

// This rank among those that share the host's GPUs: threads of this process, or the launcher's.
RankAndSize LocalRank(const RankAndSize& in_process) {
  const RankAndSize local = AnnouncedLocalRank();
  const bool counts = in_process.size == 1 && local.rank >= 0 && local.rank < local.size;
  return counts ? local : in_process;
}

// memory: 0 for what is free.
absl::Status OpenGpu(const DeviceFlags& flags, size_t memory, DeviceChoice& choice) {
  const RankAndSize local = LocalRank(flags.in_process);
  ASSIGN_OR_RETURN(choice.device, NewCudaDevice({.local_rank = local.rank,
                                                 .local_ranks = local.size,
                                                 .capacity_bytes = memory}));
  if (flags.autotune) {
    ProcessGroup* const communication = flags.communication;
    const int rank = communication == nullptr ? 0 : communication->rank();
    CudaTuner::Share share;
    if (communication != nullptr && communication->size() > 1) {
      share = [communication, rank](const std::string& what, double* value) {
        if (rank != 0) *value = 0;
        return communication->Sum(absl::StrCat("the choice for ", what),
                                  {value, Shape({1}), DType::kF64});
      };
    }
    auto tuner = std::make_unique<CudaTuner>(*choice.device, rank, std::move(share));
    choice.tune = [to = tuner.get()](const std::function<absl::Status()>& prepare) {
      return to->Tune(prepare);
    };
    choice.tuner = std::move(tuner);
  }
  ASSIGN_OR_RETURN(
      choice.primitives,
      NewCudaPrimitives(*choice.device, {.tf32 = flags.tf32, .selector = choice.tuner.get()}));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceChoice> OpenDevice(const DeviceFlags& flags) {
  DeviceChoice choice;
  ASSIGN_OR_RETURN(choice.threads, Threads(flags));
  const auto kind = ParseDeviceKind(flags.kind);
  if (!kind.ok()) return Annotate(kind.status(), "--device");
  size_t memory = 0;  // not given
  if (!flags.memory.empty()) {
    if (*kind == DeviceKind::kCpu) {
      return absl::InvalidArgumentError(
          "--device_memory: the memory of --device=cpu has no bound; leave it out, or use "
          "--device=sim");
    }
    ASSIGN_OR_RETURN(memory, ParseBytes("--device_memory", flags.memory));
  }
  if (*kind == DeviceKind::kCuda) {
    RETURN_IF_ERROR(OpenGpu(flags, memory, choice));
    return choice;
  }
  if (*kind == DeviceKind::kCpu) {
    choice.device = NewCpuDevice({.threads = choice.threads});
  } else {
    SimOptions sim{.threads = choice.threads};
    if (memory > 0) sim.capacity_bytes = memory;
    choice.device = NewSimDevice(sim);
  }
  choice.primitives = std::make_unique<Primitives>(*kind, choice.threads);
  return choice;
}

}  // namespace gyre
