// Samples that tools/make_records packed in shards.

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/records/record_shard.h"
#include "engine/data/sets/picture_input.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/tables/table_reader.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// All shards of one set, in order.
struct RecordFiles {
  RecordSet set;
  std::vector<RecordShard> shards;
};

class RecordDataset : public Dataset {
 public:
  // `pictures` has how each array of files becomes an input.
  RecordDataset(RecordFiles files, RecordLayout layout,
                std::vector<std::optional<PictureInput>> pictures, std::string name, Fit fit,
                int64_t window)
      : id_(++last_id_),
        set_(std::move(files.set)),
        shards_(std::move(files.shards)),
        layout_(std::move(layout)),
        pictures_(std::move(pictures)),
        fit_(std::move(fit)),
        window_(window) {
    set_.clear_fit();
    for (size_t i = 0; i < pictures_.size(); ++i) {
      const RecordSet::Array& array = set_.array(static_cast<int>(i));
      DataArray& read = arrays_.emplace_back();
      read = {.input = array.input(),
              .file = name,
              .shape = {},
              .dtype = DType::kU8,
              .reset = array.reset(),
              .digest = array.digest()};
      if (!pictures_[i]) {
        read.shape = layout_.shape(i);
        read.dtype = layout_.dtype(i);
        continue;
      }
      const InputFit& fit_of = pictures_[i]->fit;
      const bool mask = array.content() == RecordSet::Array::MASK;
      read.stored = mask ? StoredAs::kMask : StoredAs::kPicture;
      read.shape = mask ? Shape{fit_of.height, fit_of.width}
                        : Shape{fit_of.height, fit_of.width, pictures_[i]->format.channels};
    }
    for (const RecordShard& shard : shards_) {
      counts_.push_back(shard.size());
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + shard.size());
      lengths_.insert(lengths_.end(), shard.lengths().begin(), shard.lengths().end());
    }
  }

  int64_t size() const override { return ends_.back(); }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  std::span<const int32_t> lengths() const override { return lengths_; }
  Fit fit() const override { return fit_; }
  ReadWindow window() const override { return {.samples = window_, .files = counts_}; }

  std::string Describe(int64_t index) const override {
    const auto [shard, sample] = Find(index);
    return absl::StrCat(shard->path(), ": sample ", sample);
  }

  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory& memory,
                              const std::optional<SampleDraw>& draw) const override {
    if (index < 0 || index >= size()) {
      return absl::OutOfRangeError(
          absl::StrCat(arrays_[array].file, ": sample ", index, " of ", size(), " does not exist"));
    }
    const auto [shard, sample] = Find(index);
    Tensor read{nullptr, arrays_[array].shape, arrays_[array].dtype};
    if (set_.has_indexed() && static_cast<size_t>(set_.indexed()) == array) {
      read.data = memory.For(array, read.bytes());
      std::memcpy(read.data, &shard->indexed(sample), read.bytes());
      return read;
    }
    ASSIGN_OR_RETURN(const std::string_view stored, Stored(index, array, memory));
    read.data = memory.For(array, read.bytes());
    if (!pictures_[array]) {
      std::memcpy(read.data, stored.data(), stored.size());
      return read;
    }
    const absl::Status filled =
        FillInput(stored, *pictures_[array], draw, memory, read.as<uint8_t>());
    if (filled.ok()) return read;
    return absl::Status(filled.code(), shard->Error(sample, filled.message()).message());
  }

  absl::StatusOr<std::string_view> ReadStored(int64_t index, size_t array,
                                              SampleMemory& memory) const override {
    GYRE_CHECK(pictures_[array].has_value());
    return Stored(index, array, memory);
  }

  void ReadSoon(std::span<const int64_t> samples) const override {
    for (size_t i = 0; i < samples.size();) {
      const auto [shard, first] = Find(samples[i]);
      int64_t count = 0;
      while (i < samples.size() && first + count < shard->size() &&
             samples[i] == samples[i - static_cast<size_t>(count)] + count) {
        ++count;
        ++i;
      }
      shard->ReadSoon(first, first + count);
    }
  }

 private:
  // The shard of a sample, and its number there.
  std::pair<const RecordShard*, int64_t> Find(int64_t index) const {
    const auto shard = std::ranges::upper_bound(ends_, index) - ends_.begin();
    const int64_t first = shard == 0 ? 0 : ends_[static_cast<size_t>(shard) - 1];
    return {&shards_[static_cast<size_t>(shard)], index - first};
  }

  // The bytes of an array that is not indexed.  A sample is read once for all its arrays.
  absl::StatusOr<std::string_view> Stored(int64_t index, size_t array, SampleMemory& memory) const {
    const auto [shard, sample] = Find(index);
    const size_t bytes = shard->bytes(sample);
    std::byte* const record = memory.record.Grow(bytes);
    if (memory.record_of != id_ || memory.record_sample != index) {
      memory.record_of = 0;
      RETURN_IF_ERROR(shard->Read(sample, record));
      memory.record_of = id_;
      memory.record_sample = index;
    }
    const auto found = layout_.Find({reinterpret_cast<const char*>(record), bytes}, array);
    if (!found.ok()) return shard->Error(sample, found.status().message());
    return *found;
  }

  static inline std::atomic<uint64_t> last_id_ = 0;
  const uint64_t id_;  // of SampleMemory::record_of
  RecordSet set_;      // without its fit
  const std::vector<RecordShard> shards_;
  const RecordLayout layout_;
  const std::vector<std::optional<PictureInput>> pictures_;
  const Fit fit_;
  const int64_t window_;
  std::vector<int64_t> ends_, counts_;  // of each shard's samples
  std::vector<int32_t> lengths_;
  std::vector<DataArray> arrays_;
};

absl::StatusOr<RecordFiles> OpenShards(const SeriesSource& source, const RecordsConfig& config) {
  std::vector<std::string> paths;
  for (const std::string& path : config.file()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> more, FilesOf(source.Resolve(path)));
    paths.insert(paths.end(), more.begin(), more.end());
  }
  RecordFiles files;
  std::string text;  // of the set
  std::vector<std::optional<RecordShard>> shards;
  for (const std::string& path : paths) {
    ShardHeader header;
    auto opened = RecordShard::Open(path, header);
    if (absl::IsResourceExhausted(opened.status())) {
      return absl::ResourceExhaustedError(absl::StrCat(
          opened.status().message(), "; a larger make_records --shard_bytes makes fewer shards"));
    }
    RETURN_IF_ERROR(opened.status());
    RecordShard& shard = *opened;
    if (shards.empty()) {
      files.set = header.set();
      text = header.set().SerializeAsString();
      shards = std::vector<std::optional<RecordShard>>(paths.size());
    } else if (header.set().SerializeAsString() != text) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s is of another set than %s (%s); name one set's shards, as in \"%s-*.rec\"", path,
          paths[0],
          header.set().name() == files.set.name()
              ? "packed from other samples, or otherwise"
              : absl::StrCat("\"", header.set().name(), "\", not \"", files.set.name(), "\""),
          files.set.name()));
    }
    const auto number = static_cast<size_t>(header.shard());
    if (number < shards.size() && !shards[number]) {
      shards[number].emplace(std::move(shard));
    } else if (number < shards.size()) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s and %s are both shard %d", shards[number]->path(), path, header.shard()));
    }
  }
  for (int64_t i = 0; i < files.set.shards(); ++i) {
    if (static_cast<size_t>(i) < shards.size() && shards[static_cast<size_t>(i)]) {
      files.shards.push_back(*std::move(shards[static_cast<size_t>(i)]));
      continue;
    }
    return absl::NotFoundError(absl::StrFormat("%s: %d of %d shards are there, %s is not",
                                               source.Resolve(config.file(0)), paths.size(),
                                               files.set.shards(), ShardName(files.set, i)));
  }
  int64_t samples = 0;
  size_t largest = 0;
  for (const RecordShard& shard : files.shards) {
    samples += shard.size();
    for (int64_t i = 0; i < shard.size(); ++i) largest = std::max(largest, shard.bytes(i));
  }
  RETURN_IF_ERROR(CheckFitsMemory(paths[0], largest));
  if (samples == files.set.samples() && samples > 0) return files;
  return absl::DataLossError(absl::StrFormat("%s: its set has %d samples, its shards %d", paths[0],
                                             files.set.samples(), samples));
}

// How the files of each array become an input.  None: it is of values.
absl::StatusOr<std::vector<std::optional<PictureInput>>> PicturesOf(const SeriesSource& source,
                                                                    const RecordSet& set) {
  const RecordsConfig& config = source.data.train().records();
  const AugmentationConfig& augmentation = source.data.augmentation();
  std::vector<std::optional<PictureInput>> pictures;
  const RecordSet::Array* first = nullptr;
  for (const RecordSet::Array& array : set.array()) {
    std::optional<PictureInput>& picture = pictures.emplace_back();
    if (array.content() == RecordSet::Array::VALUES) continue;
    // A mask is cut as the picture before it.
    const bool mask = array.content() == RecordSet::Array::MASK;
    if (!mask) first = &array;
    if (mask && first == nullptr) {
      return absl::DataLossError("its header has a mask without a picture");
    }
    const NetInput* const net = source.Input(first->input());
    if (net == nullptr) {
      std::vector<std::string> names;
      for (const NetInput& input : source.inputs) names.push_back(input.name);
      return absl::InvalidArgumentError(
          absl::StrFormat("its pictures feed the net's input \"%s\", but its inputs are \"%s\"",
                          first->input(), absl::StrJoin(names, "\", \"")));
    }
    ASSIGN_OR_RETURN(picture, PictureInputOf(config.images(), *net, augmentation));
    if (mask) picture = MaskInputOf(*std::move(picture));
  }
  if (first != nullptr) return pictures;
  const char* const field = config.has_images()              ? "records.images"
                            : augmentation.has_random_crop() ? "augmentation.random_crop"
                                                             : nullptr;
  if (field == nullptr) return pictures;
  return absl::InvalidArgumentError(absl::StrCat(
      "the samples are values, which ", field,
      " does not change; leave it out, or pack files of pictures without make_records --raw"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenRecords(const SeriesSource& source) {
  const RecordsConfig& config = source.set().records();
  ASSIGN_OR_RETURN(RecordFiles files, OpenShards(source, config));
  const std::string name = source.Resolve(config.file(0));
  const auto annotated = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
  };
  auto pictures = PicturesOf(source, files.set);
  if (!pictures.ok()) return annotated(pictures.status());
  auto layout = RecordLayout::Of(files.set);
  if (!layout.ok()) return annotated(layout.status());
  Fit fit;
  for (const RecordSet::Text& text : files.set.fit()) fit[text.name()] = text.text();
  const std::string difference = DifferenceOf(source.fit, fit);
  if (!difference.empty()) {
    return absl::InvalidArgumentError(
        absl::StrFormat("%s was packed with another fit than the weights': %s", name, difference));
  }
  return std::make_unique<RecordDataset>(std::move(files), *std::move(layout), *std::move(pictures),
                                         name, std::move(fit),
                                         source.data.train().records().window());
}

}  // namespace gyre
