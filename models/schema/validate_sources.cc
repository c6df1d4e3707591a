#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "models/schema/validate.h"

namespace gyre {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::OneofDescriptor;
using google::protobuf::Reflection;

absl::Status Error(const std::string& where, absl::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", text));
}

// A data set of arrays: what each needs, and that no two feed one input.
absl::Status Validate(const DatasetConfig& data, absl::string_view label, const SourceMap& source) {
  if (!data.has_arrays()) return absl::OkStatus();
  const ArraysConfig& arrays = data.arrays();
  const auto missing = [&](const Message& message, absl::string_view what) {
    return Error(source.Where(message),
                 absl::StrCat("missing ", label, ".arrays.", what,
                              "; write array { input: \"image\" file: \"images.npy\" }"));
  };
  if (arrays.array_size() == 0) return missing(arrays, "array");
  std::set<std::string> inputs;
  for (const ArrayConfig& array : arrays.array()) {
    if (array.input().empty()) return missing(array, "array.input");
    if (array.file().empty()) return missing(array, "array.file");
    if (inputs.insert(array.input()).second) continue;
    return Error(source.Where(array, "input"),
                 absl::StrCat(label, ".arrays: two arrays feed \"", array.input(), "\""));
  }
  return absl::OkStatus();
}

// Where text, reviews, images and shots lie; what signals they have.
absl::Status ValidateSeries(const DatasetConfig& data, absl::string_view label,
                            const SourceMap& source) {
  const auto missing = [&](const Message& message, absl::string_view what) {
    return Error(source.Where(message), absl::StrCat("missing ", label, ".", what));
  };
  if (data.has_text() && data.text().file_size() == 0) {
    return missing(data.text(), "text.file; write file: \"text.txt\"");
  }
  if (data.text().has_words() && data.text().unit() != TextConfig::WORD) {
    return Error(source.Where(data.text(), "words"),
                 absl::StrCat(label,
                              ".text.words: is of unit: WORD, but the unit is CHARACTER, "
                              "all of which are known; leave it out, or write unit: WORD"));
  }
  if (data.has_reviews() && data.reviews().has_folder() == data.reviews().has_file()) {
    return Error(source.Where(data.reviews()),
                 absl::StrCat(label, ".reviews: write one of folder and file"));
  }
  if (data.has_images() && data.images().has_folder() == data.images().has_list()) {
    return Error(source.Where(data.images()),
                 absl::StrCat(label, ".images: write one of folder and list"));
  }
  if (data.has_shots() && absl::StartsWith(label, "data.train") &&
      data.shots().signal_size() + data.shots().profile_size() == 0) {
    return missing(data.shots(), "shots.signal; write signal: [\"current\", \"density\"]");
  }
  return absl::OkStatus();
}

// Shards, which have the pictures and the inputs that these feed.
absl::Status ValidateRecords(const RecordsConfig& records, absl::string_view label,
                             DataConfig::Order order, const SourceMap& source) {
  const auto error = [&](const Message& at, const char* field, int index, absl::string_view name,
                         absl::string_view what) {
    return Error(source.Where(at, field, index),
                 absl::StrCat(label, ".records.", name, ": ", what));
  };
  if (records.file_size() == 0) {
    return Error(source.Where(records),
                 absl::StrCat("missing ", label, ".records.file; write file: \"train-*.rec\""));
  }
  for (int i = 0; i < records.file_size(); ++i) {
    if (records.file(i).empty()) return error(records, "file", i, "file", "is empty");
  }
  const ImagesConfig& images = records.images();
  for (const auto& [field, has] :
       {std::pair("folder", images.has_folder()), std::pair("list", images.has_list()),
        std::pair("input", images.has_input()), std::pair("label", images.has_label())}) {
    if (!has) continue;
    return error(images, field, 0, absl::StrCat("images.", field),
                 "the shards have the pictures and the inputs that they feed; leave it out");
  }
  if (!records.has_window() || order == DataConfig::SHUFFLED) return absl::OkStatus();
  return error(records, "window", 0, "window",
               absl::StrCat("is of data.order: SHUFFLED, got ", DataConfig::Order_Name(order),
                            "; leave it out"));
}

// A data.test of these is read as data.train is, and says only where it lies.  `label` is of the
// source, such as "test".
absl::Status ValidateSeriesOfTest(const DatasetConfig& trained, const DatasetConfig& tested,
                                  const std::string& label, const SourceMap& source) {
  const auto is_series = [](const DatasetConfig& set) {
    return set.has_text() || set.has_reviews() || set.has_shots() || set.has_images() ||
           set.has_table() || set.has_records();
  };
  if (!is_series(trained) && !is_series(tested)) return absl::OkStatus();
  const OneofDescriptor& kinds = *DatasetConfig::descriptor()->FindOneofByName("source");
  const Reflection& reflection = *DatasetConfig::GetReflection();
  const FieldDescriptor* train = reflection.GetOneofFieldDescriptor(trained, &kinds);
  const FieldDescriptor* test = reflection.GetOneofFieldDescriptor(tested, &kinds);
  if (train != test) {
    return Error(source.Where(tested),
                 absl::StrCat("data.", label, " is of ", test->name(), ", but data.train",
                              absl::StripPrefix(label, "test"), " is of ", train->name()));
  }
  const Message& set = reflection.GetMessage(tested, test);
  std::vector<const FieldDescriptor*> fields;
  set.GetReflection()->ListFields(set, &fields);
  for (const FieldDescriptor* field : fields) {
    if (field->name() == "file" || field->name() == "folder" || field->name() == "list") continue;
    return Error(source.Where(set, field->name()),
                 absl::StrCat("data.", label, ".", test->name(), ".", field->name(),
                              ": is as data.train has it; leave it out"));
  }
  return absl::OkStatus();
}

// A source of data.train or data.test, and those beside it.
absl::Status ValidateAll(const DatasetConfig& set, const std::string& label,
                         DataConfig::Order order, const SourceMap& source) {
  if (absl::Status status = Validate(set, label, source); !status.ok()) return status;
  if (absl::Status status = ValidateSeries(set, label, source); !status.ok()) return status;
  if (set.has_table()) {
    absl::Status status = ValidateTable(set.table(), label, source);
    if (!status.ok()) return status;
  }
  if (set.has_records()) {
    absl::Status status = ValidateRecords(set.records(), label, order, source);
    if (!status.ok()) return status;
  }
  for (const DatasetConfig& beside : set.beside()) {
    const std::string of_beside = absl::StrCat(label, ".beside");
    if (beside.beside_size() > 0) {
      return Error(source.Where(beside.beside(0)),
                   absl::StrCat(of_beside, ": write this source beside the first one, not in it"));
    }
    absl::Status status = ValidateAll(beside, of_beside, order, source);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// data.test has the sources that data.train has.
absl::Status ValidateTest(const DataConfig& data, const SourceMap& source) {
  if (!data.has_test()) return absl::OkStatus();
  const DatasetConfig &train = data.train(), &test = data.test();
  absl::Status status = ValidateSeriesOfTest(train, test, "test", source);
  if (status.ok() && train.beside_size() != test.beside_size()) {
    status = Error(source.Where(test),
                   absl::StrCat("data.test has ", test.beside_size(),
                                " sources beside its first, but data.train has ",
                                train.beside_size(), "; write them in the same order"));
  }
  for (int i = 0; i < train.beside_size() && status.ok(); ++i) {
    status = ValidateSeriesOfTest(train.beside(i), test.beside(i), "test.beside", source);
  }
  return status;
}

}  // namespace

absl::Status ValidateSources(const DataConfig& data, const SourceMap& source) {
  absl::Status status = ValidateAll(data.train(), "data.train", data.order(), source);
  if (status.ok()) status = ValidateAll(data.test(), "data.test", data.order(), source);
  return status.ok() ? ValidateTest(data, source) : status;
}

}  // namespace gyre
