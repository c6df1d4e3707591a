#include "engine/training/feed/normalization_fit.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/data/batches/sample_statistics.h"
#include "engine/runtime/check.h"
#include "engine/training/feed/bad_samples.h"
#include "engine/training/feed/data_feed.h"

namespace gyre {
namespace {

constexpr int64_t kMostSamples = 10'000;
constexpr size_t kShown = 8;  // channels in a line for people

// "3" or "[1, 2, ...]".
template <typename T>
std::string List(const std::vector<T>& values) {
  if (values.size() == 1) return absl::StrCat(values[0]);
  const size_t shown = std::min(kShown, values.size());
  return absl::StrCat("[", absl::StrJoin(values.begin(), values.begin() + shown, ", "),
                      shown < values.size() ? ", ..." : "", "]");
}

}  // namespace

int64_t ChannelsOf(const google::protobuf::RepeatedField<int64_t>& dims) {
  return dims.empty() ? 1 : *dims.rbegin();
}

const std::string& InputOf(const NormalizationConfig& config, const DataConfig& data) {
  return config.has_input() ? config.input() : data.image_input();
}

bool HasAuto(const DataConfig& data) {
  return std::ranges::any_of(data.normalization(),
                             [](const NormalizationConfig& config) { return config.auto_(); });
}

absl::StatusOr<std::string> MakeNormalization(const DataConfig& data, const Dataset& training,
                                              std::vector<std::string>& notes) {
  const int64_t samples = std::min(kMostSamples, training.size());
  std::string text;
  for (const NormalizationConfig& config : data.normalization()) {
    if (!config.auto_()) continue;
    const std::string& input = InputOf(config, data);
    const auto statistics = StatisticsOf(training, ArrayOf(training, input), samples,
                                         /*skip_faulty=*/data.max_bad_samples() > 0);
    if (!statistics.ok() && data.max_bad_samples() == 0) {
      return WithFaultAdvice(statistics.status());
    }
    RETURN_IF_ERROR(
        Annotate(statistics.status(), absl::StrFormat("no sample of %d could be read", samples)));
    const SampleStatistics& found = *statistics;
    std::vector<size_t> constant, zero_one;
    for (size_t c = 0; c < found.std.size(); ++c) {
      const bool varies = found.std[c] != 0, is_left = varies && found.zero_one[c];
      if (!varies) constant.push_back(c);
      if (is_left) zero_one.push_back(c);
      absl::StrAppend(&text, input, "\t", c, "\t", ExactText(is_left ? 0 : found.mean[c]), "\t",
                      ExactText(varies && !is_left ? found.std[c] : 1), "\n");
    }
    const auto note = [&](const std::vector<size_t>& channels, const char* what) {
      if (channels.empty()) return;
      notes.push_back(absl::StrFormat(
          "normalization of \"%s\": channels of %s: %d of %d, number%s %s", input, what,
          channels.size(), found.std.size(), channels.size() > 1 ? "s" : "", List(channels)));
    };
    note(constant, "equal values have std 1");
    note(zero_one, "zeros and ones are left as they are");
  }
  if (samples < training.size()) {
    notes.push_back(absl::StrFormat("normalization: of %d of %d training samples, evenly spread",
                                    samples, training.size()));
  }
  return text;
}

absl::StatusOr<Normalization> ParseNormalization(const std::string& text, const std::string& input,
                                                 int64_t channels) {
  Normalization normalization{.mean = {}, .std = {}};
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> fields = absl::StrSplit(line, '\t');
    if (fields[0] != input) continue;
    double mean = 0, std = 0;
    const bool good = fields.size() == 4 && absl::SimpleAtod(fields[2], &mean) &&
                      absl::SimpleAtod(fields[3], &std) && std::isfinite(mean) &&
                      std::isfinite(std) && std > 0 &&
                      fields[1] == absl::StrCat(normalization.mean.size());
    if (!good) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: expected INPUT TAB CHANNEL TAB MEAN TAB STD, got \"%s\"", kNormalizationFile, line));
    }
    normalization.mean.push_back(mean);
    normalization.std.push_back(std);
  }
  const auto found = static_cast<int64_t>(normalization.mean.size());
  if (found == channels) return normalization;
  return absl::InvalidArgumentError(
      absl::StrFormat("%s of the weights' run: expected %d channels of input \"%s\", got %d",
                      kNormalizationFile, channels, input, found));
}

Normalization StatedNormalization(const NormalizationConfig& config) {
  Normalization stated;
  if (config.mean_size() > 0) stated.mean = {config.mean().begin(), config.mean().end()};
  if (config.std_size() > 0) stated.std = {config.std().begin(), config.std().end()};
  const size_t channels = std::max(stated.mean.size(), stated.std.size());
  stated.mean.resize(channels, stated.mean[0]);
  stated.std.resize(channels, stated.std[0]);
  return stated;
}

absl::StatusOr<Normalization> NormalizationOf(const DataConfig& data, const Fit& fit,
                                              const NetConfig& net, const std::string& input) {
  for (const NormalizationConfig& config : data.normalization()) {
    if (InputOf(config, data) != input) continue;
    if (!config.auto_()) return StatedNormalization(config);
    const auto of = std::ranges::find(net.input(), input, &InputConfig::name);
    GYRE_CHECK(of != net.input().end());
    const auto text = fit.find(kNormalizationFile);
    return ParseNormalization(text == fit.end() ? "" : text->second, input, ChannelsOf(of->dims()));
  }
  return Normalization{};
}

void Unnormalize(const Normalization& normalization, std::span<double> values) {
  const auto of = [](const std::vector<double>& channels, size_t i) {
    return channels[i % channels.size()];
  };
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = values[i] * of(normalization.std, i) + of(normalization.mean, i);
  }
}

std::string DescribeNormalization(const DataConfig& data, const Feed& feed) {
  std::vector<std::string> inputs;
  for (const NormalizationConfig& config : data.normalization()) {
    if (!config.auto_()) continue;
    const auto fed = std::ranges::find(feed.inputs, InputOf(config, data), &FedInput::name);
    inputs.push_back(absl::StrFormat("\"%s\" by mean %s, std %s", fed->name,
                                     List(fed->normalization.mean), List(fed->normalization.std)));
  }
  return absl::StrCat("normalization of the training samples: ", absl::StrJoin(inputs, "; "));
}

}  // namespace gyre
