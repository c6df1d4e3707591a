#include "engine/data/dataset.h"

#include <filesystem>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/data/array_file.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

struct NamedFile {
  std::string input;
  ArrayFile file;
};

std::vector<NamedFile> FilesOf(const DataConfig& data, bool train, const std::string& config_file) {
  const auto resolve = [&](const std::string& path) {
    return (std::filesystem::path(config_file).parent_path() / path).string();
  };
  const DatasetConfig& config = train ? data.train() : data.test();
  std::vector<NamedFile> files;
  if (config.has_idx()) {
    const IdxConfig& idx = config.idx();
    files.push_back(
        {data.image_input(), {.path = resolve(idx.images()), .least_rank = 3, .most_rank = 4}});
    files.push_back(
        {data.label_input(), {.path = resolve(idx.labels()), .least_rank = 1, .most_rank = 1}});
  }
  for (const ArrayConfig& array : config.arrays().array()) {
    files.push_back({array.input(), {.path = resolve(array.file()), .entry = array.entry()}});
  }
  return files;
}

// Arrays in memory.
class ArrayDataset : public Dataset {
 public:
  // Takes one more array; all have equally many samples.
  absl::Status Add(const std::string& input, const ArrayFile& file, HostArray array) {
    const std::string name = NameOf(file);
    const auto invalid = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat(name, what));
    };
    const int64_t samples = array.dims[0];
    if (samples == 0) return invalid(": no samples");
    if (array.bytes.empty()) {
      return invalid(absl::StrCat(": samples without elements: extents [",
                                  absl::StrJoin(array.dims, ", "), "]"));
    }
    if (!arrays_.empty() && samples != size_) {
      return absl::InvalidArgumentError(absl::StrCat(arrays_[0].file, " holds ", size_,
                                                     " samples, but ", name, " holds ", samples));
    }
    size_ = samples;
    const auto sample = std::span<const int64_t>(array.dims).subspan(1);
    arrays_.push_back({.input = input, .file = name, .shape = Shape(sample), .dtype = array.dtype});
    contents_.push_back(std::move(array));
    return absl::OkStatus();
  }

  int64_t size() const override { return size_; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }

  absl::StatusOr<Tensor> Read(int64_t index, size_t array) const override {
    if (index < 0 || index >= size_) {
      return absl::OutOfRangeError(
          absl::StrCat(arrays_[array].file, ": sample ", index, " of ", size_, " does not exist"));
    }
    Tensor sample{nullptr, arrays_[array].shape, arrays_[array].dtype};
    const std::byte* first = contents_[array].data();
    sample.data = const_cast<std::byte*>(first) + static_cast<size_t>(index) * sample.bytes();
    return sample;
  }

 private:
  int64_t size_ = 0;
  std::vector<DataArray> arrays_;
  std::vector<HostArray> contents_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataConfig& data, bool train,
                                                     const std::string& config_file) {
  auto dataset = std::make_unique<ArrayDataset>();
  for (const NamedFile& file : FilesOf(data, train, config_file)) {
    ASSIGN_OR_RETURN(HostArray array, ReadArray(file.file));
    RETURN_IF_ERROR(dataset->Add(file.input, file.file, std::move(array)));
  }
  return dataset;
}

}  // namespace gyre
