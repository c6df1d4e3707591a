#include "tests/memory/random_trace.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

using Rng = std::mt19937_64;

int Below(Rng& rng, int n) { return static_cast<int>(rng() % static_cast<uint64_t>(n)); }

size_t RandomBytes(Rng& rng) {
  switch (Below(rng, 5)) {
    case 0:
      return static_cast<size_t>(Below(rng, 2));
    case 1:
      return 4096 * static_cast<size_t>(1 + Below(rng, 40));
    case 2:
      return 4096 * static_cast<size_t>(1 + Below(rng, 40)) + 1;
    default:
      return static_cast<size_t>(Below(rng, 200000));
  }
}

TraceState RandomState(Rng& rng, bool persistent) {
  TraceState state;
  state.bytes = RandomBytes(rng);
  state.persistent = persistent;
  if (Below(rng, 6) == 0) state.arena = Arena::kCommunication;
  if (Below(rng, 4) == 0) {
    const int kind = (persistent ? 2 : 0) + (state.arena == Arena::kDevice ? 1 : 0);
    state.contiguous_group = kind + 4 * Below(rng, 3);
  }
  return state;
}

// Turns about a quarter of the ungrouped, non-persistent states into views.  A view's base comes
// before it in a random order, so there are no circles, but may be declared after it.
void MakeViews(Rng& rng, std::vector<TraceState>& states) {
  std::vector<int> order(states.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::shuffle(order.begin(), order.end(), rng);
  for (size_t i = 1; i < order.size(); ++i) {
    TraceState& state = states[order[i]];
    if (state.persistent || state.contiguous_group >= 0 || Below(rng, 4) != 0) continue;
    state.view_of = order[Below(rng, static_cast<int>(i))];
    const size_t base_bytes = states[state.view_of].bytes;
    state.bytes = Below(rng, 2) == 0 ? base_bytes : rng() % (base_bytes + 1);
    state.view_offset = rng() % (base_bytes - state.bytes + 1);
  }
}

}  // namespace

AccessTrace RandomTrace(RandomTraceSeeds seeds) {
  AccessTrace trace;
  Rng persistent_rng(seeds.persistent), rng(seeds.rest);
  int persistent_left = Below(persistent_rng, 15), rest_left = Below(rng, 46);
  while (persistent_left + rest_left > 0) {
    const bool persistent = Below(rng, persistent_left + rest_left) < persistent_left;
    trace.states.push_back(RandomState(persistent ? persistent_rng : rng, persistent));
    trace.states.back().name = absl::StrCat("s", trace.states.size() - 1);
    --(persistent ? persistent_left : rest_left);
  }
  MakeViews(rng, trace.states);

  const int count = static_cast<int>(trace.states.size());
  const auto root_of = [&trace](int state) {
    while (trace.states[state].view_of >= 0) state = trace.states[state].view_of;
    return state;
  };
  std::vector<bool> written(trace.states.size());
  const int steps = Below(rng, 41);
  for (int s = 0; s < steps; ++s) {
    TraceStep step{absl::StrCat("step", s), {}};
    for (int t = count == 0 ? 0 : Below(rng, 6); t > 0; --t) {
      const int state = Below(rng, count), root = root_of(state);
      const bool may_read = written[root] || trace.states[root].persistent;
      step.touches.push_back({state, may_read && Below(rng, 3) > 0, Below(rng, 2) == 0});
    }
    for (const TraceTouch& touch : step.touches) {
      if (touch.write) written[root_of(touch.state)] = true;
    }
    step.repeatable = Below(rng, 2) == 0;
    trace.steps.push_back(std::move(step));
  }
  return trace;
}

AccessTrace TrainingTrace(uint64_t seed, int layers) {
  Rng rng(seed);
  AccessTrace trace;
  const auto add = [&](const char* name, int layer, size_t pages, bool persistent) {
    trace.states.push_back({.name = absl::StrCat("layer", layer, ".", name),
                            .bytes = 4096 * pages,
                            .persistent = persistent});
    return static_cast<int>(trace.states.size()) - 1;
  };
  std::vector<int> output(layers), gradient(layers), weight(layers);
  trace.steps.resize(2 * static_cast<size_t>(layers));
  for (int i = 0; i < layers; ++i) {
    const size_t pages = 1 + static_cast<size_t>(Below(rng, 100));
    output[i] = add("output", i, pages, false);
    gradient[i] = add("gradient", i, pages, false);
    weight[i] = add("weight", i, 1 + static_cast<size_t>(Below(rng, 50)), true);
  }
  for (int i = 0; i < layers; ++i) {
    TraceStep& forward = trace.steps[i];
    TraceStep& backward = trace.steps[2 * layers - 1 - i];
    forward.name = absl::StrCat("layer", i, " forward");
    forward.repeatable = Below(rng, 3) > 0;
    backward.name = absl::StrCat("layer", i, " backward");
    forward.touches = {{weight[i], true, false}, {output[i], false, true}};
    backward.touches = {{weight[i], true, true}, {gradient[i], i != layers - 1, true}};
    if (i > 0) {
      forward.touches.push_back({output[i - 1], true, false});
      backward.touches.push_back({gradient[i - 1], false, true});
      if (Below(rng, 3) > 0) backward.touches.push_back({output[i - 1], true, false});
    }
    for (TraceStep* step : {&forward, &backward}) {
      const int scratch = add("scratch", i, static_cast<size_t>(Below(rng, 80)), false);
      step->touches.push_back({scratch, false, true});
    }
  }
  return trace;
}

AccessTrace EqualLayers(int layers, size_t pages, double seconds) {
  AccessTrace trace;
  for (int i = 0; i < layers; ++i) {
    trace.states.push_back({.name = absl::StrCat("a", i), .bytes = 4096 * pages});
    trace.steps.push_back({.name = "forward", .touches = {{i, false, true}}, .seconds = seconds});
    if (i > 0) trace.steps.back().touches.push_back({i - 1, true, false});
  }
  for (int i = layers - 1; i >= 0; --i) {
    trace.steps.push_back(
        {.name = "backward", .touches = {{i, true, false}}, .seconds = 2 * seconds});
  }
  return trace;
}

}  // namespace gyre
