// cudnn_graph.h: cuDNN's backend API for operations on images: a graph of operations, the choice of
// an engine for it, and its execution.  Inside the CUDA library only.
//
// A graph names its tensors by a number of the caller's; a plan is executed with a pointer for each
// tensor that is not virtual.  Every call is checked, and a message names the descriptor and the
// attribute.  Source: NVIDIA's documentation of cuDNN 9, "cudnn_graph Library".
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

// Of F32, F16 or BF16.
cudnnDataType_t CudnnDataType(DType dtype);

// Same seed, same bits: nothing nondeterministic.  Errors are bounded element by element, relative
// to the sum of an element's absolute products: a transform (FFT, Winograd) errs relative to the
// largest element of its tile, so it cannot keep any such bound; nor can sums or factors of fewer
// bits than the contract's.  Without TF32, F32 must leave out tensor cores, which round its factors
// to 10 bits of fraction; the half types lose nothing there.
std::vector<cudnnBackendNumericalNote_t> ForbiddenNotes(DType dtype, bool tf32);

// Which engines may be chosen.
struct CudnnPolicy {
  std::vector<cudnnBackendNumericalNote_t> forbidden;
  size_t workspace_bytes = 0;  // at most
};

// A graph of operations prepared for an engine.
class CudnnPlan {
 public:
  // Of the scratch that Execute is handed.
  size_t scratch_bytes() const;
  // The engine and its settings.
  const std::string& choice() const { return choice_; }

  // Enqueues on stream.  tensors: ids and device memory.  Scratch and tensors are kOperandAlignment
  // aligned.
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

// Builds a graph and finds engines for it, once.  The first error sticks and is what Plans returns.
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
  // Of w: filters, channels of a group, kernel height and width.  x's channels tell the groups.
  // Each assigns its last operand and sums in float.
  void ConvolutionForward(const Convolution& convolution, const GraphTensor& x,
                          const GraphTensor& w, const GraphTensor& y);
  void ConvolutionBackwardData(const Convolution& convolution, const GraphTensor& dy,
                               const GraphTensor& w, const GraphTensor& dx);
  void ConvolutionBackwardWeights(const Convolution& convolution, const GraphTensor& x,
                                  const GraphTensor& dy, const GraphTensor& dw);
  // y = x + b; b is broadcast along its extents of 1.
  void Add(const GraphTensor& x, const GraphTensor& b, const GraphTensor& y);
  void Relu(const GraphTensor& x, const GraphTensor& y);

  // Of float, a value for each channel; inverse: 1 / the standard deviation.
  struct Norm {
    GraphTensor scale, mean, inverse;
  };
  struct Running {
    GraphTensor mean, variance;
  };
  // Assigns norm's mean and inverse of the batch, y = scale (x - mean) inverse + bias, and
  // to = (1 - momentum) from + momentum times the batch's, unbiased.  epsilon, momentum: by value.
  void BatchNorm(const GraphTensor& x, const Norm& norm, const GraphTensor& bias,
                 const GraphTensor& epsilon, const GraphTensor& momentum, const Running& from,
                 const Running& to, const GraphTensor& y);
  // Assigns dscale, dbias and dx.
  void BatchNormBackward(const GraphTensor& x, const GraphTensor& dy, const Norm& norm,
                         const GraphTensor& dscale, const GraphTensor& dbias,
                         const GraphTensor& dx);

  // The first engines, `most` of them, of cuDNN's heuristics that the policy lets pass and that
  // take the graph.  Errors: Unimplemented with cuDNN's reason if there is none; Internal if cuDNN
  // fails to describe the graph.
  absl::StatusOr<std::vector<CudnnPlan>> Plans(const CudnnPolicy& policy, size_t most);

 private:
  // The descriptor of a tensor (one an id) or a convolution.
  const CudnnDescriptor& Describe(const GraphTensor& tensor);
  const CudnnDescriptor& Describe(const Convolution& convolution);
  void Pointwise(cudnnPointwiseMode_t mode, const GraphTensor& x, const GraphTensor* b,
                 const GraphTensor& y);
  CudnnDescriptor& NewPart(cudnnBackendDescriptorType_t type);
  void Finalize(CudnnDescriptor& descriptor);
  void AddOperation(CudnnDescriptor operation);
  // The engines, configured, that a mode of the heuristics suggests, best first.
  absl::StatusOr<std::vector<CudnnDescriptor>> Suggest(const CudnnDescriptor& graph,
                                                       cudnnBackendHeurMode_t mode) const;
  // A plan for one of them, or Unimplemented with the reason.
  absl::StatusOr<CudnnPlan> Try(CudnnDescriptor configuration, const CudnnPolicy& policy) const;

  const CudaContext& context_;
  std::deque<CudnnDescriptor> parts_;  // stays put, for tensors_ and Describe's results
  std::map<int64_t, const CudnnDescriptor*> tensors_;
  std::vector<CudnnDescriptor> operations_;
  absl::Status status_;
};

}  // namespace gyre
