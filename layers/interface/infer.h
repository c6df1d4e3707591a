// infer.h: checks a layer's inputs and declares its states, by pure functions.  Errors are
// InvalidArgument and begin with the field.  The net puts file, line and layer in front.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "layers/interface/layer.h"

namespace gyre {

// The largest extent that vendor libraries accept.
inline constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();

struct ExpectedInput {
  std::string_view name;
  DType dtype;
};

// Checks the number and types of inputs, and that the compute type is real.
absl::Status CheckInputs(const InferInput& input, std::initializer_list<ExpectedInput> expected);

// Checks least <= value <= kMaxExtent.
absl::Status CheckExtent(std::string_view field, int64_t value, int64_t least = 1);

absl::Status CheckCountable(std::string_view what, const Shape& shape);

// The axis of an input's samples, 0 if the net gives none.  Layers that look across samples or
// change shapes ask for it.  CheckBatchFirst checks that it is 0 for all inputs.
int BatchAxis(const InferInput& input, int index);
absl::Status CheckBatchFirst(const InferInput& input);

// The one axis of the samples of all inputs.  Errors: axes differ.
absl::StatusOr<int> CommonBatchAxis(const InferInput& input);

// The elements of one sample of an input [N, ...].  Errors: no batch axis, no elements.
absl::StatusOr<int64_t> SampleElements(const InferInput& input, int index = 0);

// The first input as rows of its last axis, which messages call `columns`.  Errors: fewer than two
// axes, columns beyond CheckExtent, samples along the last axis.
struct Rows {
  int64_t count = 0, columns = 0;
};
absl::StatusOr<Rows> RowsOf(const InferInput& input, std::string_view name,
                            std::string_view columns);

// Check that a number is finite and 0 or more, and that it is at least 0 and below 1.
absl::Status CheckNotNegative(std::string_view field, double value);
absl::Status CheckBelowOne(std::string_view field, double value);

bool NeedsGradient(const InferInput& input, int index);

// Whether the net asks for a bounded activation, which libraries do not have.
inline bool HasBound(const InferInput& input) { return !std::isnan(input.output_max); }

// `access` if the net trains, otherwise kNone, since there is no backward.
inline uint8_t InBackward(const InferInput& input, uint8_t access) {
  return input.train ? access : static_cast<uint8_t>(kNone);
}

// `bytes` of scratch for a reduction on a GPU, 0 on a CPU, which needs none.
inline size_t OnGpu(const InferInput& input, size_t bytes) {
  return input.primitives->device() == DeviceKind::kCuda ? bytes : 0;
}

// Appends a state, and returns its index.
int AddState(LayerSpec& spec, StateSpec state);

StateSpec MakeState(std::string name, StateKind kind, const Shape& shape, DType dtype,
                    uint8_t forward, uint8_t backward);

// An output whose samples are along the axis of the first input's.
StateSpec MakeOutput(const InferInput& input, const Shape& shape, uint8_t backward);

StateSpec MakeBytes(std::string name, StateKind kind, size_t bytes, uint8_t forward,
                    uint8_t backward);

// Appends a state "scratch" unless `bytes` is 0.  Returns its index, or -1.
int AddScratch(LayerSpec& spec, size_t bytes, uint8_t forward, uint8_t backward);

// The parameter's learning_rate_multiplier, or 0 if trainable_from keeps it frozen in this net.
double RateMultiplier(const ParameterConfig& config, const InferInput& input);

// A parameter of the compute type in the canonical layout.  `fallback` has its fans, and
// initializes it unless the config does.  Errors: a multiplier that is negative or not finite, a
// malformed name, an initializer's, a shape unlike the first shape's (input.same_parameters_as).
absl::StatusOr<StateSpec> MakeParameter(std::string name, const Shape& shape,
                                        const ParameterConfig& config, const Initializer& fallback,
                                        const InferInput& input, uint8_t backward);

// A buffer of a real type in the canonical layout, filled with `value`.
StateSpec MakeBuffer(std::string name, const Shape& shape, DType dtype, double value,
                     uint8_t forward);

// Appends two states that carry rows from batch to batch, and returns the index of the first:
//   name          kCarried; forward reads it, and backward with `backward`
//   "next_" name  kSaved; forward writes it, and its value is carried to `name`
int AddCarried(LayerSpec& spec, const std::string& name, const Shape& shape, DType dtype,
               int batch_axis, uint8_t backward);

// The state of that name.  Null without one or without a spec.
const StateSpec* FindState(const LayerSpec* spec, std::string_view name);

}  // namespace gyre
