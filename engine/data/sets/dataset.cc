#include "engine/data/sets/dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/data/sets/series.h"
#include "engine/data/sets/side_by_side.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr char kFashionMnistFolder[] = "/usr/share/datasets/fashion-mnist/";
// What the commands in the READMEs of models/ make, in runs/data.
constexpr const char* kMade[] = {
    "images_224.npy", "images_227.npy", "labels.npy",     "train_text.npy",
    "train_next.npy", "test_text.npy",  "test_next.npy",  "bible_train.txt",
    "bible_test.txt", "shots/train",    "images/train",   "shots/test",
    "reviews/train",  "reviews/test",   "imagenet/train", "imagenet/val"};

absl::StatusOr<std::unique_ptr<Dataset>> Open(const SeriesSource& source) {
  const DatasetConfig& config = source.set();
  if (config.has_text()) return OpenText(source);
  if (config.has_reviews()) return OpenReviews(source);
  if (config.has_shots()) return OpenShots(source);
  if (config.has_images()) return OpenImages(source);
  if (config.has_table()) return OpenTable(source);
  if (config.has_records()) return OpenRecords(source);
  auto dataset = std::make_unique<MemoryDataset>();
  const auto add = [&](const std::string& input, ArrayFile file) -> absl::Status {
    file.path = source.Resolve(file.path);
    ASSIGN_OR_RETURN(HostArray array, ReadArray(file));
    return dataset->Add(input, NameOf(file), std::move(array));
  };
  if (config.has_idx()) {
    const IdxConfig& idx = config.idx();
    RETURN_IF_ERROR(
        add(source.data.image_input(), {.path = idx.images(), .least_rank = 3, .most_rank = 4}));
    RETURN_IF_ERROR(
        add(source.data.label_input(), {.path = idx.labels(), .least_rank = 1, .most_rank = 1}));
  }
  for (const ArrayConfig& array : config.arrays().array()) {
    RETURN_IF_ERROR(add(array.input(), {.path = array.file(), .entry = array.entry()}));
  }
  return dataset;
}

// A source by itself.  `first`: it is the one that others are beside.
DataConfig SourceOf(const DataConfig& data, const DatasetConfig& train, const DatasetConfig* test,
                    bool first) {
  DataConfig source = data;
  *source.mutable_train() = train;
  source.mutable_train()->clear_beside();
  source.clear_test();
  if (test != nullptr) {
    *source.mutable_test() = *test;
    source.mutable_test()->clear_beside();
  }
  if (train.has_images()) {
    const ImagesConfig& images = train.images();
    if (images.has_input()) source.set_image_input(images.input());
    if (images.has_label() || !first) source.set_label_input(images.label());
  } else if (train.has_table() && train.table().label_size() == 0 && data.train().beside_size()) {
    source.set_label_input("");  // another source may have the labels
  }
  return source;
}

// What brings the data that `status` misses, for a trainer's file in `folder`; "" if unknown, as
// where a path is mistyped.
std::string Advice(const absl::Status& status, const std::string& folder) {
  std::error_code ignored;
  if (absl::StrContains(status.message(), kFashionMnistFolder)) {
    return std::filesystem::exists(kFashionMnistFolder, ignored)
               ? ""
               : "; apt-get install dataset-fashion-mnist brings it";
  }
  const std::filesystem::path page = std::filesystem::path(folder) / "README.md";
  const bool made = std::ranges::any_of(kMade, [&status](const char* name) {
    return absl::StrContains(status.message(), absl::StrCat("/runs/data/", name, ":"));
  });
  if (!made || !std::filesystem::exists(page, ignored)) return "";
  return absl::StrCat("; ", page.string(), " says what makes it");
}

}  // namespace

std::byte* ReusedBytes::Grow(size_t bytes) {
  if (bytes > size_) {
    memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
    size_ = bytes;
  }
  return memory_.get();
}

std::byte* SampleMemory::For(size_t array, size_t bytes) {
  const size_t i = first + array;
  if (samples.size() <= i) samples.resize(i + 1);
  return samples[i].Grow(bytes);
}

std::string Dataset::Describe(int64_t index) const {
  return absl::StrCat(arrays()[0].file, ": sample ", index);
}

absl::StatusOr<std::string_view> Dataset::ReadStored(int64_t, size_t, SampleMemory&) const {
  return absl::InternalError("no file is stored for a sample of this data set");
}

absl::StatusOr<std::string_view> Dataset::PictureFile(int64_t index, SampleMemory& memory) const {
  for (size_t array = 0; array < arrays().size(); ++array) {
    if (arrays()[array].stored == StoredAs::kPicture) return ReadStored(index, array, memory);
  }
  return "";
}

std::vector<DataConfig> SourcesOf(const DataConfig& data) {
  const bool has_test = data.has_test();
  std::vector<DataConfig> sources = {
      SourceOf(data, data.train(), has_test ? &data.test() : nullptr, /*first=*/true)};
  for (int i = 0; i < data.train().beside_size(); ++i) {
    // Test data that are unlike are refused beforehand (Validate).
    const bool tested = i < data.test().beside_size();
    sources.push_back(SourceOf(data, data.train().beside(i),
                               tested ? &data.test().beside(i) : nullptr, /*first=*/false));
  }
  return sources;
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataConfig& data, bool train,
                                                     const std::string& config_file,
                                                     const NetInputs& inputs, const Fit& fit,
                                                     const PathOf& path_of,
                                                     const std::shared_ptr<DataMemory>& memory) {
  const std::string folder = std::filesystem::path(config_file).parent_path().string();
  std::vector<std::unique_ptr<Dataset>> sources;
  for (const DataConfig& source : SourcesOf(data)) {
    auto dataset = Open({source, train, folder, inputs, fit, path_of, !sources.empty(), memory});
    if (absl::IsNotFound(dataset.status())) {
      return absl::NotFoundError(
          absl::StrCat(dataset.status().message(), Advice(dataset.status(), folder)));
    }
    RETURN_IF_ERROR(dataset.status());
    sources.push_back(*std::move(dataset));
  }
  if (sources.size() == 1) return std::move(sources[0]);
  ASSIGN_OR_RETURN(std::unique_ptr<Dataset> all, SideBySide(std::move(sources)));
  if (data.order() == DataConfig::CONTIGUOUS && !all->sequences().empty()) {
    return absl::InvalidArgumentError(
        "order: CONTIGUOUS pads sequences with a blank sample, which the sources beside them do "
        "not have; write one source");
  }
  return all;
}

}  // namespace gyre
