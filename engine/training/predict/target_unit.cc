#include "engine/training/predict/target_unit.h"

#include <algorithm>
#include <cstdint>

#include "engine/runtime/check.h"
#include "engine/training/feed/normalization_fit.h"

namespace gyre {

absl::StatusOr<Normalization> NormalizationOf(const DataConfig& data, const Fit& fit,
                                              const NetConfig& net, const std::string& target) {
  for (const NormalizationConfig& config : data.normalization()) {
    if (InputOf(config, data) != target) continue;
    if (config.auto_()) {
      const auto input = std::ranges::find(net.input(), target, &InputConfig::name);
      GYRE_CHECK(input != net.input().end());
      const int64_t channels = input->dims_size() == 0 ? 1 : input->dims(input->dims_size() - 1);
      const auto text = fit.find(kNormalizationFile);
      return ParseNormalization(text == fit.end() ? "" : text->second, target, channels);
    }
    Normalization normalization;
    if (config.mean_size() > 0) normalization.mean = {config.mean().begin(), config.mean().end()};
    if (config.std_size() > 0) normalization.std = {config.std().begin(), config.std().end()};
    const size_t channels = std::max(normalization.mean.size(), normalization.std.size());
    normalization.mean.resize(channels, normalization.mean[0]);
    normalization.std.resize(channels, normalization.std[0]);
    return normalization;
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

}  // namespace gyre
