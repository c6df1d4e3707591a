// Every kernel and every call of a library that training makes, once on a device and once on a CPU:
// the layers that between them launch all kernels, by the best libraries of the device and by the
// reference alone, and a step's other kernels.  F32 comes first.  Runs on sim; with
// GYRE_TEST_DEVICE=cuda, on the GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "absl/strings/str_cat.h"
#include "tests/any_device/kernel_cases.h"
#include "tests/any_device/step_kernels.h"
#include "tests/layers/layer_contract.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};

DeviceKind Kind() { return NamedDevice().value_or(DeviceKind::kSim); }

double Tolerance(DType dtype) {
  if (dtype == DType::kF64) return 1e-12;
  if (dtype == DType::kF32) return 2e-5;
  return dtype == DType::kF16 ? 3e-3 : 2e-2;
}

enum class Libraries : uint8_t { kBest, kReference };

struct LayerRun {
  DType dtype;
  Libraries libraries;
  size_t at;  // of KernelCases()
};

// A large one has kernels of its own, for the reference, in F32 and in what is stored in 16 bits.
std::vector<LayerRun> LayerRuns(bool large) {
  std::vector<LayerRun> runs;
  for (const DType dtype : kTypes) {
    for (const Libraries libraries : {Libraries::kBest, Libraries::kReference}) {
      if (large &&
          (libraries == Libraries::kBest || dtype == DType::kF64 || dtype == DType::kF16)) {
        continue;
      }
      for (size_t at = 0; at < KernelCases().size(); ++at) {
        if (KernelCases()[at].is_large == large) runs.push_back({dtype, libraries, at});
      }
    }
  }
  return runs;
}

std::string LayerRunName(const testing::TestParamInfo<LayerRun>& info) {
  const LayerRun& run = info.param;
  return absl::StrCat(std::string(DTypeName(run.dtype)),
                      run.libraries == Libraries::kBest ? "Best" : "Reference", "_",
                      KernelCases()[run.at].type, "_", run.at);
}

// Labels are 1, 0, 1, 0, ...: each is a class, a mark, and for the first sample a length.
LayerCase CaseOf(const KernelCase& c) {
  LayerCase layer{c.config, {}};
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Shape& shape = c.inputs[i];
    const bool is_weights = c.has_weights && i + 1 == c.inputs.size();
    if (c.has_labels && i + 1 + c.has_weights == c.inputs.size()) {
      std::vector<int32_t> labels(static_cast<size_t>(shape.elements()));
      for (size_t k = 0; k < labels.size(); ++k) labels[k] = static_cast<int32_t>((k + 1) % 2);
      layer.inputs.push_back(Labels(shape, labels));
    } else {
      layer.inputs.push_back(c.has_weights && i > 0 ? Positive(shape, /*seed=*/i + 1)
                                                    : Distinct(shape, /*seed=*/i + 1));
    }
    layer.inputs.back().batch_axis = c.batch_axis;
    layer.inputs.back().is_data = is_weights;
  }
  return layer;
}

bool IsMeasure(const std::string& type) {
  return type == "accuracy" || type == "roc_auc" || type == "record" || type == "alarm";
}

class LayerKernels : public testing::TestWithParam<LayerRun> {};

TEST_P(LayerKernels, ComputeWhatACpuDoes) {
  const LayerRun& run = GetParam();
  const KernelCase& c = KernelCases()[run.at];
  if (c.is_large && !NamedDevice()) GTEST_SKIP() << "a CPU takes long, and has no such kernels";
  const LayerCase layer = CaseOf(c);
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
  libraries.push_back(NewReferenceLibrary());
  const Primitives reference(Kind(), std::move(libraries));
  ContractOptions options;
  options.differentiable = !IsMeasure(c.type);
  for (const bool train : {true, false}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
      if (c.is_large && (!train || activation != Activation::kNone)) continue;
      RunOptions on_device = {.device = Kind(), .compute = run.dtype, .train = train};
      on_device.output_activation = activation;
      if (run.libraries == Libraries::kReference) on_device.primitives = &reference;
      SCOPED_TRACE(absl::StrCat(train ? "training" : "inference",
                                activation == Activation::kRelu ? " with a ReLU" : ""));
      CheckAgainstF64(layer, on_device, Tolerance(run.dtype), options);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Smoke, LayerKernels, testing::ValuesIn(LayerRuns(/*large=*/false)),
                         LayerRunName);
INSTANTIATE_TEST_SUITE_P(Large, LayerKernels, testing::ValuesIn(LayerRuns(/*large=*/true)),
                         LayerRunName);

// Numbers on a device that a step's kernels work in.
class Numbers {
 public:
  explicit Numbers(DeviceKind kind)
      : opened_(OpenTestDevice(kind)), stream_(std::move(opened_.device->NewStream()).value()) {}

  absl::Status Run(const std::function<absl::Status(const StepKernels&)>& run) {
    const StepKernels kernels(
        *stream_, [this](const Shape& shape, DType dtype) { return Make(shape, dtype); });
    RETURN_IF_ERROR(run(kernels));
    RETURN_IF_ERROR(stream_->Synchronize());
    for (Slot& slot : slots_) RETURN_IF_ERROR(slot.Download());
    return absl::OkStatus();
  }

  size_t count() const { return slots_.size(); }
  const Tensor& tensor(size_t i) const { return tensors_[i]; }
  Doubles values(size_t i) {
    return ToDoubles(slots_[i].host(), tensors_[i].shape, tensors_[i].dtype);
  }

 private:
  Tensor Make(const Shape& shape, DType dtype) {
    Tensor tensor{nullptr, shape, dtype};
    Slot& slot = slots_.emplace_back();
    EXPECT_TRUE(slot.Allocate(*opened_.device, *stream_, tensor.bytes()).ok());
    std::vector<std::byte> bytes(tensor.bytes());
    if (dtype != DType::kU8) {
      Doubles values(static_cast<size_t>(tensor.elements()));
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = dtype == DType::kI32 ? static_cast<double>(i)
                                         : static_cast<double>(i * 37 % 201) / 128 - 0.78125;
      }
      bytes = ToBytes(values, dtype);
    }
    EXPECT_TRUE(slot.Write(bytes).ok());
    tensor.data = slot.device();
    tensors_.push_back(tensor);
    return tensor;
  }

  const TestDevice opened_;
  const std::unique_ptr<Stream> stream_;
  std::deque<Slot> slots_;
  std::vector<Tensor> tensors_;
};

// Scalars and what is opaque are run, and not compared.
void CheckStep(const std::function<absl::Status(const StepKernels&)>& run) {
  Numbers device(Kind()), cpu(DeviceKind::kCpu);
  const absl::Status ran = device.Run(run);
  ASSERT_TRUE(ran.ok()) << ran;
  ASSERT_TRUE(cpu.Run(run).ok());
  ASSERT_EQ(device.count(), cpu.count());
  for (size_t t = 0; t < cpu.count(); ++t) {
    const DType dtype = cpu.tensor(t).dtype;
    if (dtype == DType::kU8) continue;
    const Doubles got = device.values(t), want = cpu.values(t);
    for (size_t i = 0; i < want.size(); ++i) {
      const double bound = IsReal(dtype) ? Tolerance(dtype) * std::max(1.0, std::abs(want[i])) : 0;
      ASSERT_TRUE(std::abs(got[i] - want[i]) <= bound ||
                  (std::isnan(got[i]) && std::isnan(want[i])))
          << "array " << t << " of " << DTypeName(dtype) << ", [" << i << "]: " << got[i]
          << ", on a CPU " << want[i];
    }
  }
}

class StepKernelsTest : public testing::TestWithParam<DType> {};

TEST_P(StepKernelsTest, UpdateAsACpuDoes) {
  CheckStep([](const StepKernels& kernels) { return kernels.RunOptimizers(GetParam()); });
}

TEST_P(StepKernelsTest, MoveAndSumAsACpuDoes) {
  CheckStep([](const StepKernels& kernels) { return kernels.RunNetSteps(GetParam()); });
}

INSTANTIATE_TEST_SUITE_P(Smoke, StepKernelsTest, testing::ValuesIn(kTypes),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

TEST(StepScalars, AreAsOnACpu) {
  CheckStep([](const StepKernels& kernels) { return kernels.RunScalars(); });
}

}  // namespace
}  // namespace gyre
