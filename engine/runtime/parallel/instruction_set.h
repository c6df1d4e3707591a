// instruction_set.h: the instruction sets that host loops are compiled for, and the current one.
// All give the same bits, because they make the same operations in the same order and fuse none.
#pragma once

#include <cstdint>
#include <string_view>

// Defined if loops are compiled for more than the generic set.  Sanitizers watch the same source in
// each, and compiling them is most of a layer's time.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define GYRE_INSTRUCTION_SETS
#endif

namespace gyre {

enum class InstructionSet : uint8_t { kGeneric, kAvx2, kAvx512 };

// "generic", "avx2", "avx512".
std::string_view InstructionSetName(InstructionSet set);

// The best set that processor and system support.
InstructionSet BestInstructionSet();

// The set that loops of all threads use.  It is the best unless a test has set another.
InstructionSet CurrentInstructionSet();
// Preconditions: at most the best, and no loop is running.
void SetInstructionSet(InstructionSet set);

}  // namespace gyre
