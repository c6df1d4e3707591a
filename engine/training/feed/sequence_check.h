// sequence_check.h: checks tokens and padding of data sets against the layers of a planned net.
// Reads the arrays of integers.  Pure functions.
#pragma once

#include <string>
#include <vector>

#include "engine/data/sets/dataset.h"
#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// For a data set with a vocabulary, or a table.  `field` is "train" or "test", as in the trainer's
// data. Errors: InvalidArgument for an embedding with fewer rows than its tokens need.
absl::Status CheckTokens(const Parsed<NetConfig>& net, const NetSpec& spec, const Dataset& dataset,
                         const char* field);

// Text for people, one for each layer that first reads padding like the rest of a sample.  It
// begins with the layer's position in the net's file.
std::vector<std::string> PaddingWarnings(const Parsed<NetConfig>& net, const NetSpec& spec,
                                         const Dataset& dataset, const char* field);

}  // namespace gyre
