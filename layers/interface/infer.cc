#include "layers/interface/infer.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace gyre {

absl::Status CheckInputs(const InferInput& input, std::initializer_list<ExpectedInput> expected) {
  GYRE_CHECK(input.inputs.size() == input.dtypes.size());
  if (input.inputs.size() != expected.size()) {
    const std::string names = absl::StrJoin(
        expected, ", ", [](std::string* out, const ExpectedInput& x) { out->append(x.name); });
    return absl::InvalidArgumentError(
        absl::StrFormat("expects %d input%s (%s), got %d", expected.size(),
                        expected.size() == 1 ? "" : "s", names, input.inputs.size()));
  }
  if (!IsReal(input.compute)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("computes in F64, F32, F16 or BF16, got %s", DTypeName(input.compute)));
  }
  size_t i = 0;
  for (const ExpectedInput& x : expected) {
    const DType dtype = input.dtypes[i++];
    if (dtype != x.dtype) {
      return absl::InvalidArgumentError(absl::StrFormat("expects %s of type %s, got %s", x.name,
                                                        DTypeName(x.dtype), DTypeName(dtype)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckExtent(std::string_view field, int64_t value, int64_t least) {
  if (value >= least && value <= kMaxExtent) return absl::OkStatus();
  const std::string expected =
      value < least ? absl::StrFormat("%d or more", least) : "at most 2^31 - 1";
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: expected %s, got %d", field, expected, value));
}

absl::Status CheckCountable(std::string_view what, const Shape& shape) {
  if (shape.IsCountable()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat(
      "%s %s has more than 2^56 elements; make it smaller", what, shape.ToString()));
}

int BatchAxis(const InferInput& input, int index) {
  const auto i = static_cast<size_t>(index);
  return i < input.batch_axes.size() ? input.batch_axes[i] : 0;
}

absl::Status CheckBatchFirst(const InferInput& input) {
  for (size_t i = 0; i < input.inputs.size(); ++i) {
    const int axis = BatchAxis(input, static_cast<int>(i));
    if (axis == 0) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects samples along axis 0, but those of input %d, %s, are along axis %d; transpose it",
        i, input.inputs[i].ToString(), axis));
  }
  return absl::OkStatus();
}

absl::StatusOr<int> CommonBatchAxis(const InferInput& input) {
  const int first = BatchAxis(input, 0);
  for (size_t i = 1; i < input.inputs.size(); ++i) {
    const int axis = BatchAxis(input, static_cast<int>(i));
    if (axis == first) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects samples along one axis, but those of input 0, %s, are along axis %d and those of "
        "input %d, %s, along axis %d; transpose one",
        input.inputs[0].ToString(), first, i, input.inputs[i].ToString(), axis));
  }
  return first;
}

absl::StatusOr<int64_t> SampleElements(const InferInput& input, int index) {
  const Shape& shape = input.inputs[index];
  const int axis = BatchAxis(input, index);
  if (shape.rank() < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects inputs [N, ...], got %s", shape.ToString()));
  }
  const int64_t elements = shape.elements(0, axis) * shape.elements(axis + 1, shape.rank());
  if (elements < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects samples of one element or more, got %s", shape.ToString()));
  }
  return elements;
}

absl::StatusOr<Rows> RowsOf(const InferInput& input, std::string_view name,
                            std::string_view columns) {
  const Shape& shape = input.inputs[0];
  const int last = shape.rank() - 1;
  if (last < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects %s [..., %s] of two axes or more, got %s", name, columns, shape.ToString()));
  }
  if (BatchAxis(input, 0) == last) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects %s [..., %s], but the samples of %s are along its last axis; "
                        "transpose it",
                        name, columns, shape.ToString()));
  }
  RETURN_IF_ERROR(CheckExtent(columns, shape[last]));
  return Rows{.count = shape.elements(0, last), .columns = shape[last]};
}

absl::Status CheckNotNegative(std::string_view field, double value) {
  if (std::isfinite(value) && value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: expected 0 or more, got %g", field, value));
}

absl::Status CheckBelowOne(std::string_view field, double value) {
  if (value >= 0 && value < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: expected at least 0 and below 1, got %g", field, value));
}

bool NeedsGradient(const InferInput& input, int index) {
  const auto i = static_cast<size_t>(index);
  return input.train && i < input.needs_gradient.size() && input.needs_gradient[i] != 0;
}

int AddState(LayerSpec& spec, StateSpec state) {
  spec.states.push_back(std::move(state));
  return static_cast<int>(spec.states.size()) - 1;
}

StateSpec MakeState(std::string name, StateKind kind, const Shape& shape, DType dtype,
                    uint8_t forward, uint8_t backward) {
  StateSpec state;
  state.name = std::move(name);
  state.kind = kind;
  state.shape = shape;
  state.dtype = dtype;
  state.forward = forward;
  state.backward = backward;
  return state;
}

StateSpec MakeOutput(const InferInput& input, const Shape& shape, uint8_t backward) {
  StateSpec state = MakeState("output", StateKind::kOutput, shape, input.compute, kWrite, backward);
  state.batch_axis = BatchAxis(input, 0);
  return state;
}

StateSpec MakeBytes(std::string name, StateKind kind, size_t bytes, uint8_t forward,
                    uint8_t backward) {
  StateSpec state = MakeState(std::move(name), kind, Shape{static_cast<int64_t>(bytes)}, DType::kU8,
                              forward, backward);
  state.bytes = bytes;
  return state;
}

int AddScratch(LayerSpec& spec, size_t bytes, uint8_t forward, uint8_t backward) {
  if (bytes == 0) return -1;
  return AddState(spec, MakeBytes("scratch", StateKind::kScratch, bytes, forward, backward));
}

double RateMultiplier(const ParameterConfig& config, const InferInput& input) {
  const bool waits = input.train && config.trainable_from() > input.first_step;
  return waits ? 0 : config.learning_rate_multiplier();
}

absl::StatusOr<StateSpec> MakeParameter(std::string name, const Shape& shape,
                                        const ParameterConfig& config, const Initializer& fallback,
                                        const InferInput& input, uint8_t backward) {
  RETURN_IF_ERROR(
      CheckNotNegative(name + ".learning_rate_multiplier", config.learning_rate_multiplier()));
  RETURN_IF_ERROR(CheckNotNegative(name + ".decay_multiplier", config.decay_multiplier()));
  if (!std::ranges::all_of(config.name(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '_' || c == '-';
      })) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s.name: expected ASCII letters, digits, \"_\" and \"-\", got \"%s\"",
                        name, absl::CHexEscape(config.name())));
  }
  RETURN_IF_ERROR(CheckCountable(name, shape));
  auto initializer = MakeInitializer(config.initializer(), fallback);
  if (!initializer.ok()) return Annotate(initializer.status(), name);
  const StateSpec* first = FindState(input.same_parameters_as, name);
  if (first != nullptr && !(first->canonical == shape)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected the shape %s, got %s", name, first->canonical.ToString(), shape.ToString()));
  }
  StateSpec state =
      MakeState(std::move(name), StateKind::kParameter, shape, input.compute, kRead, backward);
  state.canonical = shape;
  state.initializer = *initializer;
  state.learning_rate_multiplier = RateMultiplier(config, input);
  state.trainable_from = config.trainable_from();
  state.decay_multiplier = config.decay_multiplier();
  state.shared_name = config.name();
  return state;
}

StateSpec MakeBuffer(std::string name, const Shape& shape, DType dtype, double value,
                     uint8_t forward) {
  StateSpec state = MakeState(std::move(name), StateKind::kBuffer, shape, dtype, forward, kNone);
  state.canonical = shape;
  state.initializer.value = value;
  return state;
}

int AddCarried(LayerSpec& spec, const std::string& name, const Shape& shape, DType dtype,
               int batch_axis, uint8_t backward) {
  const int index =
      AddState(spec, MakeState(name, StateKind::kCarried, shape, dtype, kRead, backward));
  const int next = AddState(
      spec, MakeState("next_" + name, StateKind::kSaved, shape, dtype, kRead | kWrite, kNone));
  spec.states[index].batch_axis = batch_axis;
  spec.states[next].carried_to = index;
  return index;
}

const StateSpec* FindState(const LayerSpec* spec, std::string_view name) {
  if (spec == nullptr) return nullptr;
  for (const StateSpec& state : spec->states) {
    if (state.name == name) return &state;
  }
  return nullptr;
}

}  // namespace gyre
