// The CUDA library: its handles, and the door to the operations beside it.
#include "engine/runtime/primitives/cuda/library.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/activation.h"
#include "engine/runtime/primitives/cuda/context.h"

namespace gyre {
namespace {

template <typename T>
struct BiasAndActivation {
  Activation activation;
  int64_t columns;
  const T* bias;  // may be null
  T* y;
  HOST_DEVICE void operator()(int64_t i) const {
    using Value = AccumulateType<T>;
    Value value = static_cast<Value>(y[i]);
    if (bias != nullptr) value += static_cast<Value>(bias[i % columns]);
    y[i] = static_cast<T>(Activate(activation, value));
  }
};

// Pooling it leaves: it is bound by memory, and cuDNN's breaks ties otherwise.
class CudaLibrary : public PrimitiveLibrary {
 public:
  using PrimitiveLibrary::Prepare;  // of what is left to the kernels
  explicit CudaLibrary(std::shared_ptr<CudaContext> context) : context_(std::move(context)) {}

  std::string_view name() const override { return "cuda"; }
  std::string choices() const override { return context_->choices(); }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    if (!IsReal(spec.dtype) || std::min({spec.m, spec.n, spec.k, spec.products()}) == 0) {
      return LeaveToOthers(spec);
    }
    RETURN_IF_ERROR(Validate(spec));
    // The batch that needs no loop is the inner one.
    GemmSpec turned = spec;
    if (spec.inner.count == 1) std::swap(turned.outer, turned.inner);
    if (!spec.IsPlain() && !TakesParts(turned)) return LeaveToOthers(spec);
    return PrepareCudaGemm(context_, turned);
  }

  // Every n is taken, 0 too: weights must be stored alike by ranks whose shares of a batch differ.
  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    if (!IsReal(spec.dtype) || spec.dtype == DType::kF64 ||
        std::min({spec.h, spec.w, spec.c, spec.filters}) == 0) {
      return LeaveToOthers(spec);
    }
    RETURN_IF_ERROR(Validate(spec));
    return PrepareCudaConv2d(context_, spec);
  }

  // One row has no unbiased variance, of which cuDNN does not say what it makes.
  absl::StatusOr<std::shared_ptr<const BatchNorm>> Prepare(
      const BatchNormSpec& spec) const override {
    if (!IsReal(spec.dtype) || spec.dtype == DType::kF64 || spec.rows < 2 || spec.channels == 0) {
      return LeaveToOthers(spec);
    }
    RETURN_IF_ERROR(Validate(spec));
    std::shared_ptr<const BatchNorm>& prepared = batch_norms_[spec];
    if (prepared == nullptr) {
      ASSIGN_OR_RETURN(prepared, PrepareCudaBatchNorm(context_, spec));
    }
    return prepared;
  }

 private:
  // An epilogue apart is for whole arrays, and a product of the outer batch begins where the
  // algorithm may load from.
  static bool TakesParts(const GemmSpec& spec) {
    if (spec.bias || spec.activation != Activation::kNone) return false;
    const int64_t aligned = kOperandAlignment / static_cast<int64_t>(SizeOf(spec.dtype));
    const GemmBatch& outer = spec.outer;
    return outer.count == 1 ||
           (outer.a % aligned == 0 && outer.b % aligned == 0 && outer.c % aligned == 0);
  }

  const std::shared_ptr<CudaContext> context_;
  // cuDNN takes most of a second to compile each of them.
  mutable std::map<BatchNormSpec, std::shared_ptr<const BatchNorm>> batch_norms_;
};

}  // namespace

CudaContext::~CudaContext() {
  if (cudnn_handle != nullptr) cudnn.cudnnDestroy(cudnn_handle);
  if (cublaslt_handle != nullptr) cublaslt.cublasLtDestroy(cublaslt_handle);
}

absl::Status CudaContext::CreateHandles() {
  RETURN_IF_ERROR(
      CublasLtStatus(cublaslt, cublaslt.cublasLtCreate(&cublaslt_handle), "cublasLtCreate"));
  return CudnnStatus(cudnn, cudnn.cudnnCreate(&cudnn_handle), "cudnnCreate");
}

absl::StatusOr<size_t> CudaContext::Select(const CudaTrial& trial) {
  size_t index = 0;
  if (options.selector != nullptr) {
    ASSIGN_OR_RETURN(index, options.selector->Select(trial));
  }
  GYRE_CHECK(index < trial.candidates.size());
  Record(trial.what, trial.candidates[index].choice);
  return index;
}

void CudaContext::Record(const std::string& what, const std::string& choice) {
  choices_.insert(absl::StrCat(what, ": ", choice));
}

std::string CudaContext::choices() const {
  std::string lines;
  for (const std::string& choice : choices_) absl::StrAppend(&lines, choice, "\n");
  return lines;
}

absl::Status CheckAligned(const void* pointer, const char* operand) {
  if (reinterpret_cast<uintptr_t>(pointer) % kOperandAlignment == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("operand ", operand, " is not aligned to ", kOperandAlignment, " bytes"));
}

absl::Status AddBiasAndActivate(Stream& stream, DType dtype, Activation activation, int64_t rows,
                                int64_t columns, const void* bias, void* y) {
  return VisitReal(dtype, [&]<typename T>() {
    return ForEach(
        stream, rows * columns,
        BiasAndActivation<T>{activation, columns, static_cast<const T*>(bias), static_cast<T*>(y)});
  });
}

absl::StatusOr<std::unique_ptr<PrimitiveLibrary>> NewCudaLibrary(
    const CublasLt& cublaslt, const Cudnn& cudnn, const CudaLibraryOptions& options) {
  auto context = std::make_shared<CudaContext>(cublaslt, cudnn, options);
  RETURN_IF_ERROR(context->CreateHandles());
  return std::make_unique<CudaLibrary>(std::move(context));
}

absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device& device,
                                                              const CublasLt& cublaslt,
                                                              const Cudnn& cudnn,
                                                              const CudaLibraryOptions& options) {
  GYRE_CHECK(device.kind() == DeviceKind::kCuda);
  ASSIGN_OR_RETURN(const auto stream, device.NewStream());
  (void)stream->native();  // makes the device's GPU the thread's, on which handles are made
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
  ASSIGN_OR_RETURN(libraries.emplace_back(), NewCudaLibrary(cublaslt, cudnn, options));
  libraries.push_back(NewReferenceLibrary());
  return std::make_unique<Primitives>(DeviceKind::kCuda, std::move(libraries));
}

absl::StatusOr<std::unique_ptr<Primitives>> NewCudaPrimitives(Device& device,
                                                              const CudaLibraryOptions& options) {
  ASSIGN_OR_RETURN(const CublasLt* cublaslt, LoadCublasLt());
  ASSIGN_OR_RETURN(const Cudnn* cudnn, LoadCudnn());
  return NewCudaPrimitives(device, *cublaslt, *cudnn, options);
}

}  // namespace gyre
