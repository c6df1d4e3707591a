// Batch normalisation by cuDNN: x as images of one pixel, and whatever is [channels] in float.
// cuDNN compiles the kernel of each engine that it suggests, which takes it most of a second, so
// the favourite is taken and none is measured.  It would also apply a ReLU, and undo it backward;
// but whether that lets a NaN through is not documented.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/cuda/cudnn_graph.h"

namespace gyre {
namespace {

using Operand = CudnnGraph::GraphTensor;
using Bindings = std::vector<std::pair<int64_t, const void*>>;

enum Id : int64_t {
  kX = 1,
  kScale,
  kBias,
  kMean,
  kInverse,
  kRunningMean,
  kRunningVariance,
  kNextMean,
  kNextVariance,
  kEpsilon,
  kMomentum,
  kY,
  kDy,
  kDscale,
  kDbias,
  kDx
};

template <typename From, typename To>
struct Cast {
  const From* from;
  To* to;
  HOST_DEVICE void operator()(int64_t i) const {
    to[i] = static_cast<To>(static_cast<float>(from[i]));
  }
};

// Calls f<T>() for a type of 16 bits.
template <typename F>
absl::Status VisitHalf(DType dtype, const F& f) {
  return dtype == DType::kF16 ? f.template operator()<Half>() : f.template operator()<BFloat16>();
}

class CudnnBatchNorm : public BatchNorm {
 public:
  CudnnBatchNorm(std::shared_ptr<CudaContext> context, const BatchNormSpec& spec)
      : context_(std::move(context)),
        spec_(spec),
        epsilon_(static_cast<float>(spec.epsilon)),
        momentum_(static_cast<float>(spec.momentum)),
        channels_bytes_(RoundUp(static_cast<size_t>(spec.channels) * sizeof(float),
                                static_cast<size_t>(kOperandAlignment))) {}

  absl::Status Prepare() {
    const CudnnGraph::Norm norm{Channels(kScale), Channels(kMean), Channels(kInverse)};
    CudnnGraph forward(*context_), backward(*context_);
    forward.BatchNorm(Image(kX), norm, Channels(kBias), Number(kEpsilon), Number(kMomentum),
                      {Channels(kRunningMean), Channels(kRunningVariance)},
                      {Channels(kNextMean), Channels(kNextVariance)}, Image(kY));
    backward.BatchNormBackward(Image(kX), Image(kDy), norm, Channels(kDscale), Channels(kDbias),
                               Image(kDx));
    RETURN_IF_ERROR(Find(forward, forward_));
    RETURN_IF_ERROR(Find(backward, backward_));
    const auto record = [&](const char* pass, const CudnnPlan& plan) {
      context_->Record(
          absl::StrCat(ToString(spec_), ", ", pass),
          absl::StrCat("cudnn ", context_->cudnn.cudnnGetVersion(), ", ", plan.choice()));
    };
    record("forward", *forward_);
    record("backward", *backward_);
    return absl::OkStatus();
  }

  size_t scratch_bytes() const override {
    return kArrays * channels_bytes_ +
           std::max(forward_->scratch_bytes(), backward_->scratch_bytes());
  }

  absl::Status Forward(Stream& stream, const void* x, const void* scale, const void* bias, void* y,
                       void* mean, void* inverse, void* running_mean, void* running_variance,
                       void* scratch) const override {
    RETURN_IF_ERROR(CheckAligned(scratch, "scratch"));
    ASSIGN_OR_RETURN(scale, InFloat(stream, scale, Array(scratch, 0)));
    ASSIGN_OR_RETURN(bias, InFloat(stream, bias, Array(scratch, 1)));
    if (running_mean == nullptr) {
      running_mean = Array(scratch, 2);
      running_variance = Array(scratch, 3);
    }
    return Run(*forward_, stream,
               {{kX, x},
                {kScale, scale},
                {kBias, bias},
                {kRunningMean, running_mean},
                {kRunningVariance, running_variance},
                {kNextMean, running_mean},
                {kNextVariance, running_variance},
                {kMean, mean},
                {kInverse, inverse},
                {kEpsilon, &epsilon_},
                {kMomentum, &momentum_},
                {kY, y}},
               scratch);
  }

  absl::Status Backward(Stream& stream, const void* x, const void* dy, const void* scale,
                        const void* mean, const void* inverse, void* dx, void* dscale, void* dbias,
                        void* scratch) const override {
    RETURN_IF_ERROR(CheckAligned(scratch, "scratch"));
    ASSIGN_OR_RETURN(scale, InFloat(stream, scale, Array(scratch, 0)));
    const bool is_float = spec_.dtype == DType::kF32;
    void* const dscale_sums = is_float && dscale != nullptr ? dscale : Array(scratch, 2);
    void* const dbias_sums = is_float && dbias != nullptr ? dbias : Array(scratch, 3);
    RETURN_IF_ERROR(Run(*backward_, stream,
                        {{kX, x},
                         {kDy, dy},
                         {kScale, scale},
                         {kMean, mean},
                         {kInverse, inverse},
                         {kDscale, dscale_sums},
                         {kDbias, dbias_sums},
                         {kDx, dx}},
                        scratch));
    if (is_float) return absl::OkStatus();
    return VisitHalf(spec_.dtype, [&]<typename T>() {
      for (const auto& [sums, to] : {std::pair(dscale_sums, dscale), {dbias_sums, dbias}}) {
        if (to == nullptr) continue;
        RETURN_IF_ERROR(
            ForEach(stream, spec_.channels,
                    Cast<float, T>{static_cast<const float*>(sums), static_cast<T*>(to)}));
      }
      return absl::OkStatus();
    });
  }

 private:
  // Arrays of channels at the begin of scratch: scale, bias, and two that a pass assigns.
  static constexpr size_t kArrays = 4;

  void* Array(void* scratch, size_t index) const {
    return static_cast<std::byte*>(scratch) + index * channels_bytes_;
  }

  // Extents in cuDNN's order; channels are innermost in memory.
  Operand Image(Id id) const {
    const int64_t c = spec_.channels;
    return {.id = id,
            .type = CudnnDataType(spec_.dtype),
            .extents = {spec_.rows, c, 1, 1},
            .strides = {c, 1, c, c}};
  }
  Operand Channels(Id id) const {
    const int64_t c = spec_.channels;
    return {.id = id, .extents = {1, c, 1, 1}, .strides = {c, 1, c, c}};
  }
  static Operand Number(Id id) {
    return {.id = id, .extents = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}, .by_value = true};
  }

  absl::Status Find(CudnnGraph& graph, std::optional<CudnnPlan>& plan) const {
    auto plans =
        graph.Plans({ForbiddenNotes(spec_.dtype, context_->options.tf32), kSplitWorkspaceBytes}, 1);
    if (!plans.ok()) return Annotate(plans.status(), ToString(spec_));
    plan.emplace(std::move(plans->front()));
    return absl::OkStatus();
  }

  absl::Status Run(const CudnnPlan& plan, Stream& stream, const Bindings& bindings,
                   void* scratch) const {
    for (const auto& [id, pointer] : bindings) {
      RETURN_IF_ERROR(CheckAligned(pointer, kNames[id]));
    }
    return plan.Execute(*context_, stream, bindings, Array(scratch, kArrays));
  }

  // [channels] in float: as they are, or at `to`.
  absl::StatusOr<const void*> InFloat(Stream& stream, const void* from, void* to) const {
    if (spec_.dtype == DType::kF32) return from;
    RETURN_IF_ERROR(VisitHalf(spec_.dtype, [&]<typename T>() {
      return ForEach(stream, spec_.channels,
                     Cast<T, float>{static_cast<const T*>(from), static_cast<float*>(to)});
    }));
    return to;
  }

  // By id.
  static constexpr const char* kNames[] = {"",
                                           "x",
                                           "scale",
                                           "bias",
                                           "mean",
                                           "inverse",
                                           "running_mean",
                                           "running_variance",
                                           "running_mean",
                                           "running_variance",
                                           "epsilon",
                                           "momentum",
                                           "y",
                                           "dy",
                                           "dscale",
                                           "dbias",
                                           "dx"};

  const std::shared_ptr<CudaContext> context_;
  const BatchNormSpec spec_;
  alignas(kOperandAlignment) const float epsilon_;
  alignas(kOperandAlignment) const float momentum_;
  const size_t channels_bytes_;
  std::optional<CudnnPlan> forward_, backward_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const BatchNorm>> PrepareCudaBatchNorm(
    std::shared_ptr<CudaContext> context, const BatchNormSpec& spec) {
  auto norm = std::make_shared<CudnnBatchNorm>(std::move(context), spec);
  RETURN_IF_ERROR(norm->Prepare());
  return norm;
}

}  // namespace gyre
