#include "tests/layers/layer_harness.h"

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "engine/runtime/random.h"
#include "layers/factory.h"
#include "tests/layers/slot.h"

namespace gyre {
namespace {

// Samples [begin, end) of `samples`.
struct Share {
  int64_t samples = 0, begin = 0, end = 0;

  // Where the elements of an array that has only these samples, along `axis` of `shape`, lie in the
  // array of all.
  std::vector<size_t> Positions(const Shape& shape, int axis) const {
    if (shape.rank() == 0) return {0};
    const int64_t inner = shape.elements(axis + 1, shape.rank());
    std::vector<size_t> positions;
    for (int64_t outer = 0; outer < shape.elements(0, axis); ++outer) {
      const int64_t first = outer * samples;
      for (int64_t i = (first + begin) * inner; i < (first + end) * inner; ++i) {
        positions.push_back(static_cast<size_t>(i));
      }
    }
    return positions;
  }
};

// One rank's layer, its memory, and the passes over it.
class Rank {
 public:
  Rank(Device& device, const Primitives& primitives, const RunOptions& options, const Share& share)
      : device_(device), primitives_(primitives), options_(options), share_(share) {}

  absl::Status Make(const LayerCase& local) {
    LayerConfig config;
    if (!google::protobuf::TextFormat::ParseFromString(local.config, &config)) {
      return absl::InternalError("not a LayerConfig: " + local.config);
    }
    ASSIGN_OR_RETURN(layer_, CreateLayer(config));
    std::vector<Shape> shapes;
    std::vector<DType> dtypes;
    std::vector<uint8_t> needs_gradient;
    for (const TestInput& input : local.inputs) {
      shapes.push_back(input.shape);
      dtypes.push_back(input.is_label ? DType::kI32 : options_.compute);
      batch_axes_.push_back(input.batch_axis);
      needs_gradient.push_back(options_.input_gradients && !input.is_label);
    }
    InferInput infer;
    infer.inputs = shapes;
    infer.dtypes = dtypes;
    infer.batch_axes = batch_axes_;
    infer.compute = options_.compute;
    infer.train = options_.train;
    infer.needs_gradient = needs_gradient;
    infer.global_batch = share_.samples;
    infer.random_key = options_.random_key;
    infer.output_activation = options_.output_activation;
    infer.primitives = &primitives_;
    infer.same_parameters_as = options_.same_parameters_as;
    ASSIGN_OR_RETURN(spec_, layer_->Infer(infer));
    inputs_ = local.inputs.size();
    return absl::OkStatus();
  }

  absl::Status Allocate(const LayerCase& local) {
    ASSIGN_OR_RETURN(stream_, device_.NewStream());
    const size_t count = spec_.states.size();
    owner_.resize(count);
    for (size_t i = 0; i < count; ++i) owner_[i] = i;
    for (const Alias& alias : spec_.aliases) {
      if (alias.must || options_.in_place) owner_[alias.output] = owner_[alias.input];
    }
    states_.resize(count);
    gradients_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      if (owner_[i] != i) continue;
      RETURN_IF_ERROR(states_[i].Allocate(device_, *stream_, spec_.states[i].size_bytes()));
      RETURN_IF_ERROR(gradients_[i].Allocate(device_, *stream_, spec_.states[i].size_bytes()));
    }
    RETURN_IF_ERROR(step_.Allocate(device_, *stream_, sizeof(StepScalars)));
    StepScalars scalars;
    scalars.step = options_.step;
    scalars.first_sample = options_.first_sample + static_cast<uint64_t>(share_.begin);
    std::memcpy(step_.host(), &scalars, sizeof(scalars));
    RETURN_IF_ERROR(step_.Upload());
    RETURN_IF_ERROR(fault_.Allocate(device_, *stream_, sizeof(Fault)));  // poison is kNone
    for (size_t i = 0; i < inputs_; ++i) {
      RETURN_IF_ERROR(State(i).Write(ToBytes(local.inputs[i].values, spec_.states[i].dtype)));
    }
    return PackParameters(local.parameters);
  }

  absl::Status Forward(int phase) {
    return Pass([&](const StateSpec& state) { return state.forward; }, /*gradients=*/false,
                [&](const LayerContext& context) { return layer_->Forward(context); }, phase);
  }

  absl::Status Backward(const LayerCase& whole) {
    std::vector<bool> read(spec_.states.size());
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      if (spec_.states[i].backward & kRead) read[owner_[i]] = true;
    }
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      if (owner_[i] == i && !read[i]) RETURN_IF_ERROR(states_[i].Poison());
    }
    const StateSpec& output = spec_.states[inputs_];
    Doubles dy;
    for (const size_t at : PositionsOf(inputs_)) {
      dy.push_back(whole.output_gradient.empty() ? RandomCotangent(static_cast<int64_t>(at))
                                                 : whole.output_gradient[at]);
    }
    RETURN_IF_ERROR(Gradient(inputs_).Write(ToBytes(dy, output.dtype)));
    return Pass([&](const StateSpec& state) { return state.backward; }, /*gradients=*/true,
                [&](const LayerContext& context) { return layer_->Backward(context); }, 0);
  }

  // Where the elements of an input or output lie among all ranks'.
  std::vector<size_t> PositionsOf(size_t i) const {
    const StateSpec& state = spec_.states[i];
    return share_.Positions(state.shape, i < inputs_ ? batch_axes_[i] : state.batch_axis);
  }
  absl::StatusOr<Doubles> StateValues(size_t i) {
    RETURN_IF_ERROR(State(i).Download());
    return ToDoubles(State(i).host(), spec_.states[i].shape, spec_.states[i].dtype);
  }
  absl::Status SetStateValues(size_t i, const Doubles& values) {
    return State(i).Write(ToBytes(values, spec_.states[i].dtype));
  }
  absl::StatusOr<Doubles> InputGradient(size_t i) {
    RETURN_IF_ERROR(Gradient(i).Download());
    return ToDoubles(Gradient(i).host(), spec_.states[i].shape, spec_.states[i].dtype);
  }
  // Canonical.
  absl::StatusOr<Doubles> Parameter(size_t i, bool gradient) {
    Slot& slot = gradient ? Gradient(i) : State(i);
    RETURN_IF_ERROR(slot.Download());
    const StateSpec& state = spec_.states[i];
    std::vector<std::byte> canonical(static_cast<size_t>(state.parts[0].shape.elements()) *
                                     SizeOf(state.dtype));
    const Tensor part{canonical.data(), state.parts[0].shape, state.dtype};
    RETURN_IF_ERROR(layer_->Unpack(static_cast<int>(i), {slot.host(), state.shape, state.dtype},
                                   std::span(&part, 1)));
    return ToDoubles(canonical.data(), part.shape, part.dtype);
  }
  absl::StatusOr<Fault> TheFault() {
    RETURN_IF_ERROR(fault_.Download());
    Fault fault;
    std::memcpy(&fault, fault_.host(), sizeof(fault));
    return fault;
  }
  const LayerSpec& spec() const { return spec_; }
  bool HasGradient(size_t i) const {
    const StateSpec& state = spec_.states[i];
    if (state.kind == StateKind::kParameter) return options_.parameter_gradients && state.trained();
    return state.kind == StateKind::kInput && IsReal(state.dtype) && options_.input_gradients;
  }

 private:
  Slot& State(size_t i) { return states_[owner_[i]]; }
  Slot& Gradient(size_t i) { return gradients_[owner_[i]]; }

  absl::Status PackParameters(const std::vector<Doubles>& given) {
    size_t parameter = 0;
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const StateSpec& state = spec_.states[i];
      if (state.kind != StateKind::kParameter) continue;
      GYRE_CHECK(state.parts.size() == 1);
      const Doubles values =
          given.empty() ? Distinct(state.parts[0].shape, 100 + i, 1).values : given[parameter];
      ++parameter;
      std::vector<std::byte> canonical = ToBytes(values, state.dtype);
      const Tensor part{canonical.data(), state.parts[0].shape, state.dtype};
      RETURN_IF_ERROR(layer_->Pack(static_cast<int>(i), std::span(&part, 1),
                                   {State(i).host(), state.shape, state.dtype}));
      RETURN_IF_ERROR(State(i).Upload());
    }
    return absl::OkStatus();
  }

  // Binds what `access_of` declares, calls `run`, and checks that the rest kept its bytes.
  template <typename AccessOf, typename Run>
  absl::Status Pass(AccessOf access_of, bool gradients, Run run, int phase) {
    const size_t count = spec_.states.size();
    std::vector<Tensor> states(count), bound_gradients(count);
    std::vector<bool> written(count), gradient_written(count);
    std::vector<std::vector<std::byte>> before(count), gradient_before(count);
    for (size_t i = 0; i < count; ++i) {
      const StateSpec& state = spec_.states[i];
      const uint8_t access = access_of(state);
      if (access != kNone) states[i] = {State(i).device(), state.shape, state.dtype};
      if (access & kWrite) written[owner_[i]] = true;
      if (gradients && (state.kind == StateKind::kOutput || HasGradient(i))) {
        bound_gradients[i] = {Gradient(i).device(), state.shape, state.dtype};
      }
      if (HasGradient(i)) gradient_written[owner_[i]] = true;
    }
    for (size_t i = 0; i < count; ++i) {
      if (owner_[i] != i) continue;
      ASSIGN_OR_RETURN(before[i], states_[i].Read());
      ASSIGN_OR_RETURN(gradient_before[i], gradients_[i].Read());
    }
    RETURN_IF_ERROR(run(LayerContext{*stream_, states, bound_gradients,
                                     static_cast<const StepScalars*>(step_.device()),
                                     static_cast<Fault*>(fault_.device()), /*layer=*/7, phase}));
    RETURN_IF_ERROR(stream_->Synchronize());
    for (size_t i = 0; i < count; ++i) {
      if (owner_[i] != i) continue;
      auto after = states_[i].Read();
      if (!after.ok()) return Annotate(after.status(), spec_.states[i].name);
      if (!written[i] && *after != before[i]) {
        return absl::InternalError(spec_.states[i].name + " was written, but not declared to be");
      }
      auto gradient_after = gradients_[i].Read();
      if (!gradient_after.ok()) return Annotate(gradient_after.status(), spec_.states[i].name);
      if (!gradient_written[i] && *gradient_after != gradient_before[i]) {
        return absl::InternalError("the gradient of " + spec_.states[i].name + " was written");
      }
    }
    return absl::OkStatus();
  }

  Device& device_;
  const Primitives& primitives_;
  const RunOptions& options_;
  const Share share_;
  std::vector<int> batch_axes_;  // of the inputs
  std::unique_ptr<Layer> layer_;
  LayerSpec spec_;
  size_t inputs_ = 0;  // and so the index of the output
  std::unique_ptr<Stream> stream_;
  std::vector<size_t> owner_;  // for each state, the one whose memory it shares
  std::vector<Slot> states_, gradients_;
  Slot step_, fault_;
};

void Place(const std::vector<size_t>& positions, const Doubles& from, Doubles& to) {
  for (size_t i = 0; i < positions.size(); ++i) {
    if (positions[i] >= to.size()) to.resize(positions[i] + 1);
    to[positions[i]] = from[i];
  }
}

void Add(Doubles& to, const Doubles& from) {
  if (to.empty()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

// What the net's ranks do together.
absl::Status SumOverRanks(std::vector<std::unique_ptr<Rank>>& ranks, size_t state) {
  Doubles sum;
  for (auto& rank : ranks) {
    ASSIGN_OR_RETURN(const Doubles values, rank->StateValues(state));
    Add(sum, values);
  }
  for (auto& rank : ranks) RETURN_IF_ERROR(rank->SetStateValues(state, sum));
  return absl::OkStatus();
}

absl::Status CollectForward(Rank& rank, size_t output, RunResult& result) {
  ASSIGN_OR_RETURN(const Doubles values, rank.StateValues(output));
  const Shape& shape = rank.spec().states[output].shape;
  if (shape.rank() == 0) {
    Add(result.output, values);
  } else {
    Place(rank.PositionsOf(output), values, result.output);
  }
  if (const int metric = rank.spec().metric; metric >= 0) {
    ASSIGN_OR_RETURN(const Doubles sums, rank.StateValues(static_cast<size_t>(metric)));
    Add(result.metric, sums);
  }
  ASSIGN_OR_RETURN(const Fault fault, rank.TheFault());
  result.fault.word = std::min(result.fault.word, fault.word);
  return absl::OkStatus();
}

absl::Status CollectBackward(Rank& rank, size_t inputs, RunResult& result) {
  size_t parameter = 0;
  for (size_t i = 0; i < rank.spec().states.size(); ++i) {
    const bool is_parameter = rank.spec().states[i].kind == StateKind::kParameter;
    if (i >= inputs && !is_parameter) continue;
    const size_t at = is_parameter ? parameter++ : i;
    if (!rank.HasGradient(i)) continue;
    if (is_parameter) {
      ASSIGN_OR_RETURN(const Doubles values, rank.Parameter(i, /*gradient=*/true));
      Add(result.parameter_gradients[at], values);
    } else {
      ASSIGN_OR_RETURN(const Doubles values, rank.InputGradient(i));
      Place(rank.PositionsOf(i), values, result.input_gradients[at]);
    }
  }
  return absl::OkStatus();
}

}  // namespace

TestInput Real(const Shape& shape, Doubles values) {
  GYRE_CHECK(static_cast<int64_t>(values.size()) == shape.elements());
  return {shape, false, std::move(values)};
}

TestInput Labels(const std::vector<int32_t>& labels) {
  return Labels({static_cast<int64_t>(labels.size())}, labels);
}

TestInput Labels(const Shape& shape, const std::vector<int32_t>& labels) {
  GYRE_CHECK(static_cast<int64_t>(labels.size()) == shape.elements());
  return {shape, true, Doubles(labels.begin(), labels.end())};
}

TestInput Distinct(const Shape& shape, uint64_t seed, double scale) {
  const auto n = static_cast<size_t>(shape.elements());
  Doubles values(n);
  // 0.3: an even or odd number of values, none falls on 0.
  for (size_t i = 0; i < n; ++i) {
    values[i] = scale * (2 * (static_cast<double>(i) + 0.3) / static_cast<double>(n) - 1);
  }
  std::mt19937_64 random(seed);
  std::shuffle(values.begin(), values.end(), random);
  return {shape, false, std::move(values)};
}

LayerCase Slice(const LayerCase& whole, int64_t begin, int64_t end) {
  LayerCase part = whole;
  for (TestInput& input : part.inputs) {
    Doubles values;
    for (const size_t at :
         Share{input.samples(), begin, end}.Positions(input.shape, input.batch_axis)) {
      values.push_back(input.values[at]);
    }
    input.values = std::move(values);
    input.shape = input.shape.With(input.batch_axis, end - begin);
  }
  return part;
}

TestInput Along(int batch_axis, TestInput input) {
  input.batch_axis = batch_axis;
  return input;
}

double RandomCotangent(int64_t i) {
  const RandomBits bits = Philox(/*key=*/77, 0, static_cast<uint64_t>(i));
  return 2 * UniformDouble(bits.v[0], bits.v[1]) - 1;
}

absl::StatusOr<RunResult> RunLayer(const LayerCase& layer, const RunOptions& options) {
  const TestDevice opened = OpenTestDevice(options.device, options.threads);
  const int64_t samples = layer.samples();
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int r = 0; r < options.ranks; ++r) {
    const int64_t begin = samples * r / options.ranks, end = samples * (r + 1) / options.ranks;
    ranks.push_back(std::make_unique<Rank>(*opened.device, *opened.primitives, options,
                                           Share{samples, begin, end}));
    const LayerCase local = options.ranks == 1 ? layer : Slice(layer, begin, end);
    RETURN_IF_ERROR(ranks.back()->Make(local));
    RETURN_IF_ERROR(ranks.back()->Allocate(local));
  }
  RunResult result;
  result.spec = ranks[0]->spec();
  const size_t inputs = layer.inputs.size(), output = inputs;
  for (size_t i = 0; i < result.spec.states.size(); ++i) {
    if (result.spec.states[i].kind != StateKind::kParameter) continue;
    ASSIGN_OR_RETURN(result.parameters.emplace_back(), ranks[0]->Parameter(i, /*gradient=*/false));
  }
  RETURN_IF_ERROR(RunPhases(
      result.spec, result.spec.forward_phases, &StateSpec::summed_after,
      [&](int phase) {
        for (auto& rank : ranks) RETURN_IF_ERROR(rank->Forward(phase));
        return absl::OkStatus();
      },
      [&](size_t state) { return SumOverRanks(ranks, state); }));
  for (auto& rank : ranks) RETURN_IF_ERROR(CollectForward(*rank, output, result));
  result.output_shape = result.spec.states[output].shape;
  if (!options.train || !options.backward) return result;
  result.input_gradients.resize(inputs);
  result.parameter_gradients.resize(result.parameters.size());
  for (auto& rank : ranks) {
    RETURN_IF_ERROR(rank->Backward(layer));
    RETURN_IF_ERROR(CollectBackward(*rank, inputs, result));
  }
  return result;
}

std::string Refusal(const LayerCase& layer, const RunOptions& options) {
  const TestDevice opened = OpenTestDevice(options.device, options.threads);
  const bool samples = !layer.inputs.empty() && layer.inputs[0].shape.rank() > 0;
  const Share all{.samples = samples ? layer.samples() : 0};
  const absl::Status status = Rank(*opened.device, *opened.primitives, options, all).Make(layer);
  if (status.ok()) return "";
  return absl::IsInvalidArgument(status) ? std::string(status.message()) : status.ToString();
}

}  // namespace gyre
