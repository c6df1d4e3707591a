// gradient_norms.h: measures gradients for the log of norms, in the pieces of whole parameters.
#pragma once

#include "engine/training/optimizers/optimizer.h"

namespace gyre {

// Of each view the pieces' sums of squares of gradient * update->gradient_scale, in double, if
// update->logs_norms, else zeros.  Enqueues on `stream`, as Optimizer::Update.
absl::Status MeasureGradients(Stream& stream, const UpdateScalars* update,
                              std::span<const ParameterViews> parameters);

}  // namespace gyre
