// Norms of each trained parameter, of its gradient, and of what a step changed of it.  All ranks
// call both functions, at the same steps, when they have all values.

#include <cmath>
#include <set>

#include "engine/training/run/trainer.h"

namespace gyre {
namespace {

std::string NameOf(const Model& model, const BucketedGradient& gradient) {
  return CanonicalName(model.plan().parameters.all()[gradient.parameter], "");
}

template <typename T>
void AddSquares(std::span<const std::byte> before, const Tensor& now, LoggedNorms& squares) {
  const T* const was = reinterpret_cast<const T*>(before.data());
  for (int64_t i = 0; i < now.elements(); ++i) {
    const double value = now.as<T>()[i], change = value - was[i];
    squares.value += value * value;
    squares.change += change * change;
  }
}

}  // namespace

absl::Status Trainer::RememberValues() {
  RETURN_IF_ERROR(FinishAll());
  std::set<std::string> trained;
  const NetPlan& net = NetsOf(state_->step()).net().plan();
  for (const BucketedGradient& gradient : net.order.gradients) {
    trained.insert(NameOf(*model_, gradient));
  }
  return model_->EachValue(*stream_, [&](const NamedTensor& value) {
    if (communication_.rank() != 0 || !trained.contains(value.name)) return;
    const auto* const bytes = static_cast<const std::byte*>(value.tensor.data);
    values_before_[value.name].emplace_back(bytes, bytes + value.tensor.bytes());
  });
}

absl::Status Trainer::LogNorms() {
  RETURN_IF_ERROR(FinishAll());
  const auto before = std::exchange(values_before_, {});
  // By piece (ParameterPieces), or empty where no rank knows them.
  ASSIGN_OR_RETURN(const std::vector<double> squares, training_step_->GradientSquares());
  std::map<std::string, LoggedNorms> norms;  // squares first
  std::map<std::string, size_t> slices;      // met so far
  RETURN_IF_ERROR(model_->EachValue(*stream_, [&](const NamedTensor& value) {
    const auto found = before.find(value.name);
    if (found == before.end()) return;
    const std::vector<std::byte>& was = found->second[slices[value.name]++];
    // In files all are of F32 or F64.
    VisitReal(value.tensor.dtype,
              [&]<typename T>() { AddSquares<T>(was, value.tensor, norms[value.name]); });
  }));
  const NetPlan& net = NetsOf(state_->step() - 1).net().plan();
  for (size_t g = 0; g < net.order.gradients.size() && !squares.empty(); ++g) {
    const auto found = norms.find(NameOf(*model_, net.order.gradients[g]));
    if (found == norms.end()) continue;  // as on ranks other than 0
    double sum = found->second.gradient.value_or(0);
    const ElementRange pieces = net.pieces.of_gradient[g];
    for (int64_t i = pieces.begin; i < pieces.end; ++i) sum += squares[i];
    found->second.gradient = sum;
  }
  for (auto& [name, of] : norms) {
    of = {.value = std::sqrt(of.value), .gradient = of.gradient, .change = std::sqrt(of.change)};
    if (of.gradient) of.gradient = std::sqrt(*of.gradient);
  }
  MetricsLog* const log = state_->log();
  return log ? log->Norms(state_->step(), norms) : absl::OkStatus();
}

}  // namespace gyre
