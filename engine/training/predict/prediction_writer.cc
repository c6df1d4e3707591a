#include "engine/training/predict/prediction_writer.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/sets/fit.h"
#include "engine/data/tensors/csv_cell.h"
#include "engine/data/tensors/npy_header.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

std::string TextOf(double value, DType dtype) {
  return dtype == DType::kF64 ? ExactText(value) : ExactText(static_cast<float>(value));
}

std::span<const double> ValuesOf(const Tensor& values) {
  return {values.as<double>(), static_cast<size_t>(values.elements())};
}

// The numbers of the largest values, the largest first, of equal ones the first.
std::vector<int64_t> Largest(std::span<const double> values, int64_t count) {
  std::vector<int64_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  const auto end = order.begin() + std::min(count, std::ssize(order));
  std::ranges::partial_sort(order, end, [&](int64_t a, int64_t b) {
    return values[a] != values[b] ? values[a] > values[b] : a < b;
  });
  order.erase(end, order.end());
  return order;
}

class TableWriter : public PredictionWriter {
 public:
  using PredictionWriter::PredictionWriter;
  absl::Status Write(const std::string& sample, std::span<const Tensor> values) override {
    std::string line = sample;
    for (size_t i = 0; i < values.size(); ++i) {
      if (predictions_.size() > 1) absl::StrAppend(&line, "  ", predictions_[i].name, ":");
      const std::span<const double> of = ValuesOf(values[i]);
      const auto row = static_cast<size_t>(values[i].shape[1]);
      for (size_t at = 0; at < of.size(); at += row)
        AddRow(predictions_[i], of.subspan(at, row), line);
    }
    return sink_(line + "\n");
  }

 private:
  void AddRow(const Prediction& prediction, std::span<const double> row, std::string& line) const {
    if (prediction.kind == Prediction::OutputKind::kClassShares) {
      for (const int64_t c : Largest(row, text_.top)) {
        absl::StrAppendFormat(&line, "  %s %.4f", NameOfClass(c, text_.classes), row[c]);
      }
      return;
    }
    for (const double value : row) absl::StrAppendFormat(&line, "  %.6g", value);
  }
};

class JsonWriter : public PredictionWriter {
 public:
  using PredictionWriter::PredictionWriter;
  absl::Status Write(const std::string& sample, std::span<const Tensor> values) override {
    nlohmann::ordered_json line;
    line["sample"] = sample;
    for (size_t i = 0; i < values.size(); ++i) {
      const std::span<const double> of = ValuesOf(values[i]);
      const auto row = static_cast<size_t>(values[i].shape[1]);
      nlohmann::ordered_json rows = nlohmann::ordered_json::array();
      for (size_t at = 0; at < of.size(); at += row) {
        rows.push_back(RowOf(predictions_[i], of.subspan(at, row)));
      }
      line[predictions_[i].name] = rows.size() == 1 ? rows[0] : rows;
    }
    // A path need not be UTF-8.
    return sink_(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }

 private:
  nlohmann::ordered_json RowOf(const Prediction& prediction, std::span<const double> row) const {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    if (prediction.kind != Prediction::OutputKind::kClassShares) {
      for (const double value : row) json.push_back(Number(value));
      return json;
    }
    for (const int64_t c : Largest(row, text_.top)) {
      json.push_back({{"class", NameOfClass(c, text_.classes)}, {"share", Number(row[c])}});
    }
    return json;
  }
  nlohmann::ordered_json Number(double value) const {
    if (!std::isfinite(value)) return nullptr;
    return nlohmann::ordered_json::parse(TextOf(value, text_.dtype));
  }
};

class CsvWriter : public PredictionWriter {
 public:
  using PredictionWriter::PredictionWriter;
  absl::Status Write(const std::string& sample, std::span<const Tensor> values) override {
    if (!std::exchange(begun_, true)) RETURN_IF_ERROR(sink_(Header(values)));
    std::string line = CsvCell(sample);
    for (size_t i = 0; i < values.size(); ++i) {
      for (const double value : ValuesOf(values[i])) {
        absl::StrAppend(&line, ",", TextOf(value, text_.dtype));
      }
    }
    return sink_(line + "\n");
  }

 private:
  // Shares of classes are named by the class, values by layer and number.
  std::string Header(std::span<const Tensor> values) const {
    std::string line = "sample";
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t count = values[i].elements();
      const bool classes =
          predictions_[i].kind == Prediction::OutputKind::kClassShares && values[i].shape[0] == 1;
      for (int64_t v = 0; v < count; ++v) {
        const std::string name = classes      ? NameOfClass(v, text_.classes)
                                 : count == 1 ? predictions_[i].name
                                              : absl::StrCat(predictions_[i].name, ".", v);
        absl::StrAppend(&line, ",", CsvCell(name));
      }
    }
    return line + "\n";
  }

  bool begun_ = false;
};

class NpyWriter : public PredictionWriter {
 public:
  using PredictionWriter::PredictionWriter;
  absl::Status Write(const std::string&, std::span<const Tensor> values) override {
    if (!begun_) {
      shape_ = values[0].shape;
      RETURN_IF_ERROR(Begin());
    }
    ++samples_;
    return PutRow(ValuesOf(values[0]));
  }
  absl::Status Skip() override {
    ++samples_;
    return begun_ ? PutNan() : absl::OkStatus();
  }
  absl::StatusOr<std::string> Finish() override {
    if (!begun_) RETURN_IF_ERROR(Begin());
    return Beginning();
  }

 private:
  // The header, and those that were skipped before anything told the shape.
  absl::Status Begin() {
    begun_ = true;
    RETURN_IF_ERROR(sink_(Beginning()));
    for (int64_t i = 0; i < samples_; ++i) RETURN_IF_ERROR(PutNan());
    return absl::OkStatus();
  }
  // As long for any number of samples, because it is padded.
  std::string Beginning() const {
    const Shape shape =
        shape_[0] == 1 ? Shape({samples_, shape_[1]}) : Shape({samples_, shape_[0], shape_[1]});
    return NpyBeginning(shape, text_.dtype == DType::kF64 ? DType::kF64 : DType::kF32);
  }
  absl::Status PutNan() {
    return PutRow(std::vector<double>(static_cast<size_t>(shape_.elements()), std::nan("")));
  }
  absl::Status PutRow(std::span<const double> row) {
    if (text_.dtype == DType::kF64) return sink_(BytesOf(row));
    const std::vector<float> narrow(row.begin(), row.end());
    return sink_(BytesOf(std::span<const float>(narrow)));
  }
  template <typename T>
  static std::string_view BytesOf(std::span<const T> row) {
    return {reinterpret_cast<const char*>(row.data()), row.size_bytes()};
  }

  bool begun_ = false;
  Shape shape_{1, 0};
  int64_t samples_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PredictionWriter>> PredictionWriter::Create(
    FileSink sink, PredictionText text, std::span<const Prediction> predictions) {
  switch (text.format) {
    case PredictionFormat::kTable:
      return std::make_unique<TableWriter>(std::move(sink), std::move(text), predictions);
    case PredictionFormat::kJson:
      return std::make_unique<JsonWriter>(std::move(sink), std::move(text), predictions);
    case PredictionFormat::kCsv:
      return std::make_unique<CsvWriter>(std::move(sink), std::move(text), predictions);
    case PredictionFormat::kNpy:
      break;
  }
  if (predictions.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a .npy holds one output, but there are ", predictions.size(), ": ",
        absl::StrJoin(predictions, ", ", [](std::string* names, const Prediction& prediction) {
          absl::StrAppend(names, prediction.name);
        })));
  }
  return std::make_unique<NpyWriter>(std::move(sink), std::move(text), predictions);
}

}  // namespace gyre
