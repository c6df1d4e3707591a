// bench_submit: sums through ProcessGroup, its queue and its lanes, one by one; bench_allreduce
// drives an algorithm itself.

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tools/bench/bench.h"

ABSL_FLAG(std::string, allreduce, "auto", "Algorithm by which ranks sum.");
ABSL_FLAG(std::string, bytes, "4096,65536,1048576,4194304,16777216,67108864",
          "Sizes of a sum, with commas, such as 4096,64M.");
ABSL_FLAG(int, rounds, 15, "Rounds.  Each row is their median.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures sums over ranks, waited for one by one.\n"
    "\n"
    "  mpirun -np 2 bench_submit --allreduce=shared --bytes=4096,1048576\n"
    "\n"
    "Sums F32, in memory that the ranks of a host share where the algorithm uses it.\n"
    "Prints a JSON line for each size. Sums are checked before they are timed.\n"
    "Exit codes: 0 done, 1 failed, or a sum is wrong, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"allreduce", "bytes", "rounds"}},
};

absl::Status Sum(ProcessGroup& group, Tensor tensor) {
  return group.Wait(group.Submit("bucket", tensor, nullptr)).status();
}

// Element i of rank r is (i + r) mod 7.
absl::Status Check(ProcessGroup& group, Tensor tensor) {
  float* const data = tensor.as<float>();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    data[i] = static_cast<float>((i + group.rank()) % 7);
  }
  RETURN_IF_ERROR(Sum(group, tensor));
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    float expected = 0;
    for (int rank = 0; rank < group.size(); ++rank) expected += static_cast<float>((i + rank) % 7);
    if (data[i] == expected) continue;
    return absl::InternalError(
        absl::StrCat("element ", i, " is ", data[i], ", expected ", expected));
  }
  std::fill(data, data + tensor.elements(), 0.0F);
  return absl::OkStatus();
}

absl::Status Measure(ProcessGroup& group, std::byte* memory, size_t bytes, int rounds) {
  const auto count = static_cast<int64_t>(bytes / sizeof(float));
  const Tensor tensor{memory, Shape({count}), DType::kF32};
  RETURN_IF_ERROR(Check(group, tensor));
  const int sums = std::clamp(static_cast<int>((8 << 20) / (bytes + 1)), 1, 200);
  std::vector<double> us;
  for (int round = 0; round <= rounds; ++round) {
    RETURN_IF_ERROR(group.Barrier());
    const BenchClock::time_point begin = BenchClock::now();
    for (int i = 0; i < sums; ++i) RETURN_IF_ERROR(Sum(group, tensor));
    if (round > 0) us.push_back(SecondsSince(begin) * 1e6 / sums);  // the first warms up
  }
  if (group.rank() != 0) return absl::OkStatus();
  PrintRow({{"benchmark", "submit"},
            {"algorithm", absl::GetFlag(FLAGS_allreduce)},
            {"ranks", group.size()},
            {"type", "F32"},
            {"bytes", bytes},
            {"median_us", Median(us)},
            {"p10_us", Quantile(us, 0.1)},
            {"p90_us", Quantile(us, 0.9)}});
  return absl::OkStatus();
}

absl::Status MeasureAll(ProcessGroup& group, const std::vector<size_t>& sizes) {
  if (group.size() == 1) {
    return absl::FailedPreconditionError(
        "one rank has nothing to sum; start two or more: mpirun -np 2 bench_submit");
  }
  const size_t most = *std::ranges::max_element(sizes);
  std::vector<std::byte> own;
  ASSIGN_OR_RETURN(std::byte * memory, group.Share(most));
  if (memory == nullptr) {
    own.resize(most);
    memory = own.data();
  }
  for (const size_t bytes : sizes) {
    RETURN_IF_ERROR(Measure(group, memory, bytes, absl::GetFlag(FLAGS_rounds)));
  }
  return group.Barrier();  // nobody's memory goes before
}

absl::Status Run() {
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_rounds}));
  ASSIGN_OR_RETURN(const std::vector<size_t> sizes,
                   ParseSizes("bytes", absl::GetFlag(FLAGS_bytes), DType::kF32));
  ASSIGN_OR_RETURN(Ranks ranks, JoinRanks({absl::GetFlag(FLAGS_allreduce)}));
  return RunRanks(std::move(ranks), {.threads = 1}, [&](ProcessGroup& group, const DeviceChoice&) {
    return MeasureAll(group, sizes);
  });
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Run);
}
