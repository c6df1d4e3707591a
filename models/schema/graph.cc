// graph.cc: see graph.h.  In file order first (who takes part, who feeds whom), then sorted.
//
// With V layers and E edges: O(V log V + E log V).
#include "models/schema/graph.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "models/schema/describe.h"

namespace gyre {
namespace {

// What a name in `input` may stand for.
struct Producer {
  Source source;                        // index: of a net input, or of a node in file order
  const LayerConfig* absent = nullptr;  // a layer that does not take part in the phase
};

class Builder {
 public:
  Builder(const Parsed<NetConfig>& net, LayerConfig::Phase phase)
      : net_(*net.message), source_(*net.source), phase_(phase) {}

  absl::StatusOr<NetGraph> Build() {
    for (int i = 0; i < net_.input_size(); ++i) {
      producers_.emplace(net_.input(i).name(), Producer{{true, i}});
    }
    for (const LayerConfig& layer : net_.layer()) {
      const bool present = layer.phase() == LayerConfig::ALWAYS || layer.phase() == phase_;
      const int index = static_cast<int>(nodes_.size());
      producers_.emplace(layer.name(), Producer{{false, index}, present ? nullptr : &layer});
      if (present) nodes_.push_back({&layer, {}});
    }
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (absl::Status status = Connect(static_cast<int>(i)); !status.ok()) return status;
    }
    return Sort();
  }

 private:
  absl::Status Error(const LayerConfig& layer, std::string_view field, int index,
                     absl::string_view text) const {
    return absl::InvalidArgumentError(
        absl::StrCat(source_.Where(layer, field, index), ": layer \"", layer.name(), "\": ", text));
  }

  absl::Status Connect(int node) {
    const LayerConfig& layer = *nodes_[node].config;
    std::vector<Source>& inputs = nodes_[node].inputs;
    if (layer.input_size() == 0) {
      if (node == 0 && net_.input_size() == 0) {
        return Error(layer, "", 0,
                     "nothing to take as input: no layer above it, and the net has no input; write "
                     "input { name: \"image\" dims: 28 dims: 28 dims: 1 }");
      }
      inputs.push_back(node == 0 ? Source{true, 0} : Source{false, node - 1});
      return absl::OkStatus();
    }
    for (int i = 0; i < layer.input_size(); ++i) {
      const auto [name, output] = OutputNamed(layer.input(i));
      if (output < 0) {
        return Error(layer, "input", i,
                     absl::StrCat("input \"", layer.input(i),
                                  "\": expected NAME, or NAME:K with K "
                                  "the number of one of its outputs"));
      }
      const auto producer = producers_.find(name);
      if (producer == producers_.end()) {
        std::vector<std::string> names;
        for (const InputConfig& input : net_.input()) names.push_back(input.name());
        for (const Node& other : nodes_) names.push_back(other.config->name());
        return Error(layer, "input", i, Unknown("input", name, names));
      }
      if (const LayerConfig* absent = producer->second.absent) {
        return Error(
            layer, "input", i,
            absl::StrCat("input \"", absent->name(), "\" is a layer of phase ",
                         LayerConfig::Phase_Name(absent->phase()),
                         " only and does not exist in phase ", LayerConfig::Phase_Name(phase_)));
      }
      if (producer->second.source.is_net_input && output > 0) {
        return Error(layer, "input", i,
                     absl::StrCat("input \"", layer.input(i), "\": \"", name,
                                  "\" is an input of the net, not a layer with several outputs"));
      }
      inputs.push_back(producer->second.source);
      inputs.back().output = output;
    }
    return absl::OkStatus();
  }

  // NAME or NAME:K; K is -1 if it is no number of an output.
  static std::pair<std::string, int> OutputNamed(const std::string& input) {
    const size_t colon = input.find(':');
    if (colon == std::string::npos) return {input, 0};
    constexpr size_t kMostDigits = 4;
    const std::string digits = input.substr(colon + 1);
    const bool good = !digits.empty() && digits.size() <= kMostDigits &&
                      std::ranges::all_of(digits, absl::ascii_isdigit);
    return {input.substr(0, colon), good ? std::stoi(digits) : -1};
  }

  // Kahn's algorithm; of the layers that could come next, the first in the file does.
  absl::StatusOr<NetGraph> Sort() {
    std::vector<int> missing(nodes_.size());  // inputs that are not yet in the order
    std::vector<std::vector<int>> users(nodes_.size());
    std::priority_queue<int, std::vector<int>, std::greater<>> ready;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      for (const Source& input : nodes_[i].inputs) {
        if (input.is_net_input) continue;
        ++missing[i];
        users[input.index].push_back(static_cast<int>(i));
      }
      if (missing[i] == 0) ready.push(static_cast<int>(i));
    }
    NetGraph graph;
    std::vector<int> position(nodes_.size(), -1);
    while (!ready.empty()) {
      const int node = ready.top();
      ready.pop();
      position[node] = static_cast<int>(graph.nodes.size());
      graph.nodes.push_back(nodes_[node]);
      for (const int user : users[node]) {
        if (--missing[user] == 0) ready.push(user);
      }
    }
    if (graph.nodes.size() != nodes_.size()) return Cycle(position);
    for (Node& node : graph.nodes) {
      for (Source& input : node.inputs) {
        if (!input.is_net_input) input.index = position[input.index];
      }
    }
    return graph;
  }

  // Each node without a position has an input without one, so walking up such inputs ends in a
  // cycle.
  absl::Status Cycle(const std::vector<int>& position) const {
    int node = static_cast<int>(std::find(position.begin(), position.end(), -1) - position.begin());
    std::vector<int> walked;
    std::vector<bool> seen(nodes_.size());
    while (!seen[node]) {
      seen[node] = true;
      walked.push_back(node);
      for (const Source& input : nodes_[node].inputs) {
        if (!input.is_net_input && position[input.index] < 0) {
          node = input.index;
          break;
        }
      }
    }
    // From the first time at `node`, against the data's direction; told from the layer that is
    // first in the file, in the data's direction.
    std::vector<int> cycle(std::find(walked.begin(), walked.end(), node), walked.end());
    std::reverse(cycle.begin(), cycle.end());
    std::rotate(cycle.begin(), std::min_element(cycle.begin(), cycle.end()), cycle.end());
    const LayerConfig& first = *nodes_[cycle.front()].config;
    if (cycle.size() == 1) return Error(first, "input", 0, "takes its own output as input");
    std::string text = "cycle: ";
    for (const int i : cycle) absl::StrAppend(&text, "\"", nodes_[i].config->name(), "\" -> ");
    return Error(first, "input", 0, absl::StrCat(text, "\"", first.name(), "\""));
  }

  const NetConfig& net_;
  const SourceMap& source_;
  const LayerConfig::Phase phase_;
  std::map<std::string, Producer> producers_;
  std::vector<Node> nodes_;  // in file order; inputs' indices likewise, until sorted
};

}  // namespace

absl::StatusOr<NetGraph> BuildGraph(const Parsed<NetConfig>& net, LayerConfig::Phase phase) {
  return Builder(net, phase).Build();
}

void WriteInputs(const NetGraph& graph, NetConfig& net) {
  std::map<std::string, const Node*> nodes;
  for (const Node& node : graph.nodes) nodes.emplace(node.config->name(), &node);
  for (LayerConfig& layer : *net.mutable_layer()) {
    const auto found = nodes.find(layer.name());
    if (found == nodes.end() || layer.input_size() > 0) continue;
    const Source& source = found->second->inputs.front();
    layer.add_input(source.is_net_input ? net.input(source.index).name()
                                        : graph.nodes[source.index].config->name());
  }
}

}  // namespace gyre
