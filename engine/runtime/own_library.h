// own_library.h: where a shared object of Gyre is that a program opens at first use.
#pragma once

#include <string>

namespace gyre {

// Beside the program, in folder `in_build` of the build that has made the program, or, as the bare
// name, wherever the system looks.
std::string PathOfOwnLibrary(const std::string& name, const std::string& in_build);

}  // namespace gyre
