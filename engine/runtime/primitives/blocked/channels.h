// channels.h: loops that take the channels of a pixel as vectors.  Inside the library only.
#pragma once

#include "engine/runtime/device/device.h"
#include "engine/runtime/parallel/vectorised.h"

namespace gyre {

// Calls chunk<count>(first channel) for chunks of channels.  The compiler knows each count, and so
// its registers.  Twenty channels are a wide vector and a narrow one.
template <typename F>
void ForEachChunk(int64_t channels, const F& chunk) {
  int64_t c = 0;
  for (; c + 16 <= channels; c += 16) chunk.template operator()<16>(c);
  for (; c + 4 <= channels; c += 4) chunk.template operator()<4>(c);
  for (; c < channels; ++c) chunk.template operator()<1>(c);
}

// Enqueues body over [0, n), on the stream's team.
template <typename Body>
absl::Status OnTeam(Stream& stream, int64_t n, const Body& body) {
  return stream.Call([n, body] {
    parallel_internal::RunOnTeam(n, /*team=*/true, body);
    return absl::OkStatus();
  });
}

// Runs body on each task, of many microseconds, on this thread's team.  A thread that is done takes
// the next task, so one that other programs hold up delays no more than its own.
template <typename Body>
void RunByTask(int64_t tasks, const Body& body) {
#pragma omp parallel for schedule(dynamic)
  for (int64_t task = 0; task < tasks; ++task) parallel_internal::Run(body, task, task + 1);
}

}  // namespace gyre
