// call.h: a call of C as a call of C++.  Any thread.
#pragma once

#include <omp.h>

#include <atomic>
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "absl/status/status.h"

namespace gyre {

// The text of this thread's last error.
std::string& LastError();
// Sets it, and returns the gyre_code.
int EndCall(const absl::Status& status);

// Runs `work`, which returns a Status.  No exception leaves it, and the program's number of OpenMP
// threads stays as it is.
template <typename Work>
int RunCall(const Work& work) noexcept {
  const int threads = omp_get_max_threads();
  absl::Status status;
  try {
    status = work();
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
  return EndCall(status);
}

// What a handle points to: a T that one thread at a time uses.
template <typename T>
struct Handle {
  std::unique_ptr<T> object;
  std::atomic<bool> busy = false;
};

// Runs work(*handle->object), unless a call with the handle is under way.
template <typename H, typename Work>
int RunCall(H* handle, const Work& work) noexcept {
  if (handle == nullptr) return EndCall(absl::InvalidArgumentError("the handle is null"));
  if (handle->busy.exchange(true, std::memory_order_acquire)) {
    return EndCall(absl::FailedPreconditionError("another call with this handle is under way"));
  }
  const int code = RunCall([&] { return work(*handle->object); });
  handle->busy.store(false, std::memory_order_release);
  return code;
}

}  // namespace gyre
