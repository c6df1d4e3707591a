#include "engine/data/pictures/exif.h"

#include <cstdint>

namespace gyre {
namespace {

// Integers of the TIFF structure, in its byte order.
class TiffBytes {
 public:
  TiffBytes(std::string_view bytes, bool big_endian) : bytes_(bytes), big_endian_(big_endian) {}

  bool Holds(uint64_t offset, uint64_t size) const {
    return offset <= bytes_.size() && size <= bytes_.size() - offset;
  }
  // Precondition: Holds(offset, size).
  uint32_t Integer(uint64_t offset, int size) const {
    uint32_t value = 0;
    for (int i = 0; i < size; ++i) {
      const int shift = 8 * (big_endian_ ? size - 1 - i : i);
      value |= static_cast<uint32_t>(static_cast<uint8_t>(bytes_[offset + i])) << shift;
    }
    return value;
  }

 private:
  std::string_view bytes_;
  bool big_endian_;
};

}  // namespace

int ExifOrientation(std::string_view exif) {
  constexpr size_t kPrefix = 6;  // "Exif", 0, and a byte that some writers do not clear
  if (exif.size() >= kPrefix && exif.starts_with("Exif")) exif.remove_prefix(kPrefix);
  const bool big_endian = exif.starts_with("MM");
  if (!big_endian && !exif.starts_with("II")) return 1;
  const TiffBytes tiff(exif, big_endian);
  if (!tiff.Holds(0, 8) || tiff.Integer(2, 2) != 42) return 1;
  const uint64_t directory = tiff.Integer(4, 4);
  if (!tiff.Holds(directory, 2)) return 1;
  const uint32_t entries = tiff.Integer(directory, 2);
  constexpr int kEntry = 12;  // tag, type, count, value: 2, 2, 4 and 4 bytes
  for (uint64_t i = 0; i < entries; ++i) {
    const uint64_t entry = directory + 2 + kEntry * i;
    if (!tiff.Holds(entry, kEntry)) return 1;
    if (tiff.Integer(entry, 2) != 0x0112) continue;
    const uint32_t type = tiff.Integer(entry + 2, 2);
    constexpr uint32_t kShort = 3, kLong = 4;
    if ((type != kShort && type != kLong) || tiff.Integer(entry + 4, 4) != 1) return 1;
    const uint32_t value = tiff.Integer(entry + 8, type == kShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

}  // namespace gyre
