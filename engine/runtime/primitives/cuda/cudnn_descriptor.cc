#include "engine/runtime/primitives/cuda/cudnn_descriptor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

#define GYRE_NAME(enumerator) \
  case enumerator:            \
    return #enumerator

std::string TypeName(cudnnBackendDescriptorType_t type) {
  switch (type) {
    GYRE_NAME(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    GYRE_NAME(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    default:
      return absl::StrCat("cuDNN descriptor ", static_cast<int>(type));
  }
}

std::string AttributeName(cudnnBackendAttributeName_t attribute) {
  switch (attribute) {
    GYRE_NAME(CUDNN_ATTR_POINTWISE_MODE);
    GYRE_NAME(CUDNN_ATTR_POINTWISE_MATH_PREC);
    GYRE_NAME(CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
    GYRE_NAME(CUDNN_ATTR_CONVOLUTION_CONV_MODE);
    GYRE_NAME(CUDNN_ATTR_CONVOLUTION_DILATIONS);
    GYRE_NAME(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
    GYRE_NAME(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
    GYRE_NAME(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
    GYRE_NAME(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
    GYRE_NAME(CUDNN_ATTR_ENGINEHEUR_MODE);
    GYRE_NAME(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    GYRE_NAME(CUDNN_ATTR_ENGINEHEUR_RESULTS);
    GYRE_NAME(CUDNN_ATTR_ENGINECFG_ENGINE);
    GYRE_NAME(CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    GYRE_NAME(CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
    GYRE_NAME(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    GYRE_NAME(CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
    GYRE_NAME(CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
    GYRE_NAME(CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
    GYRE_NAME(CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_MODE);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_XDESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_MODE);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_PHASE);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_XDESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_NORM_FWD_YDESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    GYRE_NAME(CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    GYRE_NAME(CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
    GYRE_NAME(CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
    GYRE_NAME(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    GYRE_NAME(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    GYRE_NAME(CUDNN_ATTR_TENSOR_DATA_TYPE);
    GYRE_NAME(CUDNN_ATTR_TENSOR_DIMENSIONS);
    GYRE_NAME(CUDNN_ATTR_TENSOR_STRIDES);
    GYRE_NAME(CUDNN_ATTR_TENSOR_UNIQUE_ID);
    GYRE_NAME(CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    GYRE_NAME(CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    GYRE_NAME(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    GYRE_NAME(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    GYRE_NAME(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    GYRE_NAME(CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
    GYRE_NAME(CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
    default:
      return absl::StrCat("attribute ", static_cast<int>(attribute));
  }
}

#undef GYRE_NAME

}  // namespace

CudnnDescriptor::CudnnDescriptor(const Cudnn& cudnn, cudnnBackendDescriptorType_t type)
    : cudnn_(cudnn), type_(type) {
  status_.Update(Status(cudnn.cudnnBackendCreateDescriptor(type, &descriptor_),
                        "cudnnBackendCreateDescriptor", ""));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnn_.cudnnBackendDestroyDescriptor(descriptor_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : cudnn_(other.cudnn_),
      type_(other.type_),
      descriptor_(std::exchange(other.descriptor_, nullptr)),
      status_(std::move(other.status_)) {}

CudnnDescriptor& CudnnDescriptor::SetAll(cudnnBackendAttributeName_t attribute,
                                         const std::vector<CudnnDescriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& value : values) raw.push_back(value.descriptor_);
  return SetRaw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()),
                raw.data());
}

absl::Status CudnnDescriptor::Finalize() {
  RETURN_IF_ERROR(status_);
  status_.Update(Status(cudnn_.cudnnBackendFinalize(descriptor_), "cudnnBackendFinalize", ""));
  return status_;
}

absl::StatusOr<std::vector<CudnnDescriptor>> CudnnDescriptor::GetAll(
    cudnnBackendAttributeName_t attribute, cudnnBackendDescriptorType_t type, int64_t most) const {
  std::vector<CudnnDescriptor> values;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i) {
    values.emplace_back(cudnn_, type);
    RETURN_IF_ERROR(values.back().status_);
    raw.push_back(values.back().descriptor_);
  }
  if (most == 0) return values;
  ASSIGN_OR_RETURN(const int64_t count,
                   GetRaw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, raw.data()));
  while (static_cast<int64_t>(values.size()) > count) values.pop_back();
  return values;
}

absl::StatusOr<int64_t> CudnnDescriptor::Count(cudnnBackendAttributeName_t attribute) const {
  return GetRaw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
}

CudnnDescriptor& CudnnDescriptor::SetRaw(cudnnBackendAttributeName_t attribute,
                                         cudnnBackendAttributeType_t type, int64_t count,
                                         const void* values) {
  if (!status_.ok()) return *this;
  status_.Update(
      Status(cudnn_.cudnnBackendSetAttribute(descriptor_, attribute, type, count, values),
             "cudnnBackendSetAttribute", AttributeName(attribute)));
  return *this;
}

absl::StatusOr<int64_t> CudnnDescriptor::GetRaw(cudnnBackendAttributeName_t attribute,
                                                cudnnBackendAttributeType_t type, int64_t most,
                                                void* values) const {
  RETURN_IF_ERROR(status_);
  int64_t count = 0;
  RETURN_IF_ERROR(
      Status(cudnn_.cudnnBackendGetAttribute(descriptor_, attribute, type, most, &count, values),
             "cudnnBackendGetAttribute", AttributeName(attribute)));
  // cuDNN may count more than it was asked for.
  return most == 0 ? count : std::min(count, most);
}

absl::Status CudnnDescriptor::Status(cudnnStatus_t code, const char* call,
                                     std::string_view attribute) const {
  if (code == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  std::string where = TypeName(type_);
  if (!attribute.empty()) absl::StrAppend(&where, ", ", std::string(attribute));
  const absl::Status status = Annotate(CudnnStatus(cudnn_, code, call), where);
  if (CUDNN_STATUS_CATEGORY(code) != CUDNN_STATUS_NOT_SUPPORTED) return status;
  return absl::UnimplementedError(status.message());
}

}  // namespace gyre
