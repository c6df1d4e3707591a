// fit.h: data made from the training samples alone, by which all other samples are read.
#pragma once

#include <string>

namespace gyre {

// A vocabulary, or the scales of signals.  The weights mean nothing with another fit.
struct Fit {
  std::string name = {};  // of a file in the run's folder.  "": there is no fit
  std::string text = {};
};

// The first difference of two fits, for people, or "".
std::string DifferenceOf(const Fit& expected, const Fit& got);

}  // namespace gyre
