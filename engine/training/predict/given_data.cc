#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/sets/picture_index.h"
#include "engine/runtime/check.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/predict/prediction_net.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

std::string EndingOf(const std::string& path) {
  return absl::AsciiStrToLower(fs::path(path).extension().string());
}

// For people.  Files of unlike kinds cannot be predicted together.
std::string KindOf(const std::string& path) {
  if (fs::is_directory(path) || IsPictureName(path)) return "a picture or a folder of them";
  const std::string ending = EndingOf(path);
  return ending.empty() ? "a file without an ending" : absl::StrCat("a file that ends in ", ending);
}

// What the run's net takes, for people.
std::string Accepted(const NetConfig& net, const DatasetConfig& train) {
  std::vector<std::string> kinds;
  if (net.input_size() == 1 && IsPicture(net.input(0))) {
    kinds.emplace_back("pictures or folders of them");
  }
  if (train.has_table()) kinds.emplace_back("a .csv file");
  if (train.has_reviews()) kinds.emplace_back("a .tsv of a text a line");
  kinds.emplace_back("an .npz of arrays by the inputs' names");
  if (net.input_size() == 1) kinds.emplace_back("a .npy");
  std::string accepted = absl::StrJoin(kinds, ", ");
  if (net.input_size() > 1) {
    absl::StrAppend(&accepted, ", as these outputs need ", net.input_size(), " inputs");
  }
  return accepted;
}

// The pictures of a folder and of the folders in it, sorted.  Hidden ones are left out.
absl::Status AddPictures(const std::string& folder, std::vector<std::string>& pictures) {
  std::error_code error;
  std::vector<std::string> found;
  for (auto entry = fs::recursive_directory_iterator(folder, error);
       !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    const std::string path = entry->path().string();
    if (entry->path().filename().string().starts_with('.')) {
      entry.disable_recursion_pending();
      continue;
    }
    std::error_code unreadable;  // as of a link to itself
    if (entry->is_regular_file(unreadable) && IsPictureName(path)) found.push_back(path);
  }
  if (error) return absl::ErrnoToStatus(error.value(), folder);
  if (found.empty()) return absl::InvalidArgumentError(absl::StrCat(folder, ": no picture in it"));
  std::ranges::sort(found);
  pictures.insert(pictures.end(), found.begin(), found.end());
  return absl::OkStatus();
}

absl::Status TakePictures(std::span<const std::string> paths, const std::string& folder,
                          const std::string& input, DataConfig& data) {
  std::vector<std::string> pictures;
  for (const std::string& path : paths) {
    if (fs::is_directory(path)) {
      RETURN_IF_ERROR(AddPictures(path, pictures));
    } else {
      pictures.push_back(path);
    }
  }
  std::string lines;
  for (const std::string& picture : pictures) {
    if (picture.find_first_of("\t\n") != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(picture, ": its name holds a TAB or a line's end; rename it"));
    }
    absl::StrAppend(&lines, fs::absolute(picture).string(), "\n");
  }
  const std::string list = folder + "/pictures.txt";
  RETURN_IF_ERROR(WriteFileAtomically(list, lines));
  // How pictures become the input, as in training.
  const ImagesConfig trained =
      data.train().has_records() ? data.train().records().images() : data.train().images();
  ImagesConfig& images = *data.mutable_train()->mutable_images();
  images = trained;
  images.clear_folder();
  images.clear_input();
  images.clear_label();
  images.set_list(list);
  data.mutable_test()->mutable_images()->set_list(list);
  data.set_image_input(input);
  return absl::OkStatus();
}

absl::Status TakeArrays(std::span<const std::string> paths, const NetConfig& net,
                        DataConfig& data) {
  if (paths.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected one file of arrays, got ", paths.size()));
  }
  const bool several = EndingOf(paths[0]) == ".npz";
  if (!several && net.input_size() > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: holds one array, and the net has %d inputs; give an .npz of arrays by their names",
        paths[0], net.input_size()));
  }
  ArraysConfig& arrays = *data.mutable_test()->mutable_arrays();
  for (const InputConfig& input : net.input()) {
    ArrayConfig& array = *arrays.add_array();
    array.set_input(input.name());
    array.set_file(fs::absolute(paths[0]).string());
    if (several) array.set_entry(input.name());
  }
  *data.mutable_train() = data.test();
  return absl::OkStatus();
}

}  // namespace

absl::Status TakeAsTestData(std::span<const std::string> paths, const std::string& folder,
                            const NetConfig& net, TrainerConfig& trainer) {
  if (paths.empty()) return absl::InvalidArgumentError("no file is given");
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::exists(path, error)) return absl::NotFoundError(absl::StrCat(path, ": is not there"));
  }
  DataConfig& data = *trainer.mutable_data();
  const DatasetConfig train = data.train();
  data.clear_split();
  data.clear_test();
  data.mutable_train()->clear_beside();
  data.clear_augmentation();
  data.clear_order();
  const auto all = [&](const auto& is) { return std::ranges::all_of(paths, is); };
  const auto picture = std::ranges::find_if(net.input(), IsPicture);
  if (picture != net.input().end() && net.input_size() == 1 &&
      all([](const std::string& path) { return fs::is_directory(path) || IsPictureName(path); })) {
    return TakePictures(paths, folder, picture->name(), data);
  }
  if (train.has_table() && all([](const std::string& path) { return EndingOf(path) == ".csv"; })) {
    TableConfig& table = *data.mutable_test()->mutable_table();
    for (const std::string& path : paths) table.add_file(fs::absolute(path).string());
    return absl::OkStatus();
  }
  if (train.has_reviews() && paths.size() == 1 && EndingOf(paths[0]) == ".tsv") {
    data.mutable_test()->mutable_reviews()->set_file(fs::absolute(paths[0]).string());
    return absl::OkStatus();
  }
  if (all([](const std::string& path) {
        return EndingOf(path) == ".npz" || EndingOf(path) == ".npy";
      })) {
    return TakeArrays(paths, net, data);
  }
  const std::string accepted = Accepted(net, train), kind = KindOf(paths[0]);
  const auto other =
      std::ranges::find_if(paths, [&](const std::string& path) { return KindOf(path) != kind; });
  if (other == paths.end()) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: expected %s", paths[0], accepted));
  }
  return absl::InvalidArgumentError(
      absl::StrFormat("%s: is %s, but %s is %s; give files of one kind: %s", *other, KindOf(*other),
                      paths[0], kind, accepted));
}

}  // namespace gyre
