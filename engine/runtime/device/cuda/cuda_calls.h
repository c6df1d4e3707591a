// cuda_calls.h: selects the calling thread's GPU, and turns CUDA's error codes into a status.
// Private to the cuda device.  Any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace gyre {

// Returns the status of a failed call.  Clears it in CUDA, which would blame the next launch for
// it.
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

// Makes the GPU the calling thread's.  If it already is, this is a look at a thread-local variable.
inline absl::Status Select(int gpu) {
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess && current == gpu) return absl::OkStatus();
  return Check(cudaSetDevice(gpu), "cudaSetDevice");
}

}  // namespace gyre
