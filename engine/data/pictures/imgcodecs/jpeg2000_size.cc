#include "engine/data/pictures/imgcodecs/jpeg2000_size.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "engine/data/pictures/imgcodecs/decoding.h"

namespace gyre {
namespace {

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

// The code blocks of a component of [rows, columns] that is coded as a segment says.
int64_t BlocksOf(std::string_view segment, bool all_components, int64_t rows, int64_t columns) {
  const auto at = [&](size_t offset) { return int64_t{Integer(segment, offset, 1, true)}; };
  // A style, then levels, the logarithms of a block's width and height, less 2, and two bytes.  If
  // a bit of the style says so, those of a precinct's width and height for each resolution follow,
  // the lowest first.
  const size_t style = all_components ? 4 : 5, coded = style + (all_components ? 5 : 1);
  const int64_t levels = std::min<int64_t>(at(coded), 32);
  int64_t blocks = 0;
  for (int64_t level = 0; level <= levels; ++level) {
    const int64_t above = level > 0 ? 1 : 0;  // of two resolutions, three bands of half the size
    const int64_t precinct =
        (at(style) & 1) == 0 ? 0xff : at(coded + 5 + static_cast<size_t>(level));
    const auto along = [&](int64_t extent, size_t block, int64_t of_precinct) {
      const int64_t most = std::max<int64_t>(of_precinct - above, 0);
      const int64_t band = (extent >> (levels - level + above)) + 1;
      return (band >> std::min(at(block) + 2, most)) + 1;
    };
    blocks += (above != 0 ? 3 : 1) * along(columns, coded + 1, precinct % 16) *
              along(rows, coded + 2, precinct / 16);
  }
  return blocks;
}

// What OpenJPEG keeps in memory of tiles and of a tile's code blocks, whatever part is decoded: 12
// kB and 0.5 kB each.  So both have bounds, of 48 and 64 MiB.
Refusal Jpeg2000Blocks(std::string_view stream, Jpeg2000Size& size) {
  const auto at = [&](size_t offset, int bytes) {
    return int64_t{Integer(stream, offset, bytes, true)};
  };
  const int64_t tile_width = at(24, 4), tile_height = at(28, 4), components = at(40, 2);
  const auto tiles = [&](size_t end, size_t begin, int64_t tile) {
    return tile < 1 ? 0 : (at(end, 4) - at(begin, 4) + tile - 1) / tile;
  };
  size.tiles = tiles(8, 32, tile_width) * tiles(12, 36, tile_height);
  constexpr int64_t kMostTiles = 1 << 12, kMostBlocks = 1 << 17;
  if (size.tiles < 1 || size.tiles > kMostTiles) {
    return Damaged("expected JPEG 2000 of 1 to " + std::to_string(kMostTiles) + " tiles, got " +
                   std::to_string(size.tiles));
  }
  const int64_t columns = std::min(tile_width, size.header.width);
  const int64_t rows = std::min(tile_height, size.header.height);
  // Segments of the main header: a marker, a length without the marker's, and content.
  constexpr int64_t kTile = 0xff90, kDefault = 0xff52, kOfComponent = 0xff53;
  size_t segment = 2;
  int64_t layers = 1;
  while (segment + 4 <= stream.size() && at(segment, 2) != kTile) {
    if (const bool coding = at(segment, 2) == kDefault; coding || at(segment, 2) == kOfComponent) {
      const int64_t blocks = components * BlocksOf(stream.substr(std::min(segment, stream.size())),
                                                   coding, rows, columns);
      if (coding) layers = std::max<int64_t>(at(segment + 6, 2), 1);
      size.parts = std::max(size.parts, blocks * layers);
      if (blocks > kMostBlocks) {
        return Invalid("expected JPEG 2000 of at most " + std::to_string(kMostBlocks) +
                       " code blocks a tile, got " + std::to_string(blocks) +
                       "; convert it to PNG or TIFF");
      }
    }
    segment += 2 + static_cast<size_t>(at(segment + 2, 2));
  }
  return {};
}

}  // namespace

Refusal ReadJpeg2000Size(std::string_view file, Jpeg2000Size& size) {
  const std::string_view stream = file.substr(CodestreamOf(file));
  const auto at = [&](size_t offset, int bytes) { return Integer(stream, offset, bytes, true); };
  constexpr uint32_t kStartAndSize = 0xff4fff51;  // the markers SOC and SIZ
  if (at(0, 4) != kStartAndSize) {
    return Damaged("expected JPEG 2000 with a codestream, got none: it is truncated");
  }
  const uint32_t components = at(40, 2);
  if (components != 1 && components != 3 && components != 4) {
    return NotRead("JPEG 2000 that is not grey, colour, or colour with alpha");
  }
  const uint32_t depth = at(42, 1);  // bits - 1, and 128 if signed
  if (depth != 7 && depth != 15) {
    return NotRead("JPEG 2000 of other samples than unsigned 8 or 16 bits");
  }
  for (uint32_t i = 0; i < components; ++i) {
    if (at(42 + 3 * i, 1) != depth || at(43 + 3 * i, 2) != 0x0101) {
      return NotRead("JPEG 2000 whose components differ");
    }
  }
  const Refusal refusal = SetSize("JPEG 2000", int64_t{at(12, 4)} - at(20, 4),
                                  int64_t{at(8, 4)} - at(16, 4), size.header);
  if (refusal.refused()) return refusal;
  // OpenJPEG makes up what lacks.  A white page has a byte for 10,000 pixels.
  constexpr int64_t kMostImplied = 1 << 21, kPixelsOfByte = 1 << 14;
  const PictureHeader& header = size.header;
  const int64_t least = header.height * header.width / kPixelsOfByte;
  if (header.height * header.width > kMostImplied && static_cast<int64_t>(stream.size()) < least) {
    return Damaged("expected at least " + std::to_string(least) + " bytes of a JPEG 2000 of " +
                   SizeText(header.height, header.width) + ", got " +
                   std::to_string(stream.size()) + ": it is truncated or damaged");
  }
  return Jpeg2000Blocks(stream, size);
}

}  // namespace gyre
