// instruction_sets.h: runs a test's work with each instruction set that the processor has.
#pragma once

#include "engine/runtime/parallel/instruction_set.h"

namespace gyre {

// work() for each, generic first.
template <typename Work>
void WithEachInstructionSet(const Work& work) {
  const InstructionSet best = BestInstructionSet();
  for (const auto set :
       {InstructionSet::kGeneric, InstructionSet::kAvx2, InstructionSet::kAvx512}) {
    if (set > best) continue;
    SetInstructionSet(set);
    work();
  }
  SetInstructionSet(best);
}

}  // namespace gyre
