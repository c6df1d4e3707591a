// weights_match.h: matches tensors of a file to a new run's parameters by name (train's --weights),
// perhaps after a renaming (--weights_map).  Pure functions.
#pragma once

#include <string>
#include <vector>

#include "engine/training/parameter.h"

namespace gyre {

struct WeightsMatch {
  TensorFile tensors;                // matched, under the net's names
  std::vector<std::string> initial;  // the net's, without a match: they keep their first values
  std::vector<std::string> unused;   // the file's, without a match
};

// `map` is "OLD=NEW,OLD=,...".  It renames the tensor OLD, and OLD in names that begin with "OLD."
// or "OLD-", such as those of a layer.  An empty NEW drops the tensor.  The longest OLD wins.
// Errors: InvalidArgument for
//   a malformed map, an OLD that the file lacks, a NEW that the net lacks
//   two tensors with one new name, no match at all
//   fewer matches than half of the net's tensors, unless `partial`
//   a tensor whose shape or dtype is not that of the net
absl::StatusOr<WeightsMatch> MatchWeights(const TensorFile& file, const std::string& map,
                                          const ParameterSet& parameters, bool partial = false);

// An error with the file's path, unless it is about a flag, whose name then begins it.
absl::Status AnnotateUnlessFlag(const absl::Status& status, const std::string& path);

// Three lines for people and programs.  The last two end in a JSON list of names, which is cut
// after 20 and then ends with "... and N more".
std::string ToString(const WeightsMatch& match);

}  // namespace gyre
