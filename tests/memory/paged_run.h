// paged_run.h: steps that run over paged memory, on `sim` with random delays on every stream, in
// memory as small as the plan says.  Each step folds what it reads into a checksum and writes bytes
// that follow from it, so one byte that is old, lost or early changes all sums after it.  Where a
// plan allows it the second iteration is captured and replayed, copies and all.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "memory/pager/pager.h"

namespace gyre {

inline constexpr int kIterations = 3;

// --- What a step does ----------------------------------------------------------------------------

inline uint64_t Mix(uint64_t a, uint64_t b) {
  uint64_t x = (a ^ (b + 0x9E3779B97F4A7C15)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

inline uint64_t Fold(uint64_t sum, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, from + at, std::min(sizeof(word), bytes - at));
    sum = (sum ^ word) * 0x9E3779B97F4A7C15;
    sum ^= sum >> 32;
  }
  return sum;
}

inline void Fill(std::byte* to, size_t bytes, uint64_t key) {
  for (size_t at = 0; at < bytes; at += sizeof(uint64_t)) {
    key += 0x9E3779B97F4A7C15;
    const uint64_t word = (key ^ (key >> 29)) * 0xBF58476D1CE4E5B9;
    std::memcpy(to + at, &word, std::min(sizeof(word), bytes - at));
  }
}

// Of a state.
struct Range {
  size_t begin = 0, end = 0;
};
struct Operation {
  int state = 0;
  size_t bytes = 0;
  std::vector<Range> reads = {};
  bool writes = false;
};
using Work = std::vector<Operation>;  // of a step, in order

// at: where the state of each operation lies.
inline uint64_t Execute(const Work& work, std::span<std::byte* const> at, uint64_t key) {
  uint64_t sum = key;
  for (size_t i = 0; i < work.size(); ++i) {
    for (const Range& range : work[i].reads) {
      sum = Fold(sum, at[i] + range.begin, range.end - range.begin);
    }
    if (work[i].writes) Fill(at[i], work[i].bytes, Mix(sum, static_cast<uint64_t>(work[i].state)));
  }
  return sum;
}

// A state that is not a view, and where in it a state begins.
struct Root {
  int state = 0;
  size_t offset = 0;
};
inline Root RootOf(const AccessTrace& trace, int state) {
  Root root{state, 0};
  for (; trace.states[root.state].view_of >= 0; root.state = trace.states[root.state].view_of) {
    root.offset += trace.states[root.state].view_offset;
  }
  return root;
}

// By step.  Touches read what has been written: all of what is persistent, else since the
// iteration's begin.
inline std::vector<Work> WorkOf(const AccessTrace& trace) {
  std::vector<std::vector<bool>> written;  // by root and byte
  for (const TraceState& state : trace.states) written.emplace_back(state.bytes, state.persistent);
  std::vector<Work> work;
  for (const TraceStep& step : trace.steps) {
    work.emplace_back();
    for (const TraceTouch& touch : step.touches) {
      const Root root = RootOf(trace, touch.state);
      std::vector<bool>& is = written[root.state];
      Operation operation{touch.state, trace.states[touch.state].bytes};
      for (size_t at = 0; touch.read && at < operation.bytes; ++at) {
        if (!is[root.offset + at]) continue;
        const bool goes_on = !operation.reads.empty() && operation.reads.back().end == at;
        if (!goes_on) operation.reads.push_back({at, at});
        operation.reads.back().end = at + 1;
      }
      operation.writes = touch.write;
      if (touch.write) {
        std::fill_n(is.begin() + static_cast<std::ptrdiff_t>(root.offset), operation.bytes, true);
      }
      work.back().push_back(std::move(operation));
    }
  }
  return work;
}

// What an observer can know.
struct Seen {
  std::vector<uint64_t> sums;                      // by iteration and position
  std::vector<std::vector<std::byte>> persistent;  // by iteration: all such states, in order
};

// Room for it, so that work in flight finds it where it was.
inline Seen RoomToSee(const AccessTrace& trace, size_t positions) {
  size_t bytes = 0;
  for (const TraceState& state : trace.states) {
    if (state.persistent && state.view_of < 0) bytes += state.bytes;
  }
  return {std::vector<uint64_t>(kIterations * positions),
          std::vector<std::vector<std::byte>>(kIterations, std::vector<std::byte>(bytes))};
}

// Calls see(state, offset among all) for each persistent state.
template <typename See>
absl::Status ForEachPersistent(const AccessTrace& trace, See see) {
  size_t offset = 0;
  for (int i = 0; i < static_cast<int>(trace.states.size()); ++i) {
    if (!trace.states[i].persistent || trace.states[i].view_of >= 0) continue;
    RETURN_IF_ERROR(see(i, offset));
    offset += trace.states[i].bytes;
  }
  return absl::OkStatus();
}

// Each state that is not a view in memory of its own.
inline std::vector<std::vector<std::byte>> MakeRoots(const AccessTrace& trace) {
  std::vector<std::vector<std::byte>> roots;
  for (const TraceState& state : trace.states) {
    roots.emplace_back(state.view_of < 0 ? state.bytes : 0, std::byte{0xFF});
    if (state.persistent) Fill(roots.back().data(), roots.back().size(), roots.size());
  }
  return roots;
}

// --- The same under a pager ----------------------------------------------------------------------

struct PagedRun {
  const AccessTrace& trace;
  const std::vector<Work>& work;
  const PagingPlan& plan;
  bool home_each_iteration = true;  // else after the last one alone: less for one to wait for
  uint64_t delay_seed = 1;
  NarrowKernels kernels = {};
};

// Where a state lies at a position, on the device or the host; at -1, at home.
inline std::byte* PlaceOf(const PagingPlan& plan, int state, int position, std::byte* arena,
                          std::byte* pages, const PageFile& file) {
  const auto [block, offset] = plan.states[state];
  if (block < 0) return arena + offset;
  if (position < 0 || plan.HostStepAt(position) >= 0) {
    return (plan.blocks[block].on_disk ? file.homes() : pages) + plan.blocks[block].page + offset;
  }
  for (const Stay& stay : plan.stays) {
    if (stay.block == block && stay.first_step <= position && position <= stay.last_step) {
      return arena + stay.offset + offset;
    }
  }
  return nullptr;  // the first byte that is touched there ends the test
}

inline absl::StatusOr<Seen> RunPaged(const PagedRun& run) {
  const AccessTrace& trace = run.trace;
  const std::unique_ptr<Device> device =
      NewSimDevice({.capacity_bytes = run.plan.device_bytes, .delay_seed = run.delay_seed});
  ASSIGN_OR_RETURN(const Buffer arena,
                   Buffer::Allocate(*device, MemoryKind::kDevice, run.plan.device_bytes));
  ASSIGN_OR_RETURN(const Buffer pages,
                   Buffer::Allocate(*device, MemoryKind::kPinnedHost, run.plan.page_bytes));
  const std::vector<int>& order = run.plan.order;
  const int positions = static_cast<int>(order.size());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<PageFile> file,
      PageFile::Create(testing::TempDir(), run.plan.disk_bytes, run.plan.disk_home_bytes));
  const int steps = static_cast<int>(trace.steps.size());
  Seen seen = RoomToSee(trace, order.size());
  // First what persistent states hold; for good those of the arena that no pager knows.
  std::vector<std::vector<std::byte>> own = MakeRoots(trace);
  const auto place_of = [&](int state, int position) {
    const Root root = RootOf(trace, state);
    return trace.states[root.state].arena == Arena::kCommunication
               ? own[root.state].data() + root.offset
               : PlaceOf(run.plan, state, position, arena.data(), pages.data(), *file);
  };
  std::vector<std::vector<std::byte*>> places;  // by position and operation
  for (int position = 0; position < positions; ++position) {
    places.emplace_back();
    for (const Operation& operation : run.work[order[position]]) {
      places.back().push_back(operation.bytes == 0 ? nullptr : place_of(operation.state, position));
    }
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Stream> compute, device->NewStream());
  ASSIGN_OR_RETURN(
      const std::unique_ptr<Pager> pager,
      Pager::Create(*device, run.plan, arena.data(), pages.data(), file.get(), run.kernels));
  RETURN_IF_ERROR(ForEachPersistent(trace, [&](int state, size_t) {
    if (trace.states[state].arena == Arena::kCommunication) return absl::OkStatus();
    return compute->Copy(place_of(state, -1), own[state].data(), own[state].size());
  }));
  int running = -1;  // the iteration, as the compute stream comes to it
  const auto enqueue = [&](int iteration) -> absl::Status {
    RETURN_IF_ERROR(compute->Call([&running] {
      ++running;
      return absl::OkStatus();
    }));
    int from = -1;
    for (int to = 0; to <= positions; ++to) {
      if (to < positions && run.work[order[to]].empty()) continue;
      if (pager->advances(from, to)) RETURN_IF_ERROR(pager->Advance(from, to, *compute));
      from = to;
      if (to == positions) break;
      const bool on_host = run.plan.HostStepAt(to) >= 0;
      // What is captured, which nothing on the host is, counts for itself.
      const int given = on_host ? iteration : -1;
      const auto work = [&run, &places, &seen, &running, given, to, positions, steps] {
        const int now = given >= 0 ? given : running;
        const int step = run.plan.order[to];
        // A step does the same each time.
        const auto key = static_cast<uint64_t>(now * steps + step);
        seen.sums[static_cast<size_t>(now * positions + to)] =
            Execute(run.work[step], places[to], key);
        return absl::OkStatus();
      };
      RETURN_IF_ERROR(on_host ? pager->RunOnHost(to, work) : compute->Call(work));
    }
    return absl::OkStatus();
  };
  std::unique_ptr<Graph> graph;
  for (int iteration = 0; iteration < kIterations; ++iteration) {
    if (iteration == 1 && pager->captured_whole()) {
      RETURN_IF_ERROR(compute->BeginCapture());
      RETURN_IF_ERROR(enqueue(iteration));
      ASSIGN_OR_RETURN(graph, compute->EndCapture());
    }
    RETURN_IF_ERROR(graph == nullptr ? enqueue(iteration) : graph->Replay(*compute));
    if (!run.home_each_iteration && iteration + 1 < kIterations) continue;
    RETURN_IF_ERROR(pager->BringHome(*compute));
    RETURN_IF_ERROR(ForEachPersistent(trace, [&](int state, size_t offset) {
      return compute->Copy(seen.persistent[iteration].data() + offset, place_of(state, -1),
                           trace.states[state].bytes);
    }));
  }
  RETURN_IF_ERROR(compute->Synchronize());
  return seen;
}

// Tries cases 0 to `cases` - 1, some at once, each with a device of its own: most of the time their
// streams sleep.  Tells of the first that fail.
template <typename Try>
auto TryCases(int cases, const Try& try_case) {
  constexpr int kThreads = 8;
  std::vector<decltype(try_case(uint64_t{}))> outcomes(cases);
  std::atomic<int> next = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int seed = next++; seed < cases; seed = next++) {
        outcomes[seed] = try_case(static_cast<uint64_t>(seed));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  int failed = 0;
  for (int seed = 0; seed < cases; ++seed) {
    if (outcomes[seed].status.ok() || ++failed > 5) continue;
    ADD_FAILURE() << "seed " << seed << ": " << outcomes[seed].status;
  }
  EXPECT_EQ(failed, 0) << "of " << cases;
  return outcomes;
}

}  // namespace gyre
