// prediction_writer.h: predictions as text for people, lines for programs, or an array.  Used by
// one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/tensor.h"
#include "engine/training/predict/prediction_net.h"

namespace gyre {

//   kTable  a line a sample with the top classes, or the values, for people
//   kJson   JSON lines: {"sample": NAME, "LAYER": ...}, where shares are a list of the top classes
//   kCsv    a line a sample behind a line of columns
//   kNpy    an array [samples, ...] of one output, all its values
enum class PredictionFormat : uint8_t { kTable, kJson, kCsv, kNpy };

struct PredictionText {
  PredictionFormat format = PredictionFormat::kTable;
  int top = 5;                            // classes of a sample
  std::vector<std::string> classes = {};  // names by number.  Empty: numbers
  DType dtype = DType::kF32;              // in which values are written
};

class PredictionWriter {
 public:
  // Errors: InvalidArgument for kNpy with several predictions.
  static absl::StatusOr<std::unique_ptr<PredictionWriter>> Create(
      FileSink sink, PredictionText text, std::span<const Prediction> predictions);
  PredictionWriter(FileSink sink, PredictionText text, std::span<const Prediction> predictions)
      : sink_(std::move(sink)),
        text_(std::move(text)),
        predictions_(predictions.begin(), predictions.end()) {}
  virtual ~PredictionWriter() = default;

  // The next sample.  `values` are F64 [places, columns], a tensor for each prediction.
  // Errors: the sink's, as those below.
  virtual absl::Status Write(const std::string& sample, std::span<const Tensor> values) = 0;
  // A sample that could not be read.  An array has NaN for it, and a text nothing.
  virtual absl::Status Skip() { return absl::OkStatus(); }
  // After the last one.  What replaces as many first bytes of what was written, or "".
  virtual absl::StatusOr<std::string> Finish() { return ""; }

 protected:
  const FileSink sink_;
  const PredictionText text_;
  const std::vector<Prediction> predictions_;
};

}  // namespace gyre
