// recomputation.h: which outputs of a net are made again for backward rather than kept.
#pragma once

#include "engine/training/net/net_spec.h"

namespace gyre {

// Sets NetNode::recomputed of layers that say they are cheap, where the memory of their one output
// is its alone, somebody reads it in backward, and all that makes it is kept for the layer's own
// backward anyway.  After ShareMemory.
void ChooseRecomputed(NetSpec& net);

}  // namespace gyre
