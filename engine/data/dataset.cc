#include "engine/data/dataset.h"

#include <filesystem>
#include <utility>

#include "engine/data/series.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

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

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DataConfig& data, bool train,
                                                     const std::string& config_file, const Fit& fit,
                                                     const PathOf& path_of) {
  const SeriesSource source{data, train, std::filesystem::path(config_file).parent_path().string(),
                            fit, path_of};
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

}  // namespace gyre
