// validate.h: checks of a message beyond its grammar that need no data, shapes or other files.  No
// layer type is named here, since a layer's Infer checks its own fields.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "models/schema/net.pb.h"
#include "models/schema/source_map.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// Far from the 255 bytes of a file's name.
inline constexpr size_t kLongestName = 100;

// Names have at most kLongestName characters, each an ASCII letter, a digit, "_" or "-".  Integers
// that the trainer bounds from below end at 2^31 - 1.
// Errors: InvalidArgument for the first mistake, with its position.
absl::Status Validate(const NetConfig& net, const SourceMap& source);
absl::Status Validate(const TrainerConfig& trainer, const SourceMap& source);

// Of Validate: the sources of data.train and data.test, and a table among them, whose `label` is
// such as "data.train".  A test's table is only checked for its files.
absl::Status ValidateSources(const DataConfig& data, const SourceMap& source);
absl::Status ValidateTable(const TableConfig& table, absl::string_view label,
                           const SourceMap& source);

}  // namespace gyre
