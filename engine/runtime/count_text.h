// count_text.h: numbers of things, as people read them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gyre {

// "1 rank", "2 ranks", "1 batch", "2 batches".
inline std::string Counted(int64_t count, std::string_view noun) {
  const bool sibilant = noun.ends_with("ch") || noun.ends_with("s");
  return std::to_string(count) + " " + std::string(noun) +
         (count == 1 ? ""
          : sibilant ? "es"
                     : "s");
}

}  // namespace gyre
