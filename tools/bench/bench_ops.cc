// bench_ops: every operation of nets, in every way that the device has for it, timed and compared.

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tools/bench/bench.h"
#include "tools/bench/op_bench.h"

ABSL_FLAG(std::string, nets, "",
          "Text files of nets, each with a batch: a.textproto:64,b.textproto:128.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or sim.");
ABSL_FLAG(int, threads, 0, "Threads of a CPU.  0: all cores.");
ABSL_FLAG(std::string, precisions, "F32", "With commas: F64, F32, TF32 (on a GPU), F16, BF16.");
ABSL_FLAG(int, time_limit, 0, "Seconds after which no operation begins.  0: no limit.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures the operations of a training step.\n"
    "\n"
    "  bench_ops --nets=models/lenet/net.textproto:64 --device=cuda \\\n"
    "    --precisions=F32,TF32,BF16\n"
    "\n"
    "Prints a JSON line for each operation, pass, precision and way of doing it. It\n"
    "has the shortest of a few times (by events on a GPU), and the largest difference\n"
    "from the reference on the same operands, relative to the largest value.\n"
    "Exit codes: 0 done, 1 failed, or a result is wrong or refused, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"nets", "precisions", "device", "threads", "time_limit"}},
};

absl::StatusOr<OpPrecision> ParsePrecision(absl::string_view name) {
  if (name == "TF32") return OpPrecision{.name = "TF32", .dtype = DType::kF32, .tf32 = true};
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    if (std::string(name) == DTypeName(dtype))
      return OpPrecision{.name = std::string(name), .dtype = dtype};
  }
  return WrongValue("precisions", name, "F64, F32, TF32, F16 or BF16");
}

// Of all nets, each operation once.
absl::StatusOr<std::vector<OpSpec>> Operations() {
  std::vector<OpSpec> all;
  for (absl::string_view part : absl::StrSplit(absl::GetFlag(FLAGS_nets), ',', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> net = absl::StrSplit(part, absl::MaxSplits(':', 1));
    int batch = 0;
    const bool good = absl::SimpleAtoi(net.second, &batch) && batch >= 1;
    RETURN_IF_ERROR(CheckValue(good, "nets", part, "FILE:BATCH with commas"));
    ASSIGN_OR_RETURN(const Parsed<NetConfig> parsed, ParseNet(net.first));
    ASSIGN_OR_RETURN(const std::vector<OpSpec> ops, OpsOf(parsed, batch));
    all.insert(all.end(), ops.begin(), ops.end());
  }
  if (all.empty()) return absl::InvalidArgumentError("--nets is missing; see --help");
  return all;
}

absl::Status Bench() {
  const BenchClock::time_point start = BenchClock::now();
  ASSIGN_OR_RETURN(const std::vector<OpSpec> ops, Operations());
  std::vector<OpPrecision> precisions;
  for (absl::string_view name : absl::StrSplit(absl::GetFlag(FLAGS_precisions), ',')) {
    ASSIGN_OR_RETURN(precisions.emplace_back(), ParsePrecision(name));
  }
  ASSIGN_OR_RETURN(DeviceChoice choice, OpenDevice({.kind = absl::GetFlag(FLAGS_device),
                                                    .threads = absl::GetFlag(FLAGS_threads)}));
  OpBench::Libraries libraries = OpBench::LibrariesOf(choice);
  ASSIGN_OR_RETURN(const auto bench,
                   OpBench::Create(std::move(choice), std::move(libraries), PrintRow));
  const int limit_s = absl::GetFlag(FLAGS_time_limit);
  int left_out = 0;
  for (const OpPrecision& precision : precisions) {
    for (const OpSpec& op : ops) {
      if (limit_s > 0 && SecondsSince(start) > limit_s) {
        ++left_out;
        continue;
      }
      RETURN_IF_ERROR(bench->Measure(op, precision));
    }
  }
  if (left_out > 0) {
    PrintRow({{"benchmark", "operations"}, {"left_out", left_out}});
  }
  if (bench->wrong() + bench->refused() == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(bench->wrong(), " results are wrong, ", bench->refused(),
                                          " ways refused: see \"right\" and \"refused\""));
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Bench);
}
