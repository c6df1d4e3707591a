// vectorised.h: runs a loop's body, compiled for the processor, on one thread or a team.
//
// A body is a struct of values with `void operator()(int64_t begin, int64_t end) const`.  Its loops
// carry `omp simd`, because g++ -O2 vectorises no loop of unknown length otherwise.  It is passed
// by value, so that no store in the loop can seem to change it.  It is inlined whole (flatten), so
// that the functions it calls are compiled for the same instructions.
#pragma once

#include <omp.h>

#include <cstdint>

#include "engine/runtime/parallel/instruction_set.h"

namespace gyre::parallel_internal {

template <typename Body>
[[gnu::flatten]] void RunGeneric(Body body, int64_t begin, int64_t end) {
  body(begin, end);
}

#ifdef GYRE_INSTRUCTION_SETS
template <typename Body>
[[gnu::flatten, gnu::target("avx2")]] void RunAvx2(Body body, int64_t begin, int64_t end) {
  body(begin, end);
}

// Without prefer-vector-width g++ uses half a register.
template <typename Body>
[[gnu::flatten, gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] void
RunAvx512(Body body, int64_t begin, int64_t end) {
  body(begin, end);
}
#endif

template <typename Body>
void Run(const Body& body, int64_t begin, int64_t end) {
  switch (CurrentInstructionSet()) {
#ifdef GYRE_INSTRUCTION_SETS
    case InstructionSet::kAvx512:
      return RunAvx512(body, begin, end);
    case InstructionSet::kAvx2:
      return RunAvx2(body, begin, end);
#endif
    default:
      return RunGeneric(body, begin, end);
  }
}

// Runs body over [0, n) on this thread or, with `team`, split evenly among its team.
template <typename Body>
void RunOnTeam(int64_t n, bool team, const Body& body) {
  // OpenMP makes a team of one thread, too, in a fraction of a microsecond.
  if (!team || omp_get_max_threads() == 1) return Run(body, 0, n);
#pragma omp parallel
  {
    const int64_t threads = omp_get_num_threads(), thread = omp_get_thread_num();
    Run(body, n * thread / threads, n * (thread + 1) / threads);
  }
}

}  // namespace gyre::parallel_internal
