// step_kernels.h: launches every kernel of a step beside its layers' (optimizers, the net's own
// steps, sums over ranks, rows of tables); tests/cuda checks that, and smoke_test runs them on a
// device.
#pragma once

#include <functional>

#include "engine/runtime/device/device.h"
#include "engine/training/optimizers/optimizer.h"

namespace gyre {

class StepKernels {
 public:
  // make(shape, dtype): device memory that outlives the work, with numbers of [-1, 1] in it; of I32
  // with 0, 1, 2, ...; of U8 with zeros.
  using Make = std::function<Tensor(const Shape&, DType)>;
  StepKernels(Stream& stream, Make make) : stream_(stream), make_(std::move(make)) {}

  // Those of one real type.  Enqueues.
  absl::Status RunOptimizers(DType dtype) const;
  absl::Status RunNetSteps(DType dtype) const;
  // Those that have no type.  Enqueues.
  absl::Status RunScalars() const;

 private:
  absl::Status RunUpdate(const Optimizer& optimizer, DType dtype, Tensor rows) const;
  absl::Status RunElements(DType dtype, int64_t elements) const;
  absl::Status RunRows(DType dtype) const;
  // Zeros.
  template <typename T>
  T* Zeros(int64_t count = 1) const {
    return static_cast<T*>(make_({count * static_cast<int64_t>(sizeof(T))}, DType::kU8).data);
  }
  double* Numbers(int64_t count) const { return make_({count}, DType::kF64).as<double>(); }

  Stream& stream_;
  const Make make_;
};

}  // namespace gyre
