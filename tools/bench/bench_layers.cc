// bench_layers: how long each layer of a net takes forward and backward, against the
// matrix-multiplication peak and the copy rate of the same device in the same round.

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/training/net/infer/net_spec.h"
#include "tools/bench/bench.h"
#include "tools/bench/device_peaks.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/process.h"

ABSL_FLAG(std::string, net, "", "Text file of the net.  Its layers get random numbers.");
ABSL_FLAG(std::string, layer, "", "Measure only layers whose name contains this.");
ABSL_FLAG(int, batch, 64, "Samples a step.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda or sim.");
ABSL_FLAG(int, threads, 0, "Threads of a CPU.  0: all cores.");
ABSL_FLAG(std::string, precision, "F32", "F32, F64, F16 or BF16.");
ABSL_FLAG(int, rounds, 5, "Rounds.  Each measures the peaks, then the layer.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures each layer of a net alone, at its shapes there.\n"
    "\n"
    "  bench_layers --net=models/alexnet/net.textproto --batch=32 --threads=1\n"
    "\n"
    "Prints a JSON line for each layer and direction, of medians over the rounds.\n"
    "gemm_share is its FLOPs a second over those of a large square product of the\n"
    "same precision. copy_share is the bytes a second that it must read and write\n"
    "over those of a large copy. Peaks are measured in the same round. The larger\n"
    "share tells whether computation or memory bounds the layer.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"net", "layer", "batch", "precision", "device", "threads", "rounds"}},
};

constexpr double kLeastSeconds = 5e-3;  // of one measurement
constexpr int64_t kDrawnElements = 1 << 20;

// One layer with memory for all that it touches.
class LayerBench {
 public:
  LayerBench(const NetSpec& net, const NetNode& node, const DeviceChoice& choice, Stream& stream)
      : net_(net), node_(node), choice_(choice), stream_(stream) {}

  absl::Status Allocate() {
    for (size_t s = 0; s < node_.spec.states.size(); ++s) {
      const StateSpec& state = node_.spec.states[s];
      ASSIGN_OR_RETURN(Tensor view, Filled(state));
      states_.push_back(view);
      const bool has_gradient =
          state.kind == StateKind::kInput
              ? net_.values[node_.inputs[s]].needs_gradient
              : state.kind == StateKind::kOutput || state.kind == StateKind::kParameter;
      view.data = nullptr;
      if (has_gradient && IsReal(state.dtype)) {
        ASSIGN_OR_RETURN(view, Filled(state));
      }
      gradients_.push_back(view);
    }
    ASSIGN_OR_RETURN(position_, NewZeros(sizeof(BatchPosition)));
    ASSIGN_OR_RETURN(fault_, NewZeros(sizeof(Fault)));
    return absl::OkStatus();
  }

  // Seconds of one pass.
  absl::StatusOr<double> Measure(bool backward) {
    if (!backward || !BackwardWritesSaved()) return MeasureCall([&] { return Run(backward); });
    ASSIGN_OR_RETURN(const double both, MeasureCall([&]() -> absl::Status {
                       RETURN_IF_ERROR(Run(false));
                       return Run(true);
                     }));
    ASSIGN_OR_RETURN(const double forward, MeasureCall([&] { return Run(false); }));
    return both - forward;
  }

  // That must be read or written: states as declared, and gradients.  Of a batch norm twice what
  // its sums are over: they must be known first.
  double Bytes(bool backward) const {
    double bytes = 0;
    for (size_t s = 0; s < states_.size(); ++s) {
      const StateSpec& state = node_.spec.states[s];
      if (state.kind == StateKind::kScratch) continue;
      const bool used = (backward ? state.backward : state.forward) != kNone;
      const bool gradient = backward && gradients_[s];
      int times = int{used} + int{gradient};
      if (node_.config->has_batch_norm()) {
        times += int{state.kind == StateKind::kInput && used};
        times += int{state.kind == StateKind::kOutput && gradient};
      }
      bytes += static_cast<double>(state.size_bytes()) * times;
    }
    return bytes;
  }

 private:
  // A second backward would then read what the first one left, which may be too small for the
  // processor to be quick with.
  bool BackwardWritesSaved() const {
    return std::ranges::any_of(node_.spec.states, [](const StateSpec& state) {
      return state.kind == StateKind::kSaved && (state.backward & kWrite) != 0;
    });
  }

  template <typename Call>
  absl::StatusOr<double> MeasureCall(const Call& call) {
    for (int64_t calls = 1;;) {
      const BenchClock::time_point start = BenchClock::now();
      for (int64_t c = 0; c < calls; ++c) RETURN_IF_ERROR(call());
      RETURN_IF_ERROR(stream_.Synchronize());
      const double seconds = SecondsSince(start);
      if (seconds >= kLeastSeconds) return seconds / static_cast<double>(calls);
      calls = std::max(2 * calls, static_cast<int64_t>(1.2 * kLeastSeconds / seconds *
                                                       static_cast<double>(calls)));
    }
  }

  absl::StatusOr<std::byte*> NewZeros(size_t bytes) {
    ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(*choice_.device, MemoryKind::kDevice, bytes));
    const std::vector<std::byte> zeros(bytes);
    RETURN_IF_ERROR(stream_.Copy(buffer.data(), zeros.data(), bytes));
    RETURN_IF_ERROR(stream_.Synchronize());
    return buffers_.emplace_back(std::move(buffer)).data();
  }

  absl::StatusOr<Tensor> Filled(const StateSpec& state) {
    ASSIGN_OR_RETURN(std::byte* const data, NewZeros(state.size_bytes()));
    const Tensor view{data, state.shape, state.dtype};
    if (!IsReal(state.dtype) || state.bytes != 0) return view;  // labels, opaque bytes
    // Large arrays repeat their beginning, which a host draws slowly.
    const int64_t drawn = std::min(view.elements(), kDrawnElements);
    std::vector<std::byte> values(static_cast<size_t>(drawn) * SizeOf(state.dtype));
    FillUniform({values.data(), Shape({drawn}), view.dtype});
    RETURN_IF_ERROR(stream_.Copy(data, values.data(), values.size()));
    RETURN_IF_ERROR(stream_.Synchronize());
    for (size_t at = values.size(); at < view.bytes(); at += std::min(at, view.bytes() - at)) {
      RETURN_IF_ERROR(stream_.Copy(data + at, data, std::min(at, view.bytes() - at)));
    }
    return view;
  }

  absl::Status Run(bool backward) const {
    const int phases = backward ? node_.spec.backward_phases : node_.spec.forward_phases;
    for (int phase = 0; phase < phases; ++phase) {
      const LayerContext context{.stream = stream_,
                                 .states = states_,
                                 .gradients = gradients_,
                                 .position = reinterpret_cast<const BatchPosition*>(position_),
                                 .fault = reinterpret_cast<Fault*>(fault_),
                                 .layer = 0,
                                 .phase = phase};
      RETURN_IF_ERROR(backward ? node_.layer->Backward(context) : node_.layer->Forward(context));
    }
    return absl::OkStatus();
  }

  const NetSpec& net_;
  const NetNode& node_;
  const DeviceChoice& choice_;
  Stream& stream_;
  std::vector<Buffer> buffers_;
  std::vector<Tensor> states_, gradients_;
  std::byte *position_ = nullptr, *fault_ = nullptr;
};

absl::Status BenchLayer(const NetSpec& net, const NetNode& node, const DeviceChoice& choice,
                        const DevicePeaks& peaks, Stream& stream) {
  LayerBench bench(net, node, choice, stream);
  RETURN_IF_ERROR(bench.Allocate());
  for (const bool backward : {false, true}) {
    const bool idle =
        backward ? !node.backward || node.undone_by_producer : node.applied_by_producer;
    if (idle) continue;
    // Backward reads what forward left.  A library loads a kernel when it first runs.
    RETURN_IF_ERROR(bench.Measure(false).status());
    if (backward) RETURN_IF_ERROR(bench.Measure(true).status());
    const double flops = backward ? node.spec.backward_flops : node.spec.forward_flops;
    const double bytes = bench.Bytes(backward);
    std::vector<double> ms, gemm_shares, copy_shares;
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      ASSIGN_OR_RETURN(const DevicePeaks::Rates rates, peaks.Measure(stream));
      ASSIGN_OR_RETURN(const double took, bench.Measure(backward));
      ms.push_back(took * 1e3);
      gemm_shares.push_back(flops / took / rates.gemm_flops);
      copy_shares.push_back(bytes / took / (2 * rates.device_bytes));
    }
    const double took = Median(ms) / 1e3;
    nlohmann::ordered_json line = {{"benchmark", "layer"},
                                   {"net", absl::GetFlag(FLAGS_net)},
                                   {"layer", node.config->name()},
                                   {"type", TypeOf(net, node)},
                                   {"direction", backward ? "backward" : "forward"},
                                   {"precision", std::string(DTypeName(net.shape.compute))},
                                   {"input", net.values[node.inputs[0]].shape.ToString()},
                                   {"output", net.values[node.outputs[0]].shape.ToString()},
                                   {"device", absl::GetFlag(FLAGS_device)},
                                   {"threads", choice.threads},
                                   {"rounds", ms.size()}};
    line.update(Spread("ms", ms));
    line.update({{"gflops", flops / took / 1e9},
                 {"gemm_share", Median(gemm_shares)},
                 {"gb_per_s", bytes / took / 1e9},
                 {"copy_share", Median(copy_shares)}});
    PrintRow(line);
  }
  return absl::OkStatus();
}

absl::Status Bench() {
  if (absl::GetFlag(FLAGS_net).empty()) {
    return absl::InvalidArgumentError("--net is missing; see --help");
  }
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_rounds, FLAGS_batch}));
  ASSIGN_OR_RETURN(const DType dtype,
                   TypeNamed("precision", absl::GetFlag(FLAGS_precision),
                             {DType::kF32, DType::kF64, DType::kF16, DType::kBF16}));
  ASSIGN_OR_RETURN(const Parsed<NetConfig> config, ParseNet(absl::GetFlag(FLAGS_net)));
  DeviceFlags flags;
  flags.kind = absl::GetFlag(FLAGS_device);
  flags.threads = absl::GetFlag(FLAGS_threads);
  ASSIGN_OR_RETURN(const DeviceChoice choice, OpenDevice(flags));
  ASSIGN_OR_RETURN(const auto stream, choice.device->NewStream());
  ParameterSet parameters;
  const std::string layer = absl::GetFlag(FLAGS_layer);
  const int64_t batch = absl::GetFlag(FLAGS_batch);
  ASSIGN_OR_RETURN(const NetSpec net,
                   InferNet(config,
                            {.shape = {.local = batch, .global = batch, .compute = dtype},
                             .primitives = choice.primitives.get()},
                            parameters));
  ASSIGN_OR_RETURN(const auto peaks,
                   DevicePeaks::Create(*choice.device, *choice.primitives, dtype, *stream));
  RETURN_IF_ERROR(peaks->Measure(*stream).status());  // a warm-up
  std::vector<std::string> names;
  bool measured = false;
  for (const NetNode& node : net.nodes) {
    const bool view = std::any_of(node.spec.aliases.begin(), node.spec.aliases.end(),
                                  [](const Alias& alias) { return alias.must; });
    if (view) continue;
    names.push_back(node.config->name());
    if (names.back().find(layer) == std::string::npos) continue;
    RETURN_IF_ERROR(BenchLayer(net, node, choice, *peaks, *stream));
    measured = true;
  }
  if (measured) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--layer=", layer, ": no layer that computes has this in its name; there are ",
                   absl::StrJoin(names, ", ")));
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  gyre::LetWaitingThreadsSleep(argv);
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Bench);
}
