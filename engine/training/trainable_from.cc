#include "engine/training/trainable_from.h"

#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/message_differencer.h"

namespace gyre {
using google::protobuf::Message;

std::vector<const ParameterConfig*> ParametersIn(const Message& message) {
  if (message.GetDescriptor() == ParameterConfig::descriptor()) {
    return {static_cast<const ParameterConfig*>(&message)};
  }
  std::vector<const ParameterConfig*> all;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const auto* field : fields) {
    if (field->message_type() == nullptr) continue;
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const auto some =
          ParametersIn(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                            : reflection.GetMessage(message, field));
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

absl::Status CheckTrainableFrom(const NetConfig& net, const SourceMap& source) {
  std::set<int64_t> values;
  for (const LayerConfig& layer : net.layer()) {
    for (const ParameterConfig* const parameter : ParametersIn(layer)) {
      const int64_t from = parameter->trainable_from();
      const auto refused = [&](const auto&... why) {
        return absl::InvalidArgumentError(absl::StrCat(source.Where(*parameter, "trainable_from"),
                                                       ": layer \"", layer.name(),
                                                       "\": trainable_from ", why...));
      };
      if (from == 0) continue;
      if (from < 0) return refused("must be >= 0, got ", from);
      if (parameter->learning_rate_multiplier() == 0) {
        return refused("is ", from,
                       ", but a learning_rate_multiplier of 0 never trains; leave one ",
                       "of them out");
      }
      if (values.insert(from).second && values.size() > kMostTrainableFrom) {
        return refused("is ", from, ", but the layers before have ", kMostTrainableFrom,
                       " other steps above 0, and a net has no more; use one of them");
      }
    }
  }
  return absl::OkStatus();
}

std::vector<int64_t> PhasesOf(const NetConfig& net) {
  std::set<int64_t> phases = {0};
  for (const auto* parameter : ParametersIn(net)) phases.insert(parameter->trainable_from());
  return {phases.begin(), phases.end()};
}

bool EqualBefore(int64_t step, const NetConfig& a, const NetConfig& b) {
  NetConfig both[] = {a, b};
  for (NetConfig& net : both) {
    for (const ParameterConfig* const of_copy : ParametersIn(net)) {
      auto& parameter = const_cast<ParameterConfig&>(*of_copy);
      const int64_t from = parameter.trainable_from();
      if (from == 0) parameter.clear_trainable_from();
      if (from >= step && from > 0) {
        parameter.set_trainable_from(std::numeric_limits<int64_t>::max());
      }
    }
  }
  return google::protobuf::util::MessageDifferencer::Equals(both[0], both[1]);
}

}  // namespace gyre
