// prediction_writer.h: predictions as text for people, lines for programs, or an array.  Used by
// one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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
  // Writes to `path`, which is whole or absent, or to stdout if it is "".
  // Errors: InvalidArgument for kNpy with several predictions or on stdout.
  static absl::StatusOr<std::unique_ptr<PredictionWriter>> Open(
      const std::string& path, PredictionText text, std::span<const Prediction> predictions);
  virtual ~PredictionWriter() = default;

  // The next sample.  `values` are F64 [places, columns], a tensor for each prediction.
  virtual absl::Status Write(const std::string& sample, std::span<const Tensor> values) = 0;
  // After the last one.  Errors: those of writing.
  virtual absl::Status Finish() = 0;
};

}  // namespace gyre
