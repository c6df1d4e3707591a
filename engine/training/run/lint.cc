#include "engine/training/run/lint.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "engine/training/feed/normalization_fit.h"
#include "models/schema/graph.h"

namespace gyre {
namespace {

struct UsualRates {
  absl::string_view optimizer;
  double least, most;
};
constexpr UsualRates kUsualRates[] = {{"sgd", 1e-7, 10},
                                      {"adam", 1e-7, 0.1},
                                      {"adamw", 1e-7, 0.1},
                                      {"lars", 1e-5, 100},
                                      {"lamb", 1e-6, 1}};

std::string TypeOf(const LayerConfig& layer) {
  return LayerConfig::descriptor()->FindFieldByNumber(layer.type_case())->name();
}

// A layer and the one that feeds its first input.
struct Pair {
  const LayerConfig& above;
  const LayerConfig& layer;
  bool sole_reader;  // of the one above
  bool loss;
};

struct PairRule {
  bool (*applies)(const Pair& pair);
  const char* text;  // about the layer above; $0: the layer's name; $1: the type above
};
constexpr PairRule kPairRules[] = {
    {[](const Pair& pair) {
       // One that has a name may be another layer's, too.
       const auto own_bias = [](const auto& config) {
         return config.use_bias() && config.bias().name().empty();
       };
       const bool bias = (pair.above.has_dense() && own_bias(pair.above.dense())) ||
                         (pair.above.has_conv2d() && own_bias(pair.above.conv2d())) ||
                         (pair.above.has_conv1d() && own_bias(pair.above.conv1d()));
       return bias && pair.sole_reader && pair.layer.has_batch_norm();
     },
     "its bias has no effect, because \"$0\" subtracts each channel's mean; write use_bias: false"},
    {[](const Pair& pair) {
       return TypeOf(pair.layer) == TypeOf(pair.above) + "_cross_entropy" ||
              (pair.above.has_sigmoid() && pair.layer.has_binary_cross_entropy());
     },
     "the loss \"$0\" applies $1 itself; feed it what this layer takes"},
    {[](const Pair& pair) {
       return pair.above.has_dropout() && pair.above.dropout().rate() > 0 && pair.loss;
     },
     "it zeroes what the loss \"$0\" measures; put it before the last layer with weights"},
};

// What is known of a layer, over all phases that it takes part in.
struct Facts {
  const LayerSpec* spec = nullptr;
  std::vector<std::set<const LayerConfig*>> readers;  // of each output
};

class Linter {
 public:
  Linter(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net, const ModelPlan& plan)
      : trainer_(trainer), net_(net) {
    // As the texts have them: a plan may have moved layers.
    const NetGraph train = Add(LayerConfig::TRAIN, *plan.train);
    for (const Node& node : train.nodes) CheckBatch(node, plan.train->spec.shape);
    if (!plan.test.empty()) Add(LayerConfig::TEST, *plan.test.front());
    CheckRate();
    CheckRanks(plan.train->spec.shape);
    CheckOrder(*plan.train);
    for (const Node& node : train.nodes) CheckPair(train, node);
    for (const LayerConfig& layer : net.message->layer()) CheckOutputs(layer);
  }
  std::vector<std::string> warnings() { return std::move(warnings_); }

 private:
  NetGraph Add(LayerConfig::Phase phase, const NetPlan& plan) {
    for (const NetNode& node : plan.spec.nodes) {
      Facts& facts = facts_[node.config];
      facts.spec = &node.spec;
      facts.readers.resize(
          std::ranges::count(node.spec.states, StateKind::kOutput, &StateSpec::kind));
    }
    absl::StatusOr<NetGraph> graph = BuildGraph(net_, phase);
    GYRE_CHECK(graph.ok());  // the plan was made of it
    for (const Node& node : graph->nodes) {
      for (const Source& source : node.inputs) {
        if (source.is_net_input) continue;
        facts_[graph->nodes[source.index].config].readers[source.output].insert(node.config);
      }
    }
    return *std::move(graph);
  }

  void Warn(const LayerConfig& layer, absl::string_view text) {
    warnings_.push_back(
        absl::StrFormat("%s: layer \"%s\": %s", net_.source->Where(layer), layer.name(), text));
  }

  void CheckRate() {
    const OptimizerConfig& optimizer = trainer_.message->optimizer();
    const std::string kind =
        optimizer.GetReflection()
            ->GetOneofFieldDescriptor(optimizer, optimizer.GetDescriptor()->FindOneofByName("kind"))
            ->name();
    const LearningRateConfig& rate = trainer_.message->learning_rate();
    for (const auto& [name, least, most] : kUsualRates) {
      if (name != kind || (rate.base() >= least && rate.base() <= most)) continue;
      warnings_.push_back(
          absl::StrFormat("%s: learning_rate.base: with %s rates are usually %g to %g, got %g",
                          trainer_.source->Where(rate, "base"), name, least, most, rate.base()));
    }
  }

  void CheckRanks(const RunShape& shape) {
    const DistributedConfig& distributed = trainer_.message->distributed();
    if (shape.ranks > 1 || distributed.sync() == DistributedConfig::ALLREDUCE) return;
    warnings_.push_back(absl::StrCat(
        trainer_.source->Where(distributed, "sync"),
        ": distributed.sync: a parameter server takes several ranks; this one trains without"));
  }

  void CheckOrder(const NetPlan& plan) {
    if (trainer_.message->data().order() == DataConfig::CONTIGUOUS) return;
    const LayerConfig* warned = nullptr;
    for (const CarriedState& carried : plan.spec.carried) {
      const LayerConfig* layer = plan.spec.nodes[carried.node].config;
      if (layer != std::exchange(warned, layer)) {
        Warn(*layer,
             "the rows that it carries from batch to batch meet unrelated samples, since "
             "these are shuffled; write order: CONTIGUOUS in the trainer's data");
      }
    }
  }

  void CheckPair(const NetGraph& graph, const Node& node) {
    if (node.inputs.front().is_net_input) return;
    const LayerConfig& above = *graph.nodes[node.inputs.front().index].config;
    const auto& readers = facts_[&above].readers;
    const Pair pair{.above = above,
                    .layer = *node.config,
                    .sole_reader = readers.size() == 1 && readers[0].size() == 1,
                    .loss = facts_[node.config].spec->loss_output >= 0};
    for (const PairRule& rule : kPairRules) {
      if (rule.applies(pair))
        Warn(above, absl::Substitute(rule.text, node.config->name(), TypeOf(above)));
    }
  }

  void CheckBatch(const Node& node, const RunShape& shape) {
    if (!node.config->has_batch_norm()) return;
    const Shape& x = facts_[node.config].spec->states[0].shape;
    const int64_t of_a_sample = x.elements(0, x.rank() - 1) / shape.local;
    const bool together = node.config->batch_norm().synchronised() || shape.ranks == 1;
    // Not this rank's: the smallest.
    const int64_t samples = together ? shape.global : shape.global / shape.ranks;
    if (of_a_sample * samples > 1) return;
    Warn(*node.config, absl::StrFormat("a channel has one value in %s batch, which is its own "
                                       "mean; raise the batch%s",
                                       together ? "the" : "a rank's",
                                       together ? "" : ", or write synchronised: true"));
  }

  void CheckOutputs(const LayerConfig& layer) {
    const auto found = facts_.find(&layer);
    if (found == facts_.end()) return;  // only in tests, and there are none
    const auto& [spec, readers] = found->second;
    if (spec->loss_output >= 0 || spec->metric >= 0) return;
    // A recurrent layer's sequence is there whoever reads what it ends with.
    const bool recurrent = layer.has_lstm() || layer.has_gru() || layer.has_rnn();
    const bool ends_are_read = recurrent && readers.size() == 2 && !readers[1].empty();
    for (size_t k = 0; k < readers.size(); ++k) {
      if (!readers[k].empty() || (k == 0 && ends_are_read)) continue;
      const std::string number = readers.size() == 1 ? "" : absl::StrCat(" ", k);
      Warn(layer, absl::StrCat("nobody reads its output", number,
                               ", and it is no loss or metric; name it as an input, or remove it"));
    }
  }

  const Parsed<TrainerConfig>& trainer_;
  const Parsed<NetConfig>& net_;
  std::map<const LayerConfig*, Facts> facts_;
  std::vector<std::string> warnings_;
};

}  // namespace

std::vector<std::string> Lint(const Parsed<TrainerConfig>& trainer, const Parsed<NetConfig>& net,
                              const ModelPlan& plan) {
  return Linter(trainer, net, plan).warnings();
}

std::vector<std::string> LintData(const Parsed<TrainerConfig>& trainer, const DataLook& look,
                                  std::span<const std::string> classes) {
  const DataConfig& data = trainer.message->data();
  std::vector<std::string> warnings;
  for (const LargeValue& large : look.large) {
    const auto setting = std::ranges::find_if(
        data.normalization(),
        [&](const NormalizationConfig& config) { return InputOf(config, data) == large.input; });
    const bool none = setting == data.normalization().end();
    const std::string advice =
        none ? absl::StrFormat("write normalization { input: \"%s\" auto: true }", large.input)
        : setting->auto_() ? "it is far from the others: correct it, or scale the input yourself "
                             "with mean and std in place of auto"
                           : "write auto: true in place of mean and std";
    warnings.push_back(absl::StrFormat(
        "%s: input \"%s\": sample %d (the first is 0) holds %g in channel %d, which is %g after "
        "normalization; training may fail with inputs beyond %g; %s",
        none ? trainer.source->Where(*trainer.message, "data") : trainer.source->Where(*setting),
        large.input, large.sample, large.stored, large.channel, large.normalized, kLargeInput,
        advice));
  }
  const auto most = std::ssize(classes);
  const auto taker = std::ranges::find_if(look.takers, [&](const LabelTaker& takes) {
    return takes.input == data.label_input() && most > 0 && takes.largest >= most;
  });
  if (taker != look.takers.end()) {
    warnings.push_back(
        absl::StrFormat("%s takes %d classes, but data.train has %d; write %d outputs", taker->who,
                        taker->largest + 1, most, most));
  }
  return warnings;
}

}  // namespace gyre
