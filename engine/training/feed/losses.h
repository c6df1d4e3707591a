// losses.h: which layers of a net's text are losses.  Pure.
#pragma once

#include "models/schema/layer.pb.h"

namespace gyre {

// Layers whose last input may be the samples' weights, and whose first is what the net predicts.
inline bool IsLoss(const LayerConfig& layer) {
  return layer.has_softmax_cross_entropy() || layer.has_sigmoid_cross_entropy() ||
         layer.has_binary_cross_entropy() || layer.has_mean_squared_error() || layer.has_hinge() ||
         layer.has_binary_hinge() || layer.has_max_hinge() || layer.has_time_to_event();
}

}  // namespace gyre
