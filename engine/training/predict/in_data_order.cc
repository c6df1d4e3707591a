#include "engine/training/predict/in_data_order.h"

#include "engine/runtime/check.h"

namespace gyre {

absl::Status InDataOrder::Add(int64_t sample, std::span<const Tensor> values) {
  if (sample < next_ || sample >= samples_) return absl::OkStatus();
  if (sample > next_) {
    EarlySample& early = early_[sample];
    for (const Tensor& value : values) {
      early.shapes.push_back(value.shape);
      early.values.emplace_back(value.as<double>(), value.as<double>() + value.elements());
    }
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(sink_(sample, values));
  ++next_;
  while (!early_.empty() && early_.begin()->first == next_) {
    RETURN_IF_ERROR(HandOn(next_, early_.begin()->second));
    early_.erase(early_.begin());
    ++next_;
  }
  return absl::OkStatus();
}

absl::Status InDataOrder::Finish() {
  for (auto& [sample, early] : early_) RETURN_IF_ERROR(HandOn(sample, early));
  early_.clear();
  return absl::OkStatus();
}

absl::Status InDataOrder::HandOn(int64_t sample, EarlySample& early) {
  std::vector<Tensor> values;
  for (size_t i = 0; i < early.shapes.size(); ++i) {
    values.push_back({early.values[i].data(), early.shapes[i], DType::kF64});
  }
  return sink_(sample, values);
}

}  // namespace gyre
