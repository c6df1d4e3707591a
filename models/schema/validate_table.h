// validate_table.h: checks a table's fields, beyond their grammar, without its files.  Pure.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "models/schema/source_map.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// `label` is "data.train", "data.test", or one beside it.  A test's table is only checked for its
// files. Errors: InvalidArgument for the first mistake, with its position.
absl::Status ValidateTable(const TableConfig& table, absl::string_view label,
                           const SourceMap& source);

}  // namespace gyre
