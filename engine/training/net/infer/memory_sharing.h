// memory_sharing.h: which values of a net lie in another's memory.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Lets outputs share their input's memory (NetValue::memory, memory_offset): views always, in-place
// layers where nobody reads the input's bytes, or those of another view of them, any more once the
// layer has run.
void ShareMemory(NetSpec& net);

}  // namespace gyre
