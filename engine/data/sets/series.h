// series.h: opens data sets of sequences, one function a kind, and helpers that they share.  Used
// while a data set is being opened, by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/data/sets/data_memory.h"
#include "engine/data/sets/dataset.h"
#include "engine/data/sets/memory_dataset.h"
#include "engine/data/sets/vocabulary.h"

namespace gyre {

// The arguments of OpenDataset.
struct SeriesSource {
  const DataConfig& data;
  bool train;
  std::string folder;  // base of relative paths
  const NetInputs& inputs;
  const Fit& fit;
  const PathOf& path_of;
  bool beside;                                // it is not the first of several
  const std::shared_ptr<DataMemory>& memory;  // for decoded pictures, or null

  const DatasetConfig& set() const { return train ? data.train() : data.test(); }
  // The net's input of this name, or null.
  const NetInput* Input(const std::string& name) const;
  std::string Resolve(const std::string& path) const;
};

absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const SeriesSource& source);
absl::StatusOr<std::unique_ptr<Dataset>> OpenReviews(const SeriesSource& source);
absl::StatusOr<std::unique_ptr<Dataset>> OpenShots(const SeriesSource& source);
absl::StatusOr<std::unique_ptr<Dataset>> OpenImages(const SeriesSource& source);
absl::StatusOr<std::unique_ptr<Dataset>> OpenTable(const SeriesSource& source);
absl::StatusOr<std::unique_ptr<Dataset>> OpenRecords(const SeriesSource& source);

// A label that losses and metrics are told to ignore.
inline constexpr int32_t kIgnored = -1;

// The text `name` of a fit: that of source.fit, else the content of `file` unless that is "", else
// the result of `make` from the training samples.
// Errors: those of both, and InvalidArgument if source.fit has only other texts, or unlike content.
absl::StatusOr<std::string> FitFor(const SeriesSource& source, const std::string& name,
                                   const std::string& file,
                                   const std::function<absl::StatusOr<std::string>()>& make);

// The classes of pictures in a fit.
inline constexpr char kClassesFile[] = "classes.txt";
// A vocabulary's name in a fit.
inline constexpr char kVocabularyFile[] = "vocabulary.txt";
// A table's.
inline constexpr char kTableFile[] = "table.txt";
// The vocabulary of a text.  `file` is its origin or "".  Errors name the file and the line.
absl::StatusOr<Vocabulary> ParseVocabulary(const SeriesSource& source, const std::string& text,
                                           const std::string& file);

// Errors: InvalidArgument for a class whose name has several lines.  `where` says whose it is.
absl::Status CheckClassName(const std::string& where, const std::string& name);
// Errors: InvalidArgument unless there are two.  `first` says where the first sample is.
absl::Status CheckTwoClasses(const std::string& first, std::span<const std::string> classes);
// The error that `who`, such as "a.txt: is of", has a class which is none of those trained on.
// These are numbers if `classes` is empty.
absl::Status UnknownClass(const std::string& who, const std::string& name,
                          std::span<const std::string> classes);

// The content of a folder, as a reader sees it.
struct Listing {
  std::vector<std::string> paths;   // read.  Sorted
  std::vector<std::string> others;  // left out.  Sorted
};
// `paths` are regular files with one of `endings`, ignoring case, or folders if that is empty.
absl::StatusOr<Listing> List(const std::string& folder, const std::vector<std::string>& endings);

// For people: says that `others` of `folder` are left out, and which are `expected`.  "" for none.
std::string LeftOutOf(const std::string& folder, const std::vector<std::string>& others,
                      const std::string& expected);

}  // namespace gyre
