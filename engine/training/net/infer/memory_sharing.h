// memory_sharing.h: lets values of a net share memory.
#pragma once

#include "engine/training/net/infer/net_spec.h"

namespace gyre {

// Sets NetValue::memory and memory_offset.  A view, or an activation applied by its producer,
// shares its input's memory.  An in-place layer's output does so unless backward or a later layer
// reads that memory.  An input with Alias::input_is_part moves into the output.
void ShareMemory(NetSpec& net);

}  // namespace gyre
