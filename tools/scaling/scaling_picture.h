// scaling_picture.h: draws the results of simulate_scaling.  A pure function.
#pragma once

#include <string>
#include <vector>

#include "distributed/scaling/scaling.h"

namespace gyre {

struct ScalingLine {
  std::string name;
  std::vector<ScalingPoint> points;  // of increasing ranks
};

// An SVG image of each line's efficiency over the number of ranks, on a logarithmic axis.
// Precondition: there are points of at least two numbers of ranks.
std::string ScalingPicture(const std::vector<ScalingLine>& lines, const std::string& title);

}  // namespace gyre
