// fit.h: data made from the training samples alone, by which all other samples are read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gyre {

// Texts such as a vocabulary or the scales of signals, by the name of a file in the run's folder.
// The weights mean nothing with other texts.  Empty: nothing is made of the samples.
using Fit = std::map<std::string, std::string>;

// The names of the labels' classes by number, of pictures or a table.  Empty: they are numbers.
std::vector<std::string> ClassNamesOf(const Fit& fit);
// The name of a class, or its number if it has none.
std::string NameOfClass(int64_t number, const std::vector<std::string>& names);

// The shortest text that reads back as the same number.
std::string ExactText(double number);
std::string ExactText(float number);

// The first text of `expected` that `got` lacks or has otherwise, for people, or "".  `got` may
// have more texts.
std::string DifferenceOf(const Fit& expected, const Fit& got);

}  // namespace gyre
