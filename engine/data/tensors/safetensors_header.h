// safetensors_header.h: the JSON header of a safetensors file, parsed strictly: what two readers
// could take differently (repeated keys, numbers that are not plain counts, unknown keys) is
// refused, and a hostile header costs no more than its length.
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

// A tensor as the header declares it; its bytes are [first, last) of the data.
struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape = {};
  uint64_t first = 0, last = 0;
  std::string unreadable = {};  // why dtype and shape say nothing: the file's are none of ours
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of their bytes, which fill the data
  std::map<std::string, std::string> metadata;
};

// Parses the header of a file with `data_bytes` bytes after it.
// Errors: DataLoss saying what is wrong, without the file's name.
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text,
                                                         uint64_t data_bytes);

}  // namespace gyre
