// bf16.h: how a CPU multiplies BF16, and by which of three ways it does a convolution of BF16.
//
// Terms:
//   unit  the instructions that multiply BF16; oneDNN's effective instruction set says it
//   way   oneDNN's convolution, three products, or the F32 operation between two conversions
//
// The way follows from the convolution and the unit alone, by the table in bf16.cc: it is the same
// in every run, on every rank, and for every batch.  Nothing is timed.
#pragma once

#include <memory>

#include "engine/runtime/primitives/primitives.h"

namespace gyre {

enum class Bf16Unit : uint8_t { kNone, kAvx512, kAmx };
enum class Bf16Way : uint8_t { kConvolution, kProducts, kF32 };

// Of this process.
Bf16Unit CurrentBf16Unit();

// Precondition: a valid spec of BF16.
Bf16Way Bf16WayOf(const Conv2dSpec& spec, Bf16Unit unit);

// Whether oneDNN 2.6's AMX kernels are known to be right for these extents.  Preconditions as
// above.
bool AmxTakes(const GemmSpec& spec, int threads);
bool AmxTakes(const Conv2dSpec& spec);

// Conv2d of BF16 by oneDNN in one way, whatever the table says.  It leaves to others what that way
// cannot do, and all else.
std::unique_ptr<PrimitiveLibrary> NewBf16WayLibrary(int threads, Bf16Way way);

// Gemm of BF16 by AMX, with a second factor that is packed once where the spec says so.  cpu and
// sim.  All else, and everything on a processor without AMX, it leaves to others.
std::unique_ptr<PrimitiveLibrary> NewAmxProductsLibrary(int threads);

}  // namespace gyre
