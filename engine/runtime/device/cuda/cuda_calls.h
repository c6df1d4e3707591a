// cuda_calls.h: what every call of the CUDA runtime needs: the calling thread's GPU, and its code
// as a status.  Private to the cuda device.  Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gyre {

// Of a call that failed.  The runtime also keeps the error for the thread's next cudaGetLastError,
// which would blame the next kernel launch for it: this clears it.
inline absl::Status Error(cudaError_t code, std::string_view call) {
  (void)cudaGetLastError();
  const std::string message = absl::StrCat(std::string(call), ": ", cudaGetErrorString(code), " (",
                                           cudaGetErrorName(code), ")");
  switch (code) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
      return absl::UnimplementedError(message);
    default:
      return absl::InternalError(message);
  }
}

inline absl::Status Check(cudaError_t code, const char* call) {
  return code == cudaSuccess ? absl::OkStatus() : Error(code, call);
}

// Makes the GPU the calling thread's.  Costs a look at a thread-local variable if it is already.
inline absl::Status Select(int gpu) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == gpu) return absl::OkStatus();
  return Check(cudaSetDevice(gpu), "cudaSetDevice");
}

}  // namespace gyre
