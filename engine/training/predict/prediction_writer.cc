#include "engine/training/predict/prediction_writer.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/sets/fit.h"
#include "engine/data/tensors/csv_cell.h"
#include "engine/data/tensors/npy_header.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// The shortest text that reads back as the same number of this type.
std::string ShortText(double value, DType dtype) {
  char text[32];
  const auto end = dtype == DType::kF64
                       ? std::to_chars(text, text + sizeof(text), value)
                       : std::to_chars(text, text + sizeof(text), static_cast<float>(value));
  return {text, end.ptr};
}

std::span<const double> ValuesOf(const Tensor& values) {
  return {values.as<double>(), static_cast<size_t>(values.elements())};
}

// The numbers of the largest values, the largest first, of equal ones the first.
std::vector<size_t> Largest(std::span<const double> values, size_t count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  count = std::min(count, order.size());
  std::ranges::partial_sort(
      order, order.begin() + static_cast<std::ptrdiff_t>(count),
      [&](size_t a, size_t b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  order.resize(count);
  return order;
}

// What all formats share: where bytes go.
class Output : public PredictionWriter {
 public:
  Output(std::string path, PredictionText text, std::span<const Prediction> predictions)
      : path_(std::move(path)),
        text_(std::move(text)),
        predictions_(predictions.begin(), predictions.end()) {}

 protected:
  absl::Status Put(std::string_view bytes) {
    if (!path_.empty()) {
      bytes_.append(bytes);
      return absl::OkStatus();
    }
    if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return absl::OkStatus();
    return absl::ErrnoToStatus(errno, "stdout");
  }
  absl::Status Finish() override {
    if (path_.empty()) {
      return std::fflush(stdout) == 0 ? absl::OkStatus() : absl::ErrnoToStatus(errno, "stdout");
    }
    return WriteFileAtomically(path_, [this](const FileSink& sink) { return sink(bytes_); });
  }

  std::string ClassName(size_t number) const {
    return NameOfClass(static_cast<int64_t>(number), text_.classes);
  }

  const std::string path_;
  const PredictionText text_;
  const std::vector<Prediction> predictions_;
  std::string bytes_ = {};  // of a file
};

class TableWriter : public Output {
 public:
  using Output::Output;
  absl::Status Write(const std::string& sample, std::span<const Tensor> values) override {
    std::string line = sample;
    for (size_t i = 0; i < values.size(); ++i) {
      if (predictions_.size() > 1) absl::StrAppend(&line, "  ", predictions_[i].name, ":");
      const std::span<const double> of = ValuesOf(values[i]);
      const auto row = static_cast<size_t>(values[i].shape[1]);
      for (size_t at = 0; at < of.size(); at += row)
        AddRow(predictions_[i], of.subspan(at, row), line);
    }
    return Put(line + "\n");
  }

 private:
  void AddRow(const Prediction& prediction, std::span<const double> row, std::string& line) const {
    if (prediction.kind == Prediction::OutputKind::kClassShares) {
      for (const size_t c : Largest(row, static_cast<size_t>(text_.top))) {
        absl::StrAppendFormat(&line, "  %s %.4f", ClassName(c), row[c]);
      }
      return;
    }
    for (const double value : row) absl::StrAppendFormat(&line, "  %.6g", value);
  }
};

class JsonWriter : public Output {
 public:
  using Output::Output;
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
    return Put(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }

 private:
  nlohmann::ordered_json RowOf(const Prediction& prediction, std::span<const double> row) const {
    nlohmann::ordered_json json = nlohmann::ordered_json::array();
    if (prediction.kind != Prediction::OutputKind::kClassShares) {
      for (const double value : row) json.push_back(Number(value));
      return json;
    }
    for (const size_t c : Largest(row, static_cast<size_t>(text_.top))) {
      json.push_back({{"class", ClassName(c)}, {"share", Number(row[c])}});
    }
    return json;
  }
  nlohmann::ordered_json Number(double value) const {
    if (!std::isfinite(value)) return nullptr;
    return nlohmann::ordered_json::parse(ShortText(value, text_.dtype));
  }
};

class CsvWriter : public Output {
 public:
  using Output::Output;
  absl::Status Write(const std::string& sample, std::span<const Tensor> values) override {
    if (!std::exchange(begun_, true)) RETURN_IF_ERROR(Put(Header(values)));
    std::string line = CsvCell(sample);
    for (size_t i = 0; i < values.size(); ++i) {
      for (const double value : ValuesOf(values[i])) {
        absl::StrAppend(&line, ",", ShortText(value, text_.dtype));
      }
    }
    return Put(line + "\n");
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
        const std::string name = classes      ? ClassName(static_cast<size_t>(v))
                                 : count == 1 ? predictions_[i].name
                                              : absl::StrCat(predictions_[i].name, ".", v);
        absl::StrAppend(&line, ",", CsvCell(name));
      }
    }
    return line + "\n";
  }

  bool begun_ = false;
};

class NpyWriter : public Output {
 public:
  using Output::Output;
  absl::Status Write(const std::string&, std::span<const Tensor> values) override {
    shape_ = values[0].shape;
    ++samples_;
    for (const double value : ValuesOf(values[0])) {
      if (text_.dtype == DType::kF64) {
        Append(value);
      } else {
        Append(static_cast<float>(value));
      }
    }
    return absl::OkStatus();
  }
  absl::Status Finish() override {
    const Shape shape =
        shape_[0] == 1 ? Shape({samples_, shape_[1]}) : Shape({samples_, shape_[0], shape_[1]});
    bytes_.insert(0, NpyBeginning(shape, text_.dtype == DType::kF64 ? DType::kF64 : DType::kF32));
    return Output::Finish();
  }

 private:
  template <typename T>
  void Append(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }

  Shape shape_{1, 0};
  int64_t samples_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<PredictionWriter>> PredictionWriter::Open(
    const std::string& path, PredictionText text, std::span<const Prediction> predictions) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--out=", path,
                     ": expected a file, got a device, pipe or folder; leave --out out and send "
                     "the output there"));
  }
  switch (text.format) {
    case PredictionFormat::kTable:
      return std::make_unique<TableWriter>(path, std::move(text), predictions);
    case PredictionFormat::kJson:
      return std::make_unique<JsonWriter>(path, std::move(text), predictions);
    case PredictionFormat::kCsv:
      return std::make_unique<CsvWriter>(path, std::move(text), predictions);
    case PredictionFormat::kNpy:
      break;
  }
  if (path.empty()) return absl::InvalidArgumentError("an array goes to a file; give --out");
  if (predictions.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a .npy holds one output, but there are ", predictions.size(), ": ",
        absl::StrJoin(predictions, ", ", [](std::string* names, const Prediction& prediction) {
          absl::StrAppend(names, prediction.name);
        })));
  }
  return std::make_unique<NpyWriter>(path, std::move(text), predictions);
}

}  // namespace gyre
