// blocks.cc: see blocks.h.  Depth first: a user becomes copies, of which some may be users again.
#include "models/schema/blocks.h"

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "models/schema/describe.h"
#include "models/schema/overrides.h"
#include "models/schema/validate.h"

namespace gyre {
namespace {

// A use of a block, being put in place.
struct BlockUse {
  const LayerConfig& user;
  const BlockConfig& block;
  int64_t repetition;               // from 1
  std::string name;                 // of this repetition; its copies are called NAME-LAYER
  std::string where;                // of the user
  std::vector<std::string> inputs;  // names, by the block's inputs
};

class Expander {
 public:
  Expander(NetConfig& net, SourceMap& source) : net_(net), source_(source) {}

  absl::Status Expand() {
    for (const BlockConfig& block : net_.block()) {
      if (absl::Status status = Add(block); !status.ok()) return status;
    }
    // Users stay alive until the end, so that no copy gets the address of one.
    std::vector<std::unique_ptr<LayerConfig>> layers(net_.layer_size());
    for (int i = net_.layer_size(); i-- > 0;) layers[i].reset(net_.mutable_layer()->ReleaseLast());
    for (auto& layer : layers) {
      if (!layer->has_use()) {
        net_.mutable_layer()->AddAllocated(layer.release());
      } else {
        if (absl::Status status = Replace(*layer); !status.ok()) return status;
      }
    }
    for (const InputConfig& input : net_.input()) {
      if (outputs_.contains(input.name())) {
        return Error(input, "name", 0,
                     "input \"" + input.name() +
                         "\": the name is already that of a layer that uses a block");
      }
    }
    for (LayerConfig& layer : *net_.mutable_layer()) {
      if (outputs_.contains(layer.name())) {
        return Error(layer, "name", 0,
                     Label(layer) + "the name is already that of a layer that uses a block");
      }
      for (std::string& input : *layer.mutable_input())
        Rename(input, [this](const std::string& name) { return Meant(name); });
    }
    net_.clear_block();
    return absl::OkStatus();
  }

 private:
  absl::Status Error(const google::protobuf::Message& message, const std::string& field, int index,
                     absl::string_view text) const {
    return absl::InvalidArgumentError(
        absl::StrCat(source_.Where(message, field, index), ": ", text));
  }

  static std::string Label(const LayerConfig& user) {
    return absl::StrCat("layer \"", user.name(), "\": ");
  }

  absl::Status Add(const BlockConfig& block) {
    const std::string label = absl::StrCat("block \"", block.name(), "\": ");
    if (block.name().empty()) {
      return Error(block, "name", 0, "block: missing name; write name: \"residual\"");
    }
    if (!blocks_.emplace(block.name(), &block).second) {
      return Error(block, "name", 0, label + "the name is already that of a block above");
    }
    if (block.layer_size() == 0) return Error(block, "", 0, label + "has no layer");
    std::vector<std::string> names, arguments;
    for (const LayerConfig& layer : block.layer()) {
      names.push_back(layer.name());
      if (!layer.name().empty()) continue;
      return Error(layer, "name", 0, label + "a layer without a name; write name: \"conv1\"");
    }
    std::vector<std::string> taken = names;
    for (int i = 0; i < block.input_size(); ++i) {
      const std::string& input = block.input(i);
      if (input.empty()) {
        return Error(block, "input", i, label + "an input without a name; write input: \"x\"");
      }
      if (std::ranges::count(taken, input) > 0) {
        return Error(block, "input", i,
                     absl::StrCat(label, "input \"", input,
                                  "\": the name is already that of another input or of a layer"));
      }
      taken.push_back(input);
    }
    for (const ArgumentConfig& argument : block.argument()) {
      if (std::ranges::count(arguments, argument.name()) > 0) {
        return Error(argument, "name", 0,
                     absl::StrCat(label, "two arguments are called \"", argument.name(), "\""));
      }
      arguments.push_back(argument.name());
      if (argument.name().empty() || argument.sets_size() == 0) {
        return Error(argument, "", 0,
                     label +
                         "an argument needs a name and a field: argument { name: \"filters\" "
                         "sets: \"conv1.conv2d.filters\" }");
      }
      for (int i = 0; i < argument.sets_size(); ++i) {
        const auto [layer, field] = Target(argument.sets(i));
        if (std::ranges::count(names, layer) == 0) {
          return Error(argument, "sets", i, label + Unknown("layer", layer, names));
        }
        // What says where a copy stands is the block's own.
        const std::string first = Target(field).first;
        if (first.empty() || first == "name" || first == "input" || first == "phase" ||
            first == "use") {
          return Error(argument, "sets", i,
                       absl::StrCat(label, "an argument sets a field of a layer's type, such as ",
                                    layer, ".conv2d.filters, got \"", argument.sets(i), "\""));
        }
      }
    }
    return absl::OkStatus();
  }

  // "conv1.conv2d.filters": the layer, and the field's path in it.
  static std::pair<std::string, std::string> Target(const std::string& path) {
    const size_t dot = path.find('.');
    if (dot == std::string::npos) return {path, ""};
    return {path.substr(0, dot), path.substr(dot + 1)};
  }

  absl::Status Replace(const LayerConfig& user) {
    const UseConfig& use = user.use();
    if (user.name().empty()) {
      return Error(user, "name", 0, "layer: missing name; write name: \"stage1\"");
    }
    const auto found = blocks_.find(use.block());
    if (found == blocks_.end()) {
      std::vector<std::string> names;
      for (const auto& [name, block] : blocks_) names.push_back(name);
      return Error(use, "block", 0,
                   Label(user) + (names.empty() ? "the net has no block; write block { name: \"" +
                                                      use.block() + "\" layer { ... } }"
                                                : Unknown("block", use.block(), names)));
    }
    const BlockConfig& block = *found->second;
    if (user.type_case() != LayerConfig::TYPE_NOT_SET) {
      return Error(user, "use", 0, Label(user) + "uses a block and has a type; write one of them");
    }
    if (use.repeat() < 1 || use.repeat() > kMostLayers) {
      return Error(use, "repeat", 0,
                   absl::StrCat(Label(user), "repeat must be >= 1 and <= ", kMostLayers, ", got ",
                                use.repeat()));
    }
    // As Validate bounds names; it bounds the depth of uses, too.
    if (user.name().size() > kLongestName) {
      return Error(user, "name", 0,
                   absl::StrCat(Label(user), "a name has at most ", kLongestName, " characters"));
    }
    if (const auto way = std::ranges::find(path_, &block); way != path_.end()) {
      std::string text = Label(user) + "block \"" + block.name() + "\" uses itself: ";
      for (auto it = way; it != path_.end(); ++it) absl::StrAppend(&text, (*it)->name(), " -> ");
      return Error(use, "block", 0, text + block.name());
    }
    absl::StatusOr<std::vector<std::string>> found_inputs = Inputs(user, block);
    if (!found_inputs.ok()) return found_inputs.status();
    std::vector<std::string>& inputs = *found_inputs;
    path_.push_back(&block);
    std::string last;
    for (int64_t k = 1; k <= use.repeat(); ++k) {
      last = use.repeat() == 1 ? user.name() : absl::StrCat(user.name(), "-", k);
      if (absl::Status status = Place({user, block, k, last, source_.Where(user), inputs});
          !status.ok())
        return status;
      last = absl::StrCat(last, "-", block.layer(block.layer_size() - 1).name());
      if (inputs.empty()) inputs.emplace_back();
      inputs[0] = last;
    }
    path_.pop_back();
    if (outputs_.emplace(user.name(), last).second) return absl::OkStatus();
    return Error(user, "name", 0,
                 Label(user) + "the name is already that of another layer that uses a block");
  }

  // The names that the block's inputs stand for; a block that names none may be given its first
  // layer's.
  absl::StatusOr<std::vector<std::string>> Inputs(const LayerConfig& user,
                                                  const BlockConfig& block) const {
    std::vector<std::string> inputs(user.input().begin(), user.input().end());
    const int given = user.input_size(), expected = block.input_size();
    if (given == 0 && expected == 1) {
      const int above = net_.layer_size() - 1;
      if (above >= 0 && net_.layer(above).phase() != LayerConfig::ALWAYS &&
          net_.layer(above).phase() != user.phase()) {
        return Error(
            user, "", 0,
            absl::StrCat(Label(user), "the layer above, \"", net_.layer(above).name(),
                         "\", is of phase ", LayerConfig::Phase_Name(net_.layer(above).phase()),
                         " only; say what block \"", block.name(), "\" takes as input"));
      }
      if (above < 0 && net_.input_size() == 0) {
        return Error(user, "", 0, Label(user) + "nothing to take as input");
      }
      inputs.push_back(above >= 0 ? net_.layer(above).name() : net_.input(0).name());
    } else if (expected == 0 && (given == 1 || user.use().repeat() > 1) &&
               block.layer(0).input_size() > 0) {
      return Error(user, "use", 0,
                   absl::StrCat(Label(user), "block \"", block.name(), "\" has no input that ",
                                given == 1 ? "this" : "a chain",
                                " could feed: its first layer says its own; write input: \"x\" in "
                                "the block, and input: \"x\" in that layer"));
    } else if (given != expected && !(expected == 0 && given == 1)) {
      return Error(
          user, "input", 0,
          absl::StrCat(
              Label(user), "block \"", block.name(), "\" takes ", expected,
              expected == 1 ? " input" : " inputs",
              expected == 0 ? "" : absl::StrCat(" (", absl::StrJoin(block.input(), ", "), ")"),
              ", got ", given));
    }
    return inputs;
  }

  absl::Status Place(const BlockUse& use) {
    std::map<std::string, std::string> names;  // what the block's layers may call another
    for (int i = 0; i < use.block.input_size(); ++i) names[use.block.input(i)] = use.inputs[i];
    for (const LayerConfig& layer : use.block.layer()) {
      names[layer.name()] = absl::StrCat(use.name, "-", layer.name());
    }
    const absl::StatusOr<std::vector<ArgumentValue>> values = Values(use);
    if (!values.ok()) return values.status();
    // Of the phases in which a layer of this copy stands above.
    std::vector<LayerConfig::Phase> placed;
    const bool given = use.user.input_size() > 0 && use.repetition == 1;
    for (const LayerConfig& layer : use.block.layer()) {
      const auto phase = use.user.phase();
      if (phase != LayerConfig::ALWAYS && layer.phase() != LayerConfig::ALWAYS &&
          layer.phase() != phase) {
        continue;
      }
      if (++copies_ > kMostLayers) {
        return Error(
            use.user, "", 0,
            absl::StrCat(Label(use.user), "the net has more than ", kMostLayers, " layers"));
      }
      auto copy = std::make_unique<LayerConfig>(layer);
      source_.AddCopy(layer, *copy, use.where);
      if (absl::Status status = SetArguments(use, *values, layer.name(), *copy); !status.ok())
        return status;
      if (phase != LayerConfig::ALWAYS) copy->set_phase(phase);
      if (use.user.has_precision() && !copy->has_precision()) {
        copy->set_precision(use.user.precision());
      }
      copy->set_name(names[layer.name()]);
      for (std::string& input : *copy->mutable_input()) {
        Rename(input, [&names](const std::string& name) {
          const auto it = names.find(name);
          return it == names.end() ? name : it->second;
        });
      }
      // Where the user says no input, the layer above is the right one in either phase.
      if (given && copy->input_size() == 0) {
        if (placed.empty()) {
          copy->add_input(use.inputs[0]);
        } else if (std::ranges::count(placed, copy->phase()) == 0 &&
                   std::ranges::count(placed, phase) == 0) {
          return Error(
              *copy, "", 0,
              absl::StrCat(Label(*copy), "in one of the phases no layer of block \"",
                           use.block.name(), "\" is above it; say what it takes as input"));
        }
      }
      placed.push_back(copy->phase());
      if (copy->has_use()) {
        if (absl::Status status = Replace(*copy); !status.ok()) return status;
        users_.push_back(std::move(copy));
      } else {
        net_.mutable_layer()->AddAllocated(copy.release());
      }
    }
    return absl::OkStatus();
  }

  struct ArgumentValue {
    const ArgumentConfig* argument;
    std::string text;
    std::string where;
  };

  // Of each argument: what the user says, else the default.
  absl::StatusOr<std::vector<ArgumentValue>> Values(const BlockUse& use) const {
    const std::string label = Label(use.user);
    std::vector<ArgumentValue> values;
    std::vector<std::string> names;
    for (const ArgumentConfig& argument : use.block.argument()) {
      names.push_back(argument.name());
      values.push_back({&argument, argument.default_(), source_.Where(argument, "default")});
    }
    std::vector<bool> given(values.size());
    const UseConfig& config = use.user.use();
    for (int i = 0; i < config.set_size(); ++i) {
      const std::string& set = config.set(i);
      const size_t equals = set.find('=');
      if (equals == std::string::npos) {
        return Error(config, "set", i,
                     absl::StrCat(label, "expected ARGUMENT=VALUE, got \"", set, "\""));
      }
      const auto at = std::ranges::find(names, set.substr(0, equals)) - names.begin();
      if (at == std::ssize(names)) {
        return Error(config, "set", i, label + Unknown("argument", set.substr(0, equals), names));
      }
      if (given[at]) {
        return Error(config, "set", i,
                     absl::StrCat(label, "argument \"", names[at], "\" is set twice"));
      }
      given[at] = true;
      values[at].text = set.substr(equals + 1);
      values[at].where = source_.Where(config, "set", i);
    }
    for (size_t i = 0; i < values.size(); ++i) {
      if (given[i] || values[i].argument->has_default_()) continue;
      return Error(config, "", 0,
                   absl::StrCat(label, "block \"", use.block.name(), "\" needs ", names[i],
                                "; write set: \"", names[i], "=VALUE\""));
    }
    return values;
  }

  absl::Status SetArguments(const BlockUse& use, std::span<const ArgumentValue> values,
                            const std::string& layer, LayerConfig& copy) {
    for (const ArgumentValue& value : values) {
      for (const std::string& path : value.argument->sets()) {
        const auto [name, field] = Target(path);
        if (name != layer) continue;
        absl::Status status;
        std::vector<Touched> touched;
        if (copy.has_use()) {  // an argument of the block that it uses
          copy.mutable_use()->add_set(absl::StrCat(field, "=", value.text));
        } else {
          status = Set(copy, field, value.text, value.where, &touched);
        }
        if (!status.ok()) {
          return absl::InvalidArgumentError(absl::StrCat(
              value.where, ": ", Label(use.user), "argument \"", value.argument->name(),
              "\" of block \"", use.block.name(), "\", which sets ", path, ": ", status.message()));
        }
        for (const Touched& t : touched) source_.AddOverride(*t.message, t.field, t.override);
      }
    }
    return absl::OkStatus();
  }

  // Of "NAME" and "NAME:K" the name.
  template <typename NewName>
  static void Rename(std::string& input, const NewName& new_name) {
    const size_t colon = std::min(input.find(':'), input.size());
    input = absl::StrCat(new_name(input.substr(0, colon)), input.substr(colon));
  }

  // Follows a user's name to the layer whose output it stands for.
  const std::string& Meant(const std::string& name) const {
    const std::string* meant = &name;
    for (auto it = outputs_.find(name); it != outputs_.end(); it = outputs_.find(*meant)) {
      meant = &it->second;
    }
    return *meant;
  }

  NetConfig& net_;
  SourceMap& source_;
  std::map<std::string, const BlockConfig*> blocks_;
  std::vector<const BlockConfig*> path_;        // of the uses that are being put in place
  std::map<std::string, std::string> outputs_;  // of a user
  std::vector<std::unique_ptr<LayerConfig>> users_;
  int64_t copies_ = 0;  // users among them
};

}  // namespace

absl::Status ExpandBlocks(NetConfig& net, SourceMap& source) {
  return Expander(net, source).Expand();
}

}  // namespace gyre
