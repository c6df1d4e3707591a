// safetensors_header.h: parses the JSON header of a safetensors file, strictly.  It refuses texts
// that two readers could take differently (repeated keys, numbers that are not plain counts,
// unknown keys).  A hostile header costs no more than its length.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/dtype.h"
#include "engine/runtime/shape.h"

namespace gyre {

inline constexpr char kSafetensorsMetadata[] = "__metadata__";  // the one key that is no tensor

// A tensor as the header declares it.  Its bytes are [first, last) of the data.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape = {};
  uint64_t first = 0, last = 0;
  std::string unreadable = {};  // why dtype and shape are unset, if the file's are not supported
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in order of their bytes, which fill the data
  std::map<std::string, std::string> metadata;
};

// Parses the header of a file with `data_bytes` bytes after it.
// Errors: DataLoss with the reason, without the file's name.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text,
                                                         uint64_t data_bytes);

// For a file that is a pickle: InvalidArgument with the lines of Python that convert it.
absl::Status RefusePickle(const std::string& path);

}  // namespace gyre
