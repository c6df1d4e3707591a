// nvtx.h: named ranges of the calling thread, which Nsight Systems shows beside a GPU's work.  They
// do nothing without CUDA.
#pragma once

namespace gyre {

void PushNvtxRange(const char* name);
void PopNvtxRange();

}  // namespace gyre
