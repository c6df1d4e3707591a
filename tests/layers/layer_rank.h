// layer_rank.h: one rank of the layer harness: its layer, what memory that has, and the passes over
// it, which bind what is declared and keep watch over the rest.
#pragma once

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "layers/factory.h"
#include "tests/layers/layer_harness.h"
#include "tests/layers/share.h"
#include "tests/layers/slot.h"

namespace gyre {

class LayerRank {
 public:
  LayerRank(Device& device, const Primitives& primitives, const RunOptions& options)
      : device_(device), primitives_(primitives), options_(options) {}

  absl::Status Make(const LayerCase& local, int64_t global_batch) {
    LayerConfig config;
    if (!google::protobuf::TextFormat::ParseFromString(local.config, &config)) {
      return absl::InternalError("not a LayerConfig: " + local.config);
    }
    ASSIGN_OR_RETURN(layer_, CreateLayer(config));
    std::vector<Shape> shapes;
    std::vector<DType> dtypes;
    std::vector<int> batch_axes;
    std::vector<uint8_t> needs_gradient;
    for (const TestInput& input : local.inputs) {
      shapes.push_back(input.shape);
      dtypes.push_back(input.is_label ? DType::kI32 : options_.compute);
      batch_axes.push_back(input.batch_axis);
      needs_gradient.push_back(options_.input_gradients && !input.is_label && !input.is_data);
      is_data_.push_back(input.is_data);
    }
    InferInput infer;
    infer.inputs = shapes;
    infer.dtypes = dtypes;
    infer.batch_axes = batch_axes;
    infer.compute = options_.compute;
    infer.train = options_.train;
    infer.needs_gradient = needs_gradient;
    infer.global_batch = global_batch;
    infer.random_key = options_.random_key;
    infer.output_activation = options_.output_activation;
    infer.output_max = options_.output_max;
    infer.primitives = &primitives_;
    infer.same_parameters_as = options_.same_parameters_as;
    ASSIGN_OR_RETURN(spec_, layer_->Infer(infer));
    inputs_ = local.inputs.size();
    while (inputs_ + outputs_ < spec_.states.size() &&
           spec_.states[inputs_ + outputs_].kind == StateKind::kOutput) {
      ++outputs_;
    }
    return absl::OkStatus();
  }

  absl::Status Allocate(const LayerCase& local, uint64_t first_sample) {
    ASSIGN_OR_RETURN(stream_, device_.NewStream());
    const size_t count = spec_.states.size();
    owner_.resize(count);
    std::iota(owner_.begin(), owner_.end(), 0);
    gradient_owner_ = owner_;
    offset_.resize(count);
    for (const Alias& alias : spec_.aliases) {
      if (!alias.must && !options_.in_place) continue;
      const int part = alias.input_is_slice ? alias.input : alias.output;
      const int whole = alias.input_is_slice ? alias.output : alias.input;
      gradient_owner_[part] = gradient_owner_[whole];
      const bool kept = (spec_.states[alias.input].backward & kRead) != 0;
      if (alias.must || !kept) owner_[part] = owner_[whole];
      offset_[part] = alias.offset_bytes;
    }
    states_.resize(count);
    gradients_.resize(count);
    for (size_t i = 0; i < count; ++i) {
      const size_t bytes = spec_.states[i].size_bytes();
      if (owner_[i] == i) RETURN_IF_ERROR(states_[i].Allocate(device_, *stream_, bytes));
      if (gradient_owner_[i] != i) continue;
      RETURN_IF_ERROR(gradients_[i].Allocate(device_, *stream_, bytes));
    }
    RETURN_IF_ERROR(position_.Allocate(device_, *stream_, sizeof(BatchPosition)));
    const BatchPosition position{options_.step, first_sample};
    std::memcpy(position_.host(), &position, sizeof(position));
    RETURN_IF_ERROR(position_.Upload());
    RETURN_IF_ERROR(fault_.Allocate(device_, *stream_, sizeof(Fault)));  // poison is kNone
    for (size_t i = 0; i < inputs_; ++i) RETURN_IF_ERROR(SetStateValues(i, local.inputs[i].values));
    RETURN_IF_ERROR(SetBuffers(local.buffers));
    RETURN_IF_ERROR(SetCarried(local.carried, first_sample - options_.first_sample));
    return PackParameters(local.parameters);
  }

  absl::Status Forward(int phase, bool recompute = false) {
    return Pass(
        [&](const StateSpec& state) {
          return static_cast<uint8_t>(recompute && Keeps(state) ? state.forward & ~kWrite
                                                                : state.forward);
        },
        /*gradients=*/false, [&](const LayerContext& context) { return layer_->Forward(context); },
        phase, recompute);
  }

  // Errors: Internal if forward does not write the same bits again, or writes what it must keep.
  absl::Status Recompute() {
    std::vector<std::vector<std::byte>> before(spec_.states.size());
    for (size_t i = 0; i < before.size(); ++i) {
      if (owner_[i] != i) continue;
      ASSIGN_OR_RETURN(before[i], states_[i].Read());
      if (IsMadeAgain(spec_.states[i])) RETURN_IF_ERROR(states_[i].Poison());
    }
    RETURN_IF_ERROR(ForwardAgain());
    for (size_t i = 0; i < before.size(); ++i) {
      if (owner_[i] != i || !IsMadeAgain(spec_.states[i])) continue;
      ASSIGN_OR_RETURN(const auto after, states_[i].Read());
      if (after == before[i]) continue;
      return absl::InternalError(spec_.states[i].name + " was recomputed to other bits");
    }
    // Once more with other numbers in what is kept: whoever wrote the old ones again now shows.
    for (size_t i = 0; i < before.size(); ++i) {
      if (!Keeps(spec_.states[i])) continue;
      const Doubles other(static_cast<size_t>(spec_.states[i].shape.elements()), 0.375);
      RETURN_IF_ERROR(SetStateValues(i, other));
    }
    RETURN_IF_ERROR(ForwardAgain());
    for (size_t i = 0; i < before.size(); ++i) {
      if (owner_[i] == i) RETURN_IF_ERROR(states_[i].Write(before[i]));
    }
    return absl::OkStatus();
  }

  // Sets the gradients of the outputs, which are this rank's share of `gradients`; forgets what
  // backward does not declare to read.
  absl::Status BeginBackward(const std::vector<Values>& gradients, std::vector<int64_t>& first) {
    std::vector<bool> read(spec_.states.size());
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      if (spec_.states[i].backward & kRead) read[owner_[i]] = true;
    }
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      if (owner_[i] == i && !read[i]) RETURN_IF_ERROR(states_[i].Poison());
    }
    for (size_t k = 0; k < outputs_; ++k) {
      if (static_cast<int>(k) == options_.unbound_output) continue;
      const StateSpec& output = spec_.states[inputs_ + k];
      const int axis = output.batch_axis;
      Values share = gradients[k];
      if (output.shape.rank() > 0) {
        share = Cut(gradients[k], axis, first[k], first[k] + output.shape[axis]);
        first[k] += output.shape[axis];
      }
      RETURN_IF_ERROR(
          Gradient(inputs_ + k).Write(ToBytes(share.values, output.dtype), offset_[inputs_ + k]));
    }
    return absl::OkStatus();
  }

  absl::Status Backward(int phase) {
    return Pass([&](const StateSpec& state) { return state.backward; }, /*gradients=*/true,
                [&](const LayerContext& context) { return layer_->Backward(context); }, phase);
  }

  absl::StatusOr<Values> Output(size_t k) { return Whole(inputs_ + k); }
  size_t outputs() const { return outputs_; }
  int batch_axis(size_t state) const { return spec_.states[state].batch_axis; }

  absl::StatusOr<Doubles> StateValues(size_t i) {
    RETURN_IF_ERROR(State(i).Download());
    return ToDoubles(State(i).host() + offset_[i], spec_.states[i].shape, spec_.states[i].dtype);
  }
  absl::Status SetStateValues(size_t i, const Doubles& values) {
    return State(i).Write(ToBytes(values, spec_.states[i].dtype), offset_[i]);
  }
  // A state as a whole.
  absl::StatusOr<Values> Whole(size_t i) {
    ASSIGN_OR_RETURN(Doubles values, StateValues(i));
    return Values{spec_.states[i].shape, std::move(values)};
  }
  absl::StatusOr<Values> InputGradient(size_t i) {
    RETURN_IF_ERROR(Gradient(i).Download());
    const Shape& shape = spec_.states[i].shape;
    return Values{shape, ToDoubles(Gradient(i).host() + offset_[i], shape, spec_.states[i].dtype)};
  }
  // Canonical.
  absl::StatusOr<Doubles> Parameter(size_t i, bool gradient) {
    Slot& slot = gradient ? Gradient(i) : State(i);
    RETURN_IF_ERROR(slot.Download());
    const StateSpec& state = spec_.states[i];
    std::vector<std::byte> canonical(static_cast<size_t>(state.canonical.elements()) *
                                     SizeOf(state.dtype));
    RETURN_IF_ERROR(layer_->Unpack(static_cast<int>(i), {slot.host(), state.shape, state.dtype},
                                   {canonical.data(), state.canonical, state.dtype}));
    return ToDoubles(canonical.data(), state.canonical, state.dtype);
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
    return state.kind == StateKind::kInput && IsReal(state.dtype) && options_.input_gradients &&
           !is_data_[i];
  }

 private:
  // In recompute.
  static bool Keeps(const StateSpec& state) {
    return state.kind == StateKind::kBuffer || state.kind == StateKind::kStatistic;
  }
  static bool IsMadeAgain(const StateSpec& state) {
    return state.kind == StateKind::kOutput || state.kind == StateKind::kSaved;
  }
  absl::Status ForwardAgain() {
    for (int phase = 0; phase < spec_.forward_phases; ++phase) {
      RETURN_IF_ERROR(Annotate(Forward(phase, /*recompute=*/true), "recompute"));
    }
    return absl::OkStatus();
  }

  bool HasOutputGradient(size_t i) const {
    return i >= inputs_ && i < inputs_ + outputs_ &&
           static_cast<int>(i - inputs_) != options_.unbound_output;
  }
  Slot& State(size_t i) { return states_[owner_[i]]; }
  Slot& Gradient(size_t i) { return gradients_[gradient_owner_[i]]; }

  absl::Status SetBuffers(const std::vector<Doubles>& given) {
    size_t buffer = 0;
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const StateSpec& state = spec_.states[i];
      if (state.kind != StateKind::kBuffer) continue;
      Initialize(state.initializer, /*key=*/1, {State(i).host(), state.shape, state.dtype});
      RETURN_IF_ERROR(State(i).Upload());
      if (!given.empty()) RETURN_IF_ERROR(SetStateValues(i, given[buffer]));
      ++buffer;
    }
    return absl::OkStatus();
  }

  // Rows of sample `first` on: given, or made of the sample's number.
  absl::Status SetCarried(const std::vector<Doubles>& given, uint64_t first) {
    size_t carried = 0;
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const StateSpec& state = spec_.states[i];
      if (state.kind != StateKind::kCarried) continue;
      RETURN_IF_ERROR(SetStateValues(i, given.empty() ? CarriedValues(i, first) : given[carried]));
      ++carried;
    }
    return absl::OkStatus();
  }

  // Multiples of 1/64 up to 1, which every type holds.
  Doubles CarriedValues(size_t state, uint64_t first) const {
    const Shape& shape = spec_.states[state].shape;
    const int axis = spec_.states[state].batch_axis;
    const int64_t rows = shape[axis], inner = shape.elements(axis + 1, shape.rank());
    Doubles values;
    for (int64_t i = 0; i < shape.elements(); ++i) {
      const int64_t row = i / inner % rows, outer = i / inner / rows;
      const int64_t sample = static_cast<int64_t>(first) + row;
      const int64_t number = (sample * shape.elements(0, axis) + outer) * inner + i % inner;
      values.push_back(
          std::round(64 * RandomCotangent(1000 * static_cast<int64_t>(state) + number)) / 64);
    }
    return values;
  }

  absl::Status PackParameters(const std::vector<Doubles>& given) {
    size_t parameter = 0;
    for (size_t i = 0; i < spec_.states.size(); ++i) {
      const StateSpec& state = spec_.states[i];
      if (state.kind != StateKind::kParameter) continue;
      const Doubles values =
          given.empty() ? Distinct(state.canonical, 100 + i, 1).values : given[parameter];
      ++parameter;
      std::vector<std::byte> canonical = ToBytes(values, state.dtype);
      RETURN_IF_ERROR(layer_->Pack(static_cast<int>(i),
                                   {canonical.data(), state.canonical, state.dtype},
                                   {State(i).host(), state.shape, state.dtype}));
      RETURN_IF_ERROR(State(i).Upload());
    }
    return absl::OkStatus();
  }

  // Binds what `access_of` declares, calls `run`, and checks that the rest kept its bytes.
  template <typename AccessOf, typename Run>
  absl::Status Pass(AccessOf access_of, bool gradients, Run run, int phase,
                    bool recompute = false) {
    const size_t count = spec_.states.size();
    std::vector<Tensor> states(count), bound_gradients(count);
    std::vector<bool> written(count), gradient_written(count);
    std::vector<std::vector<std::byte>> before(count), gradient_before(count);
    for (size_t i = 0; i < count; ++i) {
      const StateSpec& state = spec_.states[i];
      const bool touched = !state.slice || state.slice->phase == phase;
      const uint8_t access = touched ? access_of(state) : uint8_t{kNone};
      const auto view = [&](Slot& slot) {
        return Tensor{static_cast<std::byte*>(slot.device()) + offset_[i], state.shape,
                      state.dtype};
      };
      if (state.kind == StateKind::kScratch) RETURN_IF_ERROR(State(i).Poison());
      if (access != kNone) states[i] = view(State(i));
      if (access & kWrite) written[owner_[i]] = true;
      if (gradients && touched && (HasOutputGradient(i) || HasGradient(i))) {
        bound_gradients[i] = view(Gradient(i));
      }
      if (touched && HasGradient(i)) gradient_written[gradient_owner_[i]] = true;
    }
    for (size_t i = 0; i < count; ++i) {
      if (owner_[i] == i) {
        ASSIGN_OR_RETURN(before[i], states_[i].Read());
      }
      if (gradient_owner_[i] == i) {
        ASSIGN_OR_RETURN(gradient_before[i], gradients_[i].Read());
      }
    }
    RETURN_IF_ERROR(run(LayerContext{
        *stream_, states, bound_gradients, static_cast<const BatchPosition*>(position_.device()),
        static_cast<Fault*>(fault_.device()), /*layer=*/7, phase, recompute}));
    RETURN_IF_ERROR(stream_->Synchronize());
    for (size_t i = 0; i < count; ++i) {
      if (owner_[i] == i) {
        auto after = states_[i].Read();
        if (!after.ok()) return Annotate(after.status(), spec_.states[i].name);
        if (!written[i] && *after != before[i]) {
          return absl::InternalError(spec_.states[i].name + " was written, but not declared to be");
        }
      }
      if (gradient_owner_[i] != i) continue;
      auto gradient_after = gradients_[i].Read();
      if (!gradient_after.ok()) return Annotate(gradient_after.status(), spec_.states[i].name);
      if (!gradient_written[i] && *gradient_after != gradient_before[i]) {
        return absl::InternalError("the gradient of " + spec_.states[i].name + " was written");
      }
    }
    const bool complete = gradients && phase + 1 == spec_.backward_phases;
    for (size_t i = 0; complete && i < count; ++i) {
      if (HasGradient(i)) RETURN_IF_ERROR(CheckUntouchedRows(i));
    }
    return absl::OkStatus();
  }

  // The rows of a gradient that the layer says it does not touch are 0, to the bit.
  absl::Status CheckUntouchedRows(size_t i) {
    const StateSpec& state = spec_.states[i];
    if (state.touched_rows < 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, Gradient(i).Read());
    ASSIGN_OR_RETURN(const std::vector<std::byte> touched,
                     State(static_cast<size_t>(state.touched_rows)).Read());
    const size_t row_bytes = bytes.size() / static_cast<size_t>(state.shape[0]);
    for (int64_t row = 0; row < state.shape[0]; ++row) {
      const std::span<const int32_t> rows(reinterpret_cast<const int32_t*>(touched.data()),
                                          touched.size() / sizeof(int32_t));
      const auto at = std::span(bytes).subspan(static_cast<size_t>(row) * row_bytes, row_bytes);
      const bool zero = std::ranges::all_of(at, [](std::byte b) { return b == std::byte{0}; });
      if (!zero && std::ranges::count(rows, static_cast<int32_t>(row)) == 0) {
        return absl::InternalError(
            absl::StrCat("row ", row, " of the gradient of ", state.name, " is not 0"));
      }
    }
    return absl::OkStatus();
  }

  Device& device_;
  const Primitives& primitives_;
  const RunOptions& options_;
  std::unique_ptr<Layer> layer_;
  LayerSpec spec_;
  size_t inputs_ = 0, outputs_ = 0;
  std::vector<bool> is_data_;  // by input
  std::unique_ptr<Stream> stream_;
  // For each state, the one whose memory it, and its gradient, shares; and from which byte on.
  std::vector<size_t> owner_, gradient_owner_, offset_;
  std::vector<Slot> states_, gradients_;
  Slot position_, fault_;
};

}  // namespace gyre
