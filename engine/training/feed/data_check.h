// data_check.h: reads every sample before a run begins, to find data that cannot be trained on
// and to tell data sets apart by a digest, and checks tokens and padding against the layers.  Pure
// functions.  Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sets/dataset.h"
#include "engine/training/net/plan/net_plan.h"

namespace gyre {

// A net whose inputs are larger than this, either way, hardly learns.  Normalized inputs are not.
inline constexpr double kLargeInput = 20;

// The value of an input that is largest after normalization, either way.
struct LargeValue {
  std::string input;
  int64_t sample = 0, channel = 0;
  double stored = 0, normalized = 0;  // a stored byte is byte / 255
};

// What takes an input's labels, which reach it as they are: those from 0 to `largest`.
struct LabelTaker {
  std::string input, who;
  int64_t largest = 0;
  std::string state = {};               // what they are to it
  std::optional<int32_t> ignored = {};  // taken, too

  bool Takes(int32_t value) const { return (value >= 0 && value <= largest) || value == ignored; }
};

struct DataLook {
  std::string digest;             // of all samples, over sizes, stored elements and normalization
  std::vector<LargeValue> large;  // beyond kLargeInput, for each such input.  Not of targets
  std::vector<LabelTaker> takers = {};
};

// Reads all samples.
// Errors: those of Dataset::Read, and InvalidArgument with `what`, the sample and the layer for
//   a real value              that is not finite after normalization
//   a label, index or length  that a layer reads as it is stored and does not accept
//   a weight or a share       that is below 0, likewise
absl::StatusOr<DataLook> CheckData(const Dataset& dataset, const NetPlan& net,
                                   const std::string& what);

// Of a data set with a vocabulary, or a table: reads the arrays of integers.  `field` is "train" or
// "test", as in the trainer's data.
// Errors: InvalidArgument for an embedding with fewer rows than its tokens need.
absl::Status CheckTokens(const Parsed<NetConfig>& net, const NetSpec& spec, const Dataset& dataset,
                         const char* field);

// Text for people, one for each layer that first reads padding like the rest of a sample.  It
// begins with the layer's position in the net's file.
std::vector<std::string> PaddingWarnings(const Parsed<NetConfig>& net, const NetSpec& spec,
                                         const Dataset& dataset, const char* field);

}  // namespace gyre
