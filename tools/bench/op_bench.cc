#include "tools/bench/op_bench.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/primitives/onednn/bf16.h"
#include "engine/training/model/model.h"

namespace gyre {
namespace {

// Looked at of a result: this much of its beginning and of its end.
constexpr size_t kLookBytes = size_t{1} << 18;
// CudaTrial's numbers of operands, and those of the gradients that a convolution makes.
constexpr uint64_t kX = 0, kWeights = 1, kBias = 2, kY = 3;

// Of a result, relative to the largest value: tells a wrong algorithm from another order of sums;
// the tests tell digits.
double Bound(const OpPrecision& precision) {
  switch (precision.dtype) {
    case DType::kF64:
      return 1e-11;
    case DType::kF16:
      return 1e-2;
    case DType::kBF16:
      return 5e-2;
    default:
      return precision.tf32 ? 1e-2 : 1e-3;
  }
}

double Error(DType dtype, const std::vector<std::byte>& got, const std::vector<std::byte>& want) {
  return VisitReal(dtype, [&]<typename T>() {
    double largest = 0, error = 0;
    for (size_t at = 0; at + sizeof(T) <= want.size(); at += sizeof(T)) {
      T g, w;
      std::memcpy(&g, got.data() + at, sizeof(T));
      std::memcpy(&w, want.data() + at, sizeof(T));
      const double difference = std::abs(static_cast<double>(g) - static_cast<double>(w));
      largest = std::max(largest, std::abs(static_cast<double>(w)));
      if (!(difference <= error)) error = difference;  // NaN stays
    }
    return largest > 0 ? error / largest : error;
  });
}

// Notes what a plan asks for, and leaves it to the next library.
class Recorder : public PrimitiveLibrary {
 public:
  explicit Recorder(std::vector<OpSpec>* ops) : ops_(ops) {}
  std::string_view name() const override { return "recorder"; }
  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    return Note(spec);
  }
  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    return Note(spec);
  }
  absl::StatusOr<std::unique_ptr<Pool2d>> Prepare(const Pool2dSpec& spec) const override {
    return Note(spec);
  }

 private:
  template <typename Spec>
  absl::Status Note(const Spec& spec) const {
    const bool is_new = seen_.insert(ToString(spec)).second;
    if (is_new && spec.dtype == DType::kF32) ops_->emplace_back(spec);
    return absl::UnimplementedError("recorded");
  }

  std::vector<OpSpec>* const ops_;
  mutable std::set<std::string> seen_;
};

}  // namespace

absl::StatusOr<std::vector<OpSpec>> OpsOf(const Parsed<NetConfig>& net, int64_t batch) {
  std::vector<OpSpec> ops;
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
  libraries.push_back(std::make_unique<Recorder>(&ops));
  libraries.push_back(NewReferenceLibrary());
  const Primitives primitives(DeviceKind::kCuda, std::move(libraries));
  RETURN_IF_ERROR(PlanModel(net, {.shape = {.global = batch}, .primitives = &primitives}).status());
  return ops;
}

OpBench::Libraries OpBench::LibrariesOf(const DeviceChoice& choice) {
  Libraries libraries;
  libraries.push_back(NewReferenceLibrary());
  if (choice.device->kind() == DeviceKind::kCuda) return libraries;
  libraries.push_back(NewOneDnnLibrary(choice.threads));
  const PrimitiveLibrary* const onednn = libraries.back().get();
  libraries.push_back(NewBlockedLibrary());
  libraries.push_back(NewConvertingLibrary({onednn, libraries.back().get()}));
  for (const Bf16Way way : {Bf16Way::kConvolution, Bf16Way::kProducts}) {
    libraries.push_back(NewBf16WayLibrary(choice.threads, way));
  }
  return libraries;
}

absl::StatusOr<std::unique_ptr<OpBench>> OpBench::Create(
    DeviceChoice choice, Libraries libraries,
    std::function<void(const nlohmann::ordered_json&)> emit) {
  std::unique_ptr<OpBench> bench(new OpBench(std::move(emit)));
  bench->choice_ = std::move(choice);
  bench->libraries_ = std::move(libraries);
  ASSIGN_OR_RETURN(bench->stream_, bench->choice_.device->NewStream());
  return bench;
}

absl::Status OpBench::Measure(const OpSpec& spec, const OpPrecision& precision) {
  std::string what;
  const absl::Status status = std::visit(
      [&](auto own) {
        own.dtype = precision.dtype;
        what = ToString(own);
        return MeasureOp(own, precision);
      },
      spec);
  if (status.ok()) return status;
  EmitRefusal(what, "", precision, "", status);
  // A stream that has failed stays so; a device that is lost makes none that works.
  ASSIGN_OR_RETURN(stream_, choice_.device->NewStream());
  ASSIGN_OR_RETURN(const Buffer there, Empty(1));
  std::byte byte{};
  RETURN_IF_ERROR(stream_->Copy(there.data(), &byte, 1));
  return stream_->Synchronize();
}

void OpBench::EmitRefusal(const std::string& what, const std::string& pass,
                          const OpPrecision& precision, const std::string& way,
                          const absl::Status& status) {
  ++refused_;
  emit_({{"benchmark", "operation"},
         {"operation", what},
         {"pass", pass},
         {"precision", precision.name},
         {"way", way},
         {"refused", status.ToString()}});
}

// What the CUDA libraries would do, candidate by candidate, held to what the reference did.
class OpBench::WaysSelector : public CudaSelector {
 public:
  // of(trial): the pass that a trial is, and what the reference made of it, in the trial's layout.
  using Of = std::function<std::pair<MeasuredPass, std::vector<std::byte>*>(const CudaTrial&)>;
  WaysSelector(OpBench& bench, TrialBench& trials, Of of)
      : bench_(bench), trials_(trials), of_(std::move(of)) {}

  size_t most_candidates() const override { return 8; }
  absl::StatusOr<size_t> Select(const CudaTrial& trial) override {
    RETURN_IF_ERROR(trials_.Load(trial));
    const auto [pass, expected] = of_(trial);
    for (const CudaTrial::TrialCandidate& candidate : trial.candidates) {
      RETURN_IF_ERROR(bench_.Row(
          pass, candidate.choice, trials_.stream(), [&] { return trials_.Run(candidate); },
          trials_.operand(trial.operands.size() - 1), trial.operands.back().bytes, expected));
    }
    return 0;
  }

 private:
  OpBench& bench_;
  TrialBench& trials_;
  const Of of_;
};

absl::Status OpBench::MeasureOp(GemmSpec spec, const OpPrecision& precision) {
  const size_t size = SizeOf(spec.dtype);
  const auto bytes = [&](int64_t rows, int64_t columns) {
    return static_cast<size_t>(rows * columns) * size;
  };
  ASSIGN_OR_RETURN(const Buffer a, Filled(bytes(spec.m, spec.k), spec.dtype, kX));
  ASSIGN_OR_RETURN(const Buffer b, Filled(bytes(spec.k, spec.n), spec.dtype, kWeights));
  ASSIGN_OR_RETURN(const Buffer bias, Filled(bytes(1, spec.n), spec.dtype, kBias));
  ASSIGN_OR_RETURN(const Buffer c, Empty(bytes(spec.m, spec.n)));
  const MeasuredPass pass{.what = ToString(spec),
                          .name = "product",
                          .bytes = a.bytes() + b.bytes() + c.bytes(),
                          .flops = 2.0 * static_cast<double>(spec.m) * static_cast<double>(spec.n) *
                                   static_cast<double>(spec.k),
                          .precision = &precision};
  std::vector<std::byte> expected;
  for (const auto& library : libraries_) {
    const auto gemm = library->Prepare(spec);
    if (absl::IsUnimplemented(gemm.status())) continue;
    RETURN_IF_ERROR(gemm.status());
    ASSIGN_OR_RETURN(const Buffer scratch, Empty((*gemm)->scratch_bytes()));
    ASSIGN_OR_RETURN(const Buffer packed, Empty((*gemm)->packed_bytes()));
    const bool packs = packed.bytes() > 0;
    if (packs) RETURN_IF_ERROR((*gemm)->Pack(*stream_, b.data(), packed.data()));
    const void* const factor = packs ? packed.data() : b.data();
    RETURN_IF_ERROR(Row(
        pass, std::string(library->name()), *stream_,
        [&] {
          return (*gemm)->Run(*stream_, a.data(), factor, bias.data(), c.data(), scratch.data());
        },
        c.data(), c.bytes(), &expected));
  }
  if (choice_.device->kind() != DeviceKind::kCuda) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto trials, TrialBench::Create(*choice_.device));
  WaysSelector ways(*this, *trials, [&](const CudaTrial&) { return std::pair(pass, &expected); });
  ASSIGN_OR_RETURN(const auto vendors, Vendors(precision.tf32, &ways));
  return vendors->Prepare(spec).status();
}

absl::Status OpBench::MeasureOp(Conv2dSpec spec, const OpPrecision& precision) {
  spec.weight_layout.clear();
  const bool gpu = choice_.device->kind() == DeviceKind::kCuda;
  const size_t size = SizeOf(spec.dtype);
  const size_t x_bytes = static_cast<size_t>(spec.n * spec.h * spec.w * spec.c) * size;
  const size_t y_bytes =
      static_cast<size_t>(spec.n * spec.out_h() * spec.out_w() * spec.filters) * size;
  const size_t weight_bytes = static_cast<size_t>(spec.weights()) * size;
  ASSIGN_OR_RETURN(const Buffer x, Filled(x_bytes, spec.dtype, kX));
  ASSIGN_OR_RETURN(const Buffer dy, Filled(y_bytes, spec.dtype, kY));
  ASSIGN_OR_RETURN(const Buffer bias,
                   Filled(static_cast<size_t>(spec.filters) * size, spec.dtype, kBias));
  ASSIGN_OR_RETURN(const Buffer y, Empty(y_bytes));
  ASSIGN_OR_RETURN(const Buffer dx, Empty(x_bytes));
  ASSIGN_OR_RETURN(const Buffer dbias, Empty(bias.bytes()));

  // Weights: on a GPU those whose layout there is what trials are filled with.
  std::unique_ptr<Conv2d> vendors_conv;
  ASSIGN_OR_RETURN(const Buffer filled, Filled(weight_bytes, spec.dtype, kWeights));
  ASSIGN_OR_RETURN(std::vector<std::byte> canonical,
                   Look(*stream_, filled.data(), weight_bytes, /*whole=*/true));
  if (gpu) {
    ASSIGN_OR_RETURN(const auto vendors, Vendors(precision.tf32, nullptr));
    ASSIGN_OR_RETURN(vendors_conv, vendors->Prepare(spec));
    const std::vector<std::byte> opaque = canonical;
    RETURN_IF_ERROR(vendors_conv->Unpack(opaque.data(), canonical.data()));
  }

  const auto pass_named = [&](const char* name) {
    return MeasuredPass{.what = ToString(spec),
                        .name = name,
                        .bytes = x_bytes + y_bytes + weight_bytes,
                        .flops = spec.forward_flops(),
                        .precision = &precision};
  };
  std::vector<std::byte> forward, data, weights;  // the reference's results
  for (const auto& library : libraries_) {
    const auto prepared = library->Prepare(spec);
    if (absl::IsUnimplemented(prepared.status())) continue;
    RETURN_IF_ERROR(prepared.status());
    const Conv2d& conv = **prepared;
    const std::string way(library->name());
    std::vector<std::byte> packed(conv.weight_layout().bytes);
    RETURN_IF_ERROR(conv.Pack(canonical.data(), packed.data()));
    ASSIGN_OR_RETURN(const Buffer w, Empty(packed.size()));
    ASSIGN_OR_RETURN(const Buffer dw, Empty(packed.size()));
    ASSIGN_OR_RETURN(const Buffer scratch, Empty(conv.scratch_bytes()));
    RETURN_IF_ERROR(stream_->Copy(w.data(), packed.data(), packed.size()));
    RETURN_IF_ERROR(stream_->Synchronize());
    RETURN_IF_ERROR(Row(
        pass_named("forward"), way, *stream_,
        [&] {
          return conv.Forward(*stream_, x.data(), w.data(), bias.data(), y.data(), scratch.data());
        },
        y.data(), y_bytes, &forward));
    if (!spec.train) continue;
    if (spec.data_gradient) {
      RETURN_IF_ERROR(Row(
          pass_named("backward data"), way, *stream_,
          [&] {
            return conv.BackwardData(*stream_, dy.data(), w.data(), dx.data(), scratch.data());
          },
          dx.data(), x_bytes, &data));
    }
    RETURN_IF_ERROR(Row(
        pass_named("backward weights"), way, *stream_,
        [&] {
          return conv.BackwardWeights(*stream_, x.data(), dy.data(), dw.data(), dbias.data(),
                                      scratch.data());
        },
        dw.data(), dw.bytes(), &weights,
        [&](std::vector<std::byte>* bytes) {
          const std::vector<std::byte> opaque = *bytes;
          bytes->resize(weight_bytes);
          return conv.Unpack(opaque.data(), bytes->data());
        }));
  }
  if (!gpu) return absl::OkStatus();

  if (!weights.empty()) {  // as the vendors store them
    const std::vector<std::byte> unpacked = weights;
    weights.resize(vendors_conv->weight_layout().bytes);
    RETURN_IF_ERROR(vendors_conv->Pack(unpacked.data(), weights.data()));
    if (weights.size() > 2 * kLookBytes) {
      weights.erase(weights.begin() + kLookBytes, weights.end() - kLookBytes);
    }
  }
  ASSIGN_OR_RETURN(const auto trials, TrialBench::Create(*choice_.device));
  WaysSelector ways(*this, *trials, [&](const CudaTrial& trial) {
    switch (static_cast<uint64_t>(trial.operands.back().number)) {
      case kX:
        return std::pair(pass_named("backward data"), &data);
      case kWeights:
        return std::pair(pass_named("backward weights"), &weights);
      default:
        return std::pair(pass_named("forward"), &forward);
    }
  });
  ASSIGN_OR_RETURN(const auto vendors, Vendors(precision.tf32, &ways));
  return vendors->Prepare(spec).status();
}

absl::Status OpBench::MeasureOp(Pool2dSpec spec, const OpPrecision& precision) {
  const size_t size = SizeOf(spec.dtype);
  const size_t x_bytes = static_cast<size_t>(spec.n * spec.h * spec.w * spec.c) * size;
  const size_t y_bytes = static_cast<size_t>(spec.n * spec.out_h() * spec.out_w() * spec.c) * size;
  ASSIGN_OR_RETURN(const Buffer x, Filled(x_bytes, spec.dtype, kX));
  ASSIGN_OR_RETURN(const Buffer dy, Filled(y_bytes, spec.dtype, kY));
  ASSIGN_OR_RETURN(const Buffer y, Empty(y_bytes));
  ASSIGN_OR_RETURN(const Buffer dx, Empty(x_bytes));
  std::vector<std::byte> forward, backward;
  for (const auto& library : libraries_) {
    const auto pool = library->Prepare(spec);
    if (absl::IsUnimplemented(pool.status())) continue;
    RETURN_IF_ERROR(pool.status());
    ASSIGN_OR_RETURN(const Buffer saved, Empty((*pool)->saved_bytes()));
    const auto pass_named = [&](const char* name) {
      return MeasuredPass{.what = ToString(spec),
                          .name = name,
                          .bytes = x_bytes + y_bytes + saved.bytes(),
                          .precision = &precision};
    };
    RETURN_IF_ERROR(Row(
        pass_named("forward"), std::string(library->name()), *stream_,
        [&] { return (*pool)->Forward(*stream_, x.data(), y.data(), saved.data()); }, y.data(),
        y_bytes, &forward));
    if (!spec.train) continue;
    RETURN_IF_ERROR(Row(
        pass_named("backward"), std::string(library->name()), *stream_,
        [&] { return (*pool)->Backward(*stream_, dy.data(), saved.data(), dx.data()); }, dx.data(),
        x_bytes, &backward));
  }
  return absl::OkStatus();
}

absl::Status OpBench::Row(const MeasuredPass& pass, const std::string& way, Stream& stream,
                          const std::function<absl::Status()>& run, const void* result,
                          size_t bytes, std::vector<std::byte>* expected, const Unpack& unpack) {
  const absl::Status status = TimedRow(pass, way, stream, run, result, bytes, expected, unpack);
  if (!status.ok()) EmitRefusal(pass.what, pass.name, *pass.precision, way, status);
  return status.ok() ? status : stream.Synchronize();
}

absl::Status OpBench::TimedRow(const MeasuredPass& pass, const std::string& way, Stream& stream,
                               const std::function<absl::Status()>& run, const void* result,
                               size_t bytes, std::vector<std::byte>* expected,
                               const Unpack& unpack) {
  ASSIGN_OR_RETURN(const auto watch, NewStopWatch(stream));
  ASSIGN_OR_RETURN(const double seconds, ShortestTime(stream, *watch, kLong, run));
  ASSIGN_OR_RETURN(std::vector<std::byte> got,
                   Look(stream, result, bytes, /*whole=*/unpack != nullptr));
  if (unpack != nullptr) RETURN_IF_ERROR(unpack(&got));
  const bool is_reference = expected->empty();
  if (is_reference) *expected = got;
  GYRE_CHECK(got.size() == expected->size());
  const double error = Error(pass.precision->dtype, got, *expected);
  const bool right = error <= Bound(*pass.precision);
  if (!right) ++wrong_;
  nlohmann::ordered_json row = {{"benchmark", "operation"},
                                {"operation", pass.what},
                                {"pass", pass.name},
                                {"precision", pass.precision->name},
                                {"way", way},
                                {"ms", seconds * 1e3}};
  if (pass.flops > 0) row["gflops"] = pass.flops / seconds / 1e9;
  row["gb_per_s"] = static_cast<double>(pass.bytes) / seconds / 1e9;
  if (!is_reference) row["error"] = error;
  row["right"] = right;
  emit_(row);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::byte>> OpBench::Look(Stream& stream, const void* result,
                                                     size_t bytes, bool whole) const {
  const auto* const from = static_cast<const std::byte*>(result);
  const size_t ends = 2 * kLookBytes;
  std::vector<std::byte> seen(whole ? bytes : std::min(bytes, ends));
  if (seen.size() == bytes) {
    RETURN_IF_ERROR(stream.Copy(seen.data(), from, bytes));
  } else {
    RETURN_IF_ERROR(stream.Copy(seen.data(), from, kLookBytes));
    RETURN_IF_ERROR(stream.Copy(seen.data() + kLookBytes, from + bytes - kLookBytes, kLookBytes));
  }
  RETURN_IF_ERROR(stream.Synchronize());
  return seen;
}

absl::StatusOr<Buffer> OpBench::Filled(size_t bytes, DType dtype, uint64_t key) const {
  ASSIGN_OR_RETURN(Buffer buffer, Empty(bytes));
  RETURN_IF_ERROR(FillUniform(*stream_, buffer.data(), bytes, dtype, key));
  return buffer;
}

absl::StatusOr<Buffer> OpBench::Empty(size_t bytes) const {
  return Buffer::Allocate(*choice_.device, MemoryKind::kDevice, bytes);
}

absl::StatusOr<std::unique_ptr<Primitives>> OpBench::Vendors(bool tf32,
                                                             CudaSelector* selector) const {
  return NewCudaPrimitives(*choice_.device, {.tf32 = tf32, .selector = selector});
}

}  // namespace gyre
