// shot_file.h: one shot, read from an .npz or a .csv file.  Pure; any thread.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

struct ShotSignal {
  int64_t points = 0;         // of a profile; a signal has one
  std::vector<float> values;  // [times, points]
};

struct Shot {
  std::string file;
  std::vector<double> time;                                // increasing
  std::vector<ShotSignal> signals;                         // in the order asked for
  double event = std::numeric_limits<double>::infinity();  // its time; infinity: there is none
};

// Reads the times up to the event of these signals, [times], and then these profiles, [times,
// points]; at least one.  An .npz has entries of these names, `time`, and `event`, one number, NaN
// if there is none.  A .csv (RFC 4180) has a line of names and a line a time, and may have lines of
// comments before them, of which "# event 0.85" counts; blank lines are passed.  The points of
// profile te are columns te[0], te[1], and so on.
// Errors, naming the file and the line, the entry, or the signal and the time: those of ReadArray;
// InvalidArgument for what is missing, of another shape, no number or not finite, for times that do
// not increase, and for a shot without times before its event.
absl::StatusOr<Shot> ReadShot(const std::string& path, const std::vector<std::string>& signals,
                              const std::vector<std::string>& profiles);

}  // namespace gyre
