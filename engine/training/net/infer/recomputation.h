// recomputation.h: which outputs of a net are made again for backward rather than kept.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Sets NetNode::recomputed of layers that say they are cheap: of all whose outputs lie in one
// memory, where somebody reads that in backward with much more work than it takes to make it again,
// and what it is made of is kept anyway.  After ShareMemory.
void ChooseRecomputed(NetSpec& net);

}  // namespace gyre
