// series.h: data sets of sequences, each opened by one function that dataset.cc calls, and what
// they share.  Used while a data set is being opened, by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/sets/dataset.h"
#include "engine/data/sets/memory_dataset.h"
#include "engine/data/sets/vocabulary.h"

namespace gyre {

// What data.train or data.test is opened by, as OpenDataset has it.
struct SeriesSource {
  const DataConfig& data;
  bool train;
  std::string folder;  // that relative paths are relative to
  const Fit& fit;
  const PathOf& path_of;

  const DatasetConfig& set() const { return train ? data.train() : data.test(); }
  std::string Resolve(const std::string& path) const;
};

absl::StatusOr<std::unique_ptr<Dataset>> OpenText(const SeriesSource& source);
absl::StatusOr<std::unique_ptr<Dataset>> OpenReviews(const SeriesSource& source);
absl::StatusOr<std::unique_ptr<Dataset>> OpenShots(const SeriesSource& source);

// A label that losses and metrics are told to ignore.
inline constexpr int32_t kIgnored = -1;

// The fit to read by: source.fit if it has a name, else the content of `file` unless that is "",
// else what `make` makes of the training samples.  name: of what is made.
// Errors: those of reading and making; InvalidArgument if both source.fit and the file are given
// and differ, or source.fit has another name.
absl::StatusOr<Fit> FitFor(const SeriesSource& source, const std::string& name,
                           const std::string& file,
                           const std::function<absl::StatusOr<std::string>()>& make);

// The vocabulary of a fit, which is that of `file` unless that is "".  Errors name it and the line.
absl::StatusOr<Vocabulary> ParseVocabulary(const SeriesSource& source, const Fit& fit,
                                           const std::string& file);

// What a folder holds that a reader reads, and what it leaves out.
struct Listing {
  std::vector<std::string> paths;   // sorted
  std::vector<std::string> others;  // likewise
};
// Reads: regular files whose name ends in one of `endings`, in capitals or not; or folders where
// there are none.
absl::StatusOr<Listing> List(const std::string& folder, const std::vector<std::string>& endings);

// For people: that of `folder` these are left out, and what would not be; "" if there are none.
std::string LeftOutOf(const std::string& folder, const std::vector<std::string>& others,
                      const std::string& expected);

}  // namespace gyre
