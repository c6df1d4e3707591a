// version.h: the release of Gyre that a program is of.  CHANGELOG.md says what each has.
#pragma once

namespace gyre {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace gyre
