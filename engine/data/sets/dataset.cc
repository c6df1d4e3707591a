#include "engine/data/sets/dataset.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/data/sets/series.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr char kFashionMnistFolder[] = "/usr/share/datasets/fashion-mnist/";
// What the commands in the READMEs of models/ make, in runs/data.
constexpr const char* kMade[] = {
    "images_224.npy", "images_227.npy", "labels.npy",      "train_text.npy", "train_next.npy",
    "test_text.npy",  "test_next.npy",  "bible_train.txt", "bible_test.txt", "shots/train",
    "shots/test",     "reviews/train",  "reviews/test"};

struct NamedFile {
  std::string input;
  ArrayFile file;
};

std::vector<NamedFile> FilesOf(const SeriesSource& source) {
  const DataConfig& data = source.data;
  const DatasetConfig& config = source.set();
  std::vector<NamedFile> files;
  if (config.has_idx()) {
    const IdxConfig& idx = config.idx();
    files.push_back({data.image_input(),
                     {.path = source.Resolve(idx.images()), .least_rank = 3, .most_rank = 4}});
    files.push_back({data.label_input(),
                     {.path = source.Resolve(idx.labels()), .least_rank = 1, .most_rank = 1}});
  }
  for (const ArrayConfig& array : config.arrays().array()) {
    files.push_back(
        {array.input(), {.path = source.Resolve(array.file()), .entry = array.entry()}});
  }
  return files;
}

absl::StatusOr<std::unique_ptr<Dataset>> Open(const SeriesSource& source) {
  switch (source.set().source_case()) {
    case DatasetConfig::kText:
      return OpenText(source);
    case DatasetConfig::kReviews:
      return OpenReviews(source);
    case DatasetConfig::kShots:
      return OpenShots(source);
    default:
      break;
  }
  auto dataset = std::make_unique<MemoryDataset>();
  for (const NamedFile& file : FilesOf(source)) {
    ASSIGN_OR_RETURN(HostArray array, ReadArray(file.file));
    RETURN_IF_ERROR(dataset->Add(file.input, NameOf(file.file), std::move(array)));
  }
  return dataset;
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

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataConfig& data, bool train,
                                                     const std::string& config_file, const Fit& fit,
                                                     const PathOf& path_of) {
  const std::string folder = std::filesystem::path(config_file).parent_path().string();
  auto dataset = Open({data, train, folder, fit, path_of});
  if (!absl::IsNotFound(dataset.status())) return dataset;
  return absl::NotFoundError(
      absl::StrCat(dataset.status().message(), Advice(dataset.status(), folder)));
}

}  // namespace gyre
