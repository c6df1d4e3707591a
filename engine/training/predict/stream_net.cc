#include "engine/training/predict/stream_net.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/tables/table_fit.h"
#include "engine/runtime/check.h"
#include "engine/runtime/count_text.h"
#include "engine/training/feed/normalization_fit.h"
#include "engine/training/predict/predict.h"

namespace gyre {
namespace {

constexpr char kReset[] = "reset", kLength[] = "length";

// One step of a layer alone gives what it would give within its sequence.
absl::Status TakeStep(int64_t steps, LayerConfig& layer) {
  const auto carry = [&](auto& config) -> absl::Status {
    config.set_carry(true);
    if (!config.bidirectional()) return absl::OkStatus();
    return absl::InvalidArgumentError("goes in both directions, so it needs whole sequences");
  };
  const auto axis = [&](const auto& config) -> absl::Status {
    if (config.axis() == -1) return absl::OkStatus();
    return absl::InvalidArgumentError("may join or cut steps; expected axis: -1");
  };
  switch (layer.type_case()) {
    case LayerConfig::kLstm:
      return carry(*layer.mutable_lstm());
    case LayerConfig::kGru:
      return carry(*layer.mutable_gru());
    case LayerConfig::kRnn:
      return carry(*layer.mutable_rnn());
    case LayerConfig::kConcat:
      return axis(layer.concat());
    case LayerConfig::kSlice:
      return axis(layer.slice());
    case LayerConfig::kSplit:
      return axis(layer.split());
    case LayerConfig::kReshape:
      if (layer.reshape().dims_size() > 1 && layer.reshape().dims(0) == steps) {
        layer.mutable_reshape()->set_dims(0, 1);
        return absl::OkStatus();
      }
      return absl::InvalidArgumentError(
          absl::StrCat("joins steps; expected dims: [", steps, ", ...]"));
    case LayerConfig::kDense:
    case LayerConfig::kRelu:
    case LayerConfig::kDropout:
    case LayerConfig::kSigmoid:
    case LayerConfig::kTanh:
    case LayerConfig::kGelu:
    case LayerConfig::kSilu:
    case LayerConfig::kAdd:
    case LayerConfig::kMultiply:
    case LayerConfig::kSoftmax:
    case LayerConfig::kLayerNorm:
    case LayerConfig::kBatchNorm:
    case LayerConfig::kEmbedding:
    case LayerConfig::kConv1D:  // across each step (CheckConvolutions)
    case LayerConfig::kPool1D:
    case LayerConfig::kRecord:
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          "looks at several steps at once, so it needs whole sequences");
  }
}

// The scales of a signal's values in a fit: lines NAME TAB SCALE.
absl::StatusOr<std::vector<double>> ScalesOf(const ShotsConfig& shots, const Fit& fit,
                                             const std::string& input, int64_t values) {
  const auto text = fit.find("scales.txt");
  std::vector<double> scales;
  const std::string lines = text == fit.end() ? "" : text->second;
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> cells =
        absl::StrSplit(line, absl::MaxSplits('\t', 1));
    const bool own = input == "signals" ? std::ranges::count(shots.signal(), cells.first) > 0
                                        : cells.first == input;
    double scale = 0;
    if (own && absl::SimpleAtod(cells.second, &scale) && scale > 0) scales.push_back(scale);
  }
  if (scales.size() == 1) scales.resize(static_cast<size_t>(values), scales[0]);
  if (std::ssize(scales) == values) return scales;
  return absl::InvalidArgumentError(
      absl::StrFormat("input \"%s\": expected scales of %d values with the weights, got %d", input,
                      values, scales.size()));
}

absl::Status CheckTable(const Fit& fit) {
  const auto text = fit.find(kTableFile);
  if (text == fit.end()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const TableFit table, ParseTableFit(text->second));
  for (const TableColumn& column : table.columns) {
    if (column.kind == TableColumn::ColumnKind::kNumber && !column.indicator) continue;
    return absl::InvalidArgumentError(absl::StrFormat(
        "column \"%s\" is of words, or marks missing values; a stream takes numbers alone",
        column.name));
  }
  return absl::OkStatus();
}

// A convolution along the steps would see one of them.
absl::Status CheckConvolutions(const NetSpec& spec) {
  for (const NetNode& node : spec.nodes) {
    if (!node.config->has_conv1d() && !node.config->has_pool1d()) continue;
    constexpr int kAcross = 4;  // samples, steps, what it goes along, channels
    if (spec.values[static_cast<size_t>(node.inputs[0])].shape.rank() >= kAcross) continue;
    return absl::InvalidArgumentError(absl::StrCat(node.where, ": layer \"", node.config->name(),
                                                   "\": goes along the steps, so it needs whole "
                                                   "sequences"));
  }
  return absl::OkStatus();
}

// The number of a line's one token, as a text's tokens are made.
absl::StatusOr<int32_t> TokenOf(const Vocabulary& vocabulary, TokenKind kind,
                                const std::string& line) {
  const bool character = kind == TokenKind::kCharacters;
  if (character && line.empty()) return vocabulary.Number("\n");
  const int32_t whole = vocabulary.Number(line);  // as <eos> is
  if (whole > 0) return whole;
  std::vector<std::string> tokens;
  const absl::Status read =
      ForEachToken(line, kind, [&](std::string_view token) { tokens.emplace_back(token); });
  if (!read.ok()) return absl::InvalidArgumentError("not UTF-8");
  if (kind == TokenKind::kWords && !tokens.empty()) tokens.pop_back();  // the line's end
  if (tokens.size() == 1) return vocabulary.Number(tokens[0]);
  return absl::InvalidArgumentError(
      absl::StrFormat("expected one %s, got %d in \"%s\"; write a line for each",
                      character ? "character" : "word", tokens.size(), absl::CHexEscape(line)));
}

}  // namespace

int64_t StreamInputs::values() const {
  int64_t values = 0;
  for (const StepInput& input : inputs) values += input.values;
  return values;
}

absl::StatusOr<StreamInputs> CutToStep(const DataConfig& data, const Fit& fit,
                                       Parsed<NetConfig>& net) {
  RETURN_IF_ERROR(CheckTable(fit));
  NetConfig& config = *net.message;
  const auto sequence = std::ranges::find_if(
      config.input(), [](const InputConfig& input) { return input.dims_size() > 0; });
  const int64_t steps = sequence == config.input().end() ? 0 : sequence->dims(0);
  StreamInputs stream{.inputs = {}, .clip = data.train().shots().clip()};
  for (InputConfig& input : *config.mutable_input()) {
    const auto error = [&](const std::string& what) {
      return absl::InvalidArgumentError(
          absl::StrCat(net.source->Where(input), ": input \"", input.name(), "\": ", what));
    };
    StreamInputs::StepInput& step = stream.inputs.emplace_back();
    step.name = input.name();
    const bool label = input.type() == InputConfig::LABEL;
    if (label && input.dims_size() == 0 && input.name() == kLength) {
      step.made_up = 1;
      continue;
    }
    if (input.dims_size() == 0 || input.dims_size() > 2 || input.dims(0) != steps) {
      return error(absl::StrCat("expected dims: [", steps, ", ...], a row for each step"));
    }
    // Before dims change, of which it takes the channels.
    ASSIGN_OR_RETURN(step.normalization, NormalizationOf(data, fit, config, input.name()));
    if (input.dims_size() == 1 && step.normalization.mean.size() > 1) {
      return error(
          absl::StrCat("is normalized at each step by itself; write dims: [", steps, ", 1]"));
    }
    input.set_dims(0, 1);
    if (label && input.name() == kReset) continue;
    step.values = input.dims_size() == 2 ? input.dims(1) : 1;
    if (label && step.values > 1) return error("expected one token a step");
    if (!data.train().has_shots()) continue;
    ASSIGN_OR_RETURN(step.scales, ScalesOf(data.train().shots(), fit, input.name(), step.values));
  }
  bool recurrent = false;
  for (LayerConfig& layer : *config.mutable_layer()) {
    RETURN_IF_ERROR(AtLayer(net, layer, TakeStep(steps, layer)));
    recurrent |= layer.has_lstm() || layer.has_gru() || layer.has_rnn();
  }
  if (!recurrent) {
    return absl::InvalidArgumentError(
        absl::StrCat(net.source->file(), ": --stream is of nets with an lstm, gru or rnn"));
  }
  if (const auto text = fit.find(kVocabularyFile); text != fit.end()) {
    auto vocabulary = Vocabulary::Parse(text->second);
    if (!vocabulary.ok()) return Annotate(vocabulary.status(), kVocabularyFile);
    stream.vocabulary = *std::move(vocabulary);
    if (!data.train().has_text()) {
      stream.tokens = stream.vocabulary->LowerKind();
    } else if (data.train().text().unit() == TextConfig::CHARACTER) {
      stream.tokens = TokenKind::kCharacters;
    }
  }
  return stream;
}

absl::StatusOr<std::unique_ptr<StreamNet>> StreamNet::Create(
    const TrainedNet& trained, const StreamInputs& inputs, std::span<const Prediction> predictions,
    Device& device) {
  const Net& net = *trained.model->test().front();
  RETURN_IF_ERROR(CheckConvolutions(net.plan().spec));
  ASSIGN_OR_RETURN(TestIteration iteration,
                   TestIteration::Create(device, net, trained.model->test_pager(0)));
  ASSIGN_OR_RETURN(OwnedBatch batch, OwnedBatch::Create(device, net.plan()));
  return std::unique_ptr<StreamNet>(
      new StreamNet(trained, inputs, predictions, std::move(iteration), std::move(batch)));
}

absl::Status StreamNet::Begin() {
  begun_ = true;
  RETURN_IF_ERROR(trained_.model->BringHome(*trained_.stream));
  if (Pager* const pager = trained_.model->test_pager(0)) {
    RETURN_IF_ERROR(pager->BringHome(*trained_.stream));
  }
  return trained_.model->test().front()->ClearCarried(*trained_.stream);
}

// The values of a line in the batch's arrays.
absl::Status StreamNet::Fill(const std::string& line) {
  std::vector<double> numbers;
  if (inputs_.vocabulary) {
    ASSIGN_OR_RETURN(numbers.emplace_back(), TokenOf(*inputs_.vocabulary, inputs_.tokens, line));
  } else {
    for (const absl::string_view cell :
         absl::StrSplit(line, absl::ByAnyChar(", \t\r"), absl::SkipEmpty())) {
      if (!absl::SimpleAtod(cell, &numbers.emplace_back()) || !std::isfinite(numbers.back())) {
        return absl::InvalidArgumentError(absl::StrCat("expected numbers, got \"", cell, "\""));
      }
    }
  }
  if (std::ssize(numbers) != inputs_.values()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", Counted(inputs_.values(), "number"),
                                                   " of a step, got ", numbers.size()));
  }
  size_t at = 0;
  for (size_t i = 0; i < inputs_.inputs.size(); ++i) {
    const StreamInputs::StepInput& input = inputs_.inputs[i];
    const Tensor& to = batch_.batch.arrays[i];
    const Shape sample(to.shape.dims().subspan(1));
    if (to.dtype == DType::kI32) {
      const double value = input.values > 0 ? numbers[at++] : input.made_up;
      if (value != static_cast<int32_t>(value)) {
        return absl::InvalidArgumentError(absl::StrCat("expected an integer, got ", value));
      }
      *to.as<int32_t>() = static_cast<int32_t>(value);
      continue;
    }
    std::vector<float> narrow;  // as the data set of shots holds them
    for (size_t v = 0; v < input.scales.size(); ++v) {
      narrow.push_back(static_cast<float>(
          std::clamp(numbers[at + v] / input.scales[v], -inputs_.clip, inputs_.clip)));
    }
    const Tensor from = narrow.empty() ? Tensor{&numbers[at], sample, DType::kF64}
                                       : Tensor{narrow.data(), sample, DType::kF32};
    RETURN_IF_ERROR(Decoder(from.dtype, to.dtype, input.normalization)
                        .Decode(from, {}, {to.data, sample, to.dtype}));
    at += static_cast<size_t>(input.values);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::span<const Tensor>> StreamNet::Step(const std::string& line) {
  if (!begun_) RETURN_IF_ERROR(Begin());
  RETURN_IF_ERROR(Fill(line));
  RETURN_IF_ERROR(iteration_.Run(batch_.batch, *trained_.stream));
  values_.clear();
  for (const Prediction& prediction : predictions_) {
    const int recorder = RecorderOf(trained_.model->test().front()->plan().spec, prediction);
    const Tensor records = iteration_.results().records(recorder);
    Unnormalize(prediction.unit, {records.as<double>(), static_cast<size_t>(records.elements())});
    values_.push_back({records.data, Shape({records.shape[1], records.shape[2]}), DType::kF64});
  }
  return std::span<const Tensor>(values_);
}

}  // namespace gyre
