#include "engine/training/predict/predict.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "engine/runtime/check.h"
#include "engine/training/feed/normalization_fit.h"

namespace gyre {
namespace {

// In place of the number of a sample that is zeros.
double Faulty(double sample) { return -1 - sample; }

// A batch's rows over all ranks, of which this rank has `own`, from row `first` on.
absl::Status Join(const Tensor& own, int64_t first, int64_t rows, ProcessGroup& communication,
                  std::vector<double>& all) {
  const int64_t row = own.shape.elements(1, own.shape.rank());
  all.assign(static_cast<size_t>(rows * row), 0);
  std::copy_n(own.as<double>(), own.elements(), all.begin() + first * row);
  if (communication.size() == 1) return absl::OkStatus();
  return communication.Sum("predictions", all);
}

}  // namespace

int RecorderOf(const NetSpec& net, const Prediction& prediction) {
  const auto node = std::ranges::find_if(
      net.nodes, [&](const NetNode& of) { return of.config->name() == prediction.record; });
  GYRE_CHECK(node != net.nodes.end());
  return static_cast<int>(node - net.nodes.begin());
}

TestSink PredictionsTo(std::span<const Prediction> predictions, ProcessGroup& communication,
                       const PredictionSink& sink) {
  struct JoinedRows {
    std::vector<std::vector<double>> values;  // by prediction
    std::vector<double> samples;
  };
  return [predictions, &communication, &sink,
          rows = std::make_shared<JoinedRows>()](const TestedBatch& tested) -> absl::Status {
    rows->values.resize(predictions.size());
    const NetSpec& spec = tested.net.plan().spec;
    const int64_t count = spec.shape.global, first = tested.batch.first_position - tested.first;
    std::vector<double> own(tested.batch.samples.begin(), tested.batch.samples.end());
    for (const Batch::FaultySample& fault : tested.batch.faults) {
      double& sample = own[static_cast<size_t>(fault.sample)];
      sample = Faulty(sample);
    }
    RETURN_IF_ERROR(Join({own.data(), Shape({static_cast<int64_t>(own.size())}), DType::kF64},
                         first, count, communication, rows->samples));
    std::vector<Tensor> row;
    for (size_t i = 0; i < predictions.size(); ++i) {
      const Tensor records = tested.results.records(RecorderOf(spec, predictions[i]));
      RETURN_IF_ERROR(Join(records, first, count, communication, rows->values[i]));
      Unnormalize(predictions[i].unit, rows->values[i]);
      row.push_back({nullptr, Shape({records.shape[1], records.shape[2]}), DType::kF64});
    }
    if (communication.rank() != 0) return absl::OkStatus();
    for (int64_t r = 0; r < count; ++r) {
      const double sample = rows->samples[r];
      if (sample < 0) {
        RETURN_IF_ERROR(sink(static_cast<int64_t>(Faulty(sample)), {}));
        continue;
      }
      for (size_t i = 0; i < row.size(); ++i) {
        row[i].data = rows->values[i].data() + r * row[i].elements();
      }
      RETURN_IF_ERROR(sink(static_cast<int64_t>(sample), row));
    }
    return absl::OkStatus();
  };
}

absl::Status InDataOrder::Add(int64_t sample, std::span<const Tensor> values) {
  if (sample < next_ || sample >= samples_) return absl::OkStatus();
  if (sample > next_) {
    HostTensors& early = early_[sample];
    for (const Tensor& value : values) {
      std::memcpy(early.Add("", value.shape, value.dtype).data, value.data, value.bytes());
    }
    return absl::OkStatus();
  }
  ++next_;
  RETURN_IF_ERROR(sink_(sample, values));
  while (!early_.empty() && early_.begin()->first == next_) RETURN_IF_ERROR(HandOnFirst());
  return absl::OkStatus();
}

absl::Status InDataOrder::Finish() {
  while (!early_.empty()) RETURN_IF_ERROR(HandOnFirst());
  return absl::OkStatus();
}

absl::Status InDataOrder::HandOnFirst() {
  const auto first = early_.extract(early_.begin());
  next_ = first.key() + 1;
  std::vector<Tensor> values;
  for (const NamedTensor& named : first.mapped().tensors) values.push_back(named.tensor);
  return sink_(first.key(), values);
}

}  // namespace gyre
