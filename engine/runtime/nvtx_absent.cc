// nvtx.h in a build without CUDA.

#include "engine/runtime/nvtx.h"

namespace gyre {

void PushNvtxRange(const char*) {}
void PopNvtxRange() {}

}  // namespace gyre
