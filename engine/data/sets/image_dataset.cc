// Pictures as a data set: a folder a class, or a list.  They are decoded as they are read.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <unordered_map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/sets/data_memory.h"
#include "engine/data/sets/picture_index.h"
#include "engine/data/sets/picture_input.h"
#include "engine/data/sets/series.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// The text of a fit.  Labels beside others have one of their own.
std::string ClassesFile(const SeriesSource& source) {
  return source.beside ? absl::StrCat("classes_", source.data.label_input(), ".txt") : kClassesFile;
}

// The content, until `memory` reads the next file.
absl::StatusOr<std::string_view> ReadPictureFile(const std::string& path, SampleMemory& memory) {
  ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(path));
  RETURN_IF_ERROR(CheckFitsMemory(path, reader.size()));
  std::byte* const bytes = memory.file.Grow(reader.size());
  RETURN_IF_ERROR(reader.ReadAll(bytes, reader.size()));
  return std::string_view(reinterpret_cast<const char*>(bytes), reader.size());
}

// What is to be kept of a file: the finished input, or all pixels if a draw chooses among them.
// Null if it does not fit or cannot be read.  Where only a window is wanted, the rest may be
// damaged.
std::unique_ptr<KeptPicture> DecodeKept(std::string_view file, const PictureInput& input,
                                        const KeptPictures& kept, SampleMemory& memory) {
  const int channels = input.format.channels;
  if (!input.fit.random.has_value()) {
    auto picture = kept.New(input.fit.height, input.fit.width, channels);
    if (picture == nullptr) return nullptr;
    return FillInput(file, input, {}, memory, picture->data()).ok() ? std::move(picture) : nullptr;
  }
  const auto header = ReadPictureHeader(file, input.most_pixels);
  if (!header.ok()) return nullptr;
  auto picture = kept.New(header->height, header->width, channels);
  if (picture == nullptr) return nullptr;
  const Window all{.height = header->height, .width = header->width};
  const absl::Status decoded = DecodePicture(file, *header, all, input.format, picture->data());
  return decoded.ok() ? std::move(picture) : nullptr;
}

class ImageDataset : public Dataset {
 public:
  ImageDataset(PictureIndex index, PictureInput input, const DataConfig& data, DataArray label,
               std::string name, Fit fit, const std::shared_ptr<DataMemory>& memory)
      : index_(std::move(index)), input_(std::move(input)), fit_(std::move(fit)) {
    Sha256Digest digest;
    for (int64_t i = 0; i < index_.paths.size(); ++i) {
      digest.Add(absl::StrCat(std::string(index_.paths[i]), "\n"));
    }
    arrays_.push_back({.input = data.image_input(),
                       .file = name,
                       .shape = {input_.fit.height, input_.fit.width, input_.format.channels},
                       .dtype = DType::kU8,
                       .digest = digest.Hex(),
                       .stored = StoredAs::kPicture});
    if (index_.masks.size() > 0) {
      for (int64_t i = 0; i < index_.masks.size(); ++i) {
        digest.Add(absl::StrCat(std::string(index_.masks[i]), "\n"));
      }
      label.digest = digest.Hex();
      label.stored = StoredAs::kMask;
    }
    label.input = data.label_input();
    label.file = std::move(name);
    if (!label.input.empty()) arrays_.push_back(std::move(label));
    if (!index_.note.empty()) notes_.push_back(index_.note);
    for (const DataArray& array : arrays_) {
      if (memory == nullptr || array.stored == StoredAs::kValues) continue;
      kept_.push_back(std::make_unique<KeptPictures>(memory, size()));
    }
  }

  int64_t size() const override { return index_.paths.size(); }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  Fit fit() const override { return fit_; }
  const std::vector<std::string>& notes() const override { return notes_; }
  std::string Describe(int64_t index) const override { return index_.PathOf(index); }
  absl::StatusOr<std::string_view> ReadStored(int64_t index, size_t array,
                                              SampleMemory& memory) const override {
    GYRE_CHECK(arrays_[array].stored != StoredAs::kValues);
    return ReadPictureFile(PathOf(index, array), memory);
  }

  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory& memory,
                              const std::optional<SampleDraw>& draw) const override {
    if (index < 0 || index >= size()) {
      return absl::OutOfRangeError(
          absl::StrCat(arrays_[array].file, ": sample ", index, " of ", size(), " does not exist"));
    }
    Tensor sample{nullptr, arrays_[array].shape, arrays_[array].dtype};
    sample.data = memory.For(array, sample.bytes());
    if (arrays_[array].stored != StoredAs::kValues) {
      RETURN_IF_ERROR(ReadPicture(index, array, draw, memory, sample));
      return sample;
    }
    const int64_t count = sample.elements();
    const float* numbers = index_.numbers.data() + index * count;
    if (sample.dtype == DType::kI32) {
      std::transform(numbers, numbers + count, sample.as<int32_t>(),
                     [](float number) { return static_cast<int32_t>(number); });
    } else {
      std::copy_n(numbers, count, sample.as<float>());
    }
    return sample;
  }

 private:
  std::string PathOf(int64_t index, size_t array) const {
    if (array == 0) return index_.PathOf(index);
    return (fs::path(index_.folder) / index_.masks[index]).string();
  }

  // Fills the sample, or points it at the kept picture.  What fits is kept.
  absl::Status ReadPicture(int64_t index, size_t array, const std::optional<SampleDraw>& draw,
                           SampleMemory& memory, Tensor& sample) const {
    const bool is_mask = arrays_[array].stored == StoredAs::kMask;
    const PictureInput input = is_mask ? MaskInputOf(input_) : input_;
    const auto fill = [&](const auto& picture) {
      return Annotate(FillInput(picture, input, draw, memory, sample.as<uint8_t>()),
                      PathOf(index, array));
    };
    KeptPictures* const kept = kept_.empty() ? nullptr : kept_[array].get();
    const KeptPicture* picture = kept == nullptr ? nullptr : kept->Find(index);
    if (picture == nullptr) {
      ASSIGN_OR_RETURN(
          const std::string_view file,
          is_mask ? ReadMask(index, memory) : ReadPictureFile(PathOf(index, array), memory));
      auto decoded = kept == nullptr ? nullptr : DecodeKept(file, input, *kept, memory);
      if (decoded == nullptr) return fill(file);
      picture = &kept->Keep(index, std::move(decoded));
    }
    if (input.fit.random.has_value()) return fill(picture->pixels());
    sample.data = const_cast<uint8_t*>(picture->pixels().data);
    return absl::OkStatus();
  }

  // The file of a mask, which is as large as its picture.
  absl::StatusOr<std::string_view> ReadMask(int64_t index, SampleMemory& memory) const {
    PictureHeader headers[2];
    std::string_view file;
    for (const size_t array : {0, 1}) {
      ASSIGN_OR_RETURN(file, ReadPictureFile(PathOf(index, array), memory));
      const auto header = ReadPictureHeader(file, input_.most_pixels);
      if (!header.ok()) return Annotate(header.status(), PathOf(index, array));
      headers[array] = *header;
    }
    const auto& [picture, mask] = headers;
    if (picture.height == mask.height && picture.width == mask.width) return file;
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s has %d x %d pixels (height x width), but the picture that it is a mask of, %s, has %d "
        "x %d",
        PathOf(index, 1), mask.height, mask.width, PathOf(index, 0), picture.height,
        picture.width));
  }

  const PictureIndex index_;
  const PictureInput input_;
  std::vector<DataArray> arrays_;  // pictures and labels
  const Fit fit_;
  std::vector<std::unique_ptr<KeptPictures>> kept_;  // by array of pictures.  Empty: none is kept
  std::vector<std::string> notes_;
};

// The net's input that FIELD says pictures or labels feed.
absl::StatusOr<const NetInput*> FedInputOf(const SeriesSource& source, const std::string& name,
                                           const char* field) {
  if (const NetInput* input = source.Input(name)) return input;
  std::vector<std::string> names;
  for (const NetInput& input : source.inputs) names.push_back(absl::StrCat("\"", input.name, "\""));
  return absl::InvalidArgumentError(
      absl::StrFormat("images feed the net's input \"%s\" (%s), but its inputs are %s", name, field,
                      absl::StrJoin(names, ", ")));
}

// What the net wants of labels.
struct WantedLabels {
  PictureLabels kind = PictureLabels::kNone;
  DataArray array;           // shape and type
  int64_t most_classes = 0;  // of a distribution, 0: any number
};
absl::StatusOr<WantedLabels> WantedLabelsOf(const SeriesSource& source, const PictureInput& input) {
  WantedLabels wanted;
  const bool own = source.data.train().images().has_label();
  // A net that predicts, or rebuilds its input, takes none.
  const std::string& input_name = source.data.label_input();
  if (input_name.empty() || (!own && source.Input(input_name) == nullptr)) return wanted;
  ASSIGN_OR_RETURN(const NetInput* net, FedInputOf(source, source.data.label_input(),
                                                   own ? "images.label" : "data.label_input"));
  wanted.kind = PictureLabels::kClass;
  wanted.array.shape = Shape(std::span<const int64_t>(net->dims));
  wanted.array.dtype = net->label ? DType::kI32 : DType::kF32;
  if (net->label && net->dims.empty()) return wanted;
  const ImagesConfig& trained = source.data.train().images();
  if (!net->label && net->dims.size() == 1 &&
      (trained.has_folder() || (net->dims[0] > 1 && HasOneLabel(source.Resolve(trained.list()))))) {
    wanted.array.shape = Shape{};
    wanted.array.dtype = DType::kI32;
    wanted.most_classes = net->dims[0];
    return wanted;
  }
  wanted.kind = PictureLabels::kNumbers;
  if (net->dims.size() <= 1) return wanted;
  const bool same = net->dims[0] == input.fit.height && net->dims[1] == input.fit.width &&
                    (net->dims.size() == 2 || (net->dims.size() == 3 && net->dims[2] == 1));
  if (!net->label || !same) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "labels of images are a number, some numbers [n], or a mask LABEL [%d, %d], but \"%s\" has "
        "dims [%s]",
        input.fit.height, input.fit.width, net->name, absl::StrJoin(net->dims, ", ")));
  }
  wanted.kind = PictureLabels::kMask;
  wanted.array.dtype = DType::kU8;
  return wanted;
}

absl::StatusOr<PictureIndex> ReadIndex(const SeriesSource& source, const ImagesConfig& where,
                                       const WantedLabels& wanted) {
  std::error_code ignored;
  const std::string path = source.Resolve(where.has_list() ? where.list() : where.folder());
  if (where.has_list() && fs::is_directory(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is a folder; expected a list of pictures, or write folder: in place of list:"));
  }
  if (where.has_folder() && fs::is_regular_file(path, ignored)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is a file; expected a folder of classes, or write list: in place of folder:"));
  }
  if (where.has_list()) {
    const int64_t count = wanted.kind == PictureLabels::kNone      ? 0
                          : wanted.kind == PictureLabels::kNumbers ? wanted.array.shape.elements()
                                                                   : 1;
    return ReadPictureList(path, wanted.kind, count);
  }
  if (wanted.kind == PictureLabels::kNone || wanted.kind == PictureLabels::kClass) {
    return ReadPictureFolder(path);
  }
  return absl::InvalidArgumentError(
      "a folder a class gives one LABEL [] or REAL [classes] for each picture; other labels are in "
      "a `list`");
}

// Integers, which F32 holds up to 2^24.
absl::Status CheckIntegers(const PictureIndex& index) {
  for (size_t i = 0; i < index.numbers.size(); ++i) {
    const float number = index.numbers[i];
    if (number == std::floor(number) && std::abs(number) <= 0x1p24F) continue;
    const auto labels = static_cast<int64_t>(index.numbers.size()) / index.paths.size();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected integers of at most 2^24, because the net's label is of type LABEL, got %g",
        index.PathOf(static_cast<int64_t>(i) / labels), number));
  }
  return absl::OkStatus();
}

// The label of a list's pictures without one.
const std::string& NoLabel() {
  static const std::string name = absl::StrCat(kIgnored);
  return name;
}

// The text of the fit of training pictures: a line a class.  "": those of a list are numbers.
absl::StatusOr<std::string> ClassesOf(const PictureIndex& index, bool is_list) {
  std::vector<std::string> classes = index.classes;
  if (is_list) std::erase(classes, NoLabel());
  const bool numbers = std::ranges::all_of(classes, [](const std::string& name) {
    int32_t number;
    return absl::SimpleAtoi(name, &number) && number >= 0 && absl::StrCat(number) == name;
  });
  if (is_list && numbers) return "";
  RETURN_IF_ERROR(CheckTwoClasses(index.PathOf(0), classes));
  return absl::StrCat(absl::StrJoin(classes, "\n"), "\n");
}

// Replaces the numbers of the index's own classes by those of `classes`, or by the numbers that its
// classes are.
absl::Status Renumber(const std::vector<std::string>& classes, PictureIndex& index) {
  std::unordered_map<std::string_view, int32_t> known;
  for (const std::string& name : classes) known.emplace(name, static_cast<int32_t>(known.size()));
  std::vector<float> numbers;
  for (const std::string& name : index.classes) {
    int32_t number = 0;
    if (const auto found = known.find(name); found != known.end()) {
      number = found->second;
    } else if (name == NoLabel()) {
      number = kIgnored;
    } else if (!classes.empty() || !absl::SimpleAtoi(name, &number)) {
      return UnknownClass(absl::StrCat(index.folder, ": has"), name, classes);
    }
    numbers.push_back(static_cast<float>(number));
  }
  for (float& number : index.numbers) number = numbers[static_cast<size_t>(number)];
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenImages(const SeriesSource& source) {
  const ImagesConfig& config = source.data.train().images();
  ASSIGN_OR_RETURN(const NetInput* net,
                   FedInputOf(source, source.data.image_input(),
                              config.has_input() ? "images.input" : "data.image_input"));
  ASSIGN_OR_RETURN(PictureInput input, PictureInputOf(config, *net, source.data.augmentation()));
  ASSIGN_OR_RETURN(WantedLabels wanted, WantedLabelsOf(source, input));
  const ImagesConfig& where = source.set().images();
  ASSIGN_OR_RETURN(PictureIndex index, ReadIndex(source, where, wanted));
  Fit fit;
  if (wanted.kind == PictureLabels::kClass) {
    const std::string file = ClassesFile(source);
    std::string text;  // where the fit has only others': those trained on are numbers
    if (source.fit.contains(file)) {
      text = source.fit.at(file);
    } else if (source.fit.empty() && source.train) {
      ASSIGN_OR_RETURN(text, ClassesOf(index, config.has_list()));
    } else if (source.fit.empty()) {
      ASSIGN_OR_RETURN(const PictureIndex training, ReadIndex(source, config, wanted));
      ASSIGN_OR_RETURN(text, ClassesOf(training, config.has_list()));
    }
    const std::vector<std::string> classes = absl::StrSplit(text, '\n', absl::SkipEmpty());
    RETURN_IF_ERROR(Renumber(classes, index));
    if (wanted.most_classes > 0 && std::ssize(classes) > wanted.most_classes) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: has %d classes, but the net's input \"%s\" has dims [%d]; write dims: %d",
          index.folder, classes.size(), source.data.label_input(), wanted.most_classes,
          classes.size()));
    }
    if (!text.empty()) fit.emplace(file, std::move(text));
  }
  if (wanted.kind == PictureLabels::kNumbers && wanted.array.dtype == DType::kI32) {
    RETURN_IF_ERROR(CheckIntegers(index));
  }
  const std::string name = source.Resolve(where.has_list() ? where.list() : where.folder());
  return std::make_unique<ImageDataset>(std::move(index), std::move(input), source.data,
                                        std::move(wanted.array), name, std::move(fit),
                                        source.memory);
}

}  // namespace gyre
