// gradient_exchange.h: how ranks exchange gradients, as the trainer's text says.
#pragma once

#include <optional>

#include "absl/status/statusor.h"
#include "distributed/process_group.h"
#include "engine/runtime/device/device.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {

// Completes `distributed` of the trainer by what its text leaves open, and checks it.  Reads its
// calibration.  `device` sums gradients, if it is known.  `threads`: ranks are threads of this
// process.  Errors: InvalidArgument with the field's position.
absl::StatusOr<AllreduceChoice> CompleteExchange(const NetConfig& net,
                                                 std::optional<DeviceKind> device, bool threads,
                                                 Parsed<TrainerConfig>& trainer);

}  // namespace gyre
