// weights_match.h: which tensors of a file a new run starts from (train's --weights): those that
// have the name of one of the net's, perhaps after a renaming (--weights_map).  A pure function.
#pragma once

#include <string>
#include <vector>

#include "engine/training/parameter.h"

namespace gyre {

struct WeightsMatch {
  TensorFile tensors;                // those that the net takes, under its names
  std::vector<std::string> initial;  // the net's that the file lacks: they keep their first values
  std::vector<std::string> unused;   // the file's that the net does not take
};

// map: "OLD=NEW,OLD=,...": the tensor OLD, and each whose name begins with "OLD." or "OLD-" (those
// of a layer, of a block), gets NEW in that place; it is left out where NEW is empty.  Where two
// OLDs fit, the longer one counts.
// Errors: InvalidArgument for a map of another form, an OLD that the file lacks, a new name that
// the net lacks, two tensors that get one name, a tensor of another shape or dtype than the net's
// of its name, and where nothing matches.
absl::StatusOr<WeightsMatch> MatchWeights(const TensorFile& file, const std::string& map,
                                          const ParameterSet& parameters);

// For people and programs: three lines, of which the last two end in a JSON list of names.
std::string ToString(const WeightsMatch& match);

}  // namespace gyre
