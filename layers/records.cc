// roc_auc, alarm, record: data of each position from which the host makes a metric that is not a
// mean.  The records are F64 [samples, steps, columns], whatever axis the samples are along.  In
// training these layers do nothing and have no state.  engine/training/metrics/record_metrics.h
// makes the metrics, and engine/training/predict gives those of `record` to its caller.
//
//   layer    inputs                                        columns
//   roc_auc  x [..., 1], t [...]                           score; label, or -1 if it is ignored
//   record   x [..., C], its places but the samples' axis  the C values
//   alarm    x [..., 1], time [...], optional reset [...]  score; time; reset

#include <cmath>

#include "absl/strings/str_format.h"
#include "layers/common/global_mean.h"

namespace gyre {
namespace {

// Place i of [outer, samples, inner], counted sample by sample.
struct SampleMajor {
  int64_t outer, samples, inner;
  HOST_DEVICE int64_t operator()(int64_t i) const {
    return (i / inner % samples * outer + i / (samples * inner)) * inner + i % inner;
  }
};

template <typename T>
struct RecordLabel {
  SampleMajor row;
  Labels labels;
  const T* scores;
  double* records;
  Fault* fault;
  int layer;
  HOST_DEVICE void operator()(int64_t i) const {
    if (labels.Bad(i)) RaiseFault(fault, layer, labels.weights.SampleOf(i));
    double* const record = records + 2 * row(i);
    record[0] = static_cast<double>(static_cast<AccumulateType<T>>(scores[i]));
    record[1] = labels.Counts(i) ? labels.labels[i] : -1;
  }
};

template <typename T>
struct RecordTime {
  SampleMajor row;
  const T* scores;
  const T* times;
  const int32_t* reset;  // null: where a sample begins
  double* records;
  Fault* fault;
  int layer;
  HOST_DEVICE void operator()(int64_t i) const {
    const int64_t steps = row.outer * row.inner, at = row(i);
    const int32_t begins = reset == nullptr ? at % steps == 0 : reset[i];
    if (begins < 0 || begins > 1) RaiseFault(fault, layer, at / steps);
    double* const record = records + 3 * at;
    record[0] = static_cast<double>(static_cast<AccumulateType<T>>(scores[i]));
    record[1] = static_cast<double>(static_cast<AccumulateType<T>>(times[i]));
    record[2] = begins;
  }
};

template <typename T>
struct RecordValue {
  SampleMajor row;
  const T* values;
  double* records;
  HOST_DEVICE void operator()(int64_t i) const {
    records[row(i)] = static_cast<double>(static_cast<AccumulateType<T>>(values[i]));
  }
};

int AddRecords(const SampleMajor& row, int64_t columns, LayerSpec& spec) {
  spec.records = AddState(spec, MakeState("records", StateKind::kStatistic,
                                          Shape{row.samples, row.outer * row.inner, columns},
                                          DType::kF64, kWrite, kNone));
  return spec.records;
}

SampleMajor RowsAlong(int axis, const Shape& places) {
  return {places.elements(0, axis), places[axis], places.elements(axis + 1, places.rank())};
}

class RocAuc : public Layer {
 public:
  explicit RocAuc(const RocAucConfig& config) : config_(config) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    ASSIGN_OR_RETURN(LayerSpec spec,
                     labels_.Read(input, {.ignored = IgnoredOf(config_), .binary = true}));
    compute_ = input.compute;
    for (StateSpec& state : spec.states) {
      state.forward = input.train ? kNone : kRead;
      state.backward = kNone;
    }
    row_ = RowsAlong(BatchAxis(input, 1), input.inputs[1]);
    if (!input.train) records_ = AddRecords(row_, 2, spec);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (records_ < 0) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(
          context.stream, labels_.rows(),
          RecordLabel<T>{
              row_,
              labels_.LabelsOf(context.states[LabelledScores::kLabels].as<int32_t>(), nullptr),
              context.states[LabelledScores::kScores].as<T>(),
              context.states[records_].as<double>(), context.fault, context.layer});
    });
  }

  absl::Status Backward(const LayerContext&) const override { return absl::OkStatus(); }

 private:
  const RocAucConfig config_;
  LabelledScores labels_;
  DType compute_ = DType::kF32;
  SampleMajor row_ = {};
  int records_ = -1;  // state
};

class Alarm : public Layer {
 public:
  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    const bool has_reset = input.inputs.size() > 2;
    RETURN_IF_ERROR(has_reset
                        ? CheckInputs(input, {{"scores", input.compute},
                                              {"time", input.compute},
                                              {"reset", DType::kI32}})
                        : CheckInputs(input, {{"scores", input.compute}, {"time", input.compute}}));
    ASSIGN_OR_RETURN(const Rows rows, RowsOf(input, "scores", "columns"));
    const Shape &scores = input.inputs[0], &time = input.inputs[1];
    if (rows.columns != 1) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects scores [..., 1], one for each step, got %s", scores.ToString()));
    }
    const Shape places(scores.dims().first(scores.rank() - 1));
    for (size_t i = 1; i < input.inputs.size(); ++i) {
      if (input.inputs[i] == places) continue;
      return absl::InvalidArgumentError(absl::StrFormat(
          "expects %s %s, one for each of scores %s, got %s", i == 1 ? "a time" : "reset",
          places.ToString(), scores.ToString(), input.inputs[i].ToString()));
    }
    ASSIGN_OR_RETURN(const int axis, CommonBatchAxis(input));
    compute_ = input.compute;
    row_ = RowsAlong(axis, time);
    LayerSpec spec;
    const uint8_t read = input.train ? kNone : kRead;
    spec.states = {MakeState("scores", StateKind::kInput, scores, compute_, read, kNone),
                   MakeState("time", StateKind::kInput, time, compute_, read, kNone)};
    if (has_reset) {
      reset_ = 2;
      spec.states.push_back(
          MakeState("reset", StateKind::kInput, places, DType::kI32, read, kNone));
      spec.states[reset_].largest = 1;
    }
    if (!input.train) records_ = AddRecords(row_, 3, spec);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (records_ < 0) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(
          context.stream, row_.outer * row_.samples * row_.inner,
          RecordTime<T>{row_, context.states[0].as<T>(), context.states[1].as<T>(),
                        reset_ < 0 ? nullptr : context.states[reset_].as<int32_t>(),
                        context.states[records_].as<double>(), context.fault, context.layer});
    });
  }

  absl::Status Backward(const LayerContext&) const override { return absl::OkStatus(); }

 private:
  DType compute_ = DType::kF32;
  SampleMajor row_ = {};
  int reset_ = -1, records_ = -1;  // states
};

class Record : public Layer {
 public:
  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"values", input.compute}}));
    const Shape& values = input.inputs[0];
    const int axis = BatchAxis(input, 0);
    compute_ = input.compute;
    row_ = RowsAlong(axis, values);
    LayerSpec spec;
    spec.states = {MakeState("values", StateKind::kInput, values, compute_,
                             input.train ? kNone : kRead, kNone)};
    if (input.train) return spec;
    // The last axis, unless it is that of the samples.
    const int64_t columns = axis == values.rank() - 1 ? 1 : values[values.rank() - 1];
    const int64_t places = row_.outer * row_.inner;
    records_ = AddRecords({columns == 0 ? 0 : places / columns, row_.samples, 1}, columns, spec);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    if (records_ < 0) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return ForEach(
          context.stream, row_.outer * row_.samples * row_.inner,
          RecordValue<T>{row_, context.states[0].as<T>(), context.states[records_].as<double>()});
    });
  }

  absl::Status Backward(const LayerContext&) const override { return absl::OkStatus(); }

 private:
  DType compute_ = DType::kF32;
  SampleMajor row_ = {};
  int records_ = -1;  // state
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateRecord(const RecordConfig&) {
  return std::make_unique<Record>();
}

absl::StatusOr<std::unique_ptr<Layer>> CreateRocAuc(const RocAucConfig& config) {
  return std::make_unique<RocAuc>(config);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateAlarm(const AlarmConfig& config) {
  if (!std::isfinite(config.threshold())) {
    return absl::InvalidArgumentError(
        absl::StrFormat("threshold: expected a finite number, got %g", config.threshold()));
  }
  if (!std::isfinite(config.latest()) || config.latest() < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("latest: expected 0 or more seconds, got %g", config.latest()));
  }
  if (!std::isfinite(config.earliest()) || config.earliest() <= config.latest()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("earliest: expected more than latest, %g seconds, got %g", config.latest(),
                        config.earliest()));
  }
  for (const double before : config.before()) {
    if (std::isfinite(before) && before >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrFormat("before: expected 0 or more seconds, got %g", before));
  }
  return std::make_unique<Alarm>();
}

}  // namespace gyre
