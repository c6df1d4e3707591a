#include "engine/training/run/norm_log.h"

#include <cmath>
#include <set>

namespace gyre {
namespace {

struct Squares {
  double value = 0, gradient = 0, change = 0;
};

template <typename T>
void Add(std::span<const std::byte> before, const Tensor& now, Squares& sum) {
  const T* const was = reinterpret_cast<const T*>(before.data());
  for (int64_t i = 0; i < now.elements(); ++i) {
    const double value = now.as<T>()[i], change = value - was[i];
    sum.value += value * value;
    sum.change += change * change;
  }
}

std::set<std::string> TrainedNames(const NetPlan& net, const ParameterSet& parameters) {
  std::set<std::string> names;
  for (const BucketedGradient& gradient : net.order.gradients) {
    names.insert(CanonicalName(parameters.all()[gradient.parameter], ""));
  }
  return names;
}

}  // namespace

absl::Status NormLog::Remember(const Model& model, Stream& stream) {
  before_.clear();
  const std::set<std::string> trained = TrainedNames(*model.plan().train, model.plan().parameters);
  return model.EachValue(stream, [&](const NamedTensor& value) {
    if (model.plan().options.shape.rank != 0 || !trained.contains(value.name)) return;
    const auto* const bytes = static_cast<const std::byte*>(value.tensor.data);
    before_[value.name].emplace_back(bytes, bytes + value.tensor.bytes());
  });
}

absl::StatusOr<std::vector<LoggedNorms>> NormLog::Tell(const Model& model, const NetPlan& net,
                                                       Stream& stream,
                                                       std::span<const double> squares) {
  const std::set<std::string> trained = TrainedNames(net, model.plan().parameters);
  std::map<std::string, Squares> sums;
  std::map<std::string, size_t> slices;  // met so far
  RETURN_IF_ERROR(model.EachValue(stream, [&](const NamedTensor& value) {
    const auto found = before_.find(value.name);
    if (found == before_.end() || !trained.contains(value.name)) return;
    const std::vector<std::byte>& before = found->second[slices[value.name]++];
    // In files all are of F32 or F64.
    VisitReal(value.tensor.dtype,
              [&]<typename T>() { Add<T>(before, value.tensor, sums[value.name]); });
  }));
  before_.clear();
  for (size_t g = 0; g < net.order.gradients.size() && !squares.empty(); ++g) {
    const std::string name =
        CanonicalName(model.plan().parameters.all()[net.order.gradients[g].parameter], "");
    const auto found = sums.find(name);
    if (found == sums.end()) continue;
    const ElementRange pieces = net.pieces.of_gradient[g];
    for (int64_t i = pieces.begin; i < pieces.end; ++i) found->second.gradient += squares[i];
  }
  std::vector<LoggedNorms> norms;
  for (const auto& [name, sum] : sums) {
    norms.push_back({.name = name, .value = std::sqrt(sum.value), .change = std::sqrt(sum.change)});
    if (!squares.empty()) norms.back().gradient = std::sqrt(sum.gradient);
  }
  return norms;
}

}  // namespace gyre
