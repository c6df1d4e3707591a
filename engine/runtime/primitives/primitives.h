// primitives.h: the operations that vendor libraries do better than Gyre would, on one device.
//
// Primitives asks each library in turn, best first and the reference last, to prepare an operation
// for one set of extents.  The first that takes the job makes it.  A prepared operation is
// immutable, owns no tensor memory, and runs on any stream of its device.  Rules of all operations:
//   pointers   device memory in row-major order, images N,H,W,C, unless a layout is called opaque
//   extents    0 is legal: nothing is read, and a sum over nothing is 0
//   lifetime   Run, Forward and others enqueue work, which operation, operands and scratch outlive
//   alignment  64 bytes for scratch and opaque weights, on a GPU 16 for operands (InvalidArgument)
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/primitives/batch_norm.h"
#include "engine/runtime/primitives/conv2d.h"
#include "engine/runtime/primitives/gemm.h"
#include "engine/runtime/primitives/pool2d.h"

namespace gyre {

// One source of implementations.  Libraries of a CPU serve cpu and sim.  Unless oneDNN computes,
// their bits do not depend on the thread count.  AVX-512's and AMX's take no job without it.
// Errors of Prepare, in this order:
//   InvalidArgument  if Validate refuses the spec, for example for a negative extent, a window that
//                    does not fit, groups that do not divide the channels, a pool of padding alone
//   Unimplemented    if the library does not take the job
class PrimitiveLibrary {
 public:
  virtual ~PrimitiveLibrary() = default;
  virtual std::string_view name() const = 0;
  // Returns the choices so far that change bits and are not in the spec (versions, algorithms),
  // sorted, one on each line.  Equal text means equal bits.  Empty if the spec decides all.
  virtual std::string choices() const { return ""; }

  // Each of these leaves its job to other libraries.  A library overrides the operations that it
  // takes, and calls this for specs that it leaves.
  virtual absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const {
    return LeaveToOthers(spec);
  }
  virtual absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const {
    return LeaveToOthers(spec);
  }
  virtual absl::StatusOr<std::unique_ptr<Pool2d>> Prepare(const Pool2dSpec& spec) const {
    return LeaveToOthers(spec);
  }
  // Equal specs may share one prepared operation.
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

// Conv2d of F32 and F64 where each channel is a group of its own with one filter.  Weights have its
// own layout.  Its bits depend on no instruction set.
std::unique_ptr<PrimitiveLibrary> NewDepthwiseLibrary();
// Gemm of F32 and BF16 and Conv2d of F32, of the shapes for which there are loops by AVX-512.
std::unique_ptr<PrimitiveLibrary> NewAvx512Library();
// Gemm and Conv2d of F32 and F64 by tiles, Pool2d of every real type by chunks of channels.
std::unique_ptr<PrimitiveLibrary> NewBlockedLibrary();
// The reference, by plain functors on parallel.h, for every device and real type.  It takes all but
// BatchNorm.  It is the oracle of the others, and serves where they do not.
std::unique_ptr<PrimitiveLibrary> NewReferenceLibrary();
// Gemm and Conv2d of F16 and BF16.  It converts operands to F32 in scratch, runs an operation of
// `inner` (best first) and converts the result.  `inner` must outlive the library.
std::unique_ptr<PrimitiveLibrary> NewConvertingLibrary(std::vector<const PrimitiveLibrary*> inner);
// Gemm and Conv2d of F32, and of BF16 if the CPU has it.  oneDNN fixes the thread count, and so the
// order of sums, when it prepares.  The library always uses `threads`, its device's count.
std::unique_ptr<PrimitiveLibrary> NewOneDnnLibrary(int threads);

class Primitives {
 public:
  // The libraries of cpu and sim, best first, for streams of `threads` threads.  A GPU's are made
  // by primitives/cuda/cuda_primitives.h.
  Primitives(DeviceKind device, int threads);
  Primitives(DeviceKind device, std::vector<std::unique_ptr<PrimitiveLibrary>> libraries);

  DeviceKind device() const { return device_; }

  // Errors: InvalidArgument as above.  Unimplemented naming the operation if no library takes it.
  // Any other error of a library is returned as it is.
  template <typename Spec>
  auto Prepare(const Spec& spec) const
      -> decltype(std::declval<const PrimitiveLibrary&>().Prepare(spec)) {
    for (const auto& library : libraries_) {
      auto prepared = library->Prepare(spec);
      if (prepared.ok() || !absl::IsUnimplemented(prepared.status())) return prepared;
    }
    return absl::UnimplementedError("no library of this device implements " + ToString(spec));
  }

  std::string choices() const;

 private:
  DeviceKind device_;
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries_;
};

}  // namespace gyre
