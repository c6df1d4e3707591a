// bf16.h: how a CPU multiplies BF16, and the way in which it does a convolution of BF16.
//
// Terms:
//   unit  the instructions that multiply BF16, by oneDNN's effective instruction set
//   way   oneDNN's convolution, three products, or the F32 operation between two conversions
//
// The convolution and the unit alone decide the way, by the table in bf16.cc.  It is the same in
// every run, on every rank, and for every batch.  Nothing is timed.
#pragma once

#include <memory>

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

enum class Bf16Unit : uint8_t { kNone, kAvx512, kAmx };
enum class Bf16Way : uint8_t { kConvolution, kProducts, kF32 };

Bf16Unit CurrentBf16Unit();

// Precondition: a valid spec of BF16.
Bf16Way Bf16WayOf(const Conv2dSpec& spec, Bf16Unit unit);

// True if oneDNN 2.6's AMX kernels are known to be right for these extents.  Same preconditions.
bool AmxTakes(const GemmSpec& spec, int threads);
bool AmxTakes(const Conv2dSpec& spec);

// Conv2d of BF16 by oneDNN in one way, whatever the table says.
std::unique_ptr<PrimitiveLibrary> NewBf16WayLibrary(int threads, Bf16Way way);

// Gemm of BF16 by AMX, with a second factor that is packed once if the spec says so.
std::unique_ptr<PrimitiveLibrary> NewAmxProductsLibrary(int threads);

}  // namespace gyre
