// fit.h: what the training samples alone decide and all others are read by.
#pragma once

#include <string>

namespace gyre {

// A vocabulary, or the scales of signals.  It belongs to the weights, which mean nothing beside
// another.
struct Fit {
  std::string name = {};  // of a file in a run's folder; "": there is none
  std::string text = {};
};

// Where two fits differ, for people; "": nowhere.
std::string DifferenceOf(const Fit& expected, const Fit& got);

}  // namespace gyre
