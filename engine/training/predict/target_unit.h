// target_unit.h: from normalized values back to the unit of what they predict.  Pure functions.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "engine/data/batches/decoder.h"
#include "engine/data/sets/fit.h"
#include "models/schema/net.pb.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// How the data normalize the net's input `target`, which `net` has.  `fit` is that of the weights.
// Errors: those of ParseNormalization.
absl::StatusOr<Normalization> NormalizationOf(const DataConfig& data, const Fit& fit,
                                              const NetConfig& net, const std::string& target);

// Undoes it.  `values` are rows of the input's channels.
void Unnormalize(const Normalization& normalization, std::span<double> values);

}  // namespace gyre
