// bench_optimizers: an optimizer's update of many parameters beyond the caches, on a CPU, against
// the best of three copies moving as many bytes on as many threads in the same round.

#include <emmintrin.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/device/buffer.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/training/optimizers/optimizer.h"
#include "tools/bench/bench.h"
#include "tools/bench/device_peaks.h"
#include "tools/command_line/process.h"

ABSL_FLAG(std::string, optimizer, "adam", "sgd (momentum 0.9), adam or adamw (decay 0.01).");
ABSL_FLAG(std::string, precision, "F32",
          "Type of values and gradients: F32, or F16 or BF16 with masters.");
ABSL_FLAG(std::string, tensors, "2x16777216,4096000,10x2359296,9x589824,15x36864,63x65,1",
          "Elements of the parameters, with commas.  COUNTx repeats.");
ABSL_FLAG(int, threads, 1, "Threads of the update and of the copy.");
ABSL_FLAG(int, rounds, 15,
          "Rounds of copies, then updates.  0: one a line of standard input, as "
          "tools/peer/compare_optimizers sends.");
ABSL_FLAG(int, steps, 3, "Updates a round.");
ABSL_FLAG(std::string, values, "", "File for the parameters' values after the last round.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures an optimizer's update.\n"
    "\n"
    "  bench_optimizers --optimizer=adamw --threads=2\n"
    "\n"
    "Prints a JSON line of medians over the rounds. copy_share is the bytes a second\n"
    "that the update must read and write, over those of the fastest copy of the same\n"
    "round (memcpy, memcpy of ranges that a cache holds, stores past the caches).\n"
    "tools/peer/compare_optimizers runs it beside PyTorch's.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"optimizer", "precision", "tensors", "threads", "rounds", "steps", "values"}},
};

constexpr double kLearningRate = 0.01;
// Beyond the caches.
constexpr int64_t kCopyBytes = int64_t{512} << 20;

absl::StatusOr<OptimizerConfig> ReadOptimizer(const std::string& name) {
  OptimizerConfig config;
  if (name == "sgd") {
    config.mutable_sgd()->set_momentum(0.9);
  } else if (name == "adam") {
    config.mutable_adam();
  } else if (name == "adamw") {
    config.mutable_adamw();
    config.set_weight_decay(0.01);
  } else {
    return WrongValue("optimizer", name, "sgd, adam or adamw");
  }
  return config;
}

absl::StatusOr<std::vector<int64_t>> ReadTensors(const std::string& text) {
  std::vector<int64_t> tensors;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> numbers = absl::StrSplit(part, 'x');
    int64_t count = 1, elements = 0;
    if (numbers.size() > 2 || !absl::SimpleAtoi(numbers.back(), &elements) || elements < 1 ||
        !absl::SimpleAtoi(numbers.size() == 2 ? numbers[0] : "1", &count) || count < 1) {
      return WrongValue("tensors", part, "ELEMENTS or COUNTxELEMENTS");
    }
    tensors.insert(tensors.end(), count, elements);
  }
  return tensors;
}

// In [-1, 1), exactly: what compare_optimizers gives PyTorch as well.  Value i of values (kind 0)
// or gradients (1).
template <typename T>
struct MadeNumber {
  T* to;
  uint32_t kind;
  void operator()(int64_t i) const {
    const uint32_t bits = static_cast<uint32_t>(i) * 2654435761u + kind * 2246822519u;
    to[i] = static_cast<T>(static_cast<float>(bits >> 8) * 0x1p-23f - 1);
  }
};

// [begin, end) of `to` <- `from`; multiples of 64.
void CopyWhole(std::byte* to, const std::byte* from, int64_t begin, int64_t end) {
  std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
}

// Short enough that memcpy's stores go through the caches.
void CopyByPieces(std::byte* to, const std::byte* from, int64_t begin, int64_t end) {
  constexpr int64_t kPiece = int64_t{64} << 10;
  for (; begin < end; begin += kPiece) CopyWhole(to, from, begin, std::min(begin + kPiece, end));
}

void CopyPastCaches(std::byte* to, const std::byte* from, int64_t begin, int64_t end) {
  const auto* const source = reinterpret_cast<const __m128i*>(from);
  auto* const destination = reinterpret_cast<__m128i*>(to);
  for (int64_t i = begin / 16; i < end / 16; i += 4) {
    for (int64_t k = i; k < i + 4; ++k) _mm_stream_si128(destination + k, source[k]);
  }
  _mm_sfence();
}

class OptimizerBench {
 public:
  OptimizerBench(Device& device, Stream& stream, DType dtype, const OptimizerConfig& config)
      : device_(device), stream_(stream), dtype_(dtype), optimizer_(NewOptimizer(config)) {}

  absl::Status Allocate(const std::vector<int64_t>& tensors) {
    for (const int64_t n : tensors) elements_ += n;
    const size_t slots = optimizer_->slot_names().size();
    ASSIGN_OR_RETURN(std::byte* const values, Filled(dtype_, /*kind=*/0));
    ASSIGN_OR_RETURN(std::byte* const gradients, Filled(dtype_, /*kind=*/1));
    std::byte* masters = nullptr;
    if (has_masters()) {
      ASSIGN_OR_RETURN(masters, Filled(DType::kF32, /*kind=*/0));
    }
    slots_.resize(tensors.size());
    std::vector<std::byte*> zeros;
    for (size_t s = 0; s < slots; ++s) {
      ASSIGN_OR_RETURN(zeros.emplace_back(), New(elements_ * sizeof(float)));
      std::memset(zeros.back(), 0, elements_ * sizeof(float));
    }
    int64_t begin = 0;
    for (size_t k = 0; k < tensors.size(); ++k) {
      const Shape shape({tensors[k]});
      const auto at = [&](std::byte* data, DType dtype) {
        return Tensor{data + begin * SizeOf(dtype), shape, dtype};
      };
      for (std::byte* slot : zeros) slots_[k].push_back(at(slot, DType::kF32));
      ParameterViews views = {at(values, dtype_), at(gradients, dtype_), slots_[k]};
      if (has_masters()) views.master = at(masters, DType::kF32);
      parameters_.push_back(views);
      begin += tensors[k];
    }
    ASSIGN_OR_RETURN(scalars_, New(sizeof(UpdateScalars)));
    ASSIGN_OR_RETURN(from_, New(kCopyBytes));
    ASSIGN_OR_RETURN(to_, New(kCopyBytes));
    std::memset(from_, 1, kCopyBytes);
    return absl::OkStatus();
  }

  // Measures the copies and then `steps` updates.
  absl::Status Round(int steps) {
    double copy = 0;
    for (const auto run : {CopyWhole, CopyByPieces, CopyPastCaches}) {
      copy = std::max(copy, CopyRate(run));
    }
    const BenchClock::time_point start = BenchClock::now();
    for (int s = 0; s < steps; ++s) {
      auto& scalars = *reinterpret_cast<UpdateScalars*>(scalars_);
      scalars = {.learning_rate = kLearningRate};
      optimizer_->Prepare(updates_++, scalars);
      RETURN_IF_ERROR(optimizer_->Update(stream_, &scalars, parameters_));
      RETURN_IF_ERROR(stream_.Synchronize());
    }
    const double seconds = SecondsSince(start) / steps;
    ms_.push_back(seconds * 1e3);
    copies_.push_back(copy);
    shares_.push_back(bytes() / seconds / copy);
    return absl::OkStatus();
  }

  void Forget() {
    for (std::vector<double>* rounds : {&ms_, &copies_, &shares_}) rounds->clear();
  }

  nlohmann::ordered_json Report() const {
    nlohmann::ordered_json report = {
        {"elements", elements_},
        {"tensors", parameters_.size()},
        {"instruction_set", std::string(InstructionSetName(CurrentInstructionSet()))},
        {"rounds", ms_.size()}};
    report.update(Spread("ms", ms_));
    report.update(
        {{"gb_per_s", bytes() / Median(ms_) / 1e6}, {"copy_gb_per_s", Median(copies_) / 1e9}});
    report.update(Spread("copy_share", shares_));
    return report;
  }

  absl::Status WriteValues(const std::string& path) const {
    std::ofstream file(path, std::ios::binary);
    file.write(static_cast<const char*>(parameters_[0].value.data),
               elements_ * static_cast<int64_t>(SizeOf(dtype_)));
    file.close();
    if (file) return absl::OkStatus();
    return absl::UnavailableError(absl::StrCat("--values=", path, ": cannot be written"));
  }

 private:
  bool has_masters() const { return dtype_ != DType::kF32; }

  // That an update must read and write.
  double bytes() const {
    const size_t slots = optimizer_->slot_names().size();
    const size_t stored = SizeOf(dtype_), written = has_masters() ? stored : 0;
    const size_t an_element = stored + written + 2 * sizeof(float) * (1 + slots);
    return static_cast<double>(an_element) * static_cast<double>(elements_);
  }

  absl::StatusOr<std::byte*> New(size_t bytes) {
    ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(device_, MemoryKind::kDevice, bytes));
    return buffers_.emplace_back(std::move(buffer)).data();
  }

  absl::StatusOr<std::byte*> Filled(DType dtype, uint32_t kind) {
    ASSIGN_OR_RETURN(std::byte* const data, New(elements_ * SizeOf(dtype)));
    VisitReal(dtype, [&]<typename T>() {
      ForEachOnHost(elements_, MadeNumber<T>{reinterpret_cast<T*>(data), kind});
    });
    return data;
  }

  // Bytes read and written a second.
  template <typename Run>
  double CopyRate(const Run& run) {
    const BenchClock::time_point start = BenchClock::now();
#pragma omp parallel
    {
      const int64_t lines = kCopyBytes / 64;
      const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
      run(to_, from_, lines * thread / threads * 64, lines * (thread + 1) / threads * 64);
    }
    return 2 * static_cast<double>(kCopyBytes) / SecondsSince(start);
  }

  Device& device_;
  Stream& stream_;
  const DType dtype_;
  const std::unique_ptr<Optimizer> optimizer_;
  int64_t elements_ = 0;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<Tensor>> slots_;
  std::vector<ParameterViews> parameters_;
  std::byte *scalars_ = nullptr, *from_ = nullptr, *to_ = nullptr;
  uint64_t updates_ = 0;
  std::vector<double> ms_, copies_, shares_;  // by round
};

absl::Status Bench() {
  const int rounds = absl::GetFlag(FLAGS_rounds), steps = absl::GetFlag(FLAGS_steps);
  const int threads = absl::GetFlag(FLAGS_threads);
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_threads, FLAGS_steps}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_rounds}));
  ASSIGN_OR_RETURN(const OptimizerConfig config, ReadOptimizer(absl::GetFlag(FLAGS_optimizer)));
  ASSIGN_OR_RETURN(const DType dtype, TypeNamed("precision", absl::GetFlag(FLAGS_precision),
                                                {DType::kF32, DType::kF16, DType::kBF16}));
  ASSIGN_OR_RETURN(const std::vector<int64_t> tensors, ReadTensors(absl::GetFlag(FLAGS_tensors)));
  const auto device = NewCpuDevice({.threads = threads});
  ASSIGN_OR_RETURN(const auto stream, device->NewStream());
  OptimizerBench bench(*device, *stream, dtype, config);
  RETURN_IF_ERROR(bench.Allocate(tensors));
  RETURN_IF_ERROR(bench.Round(steps));
  bench.Forget();  // a warm-up
  int measured = 0;
  for (; AnotherRound(measured, rounds); ++measured) RETURN_IF_ERROR(bench.Round(steps));
  if (measured == 0) return absl::OkStatus();
  nlohmann::ordered_json line = {{"benchmark", "optimizer"},
                                 {"optimizer", absl::GetFlag(FLAGS_optimizer)},
                                 {"precision", absl::GetFlag(FLAGS_precision)},
                                 {"threads", threads}};
  line.update(bench.Report());
  PrintRow(line);
  if (absl::GetFlag(FLAGS_values).empty()) return absl::OkStatus();
  return bench.WriteValues(absl::GetFlag(FLAGS_values));
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  gyre::LetWaitingThreadsSleep(argv);
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Bench);
}
