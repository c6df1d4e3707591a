// primitives.h: the operations that vendor libraries do better than we would, on one device.
//
// Primitives prepares an operation for one set of extents: it asks each implementation in turn,
// best first, the plain functors last, and returns the first that takes the job.  A prepared
// operation is immutable, owns no tensor memory and may be run on any stream of its device.  All
// pointers are device memory in row-major order, images N,H,W,C, unless a layout is said to be
// opaque.  Extents of 0 are legal: nothing is read, sums over nothing are 0.  Run methods enqueue
// on the stream; the operation, its operands and scratch must outlive the work.  Scratch and opaque
// weights are 64-byte aligned; on a GPU every operand is 16-byte aligned, or Run says
// InvalidArgument.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/primitives/batch_norm.h"
#include "engine/runtime/primitives/conv2d.h"
#include "engine/runtime/primitives/gemm.h"
#include "engine/runtime/primitives/log_softmax.h"
#include "engine/runtime/primitives/pool2d.h"

namespace gyre {

// One source of implementations.  Errors of Prepare: Unimplemented where the library does not take
// the job; but first, of every library, InvalidArgument naming the spec for a negative extent, a
// window that does not fit, groups that do not divide the channels, or a pooling window that may
// hold padding alone (Validate).
class PrimitiveLibrary {
 public:
  virtual ~PrimitiveLibrary() = default;
  virtual std::string_view name() const = 0;
  // What it chose so far that changes bits and is not in the spec (versions, algorithms): a line
  // each, sorted; equal text means equal bits.  Empty where the spec says all.
  virtual std::string choices() const { return ""; }

  // Each here leaves its job to other libraries; one that takes some overrides that one, and calls
  // this for what it leaves.
  virtual absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const {
    return LeaveToOthers(spec);
  }
  virtual absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const {
    return LeaveToOthers(spec);
  }
  virtual absl::StatusOr<std::unique_ptr<Pool2d>> Prepare(const Pool2dSpec& spec) const {
    return LeaveToOthers(spec);
  }
  virtual absl::StatusOr<std::unique_ptr<LogSoftmax>> Prepare(const LogSoftmaxSpec& spec) const {
    return LeaveToOthers(spec);
  }
  // Equal specs may share what is prepared.
  virtual absl::StatusOr<std::shared_ptr<const BatchNorm>> Prepare(
      const BatchNormSpec& spec) const {
    return LeaveToOthers(spec);
  }

 protected:
  template <typename Spec>
  absl::Status LeaveToOthers(const Spec& spec) const {
    RETURN_IF_ERROR(Validate(spec));
    return absl::UnimplementedError(ToString(spec) + ": not by " + std::string(name()));
  }
};

// Gemm and Conv2d by products of blocks, of F32 and F64; Pool2d by blocks of channels, of every
// real type.  cpu and sim; the bits do not depend on the thread count.
std::unique_ptr<PrimitiveLibrary> NewBlockedLibrary();
// The reference: plain functors on the skeletons of parallel.h, every operation but BatchNorm, real
// dtype and device.  The oracle of the other libraries, and what serves where they do not.
std::unique_ptr<PrimitiveLibrary> NewReferenceLibrary();
// Gemm and Conv2d of F16 and BF16 by converting operands to F32 in scratch, running one of `inner`
// (best first) and converting the result.  cpu and sim.  `inner` must outlive the library.
std::unique_ptr<PrimitiveLibrary> NewConvertingLibrary(std::vector<const PrimitiveLibrary*> inner);
// Gemm and Conv2d of F32, and of BF16 where the CPU has it; cpu and sim.  oneDNN fixes the thread
// count, and with it the order of sums, when it prepares an operation, so the library is told the
// `threads` of its device and uses them ever after.
std::unique_ptr<PrimitiveLibrary> NewOneDnnLibrary(int threads);

class Primitives {
 public:
  // The libraries of cpu and sim, best first.  threads: those of their streams.  A GPU's are made
  // by primitives/cuda/cuda_primitives.h.
  Primitives(DeviceKind device, int threads);
  Primitives(DeviceKind device, std::vector<std::unique_ptr<PrimitiveLibrary>> libraries);

  DeviceKind device() const { return device_; }

  // Errors: InvalidArgument as above; Unimplemented naming the operation if no library
  // takes it; any other error of a library is returned as it is.
  template <typename Spec>
  auto Prepare(const Spec& spec) const
      -> decltype(std::declval<const PrimitiveLibrary&>().Prepare(spec)) {
    for (const auto& library : libraries_) {
      auto prepared = library->Prepare(spec);
      if (prepared.ok() || !absl::IsUnimplemented(prepared.status())) return prepared;
    }
    return absl::UnimplementedError("no library of this device implements " + ToString(spec));
  }

  // Of all libraries: see PrimitiveLibrary::choices.
  std::string choices() const;

 private:
  DeviceKind device_;
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries_;
};

}  // namespace gyre
