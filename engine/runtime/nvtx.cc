#include "engine/runtime/nvtx.h"

#include <nvtx3/nvToolsExt.h>

namespace gyre {

void PushNvtxRange(const char* name) { nvtxRangePushA(name); }
void PopNvtxRange() { nvtxRangePop(); }

}  // namespace gyre
