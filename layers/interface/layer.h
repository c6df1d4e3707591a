// layer.h: what a layer declares (once a shape) and what it is handed (each step).
//
// A layer sees views, never memory: it owns no buffer and cannot tell that paging, mixed precision
// or other ranks exist.  Infer is called once; afterwards the layer is immutable and may be used
// from one thread at a time.  Forward and Backward enqueue work on the stream and return.
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
  // What the batch before left, a row for each sample along batch_axis; zero at first.  Untrained,
  // and read alone, by forward and backward: it changes once the layer is done with a batch.  See
  // carried_to.
  kCarried,
  kStatistic,  // of the samples; see summed_after
  kSaved,      // forward leaves it for backward
  kScratch,    // lives for one call
};

enum Access : uint8_t { kNone = 0, kRead = 1, kWrite = 2 };

// A piece of an opaque parameter as files show it: (O,I,H,W), or one gate.
struct CanonicalPart {
  std::string name;  // empty if it is the only one
  Shape shape;
};

// What of a parameter that is cut along its first axis a state is.
struct ParameterSlice {
  std::string of;  // the parameter's name; files show it whole
  int64_t first_row = 0, all_rows = 0;
  int phase = 0;  // of forward, and of backward: the only one that touches it
};

struct StateSpec {
  std::string name;  // unique within the layer; "weight", "bias", "output"
  StateKind kind = StateKind::kScratch;
  Shape shape;  // where opaque: flat, all bytes as elements of dtype, padding included
  DType dtype = DType::kF32;
  size_t bytes = 0;    // size where opaque (packed weights, a vendor's reserve); 0: shape x dtype
  std::string layout;  // tag of an opaque layout; part of the plan hash, so equal on all ranks
  uint8_t forward = kNone, backward = kNone;  // Access; only what is declared is bound
  std::vector<CanonicalPart> parts;           // kParameter, kBuffer: what Convert splits it into
  Initializer initializer;                    // kParameter, kBuffer
  double learning_rate_multiplier = 1, decay_multiplier = 1;  // kParameter
  // kParameter: one with all others of that name in the net, whose gradients the net adds; empty:
  // LAYER.NAME, its own.
  std::string shared_name = {};
  // kStatistic: the phase of forward, and of backward, after which ranks sum it; -1: never.
  int summed_after = -1, summed_after_backward = -1;
  int batch_axis = 0;  // kOutput, kCarried: the axis of the samples; a scalar has none
  // kSaved: the kCarried state, of the same shape and type, that takes this one's value once the
  // batch is done, also where nothing is trained; -1: none.
  int carried_to = -1;
  // kInput: the elements are from 0 to this one, and a sample that has another is a Fault; -1: any.
  int64_t largest = -1;
  // kParameter: the state of I32 whose elements name the only rows of the gradient, along the first
  // axis, that are not 0; -1: any may be.
  int touched_rows = -1;
  bool lazy = false;  // a step leaves the other rows, and the optimizer's state of them, alone
  std::optional<ParameterSlice> piece = {};  // kParameter; none: it is whole

  // A parameter whose multiplier is 0 is frozen: it has no gradient.
  bool trained() const { return kind == StateKind::kParameter && learning_rate_multiplier != 0; }

  size_t size_bytes() const {
    return bytes != 0 ? bytes : static_cast<size_t>(shape.elements()) * SizeOf(dtype);
  }
};

// Output and input share memory.  must: the output is a view of the input from `offset_bytes` on;
// otherwise the layer allows working in place, and the net decides; not where backward reads the
// input.  input_is_part: the input may be a view of the output from `offset_bytes` on instead.
// Gradients of the two may share memory in the same way, whatever backward reads, and the net
// decides: a layer copies where addresses differ.
struct Alias {
  int output, input;  // indices into LayerSpec::states
  bool must;
  size_t offset_bytes = 0;
  bool input_is_part = false;
};

struct LayerSpec {
  std::vector<StateSpec> states;  // inputs first, in order, then outputs, then the rest
  std::vector<Alias> aliases;
  int forward_phases = 1, backward_phases = 1;  // see RunPhases
  // Of parameters that are cut: forward and backward have a phase for each piece, between which
  // memory may move.  Gradients of parameters that are not cut are assigned in the last one.
  int pieces = 1;
  int loss_output = -1;    // state index of a scalar output to be minimised
  double loss_weight = 1;  // its factor in the run's loss: what the net seeds its gradient with
  // Of a loss whose mean is over a number that only the data tell: state index of a kStatistic F64
  // [1], that number over all ranks, and how it follows from the values of input 1, so that losses
  // of one text and one input have one number.  -1: it follows from the size of the batch.
  int count = -1;
  std::string counted = {};
  int metric = -1;  // state index of a kStatistic F64 [2]: {sum, count} over local samples
  // Of a metric that is no mean: state index of a kStatistic F64 [samples, steps, columns], what
  // the host has to know of the local samples.  Tests alone bring it there; the layer has no
  // output.
  int records = -1;
  double forward_flops = 0, backward_flops = 0;  // multiply and add are two
  // The inputs have one gradient: the output's, or what applied_backward leaves of it.  Some or all
  // of them may lie in the output's place, where backward then works.
  bool passes_gradient = false;
  // Forward does little more than read and write: the net may run it again for backward rather than
  // keep its output.
  bool cheap = false;
  bool applied_activation = false;  // whether the layer does what InferInput asked for
  bool applied_backward = false;    // and whether it does so backward
};

struct InferInput {
  std::span<const Shape> inputs;
  std::span<const DType> dtypes;
  std::span<const int> batch_axes;  // for each input: the axis of the samples
  // What activations and parameters are stored in: a real type.  They are computed with in
  // AccumulateType of it, and a result is rounded once, when it is stored.
  DType compute = DType::kF32;
  bool train = true;
  std::span<const uint8_t> needs_gradient;        // for each input
  const LayerSpec* same_parameters_as = nullptr;  // the first shape's spec: its layouts bind
  int64_t global_batch = 0;  // samples of the batch over all ranks; inputs hold the local ones
  uint64_t random_key = 0;   // of this layer, from the run's seed and its name
  // The net would have this applied to the output before it is stored.  A layer that does so says
  // it in LayerSpec::applied_activation; others ignore it.  Backward is the same either way: the
  // gradient of the output that it is handed is that before the activation, and it does not read
  // the output.  A layer that says applied_backward is handed that of what it stored instead, and
  // may read it.
  Activation output_activation = Activation::kNone;
  double output_max = std::numeric_limits<double>::quiet_NaN();  // of a ReLU; NaN: no bound
  const Primitives* primitives = nullptr;                        // outlives the layer
};

// Where in a run a batch stands; in device memory, so that a replayed graph sees new values.
struct BatchPosition {
  uint64_t step = 0;
  uint64_t first_sample = 0;  // position of this rank's first sample in the endless sample order
};

struct LayerContext {
  Stream& stream;
  // Indexed as LayerSpec::states.  states[i] is bound where the pass declares access; gradients[i]
  // where the pass must read (outputs) or assign (inputs, trained parameters) a gradient, which has
  // the state's shape, dtype and layout.  Layers assign; sums are the net's own steps.
  std::span<const Tensor> states, gradients;
  const BatchPosition* position;  // device memory
  Fault* fault;                   // device memory
  int layer;                      // this layer's index in the net, for Fault
  int phase;                      // of the pass, from 0
  // Forward once more, for outputs and saved states that were not kept: the same bits, while
  // buffers and statistics hold what they held and must not be written.
  bool recompute = false;
};

class Layer {
 public:
  virtual ~Layer() = default;
  // Errors: InvalidArgument saying what was expected and got; the caller adds file, line and name.
  virtual absl::StatusOr<LayerSpec> Infer(const InferInput& input) = 0;
  virtual absl::Status Forward(const LayerContext& context) const = 0;
  virtual absl::Status Backward(const LayerContext& context) const = 0;
  // Host memory, calling thread: opaque bytes of parameter or buffer `state` <-> its parts.
  // The default serves states without an opaque layout: one part, copied.
  virtual absl::Status Pack(int state, std::span<const Tensor> parts, Tensor opaque) const;
  virtual absl::Status Unpack(int state, Tensor opaque, std::span<const Tensor> parts) const;
};

// One pass of one layer over its ranks, here and in others' processes: run(phase) for each of
// `phases`, and sum(state) for each statistic that is due after it.  Both return absl::Status.
// due_after: &StateSpec::summed_after of forward, &StateSpec::summed_after_backward of backward.
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
