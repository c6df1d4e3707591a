// cuda_libraries.h: cuBLASLt, cuDNN and NCCL as tables of functions, loaded at first use.
//
// Linked, they would cost 150 ms at every start and keep the program from starting where they are
// missing.  Tests hand a fake table to what uses one.  Only a device_cc_library sees the headers.
#pragma once

#include <cublasLt.h>
#include <cudnn.h>
#include <nccl.h>

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gyre {

// A member for each function, named as the function: `cudnn.cudnnCreate(&handle)`.
#define GYRE_CUBLASLT_FUNCTIONS(F)        \
  F(cublasLtCreate)                       \
  F(cublasLtDestroy)                      \
  F(cublasLtGetVersion)                   \
  F(cublasLtGetStatusString)              \
  F(cublasLtMatmul)                       \
  F(cublasLtMatmulAlgoGetHeuristic)       \
  F(cublasLtMatmulDescCreate)             \
  F(cublasLtMatmulDescDestroy)            \
  F(cublasLtMatmulDescSetAttribute)       \
  F(cublasLtMatmulAlgoConfigGetAttribute) \
  F(cublasLtMatrixLayoutCreate)           \
  F(cublasLtMatrixLayoutDestroy)          \
  F(cublasLtMatrixLayoutSetAttribute)     \
  F(cublasLtMatmulPreferenceCreate)       \
  F(cublasLtMatmulPreferenceDestroy)      \
  F(cublasLtMatmulPreferenceSetAttribute)

#define GYRE_CUDNN_FUNCTIONS(F)    \
  F(cudnnGetVersion)               \
  F(cudnnGetErrorString)           \
  F(cudnnGetLastErrorString)       \
  F(cudnnCreate)                   \
  F(cudnnDestroy)                  \
  F(cudnnSetStream)                \
  F(cudnnBackendCreateDescriptor)  \
  F(cudnnBackendDestroyDescriptor) \
  F(cudnnBackendSetAttribute)      \
  F(cudnnBackendGetAttribute)      \
  F(cudnnBackendFinalize)          \
  F(cudnnBackendExecute)

#define GYRE_NCCL_FUNCTIONS(F) \
  F(ncclGetVersion)            \
  F(ncclGetUniqueId)           \
  F(ncclCommInitRankConfig)    \
  F(ncclCommGetAsyncError)     \
  F(ncclCommFinalize)          \
  F(ncclCommDestroy)           \
  F(ncclCommAbort)             \
  F(ncclGetErrorString)        \
  F(ncclGetLastError)          \
  F(ncclAllReduce)

#define GYRE_MEMBER(function) decltype(&::function) function = nullptr;
struct CublasLt {
  GYRE_CUBLASLT_FUNCTIONS(GYRE_MEMBER)
};
struct Cudnn {
  GYRE_CUDNN_FUNCTIONS(GYRE_MEMBER)
};
struct Nccl {
  GYRE_NCCL_FUNCTIONS(GYRE_MEMBER)
};
#undef GYRE_MEMBER

// The process's table, loaded by the first call; any thread.  The result lives for ever.
// Errors: Unavailable with the library's file name, the version found and needed, the folders that
// were searched, and what to do.
absl::StatusOr<const CublasLt*> LoadCublasLt();
absl::StatusOr<const Cudnn*> LoadCudnn();
absl::StatusOr<const Nccl*> LoadNccl();

// Where Load looks: "" stands for the system's own search (LD_LIBRARY_PATH, ldconfig), then come
// $CUDA_HOME/lib64 and /usr/local/cuda/lib64.
std::vector<std::string> CudaLibraryFolders();

// What Load does, in these folders, and anew each time.
absl::StatusOr<CublasLt> OpenCublasLt(std::span<const std::string> folders);
absl::StatusOr<Cudnn> OpenCudnn(std::span<const std::string> folders);
absl::StatusOr<Nccl> OpenNccl(std::span<const std::string> folders);

// OK, or Internal naming the call and the library's own words for its code.
absl::Status CublasLtStatus(const CublasLt& library, cublasStatus_t code, const char* call);
absl::Status CudnnStatus(const Cudnn& library, cudnnStatus_t code, const char* call);
absl::Status NcclStatus(const Nccl& library, ncclResult_t code, ncclComm_t comm, const char* call);

}  // namespace gyre
