// dataset.h: labelled samples with random access.  Immutable after opening; any thread may read.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/batch.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;               // samples, >= 1
  virtual const Shape& sample_shape() const = 0;  // H,W,C of each image
  virtual const PixelValues& pixel_values() const = 0;
  // Decodes sample `index` into image (sample_shape()) and *label.  image: pixels if it is U8;
  // their pixel_values, rounded, if it is F32 or F64.
  // Errors: OutOfRange; those of decoding, naming the file and the sample.
  virtual absl::Status Read(int64_t index, Tensor image, int32_t* label) const = 0;
};

// Opens a data set; relative paths are relative to the folder of `config_file`.
// Errors: NotFound, InvalidArgument or DataLoss naming the file, what was expected and got (magic,
// counts that differ, truncated .gz, empty).
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetConfig& config,
                                                     const NormalizationConfig& normalization,
                                                     const std::string& config_file);

}  // namespace gyre
