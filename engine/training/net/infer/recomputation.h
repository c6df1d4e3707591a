// recomputation.h: which outputs are recomputed for backward instead of stored.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Sets NetNode::recomputed of cheap layers, together for all outputs that share one memory.
// Backward must read that memory with much more work than recomputation takes, and the layers'
// inputs must be stored anyway.  Precondition: ShareMemory.
void ChooseRecomputed(NetSpec& net);

}  // namespace gyre
