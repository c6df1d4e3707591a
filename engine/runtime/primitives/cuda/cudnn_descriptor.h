// cudnn_descriptor.h: owns one backend descriptor of cuDNN.  Attributes are typed, and errors name
// the descriptor and the attribute.  Inside the CUDA library only.
//
// The first error sticks.  Later calls do nothing, and Finalize returns it.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_libraries.h"

namespace gyre {

template <typename T>
constexpr cudnnBackendAttributeType_t CudnnTypeOf() {
  if constexpr (std::is_same_v<T, bool>) {
    return CUDNN_TYPE_BOOLEAN;
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return CUDNN_TYPE_INT64;
  } else if constexpr (std::is_same_v<T, float>) {
    return CUDNN_TYPE_FLOAT;
  } else if constexpr (std::is_same_v<T, const void*>) {
    return CUDNN_TYPE_VOID_PTR;
  } else if constexpr (std::is_same_v<T, cudnnHandle_t>) {
    return CUDNN_TYPE_HANDLE;
  } else if constexpr (std::is_same_v<T, cudnnDataType_t>) {
    return CUDNN_TYPE_DATA_TYPE;
  } else if constexpr (std::is_same_v<T, cudnnConvolutionMode_t>) {
    return CUDNN_TYPE_CONVOLUTION_MODE;
  } else if constexpr (std::is_same_v<T, cudnnPointwiseMode_t>) {
    return CUDNN_TYPE_POINTWISE_MODE;
  } else if constexpr (std::is_same_v<T, cudnnNanPropagation_t>) {
    return CUDNN_TYPE_NAN_PROPOGATION;
  } else if constexpr (std::is_same_v<T, cudnnBackendHeurMode_t>) {
    return CUDNN_TYPE_HEUR_MODE;
  } else if constexpr (std::is_same_v<T, cudnnBackendKnobType_t>) {
    return CUDNN_TYPE_KNOB_TYPE;
  } else if constexpr (std::is_same_v<T, cudnnBackendNormMode_t>) {
    return CUDNN_TYPE_NORM_MODE;
  } else if constexpr (std::is_same_v<T, cudnnBackendNormFwdPhase_t>) {
    return CUDNN_TYPE_NORM_FWD_PHASE;
  } else {
    static_assert(std::is_same_v<T, cudnnBackendNumericalNote_t>);
    return CUDNN_TYPE_NUMERICAL_NOTE;
  }
}

// An enumerator of cuDNN's and its name, for messages.
template <typename Enum>
struct Named {
  Enum value;
  const char* name;
};
#define GYRE_NAMED(enumerator) \
  { enumerator, #enumerator }
using CudnnAttribute = Named<cudnnBackendAttributeName_t>;
using CudnnKind = Named<cudnnBackendDescriptorType_t>;

class CudnnDescriptor {
 public:
  CudnnDescriptor(const Cudnn& cudnn, CudnnKind kind);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;

  template <typename T>
  CudnnDescriptor& Set(CudnnAttribute attribute, const T& value) {
    return SetRaw(attribute, CudnnTypeOf<T>(), 1, &value);
  }
  CudnnDescriptor& Set(CudnnAttribute attribute, const CudnnDescriptor& value) {
    return SetRaw(attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.descriptor_);
  }
  template <typename Values>
  CudnnDescriptor& SetAll(CudnnAttribute attribute, const Values& values) {
    return SetRaw(attribute, CudnnTypeOf<typename Values::value_type>(),
                  static_cast<int64_t>(values.size()), values.data());
  }
  CudnnDescriptor& SetAll(CudnnAttribute attribute, const std::vector<CudnnDescriptor>& values);
  absl::Status Finalize();

  template <typename T>
  absl::StatusOr<T> Get(CudnnAttribute attribute) const {
    T value = {};
    RETURN_IF_ERROR(GetRaw(attribute, CudnnTypeOf<T>(), 1, &value).status());
    return value;
  }
  // The values of an attribute, at most `most`.
  template <typename T>
  absl::StatusOr<std::vector<T>> GetAll(CudnnAttribute attribute, int64_t most) const {
    std::vector<T> values(static_cast<size_t>(most));
    ASSIGN_OR_RETURN(const int64_t count, GetRaw(attribute, CudnnTypeOf<T>(), most, values.data()));
    values.resize(static_cast<size_t>(count));
    return values;
  }
  // Returns an attribute's descriptors of one kind, at most `most`, as new ones.
  absl::StatusOr<std::vector<CudnnDescriptor>> GetAll(CudnnAttribute attribute, CudnnKind kind,
                                                      int64_t most) const;
  // Returns the number of an attribute's descriptors.
  absl::StatusOr<int64_t> Count(CudnnAttribute attribute) const;

  cudnnBackendDescriptor_t get() const { return descriptor_; }

 private:
  CudnnDescriptor& SetRaw(CudnnAttribute attribute, cudnnBackendAttributeType_t type, int64_t count,
                          const void* values);
  // Returns the number of values written, or of all values if `most` is 0.
  absl::StatusOr<int64_t> GetRaw(CudnnAttribute attribute, cudnnBackendAttributeType_t type,
                                 int64_t most, void* values) const;
  // Returns OK, Unimplemented if cuDNN does not support something, or Internal.
  absl::Status Status(cudnnStatus_t code, const char* call, std::string_view attribute) const;

  const Cudnn& cudnn_;
  const CudnnKind kind_;
  cudnnBackendDescriptor_t descriptor_ = nullptr;
  absl::Status status_;
};

}  // namespace gyre
