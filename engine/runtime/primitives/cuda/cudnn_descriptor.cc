#include "engine/runtime/primitives/cuda/cudnn_descriptor.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {
CudnnDescriptor::CudnnDescriptor(const Cudnn& cudnn, CudnnKind kind) : cudnn_(cudnn), kind_(kind) {
  status_.Update(Status(cudnn.cudnnBackendCreateDescriptor(kind.value, &descriptor_),
                        "cudnnBackendCreateDescriptor", ""));
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) cudnn_.cudnnBackendDestroyDescriptor(descriptor_);
}

CudnnDescriptor::CudnnDescriptor(CudnnDescriptor&& other) noexcept
    : cudnn_(other.cudnn_),
      kind_(other.kind_),
      descriptor_(std::exchange(other.descriptor_, nullptr)),
      status_(std::move(other.status_)) {}

CudnnDescriptor& CudnnDescriptor::SetAll(CudnnAttribute attribute,
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

absl::StatusOr<std::vector<CudnnDescriptor>> CudnnDescriptor::GetAll(CudnnAttribute attribute,
                                                                     CudnnKind kind,
                                                                     int64_t most) const {
  std::vector<CudnnDescriptor> values;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < most; ++i) {
    values.emplace_back(cudnn_, kind);
    RETURN_IF_ERROR(values.back().status_);
    raw.push_back(values.back().descriptor_);
  }
  if (most == 0) return values;
  ASSIGN_OR_RETURN(const int64_t count,
                   GetRaw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, most, raw.data()));
  while (static_cast<int64_t>(values.size()) > count) values.pop_back();
  return values;
}

absl::StatusOr<int64_t> CudnnDescriptor::Count(CudnnAttribute attribute) const {
  return GetRaw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, nullptr);
}

CudnnDescriptor& CudnnDescriptor::SetRaw(CudnnAttribute attribute, cudnnBackendAttributeType_t type,
                                         int64_t count, const void* values) {
  if (!status_.ok()) return *this;
  status_.Update(
      Status(cudnn_.cudnnBackendSetAttribute(descriptor_, attribute.value, type, count, values),
             "cudnnBackendSetAttribute", attribute.name));
  return *this;
}

absl::StatusOr<int64_t> CudnnDescriptor::GetRaw(CudnnAttribute attribute,
                                                cudnnBackendAttributeType_t type, int64_t most,
                                                void* values) const {
  RETURN_IF_ERROR(status_);
  int64_t count = 0;
  RETURN_IF_ERROR(Status(
      cudnn_.cudnnBackendGetAttribute(descriptor_, attribute.value, type, most, &count, values),
      "cudnnBackendGetAttribute", attribute.name));
  // cuDNN may count more than it was asked for.
  return most == 0 ? count : std::min(count, most);
}

absl::Status CudnnDescriptor::Status(cudnnStatus_t code, const char* call,
                                     std::string_view attribute) const {
  if (code == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  std::string where = kind_.name;
  if (!attribute.empty()) absl::StrAppend(&where, ", ", std::string(attribute));
  const absl::Status status = Annotate(CudnnStatus(cudnn_, code, call), where);
  if (CUDNN_STATUS_CATEGORY(code) != CUDNN_STATUS_NOT_SUPPORTED) return status;
  return absl::UnimplementedError(status.message());
}

}  // namespace gyre
