// assumed_data.h: data that a plan stands on where the files are not there: shapes and types by the
// net's inputs, as many samples as a step and a test batch have.
#pragma once

#include <string>

#include "engine/training/feed/data_feed.h"

namespace gyre {

// Of the bytes of `idx` bytes, else reals.  All values are 0.
// Errors: those of FeedOf.
absl::StatusOr<RunData> AssumeData(const Parsed<TrainerConfig>& trainer,
                                   const Parsed<NetConfig>& net);

}  // namespace gyre
