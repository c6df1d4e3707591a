// flatten: [N, ...] to [N, product of the rest].  A view: the output is the input's memory and its
// gradient the input's gradient's, so nothing runs.

#include "layers/infer.h"

namespace gyre {
namespace {

class Flatten : public Layer {
 public:
  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    RETURN_IF_ERROR(CheckBatchFirst(input));
    const Shape& shape = input.inputs[0];
    ASSIGN_OR_RETURN(const int64_t elements, SampleElements(input));
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, input.compute, kRead, kNone),
                   MakeState("output", StateKind::kOutput, Shape{shape[0], elements}, input.compute,
                             kWrite, kNone)};
    spec.aliases = {{.output = 1, .input = 0, .must = true}};
    return spec;
  }

  absl::Status Forward(const LayerContext&) const override { return absl::OkStatus(); }
  absl::Status Backward(const LayerContext&) const override { return absl::OkStatus(); }
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateFlatten(const FlattenConfig&) {
  return std::make_unique<Flatten>();
}

}  // namespace gyre
