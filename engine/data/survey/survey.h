// survey.h: reads every sample of some data sets once, in parallel, and tells what they hold.  What
// it finds does not depend on the number of threads.  A sample takes some 100 bytes meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/sets/dataset.h"

namespace gyre {

struct SurveyedSet {
  std::string name;  // "training", "test"
  const Dataset* dataset = nullptr;
};

struct SurveyOptions {
  std::string label_input;  // whose array is no content, but a class or other target
  int threads = 1;          // >= 1
  // Called on the calling thread a few times a second, with the samples done of all.
  std::function<void(int64_t done, int64_t samples)> progress = {};
};

// Extents of a picture as shown.
struct PictureSize {
  int64_t height = 0, width = 0;
};
// A sample that training would refuse.
struct UnreadableSample {
  int64_t index = 0;
  std::string reason;  // names the file
};
struct ValueRange {
  double least = 0, most = 0;
};

struct SetSurvey {
  int64_t samples = 0;
  std::map<int64_t, int64_t> classes;       // samples by class.  Empty: labels are no classes
  std::map<std::string, int64_t> kinds;     // pictures by kind, such as "JPEG grey"
  std::vector<PictureSize> sizes;           // of pictures, by their number of pixels
  std::map<std::string, ValueRange> reals;  // of the arrays of reals, by input
  std::vector<UnreadableSample> unreadable;
};

struct SampleOfSet {
  size_t set = 0;
  int64_t index = 0;
};
// Two samples whose content is the same: the bytes of a picture's file, or else all arrays but the
// label's.
struct DuplicateSample {
  SampleOfSet first, again;  // `first` is the earliest of its set.  Sets are the same, or ascend
  bool other_label = false;
};

struct Survey {
  std::vector<SetSurvey> sets;
  std::vector<DuplicateSample> duplicates;  // by the sets, then by `again`

  // No sample is unreadable, and none is in two sets.
  bool sound() const;
};

Survey SurveyOf(std::span<const SurveyedSet> sets, const SurveyOptions& options);

}  // namespace gyre
