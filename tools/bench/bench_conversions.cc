// bench_conversions: arrays of F16 and BF16 to F32 and back, against memcpy moving as many bytes on
// as many threads in the same round.

#include <omp.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/dtype.h"
#include "engine/runtime/parallel/instruction_set.h"
#include "engine/runtime/primitives/converting/convert.h"
#include "tools/bench/bench.h"
#include "tools/bench/device_peaks.h"

ABSL_FLAG(int, threads, 1, "Threads of the conversion and of the copy.");
ABSL_FLAG(int, rounds, 15, "Rounds.  Each measures the copy, then every conversion.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures conversions between 16-bit numbers and F32.\n"
    "\n"
    "  bench_conversions --threads=2\n"
    "\n"
    "Prints a JSON line for each conversion and size, of medians over the rounds.\n"
    "copy_share is the bytes read and written a second over those of memcpy, of as\n"
    "many bytes, in the same round.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"threads", "rounds"}},
};

constexpr int64_t kBytesARound = int64_t{192} << 20;

// Every thread its share, as a conversion is divided.
void CopyOnTeam(std::byte* to, const std::byte* from, int64_t bytes) {
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    const int64_t begin = bytes * thread / threads, end = bytes * (thread + 1) / threads;
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  }
}

// Bytes a second of run(), which moves `bytes`.
template <typename Run>
double Rate(int64_t bytes, const Run& run) {
  const int64_t calls = std::max<int64_t>(1, kBytesARound / bytes);
  const BenchClock::time_point start = BenchClock::now();
  for (int64_t c = 0; c < calls; ++c) run();
  return static_cast<double>(bytes * calls) / SecondsSince(start);
}

template <typename From, typename To>
absl::Status Measure(Stream& stream, int64_t n) {
  const int64_t bytes = n * static_cast<int64_t>(sizeof(From) + sizeof(To));
  std::vector<From> from(n);
  std::vector<To> to(n);
  std::vector<std::byte> copied(bytes / 2), copy(bytes / 2);
  FillUniform({from.data(), Shape({n}), kDTypeOf<From>});
  absl::Status status;
  std::vector<double> rates, shares;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    const double peak = Rate(bytes, [&] { CopyOnTeam(copy.data(), copied.data(), bytes / 2); });
    const double rate = Rate(
        bytes, [&] { status.Update(ConvertArray<From, To>(stream, n, from.data(), to.data())); });
    if (round < 0) continue;  // a warm-up
    rates.push_back(rate);
    shares.push_back(rate / peak);
  }
  RETURN_IF_ERROR(status);
  for (int64_t i = 0; i < n; ++i) {
    if (static_cast<float>(to[i]) != static_cast<float>(static_cast<To>(from[i]))) {
      return absl::InternalError(absl::StrCat("element ", i, " is converted to another number"));
    }
  }
  nlohmann::ordered_json line = {
      {"benchmark", "conversion"},
      {"from", std::string(DTypeName(kDTypeOf<From>))},
      {"to", std::string(DTypeName(kDTypeOf<To>))},
      {"elements", n},
      {"instruction_set", std::string(InstructionSetName(CurrentInstructionSet()))},
      {"threads", absl::GetFlag(FLAGS_threads)},
      {"gb_per_s", Median(rates) / 1e9}};
  line.update(Spread("copy_share", shares));
  PrintRow(line);
  return absl::OkStatus();
}

absl::Status Bench() {
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_threads, FLAGS_rounds}));
  const auto device = NewCpuDevice({.threads = absl::GetFlag(FLAGS_threads)});
  ASSIGN_OR_RETURN(const auto stream, device->NewStream());
  for (const auto set : {InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (set > BestInstructionSet()) continue;
    SetInstructionSet(set);
    for (const int64_t n : {int64_t{1} << 17, int64_t{1} << 20, int64_t{1} << 25}) {
      RETURN_IF_ERROR((Measure<Half, float>(*stream, n)));
      RETURN_IF_ERROR((Measure<float, Half>(*stream, n)));
      RETURN_IF_ERROR((Measure<BFloat16, float>(*stream, n)));
      RETURN_IF_ERROR((Measure<float, BFloat16>(*stream, n)));
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Bench);
}
