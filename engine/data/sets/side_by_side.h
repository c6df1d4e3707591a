// side_by_side.h: several data sets of the same samples as one, with the arrays of all.  Immutable.
// Any thread.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/data/sets/dataset.h"

namespace gyre {

// Sequences, lengths and groups are those of the one source that has them.
// Errors: InvalidArgument, naming files, for sources of unequal sizes, an input or a text of the
// fit that two of them have, or sequences, lengths or groups of two.
absl::StatusOr<std::unique_ptr<Dataset>> SideBySide(std::vector<std::unique_ptr<Dataset>> sources);

}  // namespace gyre
