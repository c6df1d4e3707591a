// noise: y = mean + std n, of independent standard normal numbers n.
// x: any shape and type, of which only the number of samples counts; y: [N, dims...].
//
// An element's bits depend on (key, step, position of its sample in the endless sample order,
// element).  So they are the same for every batch cut and rank count.  In tests the step is 0 and
// the position is that in the test.  x has the gradient 0.  std 0 draws nothing.

#include <algorithm>
#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/random.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1;  // states

// Elements that one call of Philox serves.
constexpr int64_t kNormals = 2;

template <typename T>
struct DrawNormals {
  uint64_t key;
  double mean, std;
  int64_t sample_elements, sample_pairs;
  const BatchPosition* position;
  T* y;
  HOST_DEVICE void operator()(int64_t sample, int64_t pair) const {
    const uint64_t first = position->first_sample + static_cast<uint64_t>(sample);
    const NormalPair normals =
        Normals(Philox(key, position->step,
                       first * static_cast<uint64_t>(sample_pairs) + static_cast<uint64_t>(pair)));
    const int64_t e = pair * kNormals;
    Put(normals.first, sample * sample_elements + e);
    if (e + 1 < sample_elements) Put(normals.second, sample * sample_elements + e + 1);
  }

  HOST_DEVICE void Put(double normal, int64_t at) const {
    y[at] = static_cast<T>(static_cast<AccumulateType<T>>(mean + std * normal));
  }
};

template <typename T>
struct SetEach {
  T value;
  T* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = value; }
};

class RandomNormal : public Layer {
 public:
  explicit RandomNormal(const NoiseConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    if (input.inputs.size() != 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects 1 input, got %d", input.inputs.size()));
    }
    const Shape& x = input.inputs[kX];
    RETURN_IF_ERROR(SampleElements(input).status());
    std::vector<int64_t> dims = {x[BatchAxis(input, kX)]};
    dims.insert(dims.end(), config_.dims().begin(), config_.dims().end());
    const Shape y(dims);
    RETURN_IF_ERROR(CheckCountable("output", y.With(0, std::max<int64_t>(dims[0], 1))));
    samples_ = dims[0];
    sample_elements_ = y.elements(1, y.rank());
    compute_ = input.compute;
    key_ = input.random_key;
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, x, input.dtypes[kX], kNone, kNone),
                   MakeState("output", StateKind::kOutput, y, compute_, kWrite, kNone)};
    // Logarithm, root, cosine and sine of two numbers.
    if (config_.std() > 0) spec.forward_flops = 42 * static_cast<double>(y.elements());
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (config_.std() == 0) return Fill(context.stream, config_.mean(), context.states[kY]);
    return VisitReal(compute_, [&]<typename T>() {
      const int64_t pairs = CeilDiv<int64_t>(sample_elements_, kNormals);
      return ForEachCell(context.stream, samples_, pairs,
                         DrawNormals<T>{key_, config_.mean(), config_.std(), sample_elements_,
                                        pairs, context.position, context.states[kY].as<T>()});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[kX]) return absl::OkStatus();
    return Fill(context.stream, 0, context.gradients[kX]);
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    if (config_.std() > 0) {
      return absl::UnimplementedError(
          "ONNX has random numbers, but none that a seed and a sample's position give; std: 0 has "
          "a form");
    }
    const std::string all = onnx.Node("Shape", {onnx.Input(kX)});
    const int64_t axis = onnx.BatchAxis(kX);
    std::string shape =
        onnx.Node("Slice", {all, onnx.Ints({axis}), onnx.Ints({axis + 1}), onnx.Ints({0})});
    if (config_.dims_size() > 0) {
      const std::string dims = onnx.Ints({config_.dims().begin(), config_.dims().end()});
      shape = onnx.Node("Concat", {shape, dims}, {{"axis", int64_t{0}}});
    }
    onnx.Output(0, onnx.Node("Expand", {onnx.Scalar(static_cast<float>(config_.mean())), shape}));
    return absl::OkStatus();
  }

 private:
  absl::Status Fill(Stream& stream, double value, const Tensor& to) const {
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(stream, to.elements(),
                     SetEach<T>{static_cast<T>(static_cast<AccumulateType<T>>(value)), to.as<T>()});
    });
  }

  const NoiseConfig config_;
  DType compute_ = DType::kF32;
  uint64_t key_ = 0;
  int64_t samples_ = 0, sample_elements_ = 1;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateNoise(const NoiseConfig& config) {
  if (config.dims_size() >= Shape::kMaxRank) {
    return absl::InvalidArgumentError(absl::StrFormat("dims: expected at most %d of them, got %d",
                                                      Shape::kMaxRank - 1, config.dims_size()));
  }
  for (const int64_t dim : config.dims()) RETURN_IF_ERROR(CheckExtent("dims", dim));
  if (!std::isfinite(config.mean())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("mean: expected a finite number, got %g", config.mean()));
  }
  RETURN_IF_ERROR(CheckNotNegative("std", config.std()));
  return std::make_unique<RandomNormal>(config);
}

}  // namespace gyre
