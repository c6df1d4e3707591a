// instruction_set.h: which of the bodies that a host loop is compiled to runs.  All give the same
// bits: they make the same operations in the same order, and none is fused.
#pragma once

#include <cstdint>
#include <string_view>

// Whether loops are compiled for more than the generic instruction set.  Under a sanitizer they are
// not: it watches the same source in each, and compiling them is most of a layer's time.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GYRE_INSTRUCTION_SETS
#endif

namespace gyre {

enum class InstructionSet : uint8_t { kGeneric, kAvx2, kAvx512 };

// "generic", "avx2", "avx512".
std::string_view InstructionSetName(InstructionSet set);

// The best that processor and system have.
InstructionSet BestInstructionSet();

// The one that loops of all threads use: the best, but for a test that compares them.
InstructionSet CurrentInstructionSet();
// Precondition: not beyond the best; no loop is running.
void SetInstructionSet(InstructionSet set);

}  // namespace gyre
