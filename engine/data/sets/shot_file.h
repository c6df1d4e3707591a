// shot_file.h: reads one shot from an .npz or a .csv file.  Pure.  Any thread.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

struct ShotSignal {
  int64_t points = 0;         // of a profile.  1 for a signal
  std::vector<float> values;  // [times, points]
};

struct Shot {
  std::string file;
  std::vector<double> time;                                // increasing
  std::vector<ShotSignal> signals;                         // in the order asked for
  double event = std::numeric_limits<double>::infinity();  // its time.  infinity: there is none
};

// Reads the times up to the event of `signals`, [times], then of `profiles`, [times, points].  At
// least one of the two is not empty.
//   .npz  An entry for each name, `time`, and `event` (one number, NaN if there is none)
//   .csv  RFC 4180.  A line of names, then a line for each time.  Blank lines are skipped.  Points
//         of profile te are columns te[0], te[1], ...  Comments may precede.  "# event 0.85" counts
// Errors: those of ReadArray, and InvalidArgument for data missing, of another shape, not numbers
// or not finite.  Also for times that do not increase, and no times before the event.  They name
// the file and the line, the entry, or the signal and time.
absl::StatusOr<Shot> ReadShot(const std::string& path, const std::vector<std::string>& signals,
                              const std::vector<std::string>& profiles);

}  // namespace gyre
