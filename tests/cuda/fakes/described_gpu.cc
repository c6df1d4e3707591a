#include "tests/cuda/fakes/described_gpu.h"

#include <string_view>

#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_libraries.h"

namespace gyre {
namespace {

// NVIDIA's published numbers for an H100 SXM, under the names that cuDNN 9.19 asks for.
constexpr std::string_view kH100 = R"({
  "deviceName": "NVIDIA H100 80GB HBM3", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
  "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "totalGlobalMem": 85017493504,
  "multiProcessorCount": 132, "warpSize": 32, "smClockRateKHz": 1980000,
  "memClockRateKHz": 2619000, "l2CacheSize": 52428800,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64],
  "regsPerBlock": 65536, "maxRegistersPerSM": 65536, "maxCtasPerSM": 32,
  "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "maxSharedMemoryPerBlock": 49152,
  "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024})";

char handle;  // the only one

// --- cuDNN ---------------------------------------------------------------------------------------

const Cudnn* real = nullptr;
cudnnBackendDescriptor_t gpu = nullptr;

cudnnStatus_t Create(cudnnHandle_t* to) {
  *to = reinterpret_cast<cudnnHandle_t>(&handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t Destroy(cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; }

// Where a handle is wanted the description takes its place.
cudnnStatus_t SetAttribute(cudnnBackendDescriptor_t descriptor,
                           cudnnBackendAttributeName_t attribute, cudnnBackendAttributeType_t type,
                           int64_t count, const void* values) {
  switch (attribute) {
    case CUDNN_ATTR_OPERATIONGRAPH_HANDLE:
      return CUDNN_STATUS_SUCCESS;
    case CUDNN_ATTR_EXECUTION_PLAN_HANDLE:
      return real->cudnnBackendSetAttribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
    case CUDNN_ATTR_ENGINEHEUR_MODE: {
      const cudnnStatus_t code = real->cudnnBackendSetAttribute(
          descriptor, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &gpu);
      if (code != CUDNN_STATUS_SUCCESS) return code;
      break;
    }
    default:
      break;
  }
  return real->cudnnBackendSetAttribute(descriptor, attribute, type, count, values);
}

// --- cuBLASLt ------------------------------------------------------------------------------------

cublasStatus_t CreateLt(cublasLtHandle_t* to) {
  *to = reinterpret_cast<cublasLtHandle_t>(&handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t DestroyLt(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }

cublasStatus_t FindZeros(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t, int, cublasLtMatmulHeuristicResult_t* results,
                         int* found) {
  *results = {};
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

absl::StatusOr<const Cudnn*> LoadDescribedCudnn() {
  static Cudnn described;
  if (real != nullptr) return &described;
  ASSIGN_OR_RETURN(real, LoadCudnn());
  described = *real;
  described.cudnnCreate = Create;
  described.cudnnDestroy = Destroy;
  described.cudnnBackendSetAttribute = SetAttribute;
  RETURN_IF_ERROR(CudnnStatus(
      *real, real->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &gpu),
      "cudnnBackendCreateDescriptor"));
  RETURN_IF_ERROR(CudnnStatus(*real,
                              real->cudnnBackendSetAttribute(
                                  gpu, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                  static_cast<int64_t>(kH100.size()), kH100.data()),
                              "cudnnBackendSetAttribute"));
  RETURN_IF_ERROR(CudnnStatus(*real, real->cudnnBackendFinalize(gpu), "cudnnBackendFinalize"));
  return &described;
}

absl::StatusOr<const CublasLt*> LoadDescribedCublasLt() {
  static CublasLt described;
  ASSIGN_OR_RETURN(const CublasLt* loaded, LoadCublasLt());
  described = *loaded;
  described.cublasLtCreate = CreateLt;
  described.cublasLtDestroy = DestroyLt;
  described.cublasLtMatmulAlgoGetHeuristic = FindZeros;
  return &described;
}

}  // namespace gyre
