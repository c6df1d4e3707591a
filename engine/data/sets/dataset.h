// dataset.h: named arrays of samples with random access.  Immutable after opening; any thread may
// read.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sets/fit.h"
#include "engine/runtime/tensor.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// An array of a data set: an element of `shape` a sample.
struct DataArray {
  std::string input;   // the net input that it feeds
  std::string file;    // for messages
  Shape shape;         // at least one element
  DType dtype;         // U8, I32, F32 or F64
  bool reset = false;  // marks [T] of where a sequence begins
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples, >= 1
  virtual const std::vector<DataArray>& arrays() const = 0;
  // Sample `index` of arrays()[array], as it is stored; it stays as long as the data set.  Where
  // there are sequences, sample size() is there, too: blank, of length 0.
  // Errors: OutOfRange; those of decoding, naming the file and the sample.
  virtual absl::StatusOr<Tensor> Read(int64_t index, size_t array) const = 0;
  // Samples of each sequence, one after another, if each must be gone through from its beginning.
  virtual std::span<const int64_t> sequences() const { return {}; }
  // Elements of each sample that are not padding; none: all are.
  virtual std::span<const int32_t> lengths() const { return {}; }
  virtual Fit fit() const { return {}; }
  // For people: a line for each kind of what its files hold and it leaves out, with a count.
  virtual const std::vector<std::string>& notes() const {
    static const std::vector<std::string> none;
    return none;
  }
};

// Where a file or folder is that a configuration names as `path`; there: where it says.
using PathOf = std::function<std::string(const std::string& path, const std::string& there)>;

// Opens data.train or data.test; relative paths are relative to the folder of `config_file`.  The
// images and labels of `idx` feed image_input and label_input; images N,H,W of an IDX file have one
// channel.  A fit is used if it has a name; else that of the file that data.train names, else that
// of the samples of data.train.  path_of: none: where it says.
// Errors: those of ReadArray, of a missing file with what may bring it; InvalidArgument for arrays
// without samples or elements, or with unlike numbers of samples, and for files that are not as
// docs/formats.md has them, with line, entry or signal; for a fit that is not what data.train
// names.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataConfig& data, bool train,
                                                     const std::string& config_file,
                                                     const Fit& fit = {},
                                                     const PathOf& path_of = {});

}  // namespace gyre
