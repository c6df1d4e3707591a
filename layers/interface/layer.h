// layer.h: the interface of a layer.  It declares its states once for a shape, and gets them bound
// at each step.
//
// A layer owns no buffer and cannot tell that paging, mixed precision or other ranks exist.  Infer
// is called once.  Then the layer is immutable and may be used from one thread at a time.  Forward
// and Backward enqueue work on the stream and return.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/device/device.h"
#include "engine/runtime/primitives/primitives.h"
#include "layers/interface/fault.h"
#include "layers/interface/initializer.h"

namespace gyre {

enum class StateKind : uint8_t {
  kInput,
  kOutput,
  kParameter,  // trained
  kBuffer,     // persistent, untrained, the same for every shape: running statistics
  // Untrained rows that the batch before left, one for each sample along batch_axis, zero at first.
  // Forward and backward only read them.  They change after a batch, by carried_to.
  kCarried,
  kStatistic,  // of the samples; see summed_after
  kSaved,      // from forward to backward
  kScratch,    // lives for one call
};

enum Access : uint8_t { kNone = 0, kRead = 1, kWrite = 2 };

// A state's slice of a parameter that is split along its first axis.
struct ParameterSlice {
  std::string of;  // the parameter's name; files show the whole parameter
  int64_t first_row = 0, all_rows = 0;
  int phase = 0;  // the only phase of forward, and of backward, that touches the slice
};

struct StateSpec {
  std::string name;  // unique within the layer; "weight", "bias", "output"
  StateKind kind = StateKind::kScratch;
  Shape shape;  // if opaque: flat, all bytes as elements of dtype, padding included
  DType dtype = DType::kF32;
  size_t bytes = 0;    // size if opaque (packed weights, a vendor's reserve); 0: shape x dtype
  std::string layout;  // tag of an opaque layout; part of the plan hash, so equal on all ranks
  uint8_t forward = kNone, backward = kNone;  // Access; without it the state is not bound
  Shape canonical;          // kParameter, kBuffer: as files show it, such as (O,I,H,W)
  Initializer initializer;  // kParameter, kBuffer
  double learning_rate_multiplier = 1, decay_multiplier = 1;  // kParameter; 0: frozen (trained)
  int64_t trainable_from = 0;  // kParameter: steps done before the first that trains it
  // kParameter: parameters of one name share values, and the net adds gradients.  "": LAYER.NAME.
  std::string shared_name = {};
  // kStatistic: the phase of forward, and of backward, after which ranks sum it, or -1.
  int summed_after = -1, summed_after_backward = -1;
  int batch_axis = 0;  // kOutput, kCarried: the axis of the samples; a scalar has none
  // kSaved: the kCarried state, of the same shape and type, that gets this value after the batch,
  // also without training, or -1.
  int carried_to = -1;
  // kInput: elements are from 0 to this number, or any for -1.  A sample with another is a Fault.
  int64_t largest = -1;
  bool not_negative = false;  // kInput: elements are finite and 0 or more, of real ones; likewise
  // kParameter: the I32 state that indexes all nonzero rows (axis 0) of the gradient, or -1.
  int touched_rows = -1;
  bool lazy = false;  // a step leaves the other rows and their optimizer slots alone
  std::optional<ParameterSlice> slice = {};  // kParameter; none: the whole parameter

  // A parameter with learning_rate_multiplier 0 is frozen and has no gradient.
  bool trained() const { return kind == StateKind::kParameter && learning_rate_multiplier != 0; }

  size_t size_bytes() const {
    return bytes != 0 ? bytes : static_cast<size_t>(shape.elements()) * SizeOf(dtype);
  }
};

// An output and an input share memory, one of them from `offset_bytes` on.  The kinds:
//   must           the output is a view of the input
//   input_is_slice  the input may be a view of the output
//   neither        the layer may work in place, unless backward reads the input
// The net decides whether to use a `may`.  Gradients may share memory likewise, whatever backward
// reads, so a layer copies if addresses differ.
struct Alias {
  int output, input;  // indices into LayerSpec::states
  bool must;
  size_t offset_bytes = 0;
  bool input_is_slice = false;
};

struct LayerSpec {
  std::vector<StateSpec> states;  // inputs first, in order, then outputs, then the rest
  std::vector<Alias> aliases;
  int forward_phases = 1, backward_phases = 1;  // see RunPhases
  // Slices of split parameters.  Each has its own phase of forward and of backward, and memory may
  // move between phases.  The last phase assigns the gradients of whole parameters.
  int slices = 1;
  int loss_output = -1;    // state index of a scalar output to be minimised
  double loss_weight = 1;  // its factor in the run's loss, with which the net seeds its gradient
  // State index of a kStatistic F64 [1], for a loss that is a mean over a number which depends on
  // the data.  It holds that number over all ranks.  With -1 the size of the batch gives it.
  int count = -1;
  // The rule by which the number follows from these inputs.  Equal rules and inputs give numbers of
  // one ratio in all batches.
  std::string counted = {};
  std::vector<int> counted_from = {};
  int metric = -1;  // state index of a kStatistic F64 [2]: {sum, count} over local samples
  // State index of a kStatistic F64 [samples, steps, columns], for a metric that is not a mean.  It
  // describes the local samples to the host, for test data only.  The layer has no output.
  int records = -1;
  double forward_flops = 0, backward_flops = 0;  // multiply and add are two
  // Each input's gradient is the output's, as applied_backward leaves it.  It may share the memory
  // of the output's gradient, where backward then works.
  bool passes_gradient = false;
  // Forward does little but copy.  The net may run it again instead of storing its output.
  bool cheap = false;
  bool applied_activation = false;  // the layer applies InferInput::output_activation
  bool applied_backward = false;    // also in backward
};

struct InferInput {
  std::span<const Shape> inputs;
  std::span<const DType> dtypes;
  std::span<const int> batch_axes;  // for each input: the axis of the samples
  // The real type in which activations and parameters are stored.  Arithmetic is in its
  // AccumulateType, and a result is rounded once, when it is stored.
  DType compute = DType::kF32;
  bool train = true;
  std::span<const uint8_t> needs_gradient;        // for each input
  const LayerSpec* same_parameters_as = nullptr;  // the first shape's spec, whose layouts bind
  int64_t global_batch = 0;  // samples of the batch over all ranks; inputs hold the local ones
  // Steps done before the first of this net.  Parameters of a larger trainable_from are frozen.
  int64_t first_step = 0;
  uint64_t random_key = 0;  // of this layer, from the run's seed and its name
  // The net asks the layer to apply this to the output before storing it.  The layer may ignore it:
  //   ignores it          backward gets the gradient before the activation
  //   applied_activation  likewise, and backward must not read the output
  //   applied_backward    backward gets the gradient of the stored output, which it may read
  Activation output_activation = Activation::kNone;
  double output_max = std::numeric_limits<double>::quiet_NaN();  // of a ReLU; NaN: no bound
  const Primitives* primitives = nullptr;                        // outlives the layer
};

// A batch's position in the run.  In device memory, so that a replayed graph sees new values.
struct BatchPosition {
  uint64_t step = 0;
  uint64_t first_sample = 0;  // position of this rank's first sample in the endless sample order
};

struct LayerContext {
  Stream& stream;
  // Indexed as LayerSpec::states.  A state is bound if the pass declares access.  A gradient is
  // bound if the pass must read (outputs) or assign (inputs, trained parameters) it.  It has the
  // shape, dtype and layout of its state.  Layers assign gradients, and the net sums them.
  std::span<const Tensor> states, gradients;
  const BatchPosition* position;  // device memory
  Fault* fault;                   // device memory
  int layer;                      // this layer's index in the net, for Fault
  int phase;                      // of the pass, from 0
  // Forward runs again, for outputs and saved states that were not stored.  It makes the same bits,
  // and must not write buffers and statistics.
  bool recompute = false;

  // The memory of a state that the layer may not have: null for -1.
  void* data(int state) const { return state < 0 ? nullptr : states[state].data; }
};

class OnnxWriter;

class Layer {
 public:
  virtual ~Layer() = default;
  // Errors: InvalidArgument with expected and got.  The caller adds file, line and name.
  virtual absl::StatusOr<LayerSpec> Infer(const InferInput& input) = 0;
  virtual absl::Status Forward(const LayerContext& context) const = 0;
  virtual absl::Status Backward(const LayerContext& context) const = 0;
  // Convert a parameter or buffer between its canonical and its opaque form, in host memory, on the
  // calling thread.  The default copies a state without an opaque layout.
  virtual absl::Status Pack(int state, Tensor canonical, Tensor opaque) const;
  virtual absl::Status Unpack(int state, Tensor opaque, Tensor canonical) const;
  // Writes forward of a testing net, without an activation that the net asks for (onnx.h).
  // Errors: Unimplemented if ONNX cannot say it, as the default does, with the reason.
  virtual absl::Status ToOnnx(OnnxWriter& onnx) const;
};

// One pass of a layer on each of its ranks.  Calls run(phase) for each of `phases`, and then
// sum(state) for each statistic due after the phase.  Both return absl::Status.
//   due_after  &StateSpec::summed_after of forward, &StateSpec::summed_after_backward of backward
template <typename Run, typename Sum>
absl::Status RunPhases(const LayerSpec& spec, int phases, int StateSpec::*due_after, const Run& run,
                       const Sum& sum) {
  for (int phase = 0; phase < phases; ++phase) {
    RETURN_IF_ERROR(run(phase));
    for (size_t s = 0; s < spec.states.size(); ++s) {
      if (spec.states[s].*due_after == phase) RETURN_IF_ERROR(sum(s));
    }
  }
  return absl::OkStatus();
}

}  // namespace gyre
