// access_trace.h: the order in which one iteration's steps touch states.  Plain data that knows no
// layer and no device.  The code that knows the net fills it.  The trace is cyclic: the first step
// finds the persistent values that the last step left.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace gyre {

inline constexpr size_t kPlanAlignment = 4096;  // of blocks
inline constexpr size_t kGroupAlignment = 64;   // of members of a contiguous group

enum class Arena : uint8_t {
  kDevice,
  kCommunication,  // stable address, never time-shared
};

struct TraceState {
  std::string name;  // for people; need not be unique
  size_t bytes = 0;  // 0 is legal
  Arena arena = Arena::kDevice;
  bool persistent = false;    // has its value over iterations: parameters, optimizer state
  bool pinned = false;        // persistent, and also used outside of steps, so never paged
  int contiguous_group = -1;  // members are adjacent in order of declaration (a bucket); all are
                              // of one arena, all persistent or none, and none is a view
  int view_of = -1;           // lies in that state's memory from view_offset on, and shares its
                              // arena and persistence (the view's own two fields are ignored);
                              // views form no circle
  size_t view_offset = 0;
  bool may_narrow = false;  // F32 numbers that paging may round to 16 bits; ignored if persistent
};

// A step may read what it wrote.  The order within the step is its own affair.
struct TraceTouch {
  int state = 0;
  bool read = false, write = false;
};

struct TraceStep {
  std::string name;
  std::vector<TraceTouch> touches = {};
  double seconds = 0;  // duration of its work; used only by paging
  // It may run again later in the iteration.  It then makes the same bits from the same input, and
  // changes nothing else.
  bool repeatable = false;
  // Bytes of host memory that it moves if it runs on the host, which give its duration there.  It
  // then works on pages and leaves pinned states alone.  With 0 it cannot run on the host.
  size_t host_bytes = 0;
};

struct AccessTrace {
  std::vector<TraceState> states;
  std::vector<TraceStep> steps;
  std::string of = {};  // the trace's owner in errors, such as "the test"; "": not named

  // Returns the state's index.
  int Add(TraceState state) {
    states.push_back(std::move(state));
    return static_cast<int>(states.size()) - 1;
  }
};

}  // namespace gyre
