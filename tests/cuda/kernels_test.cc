// Whether the program holds every kernel that training launches, for each architecture.  All layers
// in every real type, the optimizers and the steps of the net run on the cuda device of the fake
// runtime.  What they launch is looked for in the fat binaries that nvcc embeds, which ImagesOf
// reads.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/runtime/primitives/cuda/library.h"
#include "layers/factory.h"
#include "tests/any_device/kernel_cases.h"
#include "tests/any_device/step_kernels.h"
#include "tests/cuda/cuda_device_fixture.h"
#include "tests/cuda/fakes/fake_cublaslt.h"
#include "tests/cuda/fakes/fake_cudnn.h"

namespace gyre {
namespace {

using testing::UnorderedElementsAre;

// --- What nvcc embeds in an object file ----------------------------------------------------------

// The same kernels, once for each architecture as machine code (ELF) or as PTX, which a driver
// compiles for newer GPUs.  As found by looking at what nvcc 13 writes.  All little-endian.
struct FatBinaryHeader {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t image_bytes;  // of all images with their headers
};
constexpr uint32_t kMagic = 0xBA55ED50;

struct ImageHeader {
  uint16_t kind, version;  // kPtx or kElf
  uint32_t header_bytes;
  uint64_t bytes;
  uint32_t compressed_bytes;  // 0: the image is plain
  uint32_t unused[2];
  uint32_t architecture;
};
constexpr uint16_t kPtx = 1, kElf = 2;

template <typename T>
T Read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

struct KernelImage {
  bool is_ptx;
  int architecture;  // 80 is sm_80, compute_80
  std::string_view bytes;

  std::string name() const { return absl::StrCat(is_ptx ? "compute_" : "sm_", architecture); }
  // Whether it defines the kernel of this mangled name.
  bool Defines(std::string_view kernel) const {
    // PTX declares an entry.  Machine code has a section for each kernel, whose name ends with a
    // zero.
    std::string definition = is_ptx ? ".entry " : ".text.";
    definition.append(kernel);
    definition.push_back(is_ptx ? '(' : '\0');
    return bytes.find(definition) != bytes.npos;
  }
};

// The images in a fat binary as nvcc registers it.  They live as long as the program.
// Aborts if it is not one, or if its images are compressed (nvcc --no-compress keeps them plain).
std::vector<KernelImage> ImagesOf(const void* fat_binary) {
  const char* at = static_cast<const char*>(fat_binary);
  const auto header = Read<FatBinaryHeader>(at);
  GYRE_CHECK(header.magic == kMagic);
  at += header.header_bytes;
  const char* const end = at + header.image_bytes;
  std::vector<KernelImage> images;
  while (at < end) {
    const auto image = Read<ImageHeader>(at);
    GYRE_CHECK(image.kind == kPtx || image.kind == kElf);
    GYRE_CHECK(image.compressed_bytes == 0);
    images.push_back({.is_ptx = image.kind == kPtx,
                      .architecture = static_cast<int>(image.architecture),
                      .bytes = {at + image.header_bytes, image.bytes}});
    at += image.header_bytes + image.bytes;
  }
  return images;
}

// --- What is launched ----------------------------------------------------------------------------

constexpr DType kRealTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

// Parts of mangled names.  The first kernel is only loaded.  The second is what VisitReal makes of
// F64, which cuDNN is not asked for.  The third gathers rows of unequal lengths, which a GPU masks.
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

  // Forward and, in training, backward, with everything bound that the layer declares.
  absl::Status Run(const KernelCase& c, DType compute, bool train, Activation activation,
                   const Primitives& primitives) {
    LayerConfig config;
    GYRE_CHECK(google::protobuf::TextFormat::ParseFromString(c.config, &config));
    ASSIGN_OR_RETURN(layers_.emplace_back(), CreateLayer(config));
    Layer* const layer = layers_.back().get();
    std::vector<DType> dtypes(c.inputs.size(), compute);
    if (c.has_labels) dtypes[dtypes.size() - 1 - c.has_weights] = DType::kI32;
    std::vector<uint8_t> needs_gradient;
    for (const DType dtype : dtypes) needs_gradient.push_back(train && IsReal(dtype));
    if (c.has_weights) needs_gradient.back() = 0;
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
    for (const KernelCase& c : KernelCases()) {
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

  FakeCublasLt cublaslt_;
  FakeCudnn cudnn_;
  std::unique_ptr<Primitives> fallback_, vendor_;
  std::vector<std::unique_ptr<Layer>> layers_;  // what they prepare outlives its work
  std::vector<Buffer> buffers_;
};

// One that the catalogue gains is missed here.
TEST_F(KernelsTest, EveryLayerHasACase) {
  std::set<std::string> types;
  for (const KernelCase& c : KernelCases()) types.insert(c.type);
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
  const StepKernels steps(*stream_, [this](const Shape& shape, DType dtype) {
    return Tensor{Memory(static_cast<size_t>(shape.elements()) * SizeOf(dtype)), shape, dtype};
  });
  for (const DType dtype : kRealTypes) {
    EXPECT_TRUE(steps.RunOptimizers(dtype).ok());
    EXPECT_TRUE(steps.RunNetSteps(dtype).ok());
  }
  EXPECT_TRUE(steps.RunScalars().ok());
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
        ASSERT_EQ(Run({"attention", config, inputs}, compute, /*train=*/true, Activation::kNone,
                      *vendor_),
                  absl::OkStatus());
        EXPECT_LE(12 * fake_cudart::Launches().size(), 400u) << config;
        buffers_.clear();
      }
    }
  }
}

// A layer enqueues and returns: none waits, or takes memory beside what this test gives it.
TEST_F(KernelsTest, NothingWaits) {
  for (const KernelCase& c : KernelCases()) {
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
