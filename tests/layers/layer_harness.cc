#include "tests/layers/layer_harness.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "tests/layers/layer_rank.h"

namespace gyre {
namespace {

using Ranks = std::vector<std::unique_ptr<LayerRank>>;

void Add(Doubles& to, const Doubles& from) {
  if (to.empty()) to.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) to[i] += from[i];
}

// What the net's ranks do together.
absl::Status SumOverRanks(Ranks& ranks, size_t state) {
  Doubles sum;
  for (auto& rank : ranks) {
    ASSIGN_OR_RETURN(const Doubles values, rank->StateValues(state));
    Add(sum, values);
  }
  for (auto& rank : ranks) RETURN_IF_ERROR(rank->SetStateValues(state, sum));
  return absl::OkStatus();
}

// `run` is one phase of one rank.  Errors: Internal if a statistic is summed twice.
template <typename Run>
absl::Status RunPass(Ranks& ranks, int phases, int StateSpec::*due_after, Run run) {
  const LayerSpec& spec = ranks[0]->spec();
  std::set<size_t> summed;
  return RunPhases(
      spec, phases, due_after,
      [&](int phase) {
        for (auto& rank : ranks) RETURN_IF_ERROR(run(*rank, phase));
        return absl::OkStatus();
      },
      [&](size_t state) {
        if (summed.insert(state).second) return SumOverRanks(ranks, state);
        return absl::InternalError(spec.states[state].name + " was summed twice");
      });
}

// Also says what each output is as a whole.
absl::StatusOr<std::vector<Values>> CollectForward(Ranks& ranks, RunResult& result) {
  std::vector<Values> outputs;
  const size_t inputs = result.input_gradients.size();
  for (size_t k = 0; k < ranks[0]->outputs(); ++k) {
    std::vector<Values> parts;
    for (auto& rank : ranks) {
      ASSIGN_OR_RETURN(parts.emplace_back(), rank->Output(k));
    }
    outputs.push_back(Join(parts, ranks[0]->batch_axis(inputs + k)));
    const Doubles& values = outputs.back().values;
    result.output.insert(result.output.end(), values.begin(), values.end());
    result.output_sizes.push_back(static_cast<int64_t>(values.size()));
  }
  for (auto& rank : ranks) {
    if (const int metric = rank->spec().metric; metric >= 0) {
      ASSIGN_OR_RETURN(const Doubles sums, rank->StateValues(static_cast<size_t>(metric)));
      Add(result.metric, sums);
    }
    if (const int records = rank->spec().records; records >= 0) {
      ASSIGN_OR_RETURN(const Doubles own, rank->StateValues(static_cast<size_t>(records)));
      result.records.insert(result.records.end(), own.begin(), own.end());
    }
    ASSIGN_OR_RETURN(const Fault fault, rank->TheFault());
    result.fault.word = std::min(result.fault.word, fault.word);
  }
  for (size_t i = 0; i < result.spec.states.size(); ++i) {
    const StateSpec& state = result.spec.states[i];
    if (state.kind == StateKind::kBuffer) {
      ASSIGN_OR_RETURN(result.buffers.emplace_back(), ranks[0]->StateValues(i));
    }
    if (state.carried_to < 0) continue;
    std::vector<Values> parts;
    for (auto& rank : ranks) {
      ASSIGN_OR_RETURN(parts.emplace_back(), rank->Whole(i));
    }
    result.carried.push_back(Join(parts, ranks[0]->batch_axis(state.carried_to)).values);
  }
  return outputs;
}

absl::Status CollectBackward(const LayerCase& layer, Ranks& ranks, RunResult& result) {
  size_t parameter = 0;
  for (size_t i = 0; i < result.spec.states.size(); ++i) {
    const bool is_parameter = result.spec.states[i].kind == StateKind::kParameter;
    if (i >= layer.inputs.size() && !is_parameter) continue;
    const size_t at = is_parameter ? parameter++ : i;
    if (!ranks[0]->HasGradient(i)) continue;
    std::vector<Values> parts;
    for (auto& rank : ranks) {
      if (is_parameter) {
        ASSIGN_OR_RETURN(const Doubles values, rank->Parameter(i, /*gradient=*/true));
        Add(result.parameter_gradients[at], values);
      } else {
        ASSIGN_OR_RETURN(parts.emplace_back(), rank->InputGradient(i));
      }
    }
    if (!is_parameter) result.input_gradients[at] = Join(parts, layer.inputs[i].batch_axis).values;
  }
  return absl::OkStatus();
}

// dL/doutput of each output, in place of its values.
void SetOutputGradients(const LayerCase& layer, std::vector<Values>& outputs) {
  int64_t at = 0;
  for (Values& output : outputs) {
    for (double& dy : output.values) {
      dy = layer.output_gradient.empty() ? RandomCotangent(at) : layer.output_gradient[at];
      ++at;
    }
  }
}

}  // namespace

absl::StatusOr<RunResult> RunLayer(const LayerCase& layer, const RunOptions& options) {
  const TestDevice opened = OpenTestDevice(options.device, options.threads);
  const int64_t samples = layer.samples();
  std::vector<std::unique_ptr<LayerRank>> ranks;
  for (int r = 0; r < options.ranks; ++r) {
    const int64_t begin = samples * r / options.ranks, end = samples * (r + 1) / options.ranks;
    const Primitives& primitives =
        options.primitives != nullptr ? *options.primitives : *opened.primitives;
    ranks.push_back(std::make_unique<LayerRank>(*opened.device, primitives, options));
    const LayerCase local = options.ranks == 1 ? layer : Slice(layer, begin, end);
    RETURN_IF_ERROR(ranks.back()->Make(local, samples));
    RETURN_IF_ERROR(
        ranks.back()->Allocate(local, options.first_sample + static_cast<uint64_t>(begin)));
  }
  RunResult result;
  result.spec = ranks[0]->spec();
  result.input_gradients.resize(layer.inputs.size());
  for (size_t i = 0; i < result.spec.states.size(); ++i) {
    if (result.spec.states[i].kind != StateKind::kParameter) continue;
    ASSIGN_OR_RETURN(result.parameters.emplace_back(), ranks[0]->Parameter(i, /*gradient=*/false));
  }
  RETURN_IF_ERROR(RunPass(ranks, result.spec.forward_phases, &StateSpec::summed_after,
                          [](LayerRank& rank, int phase) { return rank.Forward(phase); }));
  for (auto& rank : ranks) {
    if (options.recompute) RETURN_IF_ERROR(rank->Recompute());
  }
  ASSIGN_OR_RETURN(std::vector<Values> outputs, CollectForward(ranks, result));
  if (!outputs.empty()) result.output_shape = result.spec.states[layer.inputs.size()].shape;
  if (!options.train || !options.backward) return result;
  result.parameter_gradients.resize(result.parameters.size());
  SetOutputGradients(layer, outputs);
  std::vector<int64_t> first(outputs.size());
  for (auto& rank : ranks) RETURN_IF_ERROR(rank->BeginBackward(outputs, first));
  RETURN_IF_ERROR(RunPass(ranks, result.spec.backward_phases, &StateSpec::summed_after_backward,
                          [](LayerRank& rank, int phase) { return rank.Backward(phase); }));
  RETURN_IF_ERROR(CollectBackward(layer, ranks, result));
  return result;
}

RunResult Ran(const LayerCase& layer, const RunOptions& options) {
  absl::StatusOr<RunResult> result = RunLayer(layer, options);
  if (!result.ok()) {  // GoogleTest reports what is thrown without SCOPED_TRACEs
    throw std::runtime_error(absl::StrCat(
        layer.config, " in ", std::string(DTypeName(options.compute)), " on ",
        std::string(DeviceKindName(options.device)), ": ", result.status().ToString()));
  }
  return *std::move(result);
}

std::string Refusal(const LayerCase& layer, const RunOptions& options) {
  const TestDevice opened = OpenTestDevice(options.device, options.threads);
  LayerRank rank(*opened.device, *opened.primitives, options);
  const absl::Status status = rank.Make(
      layer, layer.inputs.empty() || layer.inputs[0].shape.rank() == 0 ? 0 : layer.samples());
  if (status.ok()) return "";
  return absl::IsInvalidArgument(status) ? std::string(status.message()) : status.ToString();
}

}  // namespace gyre
