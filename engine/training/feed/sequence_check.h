// sequence_check.h: what data sets hold, against what the layers of a planned net take: what would
// stop a run later, or have it learn what nobody meant.  Pure; reads the arrays of integers.
#pragma once

#include <string>
#include <vector>

#include "engine/data/sets/dataset.h"
#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Of a data set with a vocabulary.  field: "train" or "test", of data.  Errors: InvalidArgument, at
// an embedding that has fewer rows than the tokens that feed it want.
absl::Status CheckTokens(const Parsed<NetConfig>& net, const NetSpec& spec, const Dataset& dataset,
                         const char* field);

// For people: of each layer that first reads what some samples are filled up with like the rest of
// them, at its place in the net's file.
std::vector<std::string> PaddingWarnings(const Parsed<NetConfig>& net, const NetSpec& spec,
                                         const Dataset& dataset, const char* field);

}  // namespace gyre
