// assumed_data.h: data for a plan without the files.  The net's inputs give shapes and types, the
// trainer the number of samples.
#pragma once

#include <string>

#include "engine/training/feed/data_feed.h"

namespace gyre {

// All values are 0.  Pictures of `idx`, `images` and `records` are bytes, other real inputs F32.
// Errors: those of FeedOf.
absl::StatusOr<RunData> AssumeData(const Parsed<TrainerConfig>& trainer,
                                   const Parsed<NetConfig>& net);

}  // namespace gyre
