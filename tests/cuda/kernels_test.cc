// Whether the program holds every kernel that training launches, for each architecture: all layers,
// forward and backward, in every real type, the optimizers and the steps of the net run on the cuda
// device of the fake runtime, and what they launch is looked for in what nvcc embedded.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "distributed/collectives/device_reduction.h"
#include "distributed/parameter_server/row_kernels.h"
#include "engine/runtime/check.h"
#include "engine/runtime/primitives/cuda/library.h"
#include "engine/training/net/net_kernels.h"
#include "engine/training/net/row_kernels.h"
#include "engine/training/optimizer.h"
#include "engine/training/step/update_gate.h"
#include "layers/factory.h"
#include "tests/cuda/cuda_device_fixture.h"
#include "tests/cuda/fake_cublaslt.h"
#include "tests/cuda/fake_cudnn.h"
#include "tests/cuda/fat_binary.h"

namespace gyre {
namespace {

using testing::UnorderedElementsAre;

constexpr DType kRealTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

struct LayerCase {
  const char* type;    // member of LayerConfig.type
  const char* config;  // LayerConfig as text
  std::vector<Shape> inputs;
  bool has_labels = false;  // as its last input
  bool is_large = false;    // too much for the fake libraries, which compute
  int batch_axis = 0;
};

// Between them they reach every kernel of every layer.
const std::vector<LayerCase>& LayerCases() {
  static const auto& cases = *new std::vector<LayerCase>{
      {"accuracy", "accuracy {}", {{4, 3}, {4}}, true},
      {"conv2d", "conv2d { filters: 4 kernel: 3 padding: 1 }", {{2, 8, 8, 4}}},
      {"conv2d", "conv2d { filters: 3 kernel: 2 use_bias: false }", {{2, 5, 7, 3}}},
      {"conv2d", "conv2d { filters: 4 kernel: 3 groups: 2 }", {{2, 5, 5, 2}}},
      {"conv2d",
       "conv2d { filters: 4 kernel: 3 weight { learning_rate_multiplier: 0 } }",
       {{2, 8, 8, 4}}},
      {"conv2d",
       "conv2d { filters: 4 kernel: 3 bias { learning_rate_multiplier: 0 } }",
       {{2, 8, 8, 4}}},
      {"conv2d", "conv2d { filters: 2 kernel: 1 }", {{0, 4, 4, 4}}},
      {"conv2d", "conv2d { filters: 2 kernel: 1 }", {{8, 256, 256, 2}}, false, true},
      {"conv1d", "conv1d { filters: 4 kernel: 3 }", {{2, 3, 8, 4}}},
      {"dense", "dense { outputs: 5 }", {{4, 6}}},
      {"dense", "dense { outputs: 5 use_bias: false }", {{4, 6}}},
      {"dense", "dense { outputs: 5 weight { learning_rate_multiplier: 0 } }", {{4, 6}}},
      {"dense", "dense { outputs: 5 bias { learning_rate_multiplier: 0 } }", {{4, 6}}},
      // Cut into pieces, also of 16 bits.
      {"dense", "dense { outputs: 4128 }", {{2, 4097}}, false, true},
      {"dropout", "dropout { rate: 0.5 }", {{4, 6}}},
      {"dropout", "dropout { rate: 0.5 }", {{4, 8}}},
      {"flatten", "flatten {}", {{4, 3, 2}}},
      {"pool2d", "pool2d { kernel: 2 }", {{2, 6, 6, 3}}},
      {"pool2d", "pool2d { kind: AVERAGE kernel: 2 }", {{2, 6, 6, 3}}},
      {"pool2d", "pool2d { kernel: 2 }", {{2, 6, 6, 8}}},
      {"pool2d", "pool2d { kind: AVERAGE kernel: 2 }", {{2, 6, 6, 8}}},
      {"pool1d", "pool1d { kernel: 2 }", {{2, 3, 8, 4}}},
      {"hinge", "hinge {}", {{4, 3}, {4}}, true},
      {"binary_cross_entropy", "binary_cross_entropy {}", {{4, 1}, {4}}, true},
      {"binary_hinge", "binary_hinge {}", {{4, 1}, {4}}, true},
      {"max_hinge", "max_hinge {}", {{4, 3, 1}, {4, 3}}, true},
      {"time_to_event", "time_to_event { horizon: 1 }", {{4, 3}, {4, 3}}},
      {"roc_auc", "roc_auc {}", {{4, 1}, {4}}, true},
      {"alarm", "alarm { earliest: 1 }", {{4, 3, 1}, {4, 3}, {4, 3}}, true},
      {"layer_norm", "layer_norm {}", {{4, 6}}},
      {"lrn", "lrn {}", {{2, 3, 3, 6}}},
      {"lrn", "lrn { size: 3 }", {{2, 3, 3, 6}}},
      {"mean_squared_error", "mean_squared_error {}", {{4, 3}, {4, 3}}},
      {"pool2d", "pool2d { kernel: 20 }", {{2, 20, 20, 3}}},
      {"pool2d", "pool2d { kind: AVERAGE kernel: 20 }", {{2, 20, 20, 3}}},
      {"relu", "relu { max: 6 }", {{4, 6}}},
      {"sigmoid", "sigmoid {}", {{4, 6}}},
      {"add", "add {}", {{4, 6}, {4, 6}}},
      {"add", "add {}", {{4, 6}, {4, 6}, {4, 6}}},
      {"multiply", "multiply {}", {{4, 6}, {4, 6}}},
      {"multiply", "multiply {}", {{4, 6}, {4, 6}, {4, 6}}},
      {"tanh", "tanh {}", {{4, 6}}},
      {"concat", "concat {}", {{4, 6}, {4, 2}}},
      {"slice", "slice { end: 2 }", {{4, 6}}},
      {"split", "split { parts: 2 }", {{4, 6}}},
      {"reshape", "reshape { dims: [2, 3] }", {{4, 6}}},
      {"transpose", "transpose { axes: [1, 0] }", {{4, 6}}},
      {"batch_norm", "batch_norm {}", {{4, 6}}},
      // Sums in pieces.
      {"batch_norm", "batch_norm {}", {{1024, 6}}},
      {"layer_norm", "layer_norm {}", {{1024, 6}}},
      {"mean_squared_error", "mean_squared_error {}", {{4096, 2}, {4096, 2}}},
      {"sigmoid_cross_entropy", "sigmoid_cross_entropy {}", {{4096, 2}, {4096, 2}}},
      {"time_to_event", "time_to_event { horizon: 1 }", {{4096, 2}, {4096, 2}}},
      {"embedding", "embedding { vocabulary: 7 width: 5 }", {{4, 3}}, true},
      {"positional_embedding", "positional_embedding { length: 4 }", {{2, 3, 5}}},
      {"positional_embedding", "positional_embedding { length: 4 }", {{3, 2, 5}}, false, false, 1},
      {"attention", "attention { heads: 2 causal: true }", {{2, 3, 6}, {2, 3, 6}, {2, 3, 6}}},
      {"attention", "attention {}", {{2, 3, 4}, {2, 5, 4}, {2, 5, 4}, {2}}, true},
      {"lstm", "lstm { hidden: 3 layers: 2 dropout: 0.5 carry: true last: true }", {{2, 3, 4}}},
      {"lstm", "lstm { hidden: 3 projection: 2 bidirectional: true }", {{2, 3, 4}, {2}}, true},
      {"gru", "gru { hidden: 3 bidirectional: true }", {{2, 3, 4}, {2, 3}}, true},
      {"rnn", "rnn { hidden: 3 }", {{2, 3, 4}}},
      {"rnn", "rnn { hidden: 3 nonlinearity: RELU }", {{3, 2, 4}}, false, false, 1},
      {"gelu", "gelu {}", {{4, 6}}},
      {"gelu", "gelu { approximate: TANH }", {{4, 6}}},
      {"silu", "silu {}", {{4, 6}}},
      {"sigmoid_cross_entropy", "sigmoid_cross_entropy {}", {{4, 3}, {4, 3}}},
      {"softmax", "softmax {}", {{4, 6}}},
      {"softmax_cross_entropy",
       "softmax_cross_entropy { label_smoothing: 0.1 }",
       {{4, 3}, {4}},
       true},
      {"softmax_cross_entropy", "softmax_cross_entropy {}", {{4, 3}, {4}}, true},
      {"softmax_cross_entropy", "softmax_cross_entropy { ignore_label: 2 }", {{4, 3}, {4}}, true},
  };
  return cases;
}

// Parts of mangled names.  The first kernel is only loaded; the second is what VisitReal makes of
// F64, which cuDNN is not asked for; the third gathers rows of unequal lengths, which a GPU masks.
// Of attention, a CPU's softmax in three passes, and its copies of 16 bits as F32.
constexpr const char* kNeverLaunched[] = {"5ProbeEv",
                                          "4ZeroIdE",
                                          "7TakeRow",
                                          "13LargestOfSeen",
                                          "12FactorOfSeen",
                                          "13ProbabilitiesILb1E",
                                          "9CopyHeadsINS_4HalfEfE",
                                          "9CopyHeadsINS_8BFloat16EfE"};

class KernelsTest : public CudaDeviceTest {
 protected:
  KernelsTest() {
    cublaslt_.host_view = cudnn_.host_view = fake_cudart::HostView;
    cublaslt_.enqueue = cudnn_.enqueue = fake_cudart::Enqueue;
    std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
    libraries.push_back(NewReferenceLibrary());
    fallback_ = std::make_unique<Primitives>(DeviceKind::kCuda, std::move(libraries));
    libraries.clear();
    libraries.push_back(std::move(NewCudaLibrary(cublaslt_.table(), cudnn_.table(), {})).value());
    libraries.push_back(NewReferenceLibrary());
    vendor_ = std::make_unique<Primitives>(DeviceKind::kCuda, std::move(libraries));
  }

  void TearDown() override {
    buffers_.clear();
    layers_.clear();
    CudaDeviceTest::TearDown();
  }

  void* Memory(size_t bytes) {
    buffers_.push_back(MakeOnDevice(bytes));
    return buffers_.back().data();
  }
  Tensor MakeTensor(const Shape& shape, DType dtype) {
    return {Memory(static_cast<size_t>(shape.elements()) * SizeOf(dtype)), shape, dtype};
  }

  // Forward and, in training, backward, with everything bound that the layer declares.
  absl::Status Run(const LayerCase& c, DType compute, bool train, Activation activation,
                   const Primitives& primitives) {
    LayerConfig config;
    GYRE_CHECK(google::protobuf::TextFormat::ParseFromString(c.config, &config));
    ASSIGN_OR_RETURN(layers_.emplace_back(), CreateLayer(config));
    Layer* const layer = layers_.back().get();
    std::vector<DType> dtypes(c.inputs.size(), compute);
    if (c.has_labels) dtypes.back() = DType::kI32;
    std::vector<uint8_t> needs_gradient;
    for (const DType dtype : dtypes) needs_gradient.push_back(train && IsReal(dtype));
    InferInput input;
    input.inputs = c.inputs;
    input.dtypes = dtypes;
    const std::vector<int> batch_axes(c.inputs.size(), c.batch_axis);
    input.batch_axes = batch_axes;
    input.compute = compute;
    input.train = train;
    input.needs_gradient = needs_gradient;
    input.global_batch = c.inputs[0][0];
    input.output_activation = activation;
    input.primitives = &primitives;
    ASSIGN_OR_RETURN(const LayerSpec spec, layer->Infer(input));
    std::vector<Tensor> states, gradients;
    for (const StateSpec& state : spec.states) {
      states.push_back({Memory(state.size_bytes()), state.shape, state.dtype});
      const bool frozen = state.kind == StateKind::kParameter && !state.trained();
      gradients.push_back(
          {frozen ? nullptr : Memory(state.size_bytes()), state.shape, state.dtype});
    }
    const auto* position = static_cast<const BatchPosition*>(Memory(sizeof(BatchPosition)));
    auto* fault = static_cast<Fault*>(Memory(sizeof(Fault)));
    for (int phase = 0; phase < spec.forward_phases; ++phase) {
      RETURN_IF_ERROR(layer->Forward({*stream_, states, {}, position, fault, /*layer=*/0, phase}));
    }
    if (!train) return absl::OkStatus();
    for (int phase = 0; phase < spec.backward_phases; ++phase) {
      RETURN_IF_ERROR(layer->Backward({*stream_, states, gradients, position, fault, 0, phase}));
    }
    return absl::OkStatus();
  }

  void RunLayers() {
    for (const LayerCase& c : LayerCases()) {
      for (const DType compute : kRealTypes) {
        for (const bool train : {true, false}) {
          for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
            for (const Primitives* primitives : {fallback_.get(), vendor_.get()}) {
              if (c.is_large && primitives == vendor_.get()) continue;
              const absl::Status status = Run(c, compute, train, activation, *primitives);
              EXPECT_TRUE(status.ok()) << c.config << " " << DTypeName(compute) << ": " << status;
              buffers_.clear();
            }
          }
        }
      }
    }
  }

  // rows: of a table of 5 columns.
  absl::Status RunUpdate(const Optimizer& optimizer, DType dtype, Tensor rows) {
    const Shape shape{35};
    std::vector<Tensor> slots;
    for (size_t i = 0; i < optimizer.slot_names().size(); ++i) {
      slots.push_back(MakeTensor(shape, AccumulateDType(dtype)));
    }
    const ParameterViews parameter = {.value = MakeTensor(shape, dtype),
                                      .gradient = MakeTensor(shape, dtype),
                                      .slots = slots,
                                      .master = MakeTensor(shape, AccumulateDType(dtype)),
                                      .rows = rows,
                                      .width = 5};
    return optimizer.Update(*stream_,
                            static_cast<const UpdateScalars*>(Memory(sizeof(UpdateScalars))),
                            {&parameter, 1});
  }

  void RunOptimizers() {
    OptimizerConfig::Sgd plain, momentum, nesterov;
    momentum.set_momentum(0.9);
    nesterov.set_momentum(0.9);
    nesterov.set_nesterov(true);
    for (const DType dtype : kRealTypes) {
      for (const Tensor& rows : {Tensor{}, MakeTensor({4}, DType::kI32)}) {
        for (const OptimizerConfig::Sgd& config : {plain, momentum, nesterov}) {
          EXPECT_TRUE(RunUpdate(*NewSgd(config, 1e-4), dtype, rows).ok());
        }
        EXPECT_TRUE(RunUpdate(*NewAdam({}, 1e-4), dtype, rows).ok());
      }
    }
  }

  void RunNetSteps() {
    for (const DType dtype : kRealTypes) {
      for (const int64_t elements : {35, 1 << 20}) {  // in one piece, and in several
        const Tensor a = MakeTensor({elements}, dtype), b = MakeTensor({elements}, dtype);
        EXPECT_TRUE(Fill(*stream_, 1, a).ok());
        EXPECT_TRUE(FillScaled(*stream_, 1, static_cast<double*>(Memory(sizeof(double))), a).ok());
        for (const size_t terms : {2, 3, 4}) {
          EXPECT_TRUE(SumOf(*stream_, std::vector<Tensor>(terms, a), b).ok());
        }
        for (const DType to : kRealTypes) {
          EXPECT_TRUE(Convert(*stream_, a, MakeTensor({elements}, to)).ok());
        }
        EXPECT_TRUE(
            LookUp(*stream_, MakeTensor({elements}, DType::kU8), MakeTensor({256}, dtype), a).ok());
        EXPECT_TRUE(SumSquares(*stream_, a, Memory(kSumSquaresScratchBytes),
                               static_cast<double*>(Memory(sizeof(double))))
                        .ok());
        const auto* const pieces = static_cast<ElementRange*>(Memory(2 * sizeof(ElementRange)));
        EXPECT_TRUE(SumSquaresOfPieces(*stream_, a, 0, pieces, 2,
                                       static_cast<double*>(Memory(2 * kSquareLanes * 8)),
                                       static_cast<double*>(Memory(2 * 8)))
                        .ok());
        auto* const update = static_cast<UpdateScalars*>(Memory(sizeof(UpdateScalars)));
        const auto* const found = static_cast<GradientReport*>(Memory(sizeof(GradientReport)));
        EXPECT_TRUE(ScaleOrSpoil(*stream_, a, update, found).ok());
        EXPECT_TRUE(
            SetUpdateUnlessSpoilt(*stream_, a, {}, 3, static_cast<int64_t*>(Memory(8)), update)
                .ok());
      }
      if (SizeOf(dtype) == 2) {
        EXPECT_TRUE(RoundTo(*stream_, dtype, MakeTensor({35}, DType::kF32)).ok());
      }
      const Tensor table = MakeTensor({7 * 5}, dtype), values = MakeTensor({4 * 5}, dtype);
      EXPECT_TRUE(PackRows(*stream_, MakeTensor({4}, DType::kF64), 5, table, values).ok());
      EXPECT_TRUE(UnpackRows(*stream_, MakeTensor({4}, DType::kI32), 5, values, table).ok());
      const int32_t* const indices = MakeTensor({4}, DType::kI32).as<int32_t>();
      for (const int32_t* const index : {indices, decltype(indices){nullptr}}) {
        const RowPlaces places = {.index = index, .first = 1, .count = 4};
        for (const Tensor& to : {table, MakeTensor({7 * 5}, AccumulateDType(dtype))}) {
          EXPECT_TRUE(GatherRows(*stream_, places, 5, to, values).ok());
          EXPECT_TRUE(ScatterRows(*stream_, places, 5, values, to).ok());
          EXPECT_TRUE(AddRows(*stream_, places, 5, values, to).ok());
          EXPECT_TRUE(AddScaledRows(*stream_, places, 5, 0.5, values, to).ok());
          EXPECT_TRUE(ClearRows(*stream_, places, 5, to).ok());
        }
      }
      EXPECT_TRUE(EnqueueAdd(*stream_, dtype, Memory(280), Memory(280), 35).ok());
      EXPECT_TRUE(EnqueueMeasure(*stream_, dtype, Memory(280), 35,
                                 static_cast<DeviceMeasure*>(Memory(sizeof(DeviceMeasure))))
                      .ok());
    }
    const Tensor kept = MakeTensor({4}, DType::kI32), first = MakeTensor({7}, DType::kI32);
    EXPECT_TRUE(KeepIndices(*stream_, MakeTensor({2}, DType::kI32), 7, 2, kept).ok());
    for (const DType names : {DType::kI32, DType::kF64}) {
      EXPECT_TRUE(NameRows(*stream_, kept, first, MakeTensor({4}, names)).ok());
    }
    auto* const block = static_cast<StepBlock*>(Memory(sizeof(StepBlock)));
    auto* const scale = static_cast<LossScaleState*>(Memory(sizeof(LossScaleState)));
    EXPECT_TRUE(SetLossScale(*stream_, {}, scale).ok());
    EXPECT_TRUE(SetUpdate(*stream_, {}, &block->updates[0]).ok());
    EXPECT_TRUE(PassGate(*stream_, {2.0, scale, 3}, static_cast<double*>(Memory(8)), 1,
                         &block->updates[0], block)
                    .ok());
  }

  FakeCublasLt cublaslt_;
  FakeCudnn cudnn_;
  std::unique_ptr<Primitives> fallback_, vendor_;
  std::vector<std::unique_ptr<Layer>> layers_;  // what they prepare outlives its work
  std::vector<Buffer> buffers_;
};

// One that the catalogue gains is missed here.
TEST_F(KernelsTest, EveryLayerHasACase) {
  std::set<std::string> types;
  for (const LayerCase& c : LayerCases()) types.insert(c.type);
  const auto* oneof = LayerConfig::descriptor()->FindOneofByName("type");
  for (int i = 0; i < oneof->field_count(); ++i) {
    EXPECT_TRUE(types.contains(oneof->field(i)->name())) << oneof->field(i)->name();
  }
}

TEST_F(KernelsTest, EachIsInTheProgramForEachArchitecture) {
  RunLayers();
  // The libraries leave bias and activation to us.
  for (auto& algorithm : cublaslt_.algorithms) algorithm.epilogues = false;
  for (auto& engine : cudnn_.engines) engine.fuses = false;
  for (auto& engine : cudnn_.fallback_engines) engine.fuses = false;
  RunLayers();
  RunOptimizers();
  RunNetSteps();
  std::set<std::string> launched;
  for (const fake_cudart::Launch& launch : fake_cudart::Launches()) launched.insert(launch.kernel);
  const auto modules = fake_cudart::Modules();
  std::set<std::string> registered, found;
  for (const fake_cudart::Module& module : modules) {
    const std::vector<KernelImage> images = ImagesOf(module.fat_binary);
    std::vector<std::string> names;
    for (const KernelImage& image : images) names.push_back(image.name());
    EXPECT_THAT(names, UnorderedElementsAre("sm_80", "sm_90", "compute_80"));
    for (const std::string& kernel : module.kernels) {
      for (const KernelImage& image : images) {
        EXPECT_TRUE(image.Defines(kernel)) << kernel << " is not in " << image.name();
      }
      registered.insert(kernel);
      if (launched.contains(kernel)) found.insert(kernel);
    }
  }
  // What libraries launch is theirs.
  std::erase_if(launched, [](const std::string& kernel) { return kernel.substr(0, 2) != "_Z"; });
  EXPECT_EQ(found, launched);
  // The cases are enough, or a kernel is not needed.
  for (const std::string& kernel : registered) {
    if (std::none_of(std::begin(kNeverLaunched), std::end(kNeverLaunched),
                     [&](const char* name) { return kernel.find(name) != kernel.npos; })) {
      EXPECT_TRUE(launched.contains(kernel)) << "nothing here launches " << kernel;
    }
  }
}

// Of 12 layers of GPT-2's shape in an iteration, kernels and products together.
TEST_F(KernelsTest, AttentionTakesFewLaunches) {
  cublaslt_.enqueue = [](void* stream, const std::string& name, const std::function<void()>&) {
    return fake_cudart::Enqueue(stream, name);
  };
  const Shape x{32, 1024, 768}, packed{32, 1024, 3 * 768};
  for (const std::vector<Shape>& inputs : {std::vector<Shape>{x, x, x}, {packed}}) {
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      for (const char* config :
           {"attention { heads: 12 causal: true }", "attention { heads: 12 }"}) {
        fake_cudart::ForgetCalls();
        const absl::Status status = Run({"attention", config, inputs}, compute, /*train=*/true,
                                        Activation::kNone, *vendor_);
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_LE(12 * fake_cudart::Launches().size(), 400u) << config;
        buffers_.clear();
      }
    }
  }
}

// A layer enqueues and returns: none waits, or takes memory beside what this test gives it.
TEST_F(KernelsTest, NothingWaits) {
  for (const LayerCase& c : LayerCases()) {
    for (const Primitives* primitives : {fallback_.get(), vendor_.get()}) {
      if (c.is_large && primitives == vendor_.get()) continue;
      fake_cudart::ForgetCalls();
      ASSERT_TRUE(Run(c, DType::kF32, /*train=*/true, Activation::kNone, *primitives).ok());
      const auto given = std::count_if(buffers_.begin(), buffers_.end(),
                                       [](const Buffer& buffer) { return buffer.bytes() > 0; });
      EXPECT_EQ(fake_cudart::WaitingCalls(), "cudaMalloc " + std::to_string(given)) << c.config;
      buffers_.clear();
    }
  }
}

}  // namespace
}  // namespace gyre
