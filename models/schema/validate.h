// validate.h: what a message must hold beyond its grammar, as far as that can be known without
// data, shapes or other files.  What one layer's fields may be is the layer's own affair (Infer):
// nothing here names a layer type.
#pragma once

#include "absl/status/status.h"
#include "models/schema/net.pb.h"
#include "models/schema/source_map.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// Far from the 255 bytes of a file's name.
inline constexpr size_t kLongestName = 100;

// InvalidArgument for the first mistake, with its position.  Names have at most kLongestName
// characters, each an ASCII letter, a digit, "_" or "-"; integers that the trainer bounds from
// below end at 2^31 - 1.
absl::Status Validate(const NetConfig& net, const SourceMap& source);
absl::Status Validate(const TrainerConfig& trainer, const SourceMap& source);

}  // namespace gyre
