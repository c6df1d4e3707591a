// infer.h: what every layer's Infer does: check its inputs and write down its states.  Errors are
// InvalidArgument and begin with the field or thing at fault, since the net puts file, line and the
// layer's name in front.  Pure functions of their arguments.
#pragma once

#include <cmath>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>

#include "layers/interface/layer.h"

namespace gyre {

// The largest extent that vendor libraries take.
inline constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();

struct ExpectedInput {
  std::string_view name;
  DType dtype;
};

// As many inputs as expected, of these types, and a compute type that is real.
absl::Status CheckInputs(const InferInput& input, std::initializer_list<ExpectedInput> expected);

// least <= value <= kMaxExtent.
absl::Status CheckExtent(std::string_view field, int64_t value, int64_t least = 1);

// A shape whose elements can be counted: see Shape::IsCountable.
absl::Status CheckCountable(std::string_view what, const Shape& shape);

// The axis of the samples of an input, 0 where none is said.  Layers that look across samples or
// change shapes ask for it; one that takes the first axis alone says so by CheckBatchFirst.
int BatchAxis(const InferInput& input, int index);
absl::Status CheckBatchFirst(const InferInput& input);

// The axis of the samples, where all inputs have it in the same place.  Errors: they do not.
absl::StatusOr<int> CommonBatchAxis(const InferInput& input);

// The elements of one sample of an input [N, ...].  Errors: no batch axis; no elements.
absl::StatusOr<int64_t> SampleElements(const InferInput& input, int index = 0);

// The first input as rows of its last axis, which messages call `columns`.  Errors: fewer than two
// axes; columns beyond CheckExtent; samples along the last axis.
struct Rows {
  int64_t count = 0, columns = 0;
};
absl::StatusOr<Rows> RowsOf(const InferInput& input, std::string_view name,
                            std::string_view columns);

// What a loss weighs in the run's: finite and not negative.
absl::Status CheckLossWeight(double weight);

bool NeedsGradient(const InferInput& input, int index);

// Whether the activation that the net would have applied is one that libraries do not have.
inline bool HasBound(const InferInput& input) { return !std::isnan(input.output_max); }

// `access` if the net trains, else none: without training there is no backward.
inline uint8_t InBackward(const InferInput& input, uint8_t access) {
  return input.train ? access : static_cast<uint8_t>(kNone);
}

// `bytes` of scratch for a reduction if the layer runs on a GPU: a CPU makes no use of it.
inline size_t OnGpu(const InferInput& input, size_t bytes) {
  return input.primitives->device() == DeviceKind::kCuda ? bytes : 0;
}

StateSpec MakeState(std::string name, StateKind kind, const Shape& shape, DType dtype,
                    uint8_t forward, uint8_t backward);

// The output of a layer that keeps the axis of the samples where its first input has it.
StateSpec MakeOutput(const InferInput& input, const Shape& shape, uint8_t backward);

// Opaque bytes.
StateSpec MakeBytes(std::string name, StateKind kind, size_t bytes, uint8_t forward,
                    uint8_t backward);

// A parameter of the compute type in the canonical layout.  `fallback` initializes it where the
// config does not say, and has its fans.  Errors: a multiplier that is negative or not finite; an
// initializer's; a shape other than the first shape's (input.same_parameters_as).
absl::StatusOr<StateSpec> MakeParameter(std::string name, const Shape& shape,
                                        const ParameterConfig& config, const Initializer& fallback,
                                        const InferInput& input, uint8_t backward);

// A buffer of a real type in the canonical layout, `value` at first.
StateSpec MakeBuffer(std::string name, const Shape& shape, DType dtype, double value,
                     uint8_t forward);

// Appends what is carried from batch to batch: `name`, a kCarried state that forward reads, and
// backward with `backward`; and right behind it "next_" + name, a kSaved one that forward writes,
// whose value takes its place.  Returns the index of `name`.
int AddCarried(LayerSpec& spec, const std::string& name, const Shape& shape, DType dtype,
               int batch_axis, uint8_t backward);

// The state of that name; null if there is none, or no spec.
const StateSpec* FindState(const LayerSpec* spec, std::string_view name);

}  // namespace gyre
