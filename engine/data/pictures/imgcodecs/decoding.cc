#include "engine/data/pictures/imgcodecs/decoding.h"

namespace gyre {

uint32_t Integer(std::string_view file, size_t at, int size, bool big_endian) {
  if (at > file.size() || file.size() - at < static_cast<size_t>(size)) return 0;
  uint32_t value = 0;
  for (int i = 0; i < size; ++i) {
    const int shift = 8 * (big_endian ? size - 1 - i : i);
    value |= static_cast<uint32_t>(static_cast<uint8_t>(file[at + i])) << shift;
  }
  return value;
}

Refusal SetSize(const std::string& format, int64_t height, int64_t width, PictureHeader& header) {
  constexpr int64_t kMost = 1 << 20;
  if (height < 1 || width < 1 || height > kMost || width > kMost) {
    return Damaged("expected a " + format + " of 1 to " + std::to_string(kMost) +
                   " pixels a side, got " + SizeText(height, width));
  }
  header.height = height;
  header.width = width;
  return {};
}

Refusal NotRead(const std::string& kind) {
  return Invalid("expected a picture of a kind that is read, got " + kind +
                 "; convert it to PNG or TIFF");
}

Refusal CheckBytes(const std::string& format, const PictureHeader& header, int64_t expected,
                   int64_t got) {
  if (got >= expected) return {};
  return Damaged("expected " + std::to_string(expected) + " bytes of pixels of a " + format +
                 " of " + SizeText(header.height, header.width) + ", got " + std::to_string(got) +
                 ": it is truncated or damaged");
}

}  // namespace gyre
