// metric_keys.h: what the values of a net's layers are called in metrics.jsonl.  Pure functions.
#pragma once

#include "absl/status/status.h"
#include "engine/training/net/infer/net_spec.h"
#include "models/schema/parse.h"

namespace gyre {

// Errors: InvalidArgument naming the layer whose value would have the key of another, or one that
// says something about the run.  test: null if there is none.
absl::Status CheckMetricKeys(const Parsed<NetConfig>& net, const NetSpec& train,
                             const NetSpec* test);

}  // namespace gyre
