#include "tools/bench/paged_iteration.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "engine/training/model/page_speeds.h"
#include "memory/pager/pager.h"
#include "tools/bench/bench.h"
#include "tools/bench/slept_work.h"

ABSL_FLAG(std::vector<std::string>, planners, {"auto"},
          "Paging planners: auto, geeps (GeePS's algorithm), naive (no copy overlaps a layer).");
ABSL_FLAG(std::string, page_activations, "F32",
          "Type of activations while paged: F32, or F16 or BF16, which halve the bytes.");
ABSL_FLAG(bool, replay, false, "Capture an iteration whole and replay it.");
ABSL_FLAG(int, rounds, 5, "Iterations, after a warm-up, whose median counts.");

namespace gyre {
namespace {

const NamedPlanner kPlanners[] = {
    {"auto", PlannerKind::kAuto}, {"geeps", PlannerKind::kGeeps}, {"naive", PlannerKind::kNaive}};

}  // namespace

absl::StatusOr<double> RunPagedIterations(const AccessTrace& trace, const PagingPlan& plan,
                                          int rounds, const PagedOn& on) {
  using Seconds = std::chrono::duration<double>;
  const std::unique_ptr<Device> device =
      NewSimDevice({.capacity_bytes = plan.device_bytes, .copy_bytes_per_s = on.copies});
  ASSIGN_OR_RETURN(const Buffer arena,
                   Buffer::Allocate(*device, MemoryKind::kDevice, plan.device_bytes));
  ASSIGN_OR_RETURN(const Buffer pages,
                   Buffer::Allocate(*device, MemoryKind::kPinnedHost, plan.page_bytes));
  const int positions = static_cast<int>(plan.order.size());
  ASSIGN_OR_RETURN(const auto pager,
                   Pager::Create(*device, plan, arena.data(), pages.data(),
                                 /*file=*/nullptr, KernelsTo(on.page_activations)));
  ASSIGN_OR_RETURN(const auto compute, device->NewStream());
  std::vector<bool> on_host(plan.order.size());
  for (const auto& [position, blocks] : plan.host_steps) on_host[position] = true;
  const auto enqueue = [&]() -> absl::Status {
    for (int at = 0; at < positions; ++at) {
      RETURN_IF_ERROR(pager->Advance(at - 1, at, *compute));
      const TraceStep& step = trace.steps[plan.order[at]];
      if (on_host[at]) {
        const double work = static_cast<double>(step.host_bytes) / on.host_steps;
        RETURN_IF_ERROR(pager->RunOnHost(at, SleptWork(Seconds(work))));
      } else {
        RETURN_IF_ERROR(compute->Call(SleptWork(Seconds(step.seconds))));
      }
    }
    return pager->Advance(positions - 1, positions, *compute);
  };
  std::unique_ptr<Graph> graph;
  if (plan.self_contained) {
    RETURN_IF_ERROR(compute->BeginCapture());
    RETURN_IF_ERROR(enqueue());
    ASSIGN_OR_RETURN(graph, compute->EndCapture());
  }
  std::vector<double> seconds;
  for (int round = -1; round < rounds; ++round) {
    const BenchClock::time_point start = BenchClock::now();
    RETURN_IF_ERROR(graph ? graph->Replay(*compute) : enqueue());
    RETURN_IF_ERROR(compute->Synchronize());
    if (round >= 0) seconds.push_back(SecondsSince(start));
  }
  return Median(seconds);
}

absl::StatusOr<double> ConvertBytesPerSecond(DType page_activations) {
  constexpr size_t kBytes = size_t{2} << 20;  // of F32: a slot of staging is filled by as many
  const NarrowKernels kernels = KernelsTo(page_activations);
  const std::unique_ptr<Device> device = NewSimDevice({});
  ASSIGN_OR_RETURN(const Buffer wide, Buffer::Allocate(*device, MemoryKind::kDevice, kBytes));
  ASSIGN_OR_RETURN(const Buffer narrow, Buffer::Allocate(*device, MemoryKind::kDevice, kBytes / 2));
  ASSIGN_OR_RETURN(const auto stream, device->NewStream());
  std::vector<double> seconds;
  for (int round = 0; round < 9; ++round) {
    const BenchClock::time_point start = BenchClock::now();
    RETURN_IF_ERROR(kernels.narrow(*stream, wide.data(), narrow.data(), kBytes / sizeof(float)));
    RETURN_IF_ERROR(stream->Synchronize());
    seconds.push_back(SecondsSince(start));
  }
  return kBytes / Median(seconds);
}

absl::StatusOr<PagingFlags> ReadPagingFlags() {
  PagingFlags flags;
  flags.replay = absl::GetFlag(FLAGS_replay);
  flags.rounds = absl::GetFlag(FLAGS_rounds);
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_rounds}));
  for (const std::string& name : absl::GetFlag(FLAGS_planners)) {
    const auto known = std::ranges::find(kPlanners, name, &NamedPlanner::name);
    if (known == std::end(kPlanners)) return WrongValue("planners", name, "auto, geeps or naive");
    flags.planners.push_back(*known);
  }
  ASSIGN_OR_RETURN(flags.page_activations,
                   TypeNamed("page_activations", absl::GetFlag(FLAGS_page_activations),
                             {DType::kF32, DType::kF16, DType::kBF16}));
  return flags;
}

AccessTrace WithWaking(AccessTrace trace, double resident) {
  double slept = 0;
  for (const TraceStep& step : trace.steps) slept += step.seconds;
  const double waking = (resident - slept) / static_cast<double>(trace.steps.size());
  for (TraceStep& step : trace.steps) step.seconds += std::max(waking, 0.0);
  return trace;
}

}  // namespace gyre
