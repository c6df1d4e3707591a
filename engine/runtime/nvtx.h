// nvtx.h: a thread's named ranges, which Nsight Systems shows.  They do nothing without CUDA.
#pragma once

namespace gyre {

void PushNvtxRange(const char* name);
void PopNvtxRange();

}  // namespace gyre
