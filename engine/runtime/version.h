// version.h: this program's release of Gyre.  CHANGELOG.md describes each.
#pragma once

namespace gyre {

inline constexpr char kVersion[] = "0.1.0";

}  // namespace gyre
