// bench_paging: what paging costs an iteration, planned and run.  A net of equal layers, each of
// which leaves bytes for backward, on `sim`, whose copies are throttled; the layers' work is slept,
// so that it and the copies do not take each other's core.

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/device/buffer.h"
#include "memory/pager.h"
#include "tools/command_line.h"
#include "tools/median.h"

ABSL_FLAG(int, layers, 64, "Of the net.");
ABSL_FLAG(int, layer_kib, 256, "KiB that a layer leaves for backward, a multiple of 4.");
ABSL_FLAG(double, layer_ms, 4, "Of a layer's forward; backward takes twice as long.");
ABSL_FLAG(std::vector<std::string>, kappa, (std::vector<std::string>{"0.5", "1", "2", "3"}),
          "Times that copying all that layers leave takes longer than forward.");
ABSL_FLAG(std::vector<std::string>, capacity,
          (std::vector<std::string>{"0.25", "0.35", "0.5", "0.7"}),
          "Shares of what layers leave that the device holds.");
ABSL_FLAG(int, rounds, 5, "Iterations, of which the median counts; one more comes before.");

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr char kUsage[] =
    "measures training beyond the device's memory, on a simulated device.\n\n"
    "  bench_paging --kappa=2,3 --capacity=0.35\n\n"
    "Prints a JSON line for each kappa and capacity: milliseconds of an iteration as predicted "
    "and\n"
    "as measured, with all in memory (`resident_ms`), and the least that any plan that only "
    "copies\n"
    "can take (`bound_ms`: what must leave takes as long to leave as forward, or longer, and to\n"
    "come back as backward).\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

AccessTrace EqualLayers(int layers, size_t bytes, double seconds) {
  AccessTrace trace;
  for (int i = 0; i < layers; ++i) {
    trace.states.push_back({.name = absl::StrCat("output ", i), .bytes = bytes});
    trace.steps.push_back({.name = absl::StrCat("forward ", i), .seconds = seconds});
    trace.steps.back().touches.push_back({i, false, true});
    if (i > 0) trace.steps.back().touches.push_back({i - 1, true, false});
  }
  for (int i = layers - 1; i >= 0; --i) {
    trace.steps.push_back({.name = absl::StrCat("backward ", i), .seconds = 2 * seconds});
    trace.steps.back().touches.push_back({i, true, false});
  }
  return trace;
}

// Seconds of an iteration.
absl::StatusOr<double> Measure(const AccessTrace& trace, const PagingPlan& plan, double bandwidth) {
  const std::unique_ptr<Device> device =
      NewSimDevice({.capacity_bytes = plan.device_bytes, .copy_bytes_per_s = bandwidth});
  ASSIGN_OR_RETURN(const Buffer arena,
                   Buffer::Allocate(*device, MemoryKind::kDevice, plan.device_bytes));
  ASSIGN_OR_RETURN(const Buffer pages,
                   Buffer::Allocate(*device, MemoryKind::kPinnedHost, plan.page_bytes));
  const int steps = static_cast<int>(trace.steps.size());
  ASSIGN_OR_RETURN(const auto pager, Pager::Create(*device, plan, arena.data(), pages.data()));
  ASSIGN_OR_RETURN(const auto compute, device->NewStream());
  std::vector<double> seconds;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const Clock::time_point start = Clock::now();
    for (int step = 0; step < steps; ++step) {
      RETURN_IF_ERROR(pager->Advance(step - 1, step, *compute));
      RETURN_IF_ERROR(compute->Call([work = Seconds(trace.steps[step].seconds)] {
        std::this_thread::sleep_until(Clock::now() + work);
        return absl::OkStatus();
      }));
    }
    RETURN_IF_ERROR(pager->Advance(steps - 1, steps, *compute));
    RETURN_IF_ERROR(compute->Synchronize());
    if (round >= 0) seconds.push_back(Seconds(Clock::now() - start).count());
  }
  return Median(seconds);
}

absl::StatusOr<std::vector<double>> Positive(const char* flag,
                                             const std::vector<std::string>& texts) {
  std::vector<double> numbers;
  for (const std::string& text : texts) {
    double& number = numbers.emplace_back();
    if (absl::SimpleAtod(text, &number) && number > 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", text, ": expected a number above 0"));
  }
  return numbers;
}

absl::Status Run() {
  const int layers = absl::GetFlag(FLAGS_layers), kib = absl::GetFlag(FLAGS_layer_kib);
  if (layers < 2 || kib < 4 || kib % 4 != 0 || !(absl::GetFlag(FLAGS_layer_ms) > 0) ||
      absl::GetFlag(FLAGS_rounds) < 1) {
    return absl::InvalidArgumentError(
        "expected 2 --layers or more, --layer_kib a multiple of 4, --layer_ms above 0, and 1 of "
        "--rounds or more");
  }
  ASSIGN_OR_RETURN(const std::vector<double> kappas, Positive("kappa", absl::GetFlag(FLAGS_kappa)));
  ASSIGN_OR_RETURN(const std::vector<double> shares,
                   Positive("capacity", absl::GetFlag(FLAGS_capacity)));
  const size_t bytes = static_cast<size_t>(kib) << 10;
  const double seconds = absl::GetFlag(FLAGS_layer_ms) / 1000;
  const AccessTrace trace = EqualLayers(layers, bytes, seconds);
  const double all = static_cast<double>(bytes) * layers, forward = seconds * layers;
  ASSIGN_OR_RETURN(const PagingPlan whole,
                   PlanPaging(trace, {}, {.capacity_bytes = bytes * static_cast<size_t>(layers)}));
  ASSIGN_OR_RETURN(const double resident, Measure(trace, whole, /*bandwidth=*/0));
  for (const double kappa : kappas) {
    for (const double share : shares) {
      const double bandwidth = all / (kappa * forward);
      ASSIGN_OR_RETURN(const PagingPlan plan,
                       PlanPaging(trace, {bandwidth, bandwidth},
                                  {.capacity_bytes = static_cast<size_t>(share * all)}));
      ASSIGN_OR_RETURN(const double measured, Measure(trace, plan, bandwidth));
      const double leaves = std::max(0.0, 1 - share) * all / bandwidth;
      const double bound = std::max(forward, leaves) + std::max(2 * forward, leaves);
      const nlohmann::ordered_json report = {{"kappa", kappa},
                                             {"capacity", share},
                                             {"fetched_bytes", plan.fetched_bytes},
                                             {"written_bytes", plan.written_bytes},
                                             {"resident_ms", resident * 1000},
                                             {"bound_ms", bound * 1000},
                                             {"predicted_ms", plan.seconds * 1000},
                                             {"measured_ms", measured * 1000},
                                             {"kept_of_resident", resident / measured},
                                             {"kept_of_bound", bound / measured}};
      std::printf("%s\n", report.dump().c_str());
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv, kUsage);
  if (const absl::Status status = Run(); !status.ok()) Fail(nullptr, status);
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
