// scaling_picture.h: what simulate_scaling found, to look at.  A pure function.
#pragma once

#include <string>
#include <vector>

#include "distributed/scaling/scaling.h"

namespace gyre {

struct ScalingLine {
  std::string name;
  std::vector<ScalingPoint> points;  // of more and more ranks
};

// An SVG image: each line's efficiency over the number of ranks, whose axis is logarithmic.
// Precondition: some points, of two numbers of ranks at least.
std::string ScalingPicture(const std::vector<ScalingLine>& lines, const std::string& title);

}  // namespace gyre
