// cudnn_graph.h: builds a graph of operations on images with cuDNN's backend API, chooses an engine
// for it, and executes it.  Inside the CUDA library only.
//
// A graph names its tensors by the caller's numbers.  A plan is executed with a pointer for each
// tensor that is not virtual.  Every call is checked, and messages name descriptor and attribute.
// Source: NVIDIA's documentation of cuDNN 9, "cudnn_graph Library".
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/primitives/cuda/context.h"
#include "engine/runtime/primitives/cuda/cudnn_descriptor.h"

namespace gyre {

// Precondition: F32, F16 or BF16.
cudnnDataType_t CudnnDataType(DType dtype);

// Returns the notes that exclude an engine.  Bits must repeat, and an element's error is bounded
// relative to the sum of its absolute products.  The bound excludes:
//   FFT, Winograd  their errors are relative to the largest element of a tile
//   fewer bits     in sums or factors than the contract's
//   tensor cores   of F32 without TF32, rounded to 10 bits of fraction (16-bit types lose nothing)
std::vector<cudnnBackendNumericalNote_t> ForbiddenNotes(DType dtype, bool tf32);

// Limits the engines that may be chosen.
struct CudnnPolicy {
  std::vector<cudnnBackendNumericalNote_t> forbidden;
  size_t workspace_bytes = 0;  // at most
};

// A graph prepared for one engine.
class CudnnPlan {
 public:
  size_t scratch_bytes() const;
  // The engine and its settings.
  const std::string& choice() const { return choice_; }

  // Enqueues on stream.  tensors are ids and device memory, with kOperandAlignment, as scratch.
  absl::Status Execute(const CudaContext& context, Stream& stream,
                       const std::vector<std::pair<int64_t, const void*>>& tensors,
                       void* scratch) const;

 private:
  friend class CudnnGraph;
  using Descriptors = std::shared_ptr<const std::deque<CudnnDescriptor>>;
  CudnnPlan(CudnnDescriptor configuration, CudnnDescriptor plan, size_t workspace_bytes,
            std::string choice)
      : configuration_(std::move(configuration)),
        plan_(std::move(plan)),
        workspace_bytes_(workspace_bytes),
        choice_(std::move(choice)) {}

  Descriptors parts_;  // of the graph, which the plan refers to
  CudnnDescriptor configuration_, plan_;
  size_t workspace_bytes_;
  std::string choice_;
};

// Builds a graph and finds engines for it, once.  The first error sticks, and Plans returns it.
class CudnnGraph {
 public:
  explicit CudnnGraph(const CudaContext& context) : context_(context) {}

  // Extents and strides are in cuDNN's order N, C, H, W, whatever the order in memory.
  struct GraphTensor {
    int64_t id = 0;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    std::array<int64_t, 4> extents = {}, strides = {};
    bool is_virtual = false;  // from one operation to the next, never in memory
    bool by_value = false;    // a number in host memory, read by Execute
  };
  struct Convolution {
    std::array<int64_t, 2> padding_before = {}, padding_after = {}, stride = {}, dilation = {};
  };
  // w is [filters, channels of a group, kernel height, kernel width].  x's channels give the
  // groups.  Each call assigns its last operand and sums in float.
  void ConvolutionForward(const Convolution& convolution, const GraphTensor& x,
                          const GraphTensor& w, const GraphTensor& y);
  void ConvolutionBackwardData(const Convolution& convolution, const GraphTensor& dy,
                               const GraphTensor& w, const GraphTensor& dx);
  void ConvolutionBackwardWeights(const Convolution& convolution, const GraphTensor& x,
                                  const GraphTensor& dy, const GraphTensor& dw);
  // y = x + b.  b is broadcast along its extents of 1.
  void Add(const GraphTensor& x, const GraphTensor& b, const GraphTensor& y);
  void Relu(const GraphTensor& x, const GraphTensor& y);

  // Float, a value for each channel.  inverse is 1 / the standard deviation.
  struct Norm {
    GraphTensor scale, mean, inverse;
  };
  struct Running {
    GraphTensor mean, variance;
  };
  // Assigns norm's mean and inverse of the batch, and
  //   y = scale (x - mean) inverse + bias
  //   to = (1 - momentum) from + momentum times the batch's (variance unbiased)
  // epsilon and momentum are by value.
  void BatchNorm(const GraphTensor& x, const Norm& norm, const GraphTensor& bias,
                 const GraphTensor& epsilon, const GraphTensor& momentum, const Running& from,
                 const Running& to, const GraphTensor& y);
  // Assigns dscale, dbias and dx.
  void BatchNormBackward(const GraphTensor& x, const GraphTensor& dy, const Norm& norm,
                         const GraphTensor& dscale, const GraphTensor& dbias,
                         const GraphTensor& dx);

  // Returns plans for the first `most` engines of cuDNN's heuristics that the policy allows and
  // that take the graph.  Errors: Unimplemented with cuDNN's reason if there is none.  Internal.
  absl::StatusOr<std::vector<CudnnPlan>> Plans(const CudnnPolicy& policy, size_t most);

 private:
  // Returns the descriptor of a tensor (one for each id) or of a convolution.
  const CudnnDescriptor& Describe(const GraphTensor& tensor);
  const CudnnDescriptor& Describe(const Convolution& convolution);
  void Pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b,
                 const GraphTensor& y);
  CudnnDescriptor& NewPart(CudnnKind kind);
  void Finalize(CudnnDescriptor& descriptor);
  void AddOperation(CudnnDescriptor operation);
  // Returns the configured engines that a mode of the heuristics suggests, best first.
  absl::StatusOr<std::vector<CudnnDescriptor>> Suggest(const CudnnDescriptor& graph,
                                                       cudnnBackendHeurMode_t mode) const;
  // Returns a plan for one of them, or Unimplemented with the reason.
  absl::StatusOr<CudnnPlan> Try(CudnnDescriptor configuration, const CudnnPolicy& policy) const;

  const CudaContext& context_;
  std::deque<CudnnDescriptor> parts_;  // stays put, for tensors_ and Describe's results
  std::map<int64_t, const CudnnDescriptor*> tensors_;
  std::vector<CudnnDescriptor> operations_;
  absl::Status status_;
};

}  // namespace gyre
