// bench_allreduce: every algorithm's sum over ranks beside MPI_Allreduce, in one run.
//
// Under mpirun; each rank drives its operations on the thread that owns MPI.  All sum the same
// memory, which the ranks of a host share, in place and touched before.  Or one algorithm's sums
// through ProcessGroup, its queue and its lanes, waited for one by one.

#include <mpi.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "distributed/transport/open_mpi.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/check.h"
#include "tools/bench/bench.h"
#include "tools/command_line/process.h"

ABSL_FLAG(
    std::string, algorithms, "",
    "Algorithms to measure, with commas.  Default: those that \"auto\" chooses between here.");
ABSL_FLAG(std::string, allreduce, "",
          "Algorithm to measure through a process group, as in training, in place of "
          "--algorithms.  Default: none.");
ABSL_FLAG(std::string, bytes, "16,4096,65536,1048576,4194304,16777216,67108864",
          "Sizes of a sum, with commas, such as 4096,64M.");
ABSL_FLAG(std::string, types, "F32", "Types of the numbers, with commas: F64, F32, F16, BF16.");
ABSL_FLAG(std::string, wire, "F32",
          "Type of F32 numbers between ranks, where an algorithm can: F32, F16 or BF16.");
ABSL_FLAG(int, rounds, 15, "Rounds.  Each row is their median.");
ABSL_FLAG(std::string, calibrate, "",
          "Calibration file to write, for distributed.calibration.  Rows of other clusters stay.");
ABSL_FLAG(std::string, label, "", "Name of this launch, for each row.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures sums over ranks beside MPI_Allreduce.\n"
    "\n"
    "  mpirun -np 2 bench_allreduce --bytes=4096,1048576 --types=F32,BF16\n"
    "\n"
    "Prints a JSON line for each algorithm, type and size. It has the median and the\n"
    "10th and 90th percentiles of a sum's time over rounds, and MPI_Allreduce's time\n"
    "over this one's, measured in turn (F64 and F32 alone, for MPI has no 16 bits).\n"
    "Sums are checked before they are timed. With --allreduce each sum is submitted\n"
    "and waited for, without MPI_Allreduce beside it.\n"
    "\n"
    "  mpirun -np 4 bench_allreduce --calibrate=cluster.json\n"
    "\n"
    "Exit codes: 0 done, 1 failed, or a sum is wrong, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags",
     {"algorithms", "allreduce", "bytes", "types", "wire", "rounds", "calibrate", "label"}},
};

constexpr int64_t kTimeoutMs = 60'000;
// Sums of a round are as many as fit in this, so that a clock's reading is nothing beside them.
constexpr double kRoundSeconds = 2e-3;

// sum(): sums `tensor` over ranks.  Element i of rank r is (i + r) mod 7: a sum that every type
// holds exactly.
template <typename Sum>
absl::Status CheckSum(const std::string& algorithm, int rank, int ranks, Tensor tensor,
                      const Sum& sum) {
  return VisitReal(tensor.dtype, [&]<typename T>() -> absl::Status {
    using A = AccumulateType<T>;
    T* const data = tensor.as<T>();
    for (int64_t i = 0; i < tensor.elements(); ++i) data[i] = T(static_cast<A>((i + rank) % 7));
    RETURN_IF_ERROR(sum());
    for (int64_t i = 0; i < tensor.elements(); ++i) {
      int64_t expected = 0;
      for (int other = 0; other < ranks; ++other) expected += (i + other) % 7;
      if (A(data[i]) == static_cast<A>(expected)) continue;
      return absl::InternalError(
          absl::StrCat(algorithm, ": element ", i, " is ", A(data[i]), ", expected ", expected));
    }
    std::fill(data, data + tensor.elements(), T(A(0)));
    return absl::OkStatus();
  });
}

absl::Status CheckRanks(int ranks) {
  if (ranks > 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "one rank has nothing to sum; start two or more: mpirun -np 2 bench_allreduce");
}

nlohmann::ordered_json Row(const char* benchmark, const std::string& algorithm, int ranks,
                           const Tensor& tensor, const std::vector<double>& seconds) {
  nlohmann::ordered_json row = {{"benchmark", benchmark},
                                {"algorithm", algorithm},
                                {"ranks", ranks},
                                {"type", DTypeName(tensor.dtype)},
                                {"bytes", tensor.bytes()},
                                {"median_us", Median(seconds) * 1e6},
                                {"p10_us", Quantile(seconds, 0.1) * 1e6},
                                {"p90_us", Quantile(seconds, 0.9) * 1e6}};
  if (const std::string label = absl::GetFlag(FLAGS_label); !label.empty()) row["label"] = label;
  return row;
}

Tensor TensorOf(std::byte* memory, DType dtype, size_t bytes) {
  return {memory, Shape({static_cast<int64_t>(bytes / SizeOf(dtype))}), dtype};
}

struct TimedAlgorithm {
  std::string name;
  std::unique_ptr<Collective> collective;  // null: MPI_Allreduce
  std::vector<double> seconds;
};

class Bench {
 public:
  // algorithms: none for those that "auto" chooses between here.  wire: F32, F16 or BF16.
  absl::Status Open(std::vector<std::string> algorithms, size_t most_bytes, DType wire) {
    wire_ = wire;
    for (const std::string& name : algorithms) {
      RETURN_IF_ERROR(Annotate(CheckAllreduce(name, std::nullopt), "--algorithms"));
    }
    ASSIGN_OR_RETURN(communicator_, NewMpiCommunicator(kTimeoutMs));
    RETURN_IF_ERROR(CheckRanks(communicator_->size()));
    ASSIGN_OR_RETURN(arenas_.emplace_back(),
                     SharedMemory::Create(*communicator_, std::max<size_t>(most_bytes, 4096)));
    algorithms_.emplace_back().name = "MPI_Allreduce";
    if (algorithms.empty()) {
      // All but what refuses such a cluster, or is another with detours.
      const bool one_host = ShapeOf(*communicator_).hosts == 1;
      for (const std::string_view name : AllreduceNames()) {
        if (IsSelectable(name) && name != (one_host ? "hierarchical" : "shared")) {
          algorithms.emplace_back(name);
        }
      }
    }
    for (const std::string& name : algorithms) RETURN_IF_ERROR(Add(name));
    return absl::OkStatus();
  }

  absl::Status Add(const std::string& algorithm) {
    const int tag = kFirstOperationTag + static_cast<int>(algorithms_.size());
    TimedAlgorithm& timed = algorithms_.emplace_back();
    timed.name = algorithm;
    ASSIGN_OR_RETURN(timed.collective, NewCollective(algorithm, *communicator_, tag, arenas_,
                                                     Selector::Modelled(ShapeOf(*communicator_))));
    if (wire_ == DType::kF32 || !CheckWire(algorithm, wire_).ok()) return absl::OkStatus();
    timed.collective->CarryAs(wire_);
    absl::StrAppend(&timed.name, " as ", std::string(DTypeName(wire_)));
    return absl::OkStatus();
  }

  const Communicator& communicator() const { return *communicator_; }

  // Of what was measured last, by those that "auto" chooses between.
  std::map<std::string, double> MedianSeconds() {
    std::map<std::string, double> medians;
    for (TimedAlgorithm& timed : algorithms_) {
      if (IsSelectable(timed.name)) medians[timed.name] = Median(timed.seconds);
    }
    return medians;
  }

  absl::Status Measure(DType dtype, size_t bytes) {
    const Tensor tensor = TensorOf(arenas_[0]->own(), dtype, bytes);
    double longest = 0;
    for (TimedAlgorithm& timed : algorithms_) {
      timed.seconds.clear();
      if (!Has(timed, dtype)) continue;
      RETURN_IF_ERROR(CheckSum(timed.name, communicator_->rank(), communicator_->size(), tensor,
                               [&] { return Sum(timed, tensor); }));
      ASSIGN_OR_RETURN(const double seconds, Time(timed, tensor, 3));
      longest = std::max(longest, seconds);
    }
    // The same number on all ranks.
    int sums = std::clamp(static_cast<int>(kRoundSeconds / longest), 1, 1000);
    RETURN_IF_ERROR(CheckMpi(MPI_Bcast(&sums, 1, MPI_INT, 0, MPI_COMM_WORLD), "MPI_Bcast"));
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      for (TimedAlgorithm& timed : algorithms_) {
        if (!Has(timed, dtype)) continue;
        ASSIGN_OR_RETURN(const double seconds, Time(timed, tensor, sums));
        timed.seconds.push_back(seconds);
      }
    }
    if (communicator_->rank() == 0) Print(tensor);
    return absl::OkStatus();
  }

 private:
  static bool Has(const TimedAlgorithm& timed, DType dtype) {
    return timed.collective != nullptr || IsComputeType(dtype);
  }

  absl::Status Sum(TimedAlgorithm& timed, Tensor tensor) {
    if (timed.collective == nullptr) {
      return CheckMpi(MPI_Allreduce(MPI_IN_PLACE, tensor.data, static_cast<int>(tensor.elements()),
                                    tensor.dtype == DType::kF64 ? MPI_DOUBLE : MPI_FLOAT, MPI_SUM,
                                    MPI_COMM_WORLD),
                      "MPI_Allreduce");
    }
    RETURN_IF_ERROR(
        timed.collective->Start(Claim::Of(operations_++, "sum"), Operation::kAllreduce, tensor));
    double squares = 0;
    for (Advance advance = Advance::kMoved; advance != Advance::kDone;) {
      ASSIGN_OR_RETURN(advance, timed.collective->Progress(&squares));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<double> Time(TimedAlgorithm& timed, Tensor tensor, int sums) {
    RETURN_IF_ERROR(CheckMpi(MPI_Barrier(MPI_COMM_WORLD), "MPI_Barrier"));
    const BenchClock::time_point begin = BenchClock::now();
    for (int i = 0; i < sums; ++i) RETURN_IF_ERROR(Sum(timed, tensor));
    return SecondsSince(begin) / sums;
  }

  void Print(const Tensor& tensor) {
    const std::vector<double>& peer = algorithms_[0].seconds;
    for (TimedAlgorithm& timed : algorithms_) {
      if (timed.seconds.empty()) continue;
      auto row = Row("allreduce", timed.name, communicator_->size(), tensor, timed.seconds);
      if (!peer.empty()) row["mpi_over_this"] = Median(peer) / Median(timed.seconds);
      PrintRow(row);
    }
  }

  std::unique_ptr<Communicator> communicator_;
  SharedArenas arenas_;
  std::vector<TimedAlgorithm> algorithms_;
  DType wire_ = DType::kF32;
  int64_t operations_ = 0;
};

// What is fastest at 64 B, 256 B, ..., 64 MB; between two of them the bound is their mean.  And
// what each takes, by all these sizes.
absl::Status Calibrate(const std::string& path, Bench& bench) {
  constexpr size_t kFirst = 64, kLast = 64 << 20;
  RETURN_IF_ERROR(bench.Open({}, kLast, DType::kF32));
  std::vector<Selector::Choice> choices;
  std::map<std::string, std::vector<MeasuredSum>> sums;
  for (size_t bytes = kFirst; bytes <= kLast; bytes *= 4) {
    RETURN_IF_ERROR(bench.Measure(DType::kF32, bytes));
    const std::map<std::string, double> seconds = bench.MedianSeconds();
    for (const auto& [name, taken] : seconds) {
      sums[name].push_back({static_cast<double>(bytes), taken});
    }
    const std::string& fastest =
        std::ranges::min_element(seconds, {}, [](const auto& sum) { return sum.second; })->first;
    if (!choices.empty() && choices.back().algorithm == fastest) continue;
    choices.push_back({choices.empty() ? 0 : bytes / 2, fastest});
  }
  if (bench.communicator().rank() != 0) return absl::OkStatus();
  std::vector<Selector::Cost> costs;
  for (const auto& [name, measured] : sums) costs.push_back(FitCost(name, measured));
  std::ifstream file(path);
  const std::string before(std::istreambuf_iterator<char>(file), {});
  ASSIGN_OR_RETURN(const std::string text,
                   WriteCalibration(before, ShapeOf(bench.communicator()),
                                    Selector(std::move(choices), std::move(costs))));
  return WriteFileAtomically(path, text);
}

absl::Status MeasureSubmitted(ProcessGroup& group, std::byte* memory, DType dtype, size_t bytes) {
  const Tensor tensor = TensorOf(memory, dtype, bytes);
  const std::string algorithm = absl::GetFlag(FLAGS_allreduce);
  const auto sum = [&] { return group.Wait(group.Submit("bucket", tensor, nullptr)).status(); };
  RETURN_IF_ERROR(CheckSum(algorithm, group.rank(), group.size(), tensor, sum));
  const int sums = std::clamp(static_cast<int>((8 << 20) / (bytes + 1)), 1, 200);
  std::vector<double> seconds;
  for (int round = 0; round <= absl::GetFlag(FLAGS_rounds); ++round) {
    RETURN_IF_ERROR(group.Barrier());
    const BenchClock::time_point begin = BenchClock::now();
    for (int i = 0; i < sums; ++i) RETURN_IF_ERROR(sum());
    if (round > 0) seconds.push_back(SecondsSince(begin) / sums);  // the first warms up
  }
  if (group.rank() == 0) PrintRow(Row("submit", algorithm, group.size(), tensor, seconds));
  return absl::OkStatus();
}

// In memory that the ranks of a host share where the algorithm uses it.
absl::Status Submit(DType wire, const std::vector<DType>& dtypes,
                    const std::vector<size_t>& sizes) {
  const std::string algorithm = absl::GetFlag(FLAGS_allreduce);
  ASSIGN_OR_RETURN(Ranks ranks,
                   JoinRanks({.algorithm = algorithm,
                              .wire = CheckWire(algorithm, wire).ok() ? wire : DType::kF32}));
  const auto body = [&](ProcessGroup& group, const DeviceChoice&) -> absl::Status {
    RETURN_IF_ERROR(CheckRanks(group.size()));
    const size_t most = *std::ranges::max_element(sizes);
    std::vector<std::byte> own;
    ASSIGN_OR_RETURN(std::byte * memory, group.Share(most));
    if (memory == nullptr) {
      own.resize(most);
      memory = own.data();
    }
    for (const DType dtype : dtypes) {
      for (const size_t bytes : sizes) {
        RETURN_IF_ERROR(MeasureSubmitted(group, memory, dtype, bytes));
      }
    }
    return group.Barrier();  // nobody's memory goes before
  };
  return RunRanks(std::move(ranks), {.threads = 1}, body);
}

absl::Status Run(Bench& bench) {
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_rounds}));
  ASSIGN_OR_RETURN(const DType wire, TypeNamed("wire", absl::GetFlag(FLAGS_wire),
                                               {DType::kF32, DType::kF16, DType::kBF16}));
  if (const std::string path = absl::GetFlag(FLAGS_calibrate); !path.empty()) {
    if (wire == DType::kF32) return Calibrate(path, bench);
    return absl::InvalidArgumentError("--wire: --calibrate measures F32 alone; leave one out");
  }
  std::vector<DType> dtypes;
  std::vector<size_t> sizes;
  for (absl::string_view name : absl::StrSplit(absl::GetFlag(FLAGS_types), ',')) {
    ASSIGN_OR_RETURN(
        dtypes.emplace_back(),
        TypeNamed("types", name, {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}));
    ASSIGN_OR_RETURN(sizes, ParseSizes("bytes", absl::GetFlag(FLAGS_bytes), dtypes.back()));
  }
  if (!absl::GetFlag(FLAGS_allreduce).empty()) return Submit(wire, dtypes, sizes);
  RETURN_IF_ERROR(
      bench.Open(absl::StrSplit(absl::GetFlag(FLAGS_algorithms), ',', absl::SkipEmpty()),
                 *std::ranges::max_element(sizes), wire));
  for (const DType dtype : dtypes) {
    for (const size_t bytes : sizes) {
      RETURN_IF_ERROR(bench.Measure(dtype, bytes));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  ParseFlags(argc, argv, kUsage, kGroups);
  Bench bench;  // which ends the job where something has failed: after the reason is told
  if (const absl::Status status = Run(bench); !status.ok()) Fail(nullptr, status);
  return FinishOutput(0);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
