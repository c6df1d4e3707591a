// dataset.h: named arrays of samples with random access.  Immutable after opening; any thread may
// read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/tensor.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// An array of a data set: an element of `shape` a sample.
struct DataArray {
  std::string input;  // the net input that it feeds
  std::string file;   // for messages
  Shape shape;        // at least one element
  DType dtype;        // U8, I32, F32 or F64
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples, >= 1
  virtual const std::vector<DataArray>& arrays() const = 0;
  // Sample `index` of arrays()[array], as it is stored; it stays as long as the data set.
  // Errors: OutOfRange; those of decoding, naming the file and the sample.
  virtual absl::StatusOr<Tensor> Read(int64_t index, size_t array) const = 0;
};

// Opens data.train or data.test; relative paths are relative to the folder of `config_file`.  The
// images and labels of `idx` feed image_input and label_input; images N,H,W of an IDX file have one
// channel.
// Errors: those of ReadArray; InvalidArgument for arrays without samples or elements, or with
// unlike numbers of samples.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataConfig& data, bool train,
                                                     const std::string& config_file);

}  // namespace gyre
