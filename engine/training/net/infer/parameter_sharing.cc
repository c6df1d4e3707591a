#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/training/net/infer/inference_passes.h"

namespace gyre {
namespace {

// Whether the layer's text gives the state an initializer.  A parameter is named as a field of the
// layer's type.
bool GivesInitializer(const LayerConfig& layer, const std::string& state) {
  const auto* type = LayerConfig::descriptor()->FindFieldByNumber(layer.type_case());
  const google::protobuf::Message& config = layer.GetReflection()->GetMessage(layer, type);
  const auto* field = config.GetDescriptor()->FindFieldByName(state);
  if (field == nullptr || field->message_type() != ParameterConfig::descriptor()) return false;
  const auto& parameter =
      static_cast<const ParameterConfig&>(config.GetReflection()->GetMessage(config, field));
  return parameter.initializer().kind_case() != InitializerConfig::KIND_NOT_SET;
}

// As a net's text has it.
std::string ToString(const Initializer& initializer) {
  switch (initializer.kind) {
    case Initializer::Kind::kConstant:
      return absl::StrFormat("constant { value: %g }", initializer.value);
    case Initializer::Kind::kGaussian:
      return absl::StrFormat("gaussian { mean: %g std: %g }", initializer.mean, initializer.std);
    case Initializer::Kind::kXavier:
      return "xavier {}";
    case Initializer::Kind::kMsra:
      return "msra {}";
  }
  return "";
}

// Checks two parameters of one name.
absl::Status CheckShared(const NetNode& node, const Parameter& mine, const Parameter& first) {
  const auto refuse = [&](absl::string_view what, const std::string& here,
                          const std::string& there) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is \"%s\", as is %s of layer \"%s\"; parameters of one name are one, but its %s is "
        "%s and the other's %s",
        mine.spec.name, mine.spec.shared_name, first.spec.name, first.layer, what, here, there));
  };
  const StateSpec &a = mine.spec, &b = first.spec;
  if (first.owner == node.layer) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s and %s are both \"%s\"; a layer's own parameters cannot be one", b.name,
                        a.name, a.shared_name));
  }
  const std::string shapes[] = {a.canonical.ToString(), b.canonical.ToString()};
  if (shapes[0] != shapes[1]) return refuse("shape", shapes[0], shapes[1]);
  if (a.dtype != b.dtype) {
    return refuse("precision", std::string(DTypeName(a.dtype)), std::string(DTypeName(b.dtype)));
  }
  if (a.layout != b.layout || a.size_bytes() != b.size_bytes()) {
    return refuse("storage", a.layout.empty() ? "plain" : a.layout,
                  b.layout.empty() ? "plain" : b.layout);
  }
  if (a.trainable_from != b.trainable_from) {  // first, as a frozen one's multiplier is 0
    return refuse("trainable_from", absl::StrCat(a.trainable_from), absl::StrCat(b.trainable_from));
  }
  const std::pair<const char*, double StateSpec::*> multipliers[] = {
      {"learning_rate_multiplier", &StateSpec::learning_rate_multiplier},
      {"decay_multiplier", &StateSpec::decay_multiplier}};
  for (const auto& [what, field] : multipliers) {
    if (a.*field != b.*field) return refuse(what, absl::StrCat(a.*field), absl::StrCat(b.*field));
  }
  const std::string initializers[] = {ToString(a.initializer), ToString(b.initializer)};
  if (initializers[0] != initializers[1] && GivesInitializer(*node.config, a.name)) {
    return refuse("initializer", initializers[0], initializers[1]);
  }
  return absl::OkStatus();
}

// Checks a state against that of the net which made it.
absl::Status CheckSameSize(const StateSpec& state, const StateSpec& first) {
  if (first.dtype != state.dtype || first.size_bytes() != state.size_bytes()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s is %s %s in the training net, but would be %s %s here; nets of other "
                        "batch sizes share it, so it cannot depend on the batch",
                        state.name, first.shape.ToString(), DTypeName(first.dtype),
                        state.shape.ToString(), DTypeName(state.dtype)));
  }
  if (state.layout != first.layout || state.canonical != first.canonical) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is \"%s\" of the training net, but has the shape %s and storage \"%s\" there, %s and "
        "\"%s\" here; give it the same in both phases",
        state.name, state.shared_name, first.canonical.ToString(), first.layout,
        state.canonical.ToString(), state.layout));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status BindParameters(bool makes_them, NetNode& node, ParameterSet& parameters) {
  node.parameters.assign(node.spec.states.size(), -1);
  for (int i = 0; i < static_cast<int>(node.spec.states.size()); ++i) {
    const StateSpec& state = node.spec.states[i];
    if (state.kind != StateKind::kParameter && state.kind != StateKind::kBuffer) continue;
    const Parameter mine{
        .layer = node.config->name(), .spec = state, .state = i, .owner = node.layer};
    int index = parameters.Find(mine.name());
    if (index >= 0) {
      const Parameter& first = parameters.all()[index];
      if (absl::Status same =
              makes_them ? CheckShared(node, mine, first) : CheckSameSize(state, first.spec);
          !same.ok()) {
        return same;
      }
    } else if (makes_them) {
      index = static_cast<int>(parameters.all().size());
      parameters.Add(mine);
    } else {
      return absl::InvalidArgumentError(
          absl::StrFormat("has the parameter \"%s\", which the training net lacks; remove `phase: "
                          "TEST` or the layer",
                          state.name));
    }
    node.parameters[i] = index;
  }
  return absl::OkStatus();
}

}  // namespace gyre
