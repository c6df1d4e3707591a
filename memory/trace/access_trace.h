// access_trace.h: the order in which one iteration's steps touch states.  Plain data: it knows no
// layer and no device; whoever knows the net fills it.  The trace is cyclic: what is persistent at
// the end of the last step is what the first step finds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gyre {

// Of what is placed as a whole, and of the members of a contiguous group.
inline constexpr size_t kPlanAlignment = 4096;
inline constexpr size_t kGroupAlignment = 64;

enum class Arena : uint8_t {
  kDevice,
  kCommunication,  // stable address, never time-shared
};

struct TraceState {
  std::string name;  // for people; need not be unique
  size_t bytes = 0;  // 0 is legal
  Arena arena = Arena::kDevice;
  bool persistent = false;    // keeps its value over iterations: parameters, optimizer state
  bool pinned = false;        // persistent, and used outside of steps, too: it cannot be paged
  int contiguous_group = -1;  // members lie side by side in order of declaration (a bucket); all
                              // are of one arena, all persistent or none, and none is a view
  int view_of = -1;           // shares that state's memory from view_offset on, and its arena and
                              // persistence (its own two fields are not looked at)
  size_t view_offset = 0;
  bool may_narrow = false;  // numbers of F32, which may come back rounded to 16 bits once they are
                            // paged out; never of what is persistent
};

// In what order a step reads and writes within itself is its own affair: it may read what it wrote.
struct TraceTouch {
  int state = 0;
  bool read = false, write = false;
};

struct TraceStep {
  std::string name;
  std::vector<TraceTouch> touches = {};
  double seconds = 0;  // that its work takes; only paging asks
  // It may run again later in the iteration: from what it reads it makes what it writes anew, with
  // the same bits, and changes nothing else.
  bool repeatable = false;
  // It may run on the host instead, on the pages of what it touches; what is pinned it then leaves
  // alone.  Bytes of host memory that it reads and writes there, which say how long; 0: it may not.
  size_t host_bytes = 0;
};

struct AccessTrace {
  std::vector<TraceState> states;
  std::vector<TraceStep> steps;
  std::string of = {};  // whose they are, in errors, such as "the test"; "": need not be said
};

}  // namespace gyre
