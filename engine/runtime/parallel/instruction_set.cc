#include "engine/runtime/parallel/instruction_set.h"

#include <atomic>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

std::atomic<InstructionSet>& Current() {
  static std::atomic<InstructionSet> current = BestInstructionSet();
  return current;
}

}  // namespace

std::string_view InstructionSetName(InstructionSet set) {
  switch (set) {
    case InstructionSet::kGeneric:
      return "generic";
    case InstructionSet::kAvx2:
      return "avx2";
    case InstructionSet::kAvx512:
      return "avx512";
  }
  return "?";
}

// As vectorised.h compiles them; with AVX2 comes F16C, but it has a bit of its own.
InstructionSet BestInstructionSet() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    return InstructionSet::kAvx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c"))
    return InstructionSet::kAvx2;
#endif
  return InstructionSet::kGeneric;
}

InstructionSet CurrentInstructionSet() { return Current().load(std::memory_order_relaxed); }

void SetInstructionSet(InstructionSet set) {
  GYRE_CHECK(set <= BestInstructionSet());
  Current().store(set, std::memory_order_relaxed);
}

}  // namespace gyre
