// cuda_host_calls.h: host code on a GPU's streams.  CUDA runs it later, on a thread of its own, and
// its errors are known only then.  Private to the cuda device.  HostErrors: any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"

namespace gyre {

// The first error of a stream's host code.
class HostErrors {
 public:
  absl::Status first() const {
    std::lock_guard lock(mutex_);
    return first_;
  }
  void Add(const absl::Status& status) {
    std::lock_guard lock(mutex_);
    first_.Update(status);
  }

 private:
  mutable std::mutex mutex_;
  absl::Status first_;
};

// The errors of streams with host code, and of streams that they have waited for.
using AllHostErrors = std::vector<std::shared_ptr<HostErrors>>;

inline absl::Status FirstOf(absl::Status first, const AllHostErrors& all) {
  for (const auto& errors : all) first.Update(errors->first());
  return first;
}

inline void Merge(const AllHostErrors& from, AllHostErrors& into) {
  for (const auto& errors : from) {
    if (std::ranges::find(into, errors) == into.end()) into.push_back(errors);
  }
}

// The argument of cudaLaunchHostFunc.  `work` calls nothing of CUDA.  It is not run after an error.
struct HostCall {
  std::shared_ptr<HostErrors> errors;
  std::function<absl::Status()> work;

  static cudaError_t Launch(cudaStream_t stream, std::shared_ptr<HostErrors> errors,
                            std::function<absl::Status()> work) {
    auto call = std::make_unique<HostCall>(HostCall{std::move(errors), std::move(work)});
    const cudaError_t code = cudaLaunchHostFunc(stream, &Run, call.get());
    if (code == cudaSuccess) (void)call.release();  // to Run
    return code;
  }

  static void CUDART_CB Run(void* data) {
    const std::unique_ptr<HostCall> call(static_cast<HostCall*>(data));
    if (call->errors->first().ok()) call->errors->Add(call->work());
  }
};

}  // namespace gyre
