// dataset.h: named arrays of samples with random access.  Immutable after opening.  Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sample_draw.h"
#include "engine/data/sets/fit.h"
#include "engine/runtime/tensor.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// What is stored of a sample: its values, or the bytes of a file that they are decoded from.
enum class StoredAs { kValues, kPicture, kMask };

// An array of a data set, with an element of `shape` for each sample.
struct DataArray {
  std::string input;   // the net input that it feeds
  std::string file;    // for messages
  Shape shape;         // at least one element
  DType dtype;         // U8, I32, F32 or F64
  bool reset = false;  // marks [T], 1 where a sequence begins
  // Stands for the samples in a digest of the data, where to read them all would take long, as of
  // pictures.  "": they are read.
  std::string digest = {};
  StoredAs stored = StoredAs::kValues;
};

// Bytes that are used again and again.  They are not cleared: pages that nothing writes, as where a
// damaged file claims a large picture, take no memory.
class ReusedBytes {
 public:
  // At least `bytes`, of any content.
  std::byte* Grow(size_t bytes);

 private:
  std::unique_ptr<std::byte[]> memory_;
  size_t size_ = 0;
};

// Memory of one thread for samples that are decoded as they are read.  It is kept from one to the
// next, so that none is allocated for each.
struct SampleMemory {
  std::vector<ReusedBytes> samples;   // by array, of the one read last
  ReusedBytes file, pixels, resized;  // while a sample is being read
  ReusedBytes record;                 // all bytes of a sample of records
  uint64_t record_of = 0;             // the data set that it is of.  0: none
  int64_t record_sample = 0;
  size_t first = 0;  // of `samples`, for array 0 of a source beside others

  std::byte* For(size_t array, size_t bytes);
};

// How training reads files fast: it shuffles `samples` at a time, and reads these in the order of
// the files' bytes.  0: any order is as fast.
struct ReadWindow {
  int64_t samples = 0;
  std::span<const int64_t> files = {};  // samples of each, in the data set's order
};

// An input of the net, from which a data set may learn what is wanted of it.
struct NetInput {
  std::string name;
  std::vector<int64_t> dims = {};  // of a sample
  bool label = false;              // integers; else reals
};
using NetInputs = std::vector<NetInput>;

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;  // samples, >= 1
  virtual const std::vector<DataArray>& arrays() const = 0;
  // Sample `index` of arrays()[array], before pixels are moved and normalised.  It lives until
  // `memory` reads the array's next one.  It varies by `draw`, if there is one: a function of the
  // index and the draw alone.  A data set of sequences has one more sample, size(), which is blank,
  // of length 0.
  // Errors: OutOfRange, and those of decoding, naming the file and the sample.
  virtual absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory& memory,
                                      const std::optional<SampleDraw>& draw) const = 0;
  // The bytes of the file that Read decodes.  They live until `memory` reads the next ones.
  // Precondition: arrays()[array].stored is not kValues.  Errors: as Read's.
  virtual absl::StatusOr<std::string_view> ReadStored(int64_t index, size_t array,
                                                      SampleMemory& memory) const;
  virtual ReadWindow window() const { return {}; }
  // Says that these samples will be read soon.  They ascend.
  virtual void ReadSoon(std::span<const int64_t>) const {}
  // Samples of each sequence, if they must be read in order.  The sequences are contiguous.
  virtual std::span<const int64_t> sequences() const { return {}; }
  // Elements of each sample that are not padding.  Empty: all are.
  virtual std::span<const int32_t> lengths() const { return {}; }
  // A number for each sample, the same for those that belong together.  Empty: none do.
  virtual std::span<const int64_t> groups() const { return {}; }
  virtual Fit fit() const { return {}; }
  // The number that people count a sample by, in the files that arrays() name.
  virtual int64_t NumberInFile(int64_t index) const { return index; }
  // For people: where a sample is from, such as a picture's path.
  virtual std::string Describe(int64_t index) const;
  // ReadStored of the first array of pictures.  "": there is none.
  absl::StatusOr<std::string_view> PictureFile(int64_t index, SampleMemory& memory) const;
  // For people: a line with a count for each kind of content that is left out.
  virtual const std::vector<std::string>& notes() const {
    static const std::vector<std::string> none;
    return none;
  }
};

// The configuration of each source of data.train and data.test by itself: train and test are its
// own, without `beside`.  image_input and label_input are the inputs that it feeds, "" for none.
std::vector<DataConfig> SourcesOf(const DataConfig& data);

class DataMemory;  // data_memory.h

// Resolves the configuration's `path` of a file or folder.  `there` is where the text says.
using PathOf = std::function<std::string(const std::string& path, const std::string& there)>;

// Opens data.train or data.test, and what is beside it (SideBySide).  Relative paths are relative
// to the folder of `config_file`.  IDX images and labels feed image_input and label_input.  IDX
// images N,H,W have one channel.  The fit is `fit` if it is not empty, else the files that
// data.train names, else made from the samples of data.train.  `inputs` are the net's.  `path_of`
// may be null. Errors: those of SideBySide and ReadArray (a missing file's says how to get it), and
// InvalidArgument for
//   arrays  without samples or elements, or with unequal numbers of samples
//   fits    other than data.train names
//   files   unlike docs/data_formats.md, with line, entry or signal
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(
    const DataConfig& data, bool train, const std::string& config_file,
    const NetInputs& inputs = {}, const Fit& fit = {}, const PathOf& path_of = {},
    const std::shared_ptr<DataMemory>& memory = {});

}  // namespace gyre
