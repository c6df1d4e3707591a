#include "engine/runtime/primitives/cuda/cudnn_graph.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

// "engine 51, knobs 2=8 13=0", the kinds and values of cuDNN's enumerations.
absl::StatusOr<std::string> ToString(const CudnnDescriptor& configuration,
                                     const CudnnDescriptor& engine) {
  ASSIGN_OR_RETURN(const int64_t index,
                   engine.Get<int64_t>(GYRE_NAMED(CUDNN_ATTR_ENGINE_GLOBAL_INDEX)));
  std::string text = absl::StrCat("engine ", index, ", knobs");
  // Asked for their number, cuDNN 9.19 says 0 whatever it is.
  ASSIGN_OR_RETURN(const std::vector<CudnnDescriptor> knobs,
                   configuration.GetAll(GYRE_NAMED(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES),
                                        GYRE_NAMED(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR),
                                        CUDNN_KNOB_TYPE_COUNTS));
  for (const CudnnDescriptor& knob : knobs) {
    ASSIGN_OR_RETURN(const auto type, knob.Get<cudnnBackendKnobType_t>(
                                          GYRE_NAMED(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)));
    ASSIGN_OR_RETURN(const auto value,
                     knob.Get<int64_t>(GYRE_NAMED(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)));
    absl::StrAppend(&text, " ", static_cast<int>(type), "=", value);
  }
  return text;
}

}  // namespace

cudnnDataType_t CudnnDataType(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDNN_DATA_HALF;
    case DType::kBF16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

std::vector<cudnnBackendNumericalNote_t> ForbiddenNotes(DType dtype, bool tf32) {
  std::vector<cudnnBackendNumericalNote_t> notes = {
      CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC,
      CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS,
      CUDNN_NUMERICAL_NOTE_FFT,
      CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION,
      CUDNN_NUMERICAL_NOTE_WINOGRAD,
      CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4,
      CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6,
      CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13};
  if (dtype == DType::kF32 && !tf32) notes.push_back(CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  return notes;
}

size_t CudnnPlan::scratch_bytes() const { return ScratchFor(workspace_bytes_); }

absl::Status CudnnPlan::Execute(const CudaContext& context, Stream& stream,
                                const std::vector<std::pair<int64_t, const void*>>& tensors,
                                void* scratch) const {
  std::vector<int64_t> ids;
  std::vector<const void*> pointers;
  for (const auto& [id, pointer] : tensors) {
    ids.push_back(id);
    pointers.push_back(pointer);
  }
  const void* const workspace = workspace_bytes_ > 0 ? WorkspaceIn(scratch) : nullptr;
  CudnnDescriptor pack(context.cudnn, GYRE_NAMED(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  RETURN_IF_ERROR(pack.SetAll(GYRE_NAMED(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS), ids)
                      .SetAll(GYRE_NAMED(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS), pointers)
                      .Set(GYRE_NAMED(CUDNN_ATTR_VARIANT_PACK_WORKSPACE), workspace)
                      .Finalize());
  RETURN_IF_ERROR(CudnnStatus(context.cudnn,
                              context.cudnn.cudnnSetStream(
                                  context.cudnn_handle, static_cast<cudaStream_t>(stream.native())),
                              "cudnnSetStream"));
  return CudnnStatus(
      context.cudnn,
      context.cudnn.cudnnBackendExecute(context.cudnn_handle, plan_.get(), pack.get()),
      "cudnnBackendExecute");
}

void CudnnGraph::ConvolutionForward(const Convolution& convolution, const GraphTensor& x,
                                    const GraphTensor& w, const GraphTensor& y) {
  CudnnDescriptor operation(context_.cudnn,
                            GYRE_NAMED(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
  operation
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC), Describe(convolution))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X), Describe(x))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W), Describe(w))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y), Describe(y))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA), 1.0f)
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA), 0.0f);
  AddOperation(std::move(operation));
}

void CudnnGraph::ConvolutionBackwardData(const Convolution& convolution, const GraphTensor& dy,
                                         const GraphTensor& w, const GraphTensor& dx) {
  CudnnDescriptor operation(
      context_.cudnn, GYRE_NAMED(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR));
  operation
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC), Describe(convolution))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY), Describe(dy))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W), Describe(w))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX), Describe(dx))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA), 1.0f)
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA), 0.0f);
  AddOperation(std::move(operation));
}

void CudnnGraph::ConvolutionBackwardWeights(const Convolution& convolution, const GraphTensor& x,
                                            const GraphTensor& dy, const GraphTensor& dw) {
  CudnnDescriptor operation(
      context_.cudnn, GYRE_NAMED(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR));
  operation
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC), Describe(convolution))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X), Describe(x))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY), Describe(dy))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW), Describe(dw))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA), 1.0f)
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA), 0.0f);
  AddOperation(std::move(operation));
}

void CudnnGraph::Add(const GraphTensor& x, const GraphTensor& b, const GraphTensor& y) {
  Pointwise(CUDNN_POINTWISE_ADD, x, &b, y);
}

void CudnnGraph::Relu(const GraphTensor& x, const GraphTensor& y) {
  Pointwise(CUDNN_POINTWISE_RELU_FWD, x, nullptr, y);
}

void CudnnGraph::BatchNorm(const GraphTensor& x, const Norm& norm, const GraphTensor& bias,
                           const GraphTensor& epsilon, const GraphTensor& momentum,
                           const Running& from, const Running& to, const GraphTensor& y) {
  CudnnDescriptor operation(context_.cudnn,
                            GYRE_NAMED(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR));
  operation.Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_MODE), CUDNN_BATCH_NORM)
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE), CUDNN_NORM_FWD_TRAINING)
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC), Describe(x))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC), Describe(norm.scale))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC), Describe(bias))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC), Describe(epsilon))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC), Describe(momentum))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC), Describe(from.mean))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC),
           Describe(from.variance))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC), Describe(to.mean))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC), Describe(to.variance))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC), Describe(norm.mean))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC), Describe(norm.inverse))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC), Describe(y));
  AddOperation(std::move(operation));
}

void CudnnGraph::BatchNormBackward(const GraphTensor& x, const GraphTensor& dy, const Norm& norm,
                                   const GraphTensor& dscale, const GraphTensor& dbias,
                                   const GraphTensor& dx) {
  CudnnDescriptor operation(context_.cudnn,
                            GYRE_NAMED(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR));
  operation.Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_MODE), CUDNN_BATCH_NORM)
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC), Describe(x))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC), Describe(dy))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC), Describe(norm.scale))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC), Describe(norm.mean))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC), Describe(norm.inverse))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC), Describe(dscale))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC), Describe(dbias))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC), Describe(dx));
  AddOperation(std::move(operation));
}

absl::StatusOr<std::vector<CudnnPlan>> CudnnGraph::Plans(const CudnnPolicy& policy, size_t most) {
  CudnnDescriptor& graph = NewPart(GYRE_NAMED(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR));
  graph.Set(GYRE_NAMED(CUDNN_ATTR_OPERATIONGRAPH_HANDLE), context_.cudnn_handle)
      .SetAll(GYRE_NAMED(CUDNN_ATTR_OPERATIONGRAPH_OPS), operations_);
  Finalize(graph);
  RETURN_IF_ERROR(status_);
  for (CudnnDescriptor& operation : operations_) parts_.push_back(std::move(operation));

  int suggestions = 0;
  std::string reason;
  std::vector<CudnnPlan> plans;
  for (const auto mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    if (plans.size() == most) break;
    auto configurations = Suggest(graph, mode);
    // Whatever one mode fails of, the other may not.
    if (!configurations.ok()) {
      reason = std::string(configurations.status().message());
      continue;
    }
    for (CudnnDescriptor& configuration : *configurations) {
      ++suggestions;
      auto plan = Try(std::move(configuration), policy);
      if (plan.ok()) {
        plans.push_back(*std::move(plan));
        if (plans.size() == most) break;
        continue;
      }
      if (!absl::IsUnimplemented(plan.status())) return plan.status();
      reason = std::string(plan.status().message());
    }
  }
  if (plans.empty()) {
    return absl::UnimplementedError(absl::StrCat(
        "none of the ", suggestions, " engines that cuDNN suggests will do; the last: ", reason));
  }
  const auto parts = std::make_shared<const std::deque<CudnnDescriptor>>(std::move(parts_));
  for (CudnnPlan& plan : plans) plan.parts_ = parts;
  return plans;
}

absl::StatusOr<std::vector<CudnnDescriptor>> CudnnGraph::Suggest(
    const CudnnDescriptor& graph, cudnnBackendHeurMode_t mode) const {
  CudnnDescriptor heuristics(context_.cudnn, GYRE_NAMED(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR));
  RETURN_IF_ERROR(heuristics.Set(GYRE_NAMED(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH), graph)
                      .Set(GYRE_NAMED(CUDNN_ATTR_ENGINEHEUR_MODE), mode)
                      .Finalize());
  ASSIGN_OR_RETURN(const int64_t count,
                   heuristics.Count(GYRE_NAMED(CUDNN_ATTR_ENGINEHEUR_RESULTS)));
  return heuristics.GetAll(GYRE_NAMED(CUDNN_ATTR_ENGINEHEUR_RESULTS),
                           GYRE_NAMED(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR), count);
}

absl::StatusOr<CudnnPlan> CudnnGraph::Try(CudnnDescriptor configuration,
                                          const CudnnPolicy& policy) const {
  ASSIGN_OR_RETURN(const std::vector<CudnnDescriptor> engines,
                   configuration.GetAll(GYRE_NAMED(CUDNN_ATTR_ENGINECFG_ENGINE),
                                        GYRE_NAMED(CUDNN_BACKEND_ENGINE_DESCRIPTOR), 1));
  if (engines.empty()) return absl::InternalError("cuDNN: a configuration without an engine");
  ASSIGN_OR_RETURN(std::string choice, ToString(configuration, engines[0]));
  ASSIGN_OR_RETURN(const auto notes, engines[0].GetAll<cudnnBackendNumericalNote_t>(
                                         GYRE_NAMED(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE),
                                         CUDNN_NUMERICAL_NOTE_TYPE_COUNT));
  for (const cudnnBackendNumericalNote_t note : notes) {
    if (std::count(policy.forbidden.begin(), policy.forbidden.end(), note) > 0) {
      return absl::UnimplementedError(
          absl::StrCat(choice, ": has the numerical note ", static_cast<int>(note)));
    }
  }
  CudnnDescriptor plan(context_.cudnn, GYRE_NAMED(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR));
  const absl::Status finalized =
      plan.Set(GYRE_NAMED(CUDNN_ATTR_EXECUTION_PLAN_HANDLE), context_.cudnn_handle)
          .Set(GYRE_NAMED(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG), configuration)
          .Finalize();
  // Whatever an engine fails of, the next one may not.
  if (!finalized.ok()) return absl::UnimplementedError(finalized.message());
  ASSIGN_OR_RETURN(const int64_t workspace,
                   plan.Get<int64_t>(GYRE_NAMED(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)));
  if (workspace < 0 || static_cast<size_t>(workspace) > policy.workspace_bytes) {
    return absl::UnimplementedError(absl::StrCat(
        choice, ": wants ", workspace, " bytes of workspace, more than ", policy.workspace_bytes));
  }
  return CudnnPlan(std::move(configuration), std::move(plan), static_cast<size_t>(workspace),
                   std::move(choice));
}

const CudnnDescriptor& CudnnGraph::Describe(const GraphTensor& tensor) {
  const auto known = tensors_.find(tensor.id);
  if (known != tensors_.end()) return *known->second;
  CudnnDescriptor& descriptor = NewPart(GYRE_NAMED(CUDNN_BACKEND_TENSOR_DESCRIPTOR));
  descriptor.Set(GYRE_NAMED(CUDNN_ATTR_TENSOR_UNIQUE_ID), tensor.id)
      .Set(GYRE_NAMED(CUDNN_ATTR_TENSOR_DATA_TYPE), tensor.type)
      .SetAll(GYRE_NAMED(CUDNN_ATTR_TENSOR_DIMENSIONS), tensor.extents)
      .SetAll(GYRE_NAMED(CUDNN_ATTR_TENSOR_STRIDES), tensor.strides)
      .Set(GYRE_NAMED(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT), kOperandAlignment)
      .Set(GYRE_NAMED(CUDNN_ATTR_TENSOR_IS_VIRTUAL), tensor.is_virtual)
      .Set(GYRE_NAMED(CUDNN_ATTR_TENSOR_IS_BY_VALUE), tensor.by_value);
  Finalize(descriptor);
  tensors_[tensor.id] = &descriptor;
  return descriptor;
}

const CudnnDescriptor& CudnnGraph::Describe(const Convolution& convolution) {
  CudnnDescriptor& descriptor = NewPart(GYRE_NAMED(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR));
  descriptor.Set(GYRE_NAMED(CUDNN_ATTR_CONVOLUTION_COMP_TYPE), CUDNN_DATA_FLOAT)
      .Set(GYRE_NAMED(CUDNN_ATTR_CONVOLUTION_CONV_MODE), CUDNN_CROSS_CORRELATION)
      .Set(GYRE_NAMED(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS), int64_t{2})
      .SetAll(GYRE_NAMED(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS), convolution.padding_before)
      .SetAll(GYRE_NAMED(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS), convolution.padding_after)
      .SetAll(GYRE_NAMED(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES), convolution.stride)
      .SetAll(GYRE_NAMED(CUDNN_ATTR_CONVOLUTION_DILATIONS), convolution.dilation);
  Finalize(descriptor);
  return descriptor;
}

void CudnnGraph::Pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b,
                           const GraphTensor& y) {
  CudnnDescriptor& pointwise = NewPart(GYRE_NAMED(CUDNN_BACKEND_POINTWISE_DESCRIPTOR));
  pointwise.Set(GYRE_NAMED(CUDNN_ATTR_POINTWISE_MODE), mode)
      .Set(GYRE_NAMED(CUDNN_ATTR_POINTWISE_MATH_PREC), CUDNN_DATA_FLOAT);
  if (mode == CUDNN_POINTWISE_RELU_FWD) {  // which not every engine heeds
    pointwise.Set(GYRE_NAMED(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION), CUDNN_PROPAGATE_NAN);
  }
  Finalize(pointwise);
  CudnnDescriptor operation(context_.cudnn,
                            GYRE_NAMED(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
  operation.Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), pointwise)
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_POINTWISE_XDESC), Describe(x))
      .Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_POINTWISE_YDESC), Describe(y));
  if (b != nullptr) operation.Set(GYRE_NAMED(CUDNN_ATTR_OPERATION_POINTWISE_BDESC), Describe(*b));
  AddOperation(std::move(operation));
}

CudnnDescriptor& CudnnGraph::NewPart(CudnnKind kind) {
  return parts_.emplace_back(context_.cudnn, kind);
}

void CudnnGraph::Finalize(CudnnDescriptor& descriptor) { status_.Update(descriptor.Finalize()); }

void CudnnGraph::AddOperation(CudnnDescriptor operation) {
  Finalize(operation);
  operations_.push_back(std::move(operation));
}

}  // namespace gyre
