// cuda_libraries.h: cuBLASLt, cuDNN and NCCL as tables of functions, loaded at first use.
//
// Linking them would cost 150 ms at every start, and a program could not start without them.  Tests
// pass fake tables.  Only a device_cc_library sees the vendors' headers.
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

// A table has a member for each function, with its name: `cudnn.cudnnCreate(&handle)`.
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

// Return the process's table, which the first call loads and nothing frees.  Any thread.  Errors:
// Unavailable with the file's name, versions found and needed, folders searched, and advice.
absl::StatusOr<const CublasLt*> LoadCublasLt();
absl::StatusOr<const Cudnn*> LoadCudnn();
absl::StatusOr<const Nccl*> LoadNccl();

// Returns the folders that Load searches: "" for the system's own search (LD_LIBRARY_PATH,
// ldconfig), then $CUDA_HOME/lib64 and /usr/local/cuda/lib64.
std::vector<std::string> CudaLibraryFolders();

// As Load, in these folders, and anew at each call.
absl::StatusOr<CublasLt> OpenCublasLt(std::span<const std::string> folders);
absl::StatusOr<Cudnn> OpenCudnn(std::span<const std::string> folders);
absl::StatusOr<Nccl> OpenNccl(std::span<const std::string> folders);

// Return OK, or Internal naming the call, with the library's own words for its code.
absl::Status CublasLtStatus(const CublasLt& library, cublasStatus_t code, const char* call);
absl::Status CudnnStatus(const Cudnn& library, cudnnStatus_t code, const char* call);
absl::Status NcclStatus(const Nccl& library, ncclResult_t code, ncclComm_t comm, const char* call);

}  // namespace gyre
