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

#include "engine/runtime/device/device.h"

namespace gyre {

// How a prepared operation stores its weights.  An empty tag is the canonical row-major layout.
// Equal tags mean equal bytes for equal weights.
struct WeightLayout {
  size_t bytes = 0;
  std::string tag;
};

// What an operation applies to its result before it stores it.
enum class Activation : uint8_t { kNone, kRelu };  // kRelu: max(x, 0), NaN stays NaN

// c[m,n] = activation(op(a) op(b) + bias), with a: [m,k] ([k,m] if transpose_a), b: [k,n] ([n,k] if
// transpose_b), bias: [n].  Accumulates in AccumulateType of dtype.
struct GemmSpec {
  DType dtype = DType::kF32;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, bias = false;
  Activation activation = Activation::kNone;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual size_t scratch_bytes() const = 0;  // may be 0
  virtual absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                           void* scratch) const = 0;
};

// Cross-correlation of x: [n,h,w,c] with canonical weights [filters, c/groups, kernel_h, kernel_w]
// to y: [n, out_h, out_w, filters].  padding: top, bottom, left, right, zeros.
struct Conv2dSpec {
  DType dtype = DType::kF32;
  int64_t n = 0, h = 0, w = 0, c = 0, filters = 0;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1, dilation_h = 1, dilation_w = 1;
  int64_t padding_top = 0, padding_bottom = 0, padding_left = 0, padding_right = 0;
  int64_t groups = 1;
  bool bias = false;
  Activation activation = Activation::kNone;  // of forward; backward is handed dy before it
  std::string weight_layout = "";  // a tag that must be used (another shape chose it); empty: free
  bool train = true;               // false: backward will not be asked for
  bool data_gradient = true;       // false: nor will BackwardData

  int64_t out_h() const;
  int64_t out_w() const;
  int64_t weights() const { return filters * (c / groups) * kernel_h * kernel_w; }
  double forward_flops() const;
};

class Conv2d {
 public:
  virtual ~Conv2d() = default;
  // Of weights and their gradient.  Does not depend on n: ranks with unequal shares of a batch
  // agree.
  virtual const WeightLayout& weight_layout() const = 0;
  virtual size_t scratch_bytes() const = 0;  // enough for each of the three; may be 0
  virtual absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                               void* y, void* scratch) const = 0;
  // Assigns dx.
  virtual absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                                    void* scratch) const = 0;
  // Assigns dweights, and dbias if the spec has a bias.
  virtual absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy,
                                       void* dweights, void* dbias, void* scratch) const = 0;
  // Host memory, on the calling thread: opaque weights <-> [filters, c/groups, kh, kw].  Packing
  // zeroes whatever padding the layout has.
  virtual absl::Status Pack(const void* canonical, void* opaque) const = 0;
  virtual absl::Status Unpack(const void* opaque, void* canonical) const = 0;
};

enum class PoolKind : uint8_t { kMax, kAverage };

// Pooling of x: [n,h,w,c] to y: [n,out_h,out_w,c].  An average divides by the number of elements
// inside the image, padding excluded.  Among equal maxima the first in row-major order wins.
struct Pool2dSpec {
  DType dtype = DType::kF32;
  PoolKind kind = PoolKind::kMax;
  int64_t n = 0, h = 0, w = 0, c = 0;
  int64_t kernel_h = 1, kernel_w = 1, stride_h = 1, stride_w = 1;
  int64_t padding_top = 0, padding_bottom = 0, padding_left = 0, padding_right = 0;
  bool train = true;

  int64_t out_h() const;
  int64_t out_w() const;
};

class Pool2d {
 public:
  virtual ~Pool2d() = default;
  // Bytes that Forward leaves for Backward (positions of maxima); 0 for averages and inference.
  virtual size_t saved_bytes() const = 0;
  virtual absl::Status Forward(Stream& stream, const void* x, void* y, void* saved) const = 0;
  virtual absl::Status Backward(Stream& stream, const void* dy, const void* saved,
                                void* dx) const = 0;
};

// y = log softmax(x) over the last axis; x, y: [rows, columns], columns >= 1.
struct LogSoftmaxSpec {
  DType dtype = DType::kF32;
  int64_t rows = 0, columns = 0;
};

class LogSoftmax {
 public:
  virtual ~LogSoftmax() = default;
  virtual absl::Status Forward(Stream& stream, const void* x, void* y) const = 0;
};

// What every implementation of Prepare checks first.  Errors: InvalidArgument, naming the spec, for
// a negative extent, a window that does not fit, groups that do not divide the channels, or a
// pooling window that may hold padding alone.
absl::Status Validate(const GemmSpec& spec);
absl::Status Validate(const Conv2dSpec& spec);
absl::Status Validate(const Pool2dSpec& spec);
absl::Status Validate(const LogSoftmaxSpec& spec);

// For messages: "conv2d F32 [64, 28, 28, 1] -> [64, 24, 24, 20], kernel 5x5, ...".
std::string ToString(const GemmSpec& spec);
std::string ToString(const Conv2dSpec& spec);
std::string ToString(const Pool2dSpec& spec);
std::string ToString(const LogSoftmaxSpec& spec);

// One source of implementations.  Each method returns Unimplemented where it does not take the job.
class PrimitiveLibrary {
 public:
  virtual ~PrimitiveLibrary() = default;
  virtual std::string_view name() const = 0;
  // What it chose so far that changes bits and is not in the spec (versions, algorithms): a line
  // each, sorted; equal text means equal bits.  Empty where the spec says all.
  virtual std::string choices() const { return ""; }
  virtual absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const = 0;
  virtual absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const = 0;
  virtual absl::StatusOr<std::unique_ptr<Pool2d>> Prepare(const Pool2dSpec& spec) const = 0;
  virtual absl::StatusOr<std::unique_ptr<LogSoftmax>> Prepare(const LogSoftmaxSpec& spec) const = 0;
};

// Plain loops on the host.  F32 and F64, cpu and sim; the bits do not depend on the thread count.
std::unique_ptr<PrimitiveLibrary> NewBlockedLibrary();
// Plain functors on the skeletons of parallel.h.  Every real dtype and every device; the fallback
// of the GPU, and everywhere the library for pooling and softmax of 16-bit types.
std::unique_ptr<PrimitiveLibrary> NewReferenceLibrary();
// Gemm and Conv2d of F16 and BF16 by converting operands to F32 in scratch, running one of `inner`
// (best first) and converting the result.  cpu and sim.  `inner` must outlive the library.
std::unique_ptr<PrimitiveLibrary> NewConvertingLibrary(std::vector<const PrimitiveLibrary*> inner);
// F32 but LogSoftmax, and BF16 where the CPU has it; cpu and sim.  oneDNN fixes the thread count,
// and with it the order of sums, when it prepares an operation, so the library is told the
// `threads` of its device and uses them ever after.
std::unique_ptr<PrimitiveLibrary> NewOneDnnLibrary(int threads);

class Primitives {
 public:
  // The libraries of cpu and sim, best first.  threads: those of their streams.  A GPU's are made
  // by primitives/cuda/cuda_primitives.h.
  Primitives(DeviceKind device, int threads);
  explicit Primitives(std::vector<std::unique_ptr<PrimitiveLibrary>> libraries);

  // Errors: InvalidArgument as Validate says; Unimplemented naming the operation if no library
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
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries_;
};

}  // namespace gyre
