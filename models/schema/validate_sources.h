// validate_sources.h: checks the sources of data.train and data.test, and those beside them, beyond
// what validate.cc's tables say.  Without their files.  Pure.
#pragma once

#include "absl/status/status.h"
#include "models/schema/source_map.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// Errors: InvalidArgument for the first mistake, with its position.
absl::Status ValidateSources(const DataConfig& data, const SourceMap& source);

}  // namespace gyre
