// metric_keys.h: the keys of layers' values in metrics.jsonl.  Pure functions.
#pragma once

#include "absl/status/status.h"
#include "engine/training/net/infer/net_spec.h"
#include "models/schema/parse.h"

namespace gyre {

// Errors: InvalidArgument naming the layer whose value would have the key of another value, or a
// key of the run.  `test` is null if there are no tests.
absl::Status CheckMetricKeys(const Parsed<NetConfig>& net, const NetSpec& train,
                             const NetSpec* test);

}  // namespace gyre
