// slept_work.h: work of a simulated device that takes time but no core.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "absl/status/status.h"

namespace gyre {

inline std::function<absl::Status()> SleptWork(std::chrono::duration<double> work) {
  return [work] {
    std::this_thread::sleep_until(std::chrono::steady_clock::now() + work);
    return absl::OkStatus();
  };
}

}  // namespace gyre
