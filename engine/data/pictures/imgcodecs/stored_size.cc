#include "engine/data/pictures/imgcodecs/stored_size.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace gyre {
namespace {

// Integers at positions of a file.  Beyond its end they are 0.
uint32_t Integer(std::string_view file, size_t at, int size, bool big_endian) {
  if (at > file.size() || file.size() - at < static_cast<size_t>(size)) return 0;
  uint32_t value = 0;
  for (int i = 0; i < size; ++i) {
    const int shift = 8 * (big_endian ? size - 1 - i : i);
    value |= static_cast<uint32_t>(static_cast<uint8_t>(file[at + i])) << shift;
  }
  return value;
}

Refusal Sized(const std::string& format, int64_t height, int64_t width, int most,
              StoredPicture& picture) {
  constexpr int64_t kMost = 1 << 20;  // of OpenCV, by default
  if (height < 1 || width < 1 || height > kMost || width > kMost) {
    return Damaged("expected a " + format + " of 1 to " + std::to_string(kMost) +
                   " pixels a side, got " + SizeText(height, width));
  }
  picture.header.height = height;
  picture.header.width = width;
  picture.most = most;
  return {};
}

Refusal ReadWrongly(const std::string& kind) {
  return Invalid("expected a picture that OpenCV reads right, got " + kind +
                 "; convert it to PNG or TIFF");
}

Refusal BmpSize(std::string_view file, StoredPicture& picture) {
  constexpr uint32_t kBitFields = 3, kAlphaBitFields = 6;
  const auto at = [&](size_t offset, int size) { return Integer(file, offset, size, false); };
  const uint32_t header = at(14, 4);
  const bool core = header == 12;  // OS/2's, of 16-bit sides
  if (!core && header < 40) {
    return Damaged("expected a BMP whose header has 12, 40 or more bytes, got " +
                   std::to_string(header));
  }
  const auto width = core ? int64_t{at(18, 2)} : int64_t{static_cast<int32_t>(at(18, 4))};
  // Negative where the upper row comes first.
  const auto height = core ? int64_t{at(20, 2)} : int64_t{static_cast<int32_t>(at(22, 4))};
  const uint32_t bits = core ? at(24, 2) : at(28, 2);
  const uint32_t packing = core ? 0 : at(30, 4);
  if (bits == 16) return ReadWrongly("a BMP of 16 bits a pixel");
  if (bits == 32 && (packing == kBitFields || packing == kAlphaBitFields)) {
    if (at(54, 4) != 0xff0000 || at(58, 4) != 0xff00 || at(62, 4) != 0xff) {
      return ReadWrongly("a BMP with unusual masks of colours");
    }
    if ((header >= 56 || packing == kAlphaBitFields) && at(66, 4) != 0) {
      return ReadWrongly("a BMP with alpha");
    }
  }
  return Sized("BMP", std::abs(height), width, 255, picture);
}

// Where the codestream of a JP2 file begins, behind boxes of length, type and content.
size_t CodestreamOf(std::string_view file) {
  size_t at = 0;
  if (file.starts_with("\xff\x4f")) return at;
  while (file.size() - at >= 16) {
    uint64_t length = Integer(file, at, 4, true);
    const uint64_t longer = uint64_t{Integer(file, at + 8, 4, true)} << 32;
    size_t header = 8;
    if (length == 1) header = 16, length = longer + Integer(file, at + 12, 4, true);
    if (file.substr(at + 4, 4) == "jp2c") return at + header;
    if (length < header || length > file.size() - at) break;
    at += length;
  }
  return file.size();
}

Refusal Jpeg2000Size(std::string_view file, StoredPicture& picture) {
  const std::string_view stream = file.substr(CodestreamOf(file));
  const auto at = [&](size_t offset, int size) { return Integer(stream, offset, size, true); };
  constexpr uint32_t kStartAndSize = 0xff4fff51;  // the markers SOC and SIZ
  if (at(0, 4) != kStartAndSize) {
    return Damaged("expected JPEG 2000 with a codestream, got none: it is truncated");
  }
  const uint32_t components = at(40, 2);
  if (components != 1 && components != 3 && components != 4) {
    return ReadWrongly("JPEG 2000 that is not grey, colour, or colour with alpha");
  }
  const uint32_t depth = at(42, 1);  // bits - 1, and 128 if signed
  if (depth != 7 && depth != 15) {
    return ReadWrongly("JPEG 2000 of other samples than unsigned 8 or 16 bits");
  }
  for (uint32_t i = 0; i < components; ++i) {
    if (at(42 + 3 * i, 1) != depth || at(43 + 3 * i, 2) != 0x0101) {
      return ReadWrongly("JPEG 2000 whose components differ");
    }
  }
  const Refusal refusal = Sized("JPEG 2000", int64_t{at(12, 4)} - at(20, 4),
                                int64_t{at(8, 4)} - at(16, 4), depth == 7 ? 255 : 65535, picture);
  if (refusal.refused()) return refusal;
  // OpenJPEG makes up what lacks, at 16 bytes a pixel.  A white page has a byte for 10,000 pixels.
  constexpr int64_t kMostImplied = 1 << 21, kPixelsOfByte = 1 << 14;
  const PictureHeader& header = picture.header;
  const int64_t least = header.height * header.width / kPixelsOfByte;
  if (header.height * header.width > kMostImplied && static_cast<int64_t>(stream.size()) < least) {
    return Damaged("expected at least " + std::to_string(least) + " bytes of a JPEG 2000 of " +
                   SizeText(header.height, header.width) + ", got " +
                   std::to_string(stream.size()) + ": it is truncated or damaged");
  }
  return {};
}

// Takes the next number off a PNM header.  Blanks and comments come before it.  -1: there is none.
int64_t NextNumber(std::string_view& rest) {
  while (!rest.empty() && std::string_view(" \t\r\n\v\f#").find(rest[0]) != rest.npos) {
    rest.remove_prefix(rest[0] == '#' ? std::min(rest.find('\n'), rest.size()) : 1);
  }
  int64_t number = -1;
  constexpr int64_t kMost = int64_t{1} << 40;  // more digits change nothing
  for (; !rest.empty() && rest[0] >= '0' && rest[0] <= '9'; rest.remove_prefix(1)) {
    if (number < kMost) number = 10 * std::max<int64_t>(number, 0) + (rest[0] - '0');
  }
  return number;
}

Refusal PnmSize(std::string_view file, StoredPicture& picture) {
  std::string_view rest = file.substr(2);
  const bool bitmap = file[1] == '1' || file[1] == '4';
  const int64_t width = NextNumber(rest), height = NextNumber(rest);
  const int64_t most = bitmap ? 255 : NextNumber(rest);
  if (most < 1 || most > 65535) {
    return Damaged("expected a PNM of values up to 1 to 65535, got " + std::to_string(most));
  }
  const bool scaled = most < 256 && file[1] <= '3';  // by OpenCV, of texts, rounded down
  return Sized("PNM", height, width, scaled ? 255 : static_cast<int>(most), picture);
}

}  // namespace

Refusal ReadStoredPicture(OtherFormat format, std::string_view file, StoredPicture& picture) {
  switch (format) {
    case OtherFormat::kBmp:
      return BmpSize(file, picture);
    case OtherFormat::kJpeg2000:
      return Jpeg2000Size(file, picture);
    case OtherFormat::kPnm:
      return PnmSize(file, picture);
    case OtherFormat::kTiff:
      break;
  }
  return Invalid("a TIFF is for libtiff");
}

}  // namespace gyre
