#include "tests/training/onnx/onnx_case.h"

#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/random.h"
#include "engine/training/net/infer/net_spec.h"

namespace gyre {
namespace {

void SetRandom(const Parameter& parameter, uint64_t seed, HostTensors& to) {
  const std::string name = CanonicalName(parameter, "");
  for (const NamedTensor& other : to.tensors) {
    if (other.name == name) return;  // another slice, or shared
  }
  const Tensor tensor = to.Add(name, CanonicalShape(parameter, ""), DType::kF32);
  const Shape& shape = tensor.shape;
  const bool table = parameter.spec.touched_rows >= 0;
  const double inputs =
      shape.rank() < 2 || table ? 1 : static_cast<double>(shape.elements(1, shape.rank()));
  const bool positive = absl::EndsWith(name, "variance"), factor = absl::EndsWith(name, ".scale");
  for (int64_t e = 0; e < tensor.elements(); ++e) {
    const RandomBits bits = Philox(RandomKey(seed, name), 0, static_cast<uint64_t>(e));
    const double normal = Normals(bits).first;
    double value = normal / std::sqrt(inputs);
    if (shape.rank() == 1) value = 0.3 * normal;
    if (factor) value = 1 + 0.2 * normal;
    if (positive) value = 0.5 + UniformFloat(bits.v[0]);
    tensor.as<float>()[e] = static_cast<float>(value);
  }
}

}  // namespace

const Primitives& CpuPrimitives() {
  static const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  return primitives;
}

absl::StatusOr<std::unique_ptr<OnnxCase>> MakeOnnxCase(Parsed<NetConfig> net,
                                                       const DataConfig& data,
                                                       const OnnxOptions& options, uint64_t seed) {
  ParameterSet parameters;
  const auto spec = InferNet(
      net, {.train = false, .shape = {.local = 2, .global = 2}, .primitives = &CpuPrimitives()},
      parameters);
  RETURN_IF_ERROR(spec.status());
  auto made = std::make_unique<OnnxCase>();
  for (const Parameter& parameter : parameters.all()) SetRandom(parameter, seed, made->weights);
  Weights weights;
  weights.path = "random";
  weights.tensors = TensorFile().With(made->weights.tensors);
  ASSIGN_OR_RETURN(made->source, MakeOnnxSource(std::move(net), data, weights, options));
  ASSIGN_OR_RETURN(made->model, MakeOnnx(made->source, CpuPrimitives()));
  return made;
}

absl::StatusOr<std::unique_ptr<OnnxCase>> CaseOfRun(const std::string& path,
                                                    const OnnxOptions& options) {
  ASSIGN_OR_RETURN(const Weights weights, ReadWeights(path));
  ASSIGN_OR_RETURN(Parsed<NetConfig> net, ParseNetText(weights.texts.net, path));
  ASSIGN_OR_RETURN(const Parsed<TrainerConfig> trainer,
                   ParseTrainerText(weights.texts.trainer, path));
  auto made = std::make_unique<OnnxCase>();
  ASSIGN_OR_RETURN(made->source,
                   MakeOnnxSource(std::move(net), trainer.message->data(), weights, options));
  ASSIGN_OR_RETURN(made->model, MakeOnnx(made->source, CpuPrimitives()));
  return made;
}

absl::Status WriteOnnxCase(OnnxCase& of, const std::vector<int64_t>& batches,
                           const std::string& folder, const std::string& name) {
  constexpr int kSteps = 2;
  RETURN_IF_ERROR(WriteOnnx(absl::StrCat(folder, "/", name, ".onnx"), of.model));
  std::vector<HostTensors> kept;
  std::vector<NamedTensor> arrays;
  for (const int64_t batch : batches) {
    ASSIGN_OR_RETURN(const auto own, OwnForward::Create(of.source, batch, CpuPrimitives()));
    for (int step = 0; step < kSteps; ++step) {
      kept.push_back(own->RandomInputs(static_cast<uint64_t>(batch * kSteps + step)));
      ASSIGN_OR_RETURN(HostTensors outputs, own->Run(kept.back()));
      const auto take = [&](const char* kind, const HostTensors& tensors) {
        for (const NamedTensor& tensor : tensors.tensors) {
          arrays.push_back(
              {absl::StrCat(batch, "/", step, "/", kind, "/", tensor.name), tensor.tensor});
        }
      };
      take("in", kept.back());
      kept.push_back(std::move(outputs));
      take("out", kept.back());
    }
  }
  return WriteNpz(absl::StrCat(folder, "/", name, ".npz"), arrays);
}

}  // namespace gyre
