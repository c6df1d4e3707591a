// random_trace.h: well-formed traces of every shape the planner allows, for property tests.
#pragma once

#include <cstddef>
#include <cstdint>

#include "memory/trace/access_trace.h"

namespace gyre {

struct RandomTraceSeeds {
  uint64_t persistent;  // fixes the persistent states and nothing else
  uint64_t rest;
};

// 0 to 60 states, 0 to 40 steps, sizes 0, 1, odd, page multiples; groups, chains of views (declared
// before and after their base), untouched states, both arenas.
AccessTrace RandomTrace(RandomTraceSeeds seeds);

// A training iteration of a random chain net: activations kept from forward to backward, gradients
// that live for two steps, scratch that lives for one, parameters.
AccessTrace TrainingTrace(uint64_t seed, int layers);

// Nothing random: layers that take `seconds` and leave pages of 4096 bytes, a0, a1, ... for
// backward, where they take twice as long.
AccessTrace EqualLayers(int layers, size_t pages, double seconds);

}  // namespace gyre
