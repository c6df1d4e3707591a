#include "engine/data/pictures/imgcodecs/bmp.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

namespace gyre {
namespace {

constexpr uint32_t kPlain = 0, kRuns8 = 1, kRuns4 = 2, kMasks = 3;  // how pixels are packed

struct Bmp {
  int64_t height = 0, width = 0;
  bool top_down = false;  // the upper row comes first
  uint32_t bits = 0, packing = kPlain;
  size_t pixels = 0;               // their position in the file
  size_t palette = 0, colors = 0;  // a position, and a number of entries
  size_t entry = 4;                // bytes: blue, green, red, unused
};

uint32_t LittleEndian(std::string_view file, size_t at, int size) {
  return Integer(file, at, size, /*big_endian=*/false);
}

Refusal ReadBmp(std::string_view file, Bmp& bmp) {
  const auto at = [&](size_t offset, int size) { return LittleEndian(file, offset, size); };
  const uint32_t header = at(14, 4);
  const bool core = header == 12;  // OS/2's, of 16-bit sides
  if (!core && header < 40) {
    return Damaged("expected a BMP whose header has 12, 40 or more bytes, got " +
                   std::to_string(header));
  }
  bmp.width = core ? int64_t{at(18, 2)} : int64_t{static_cast<int32_t>(at(18, 4))};
  const auto height = core ? int64_t{at(20, 2)} : int64_t{static_cast<int32_t>(at(22, 4))};
  bmp.height = std::abs(height);
  bmp.top_down = height < 0;
  bmp.bits = core ? at(24, 2) : at(28, 2);
  bmp.packing = core ? kPlain : at(30, 4);
  bmp.pixels = at(10, 4);
  bmp.palette = 14 + size_t{header};
  bmp.entry = core ? 3 : 4;
  if (bmp.bits <= 8) {
    const uint32_t used = core ? 0 : at(46, 4);
    bmp.colors = std::min<size_t>(used == 0 ? size_t{1} << bmp.bits : used, 256);
  }
  for (const uint32_t bits : {1u, 4u, 8u, 24u, 32u}) {
    if (bmp.bits != bits) continue;
    if (bmp.packing == kPlain || (bits == 8 && bmp.packing == kRuns8) ||
        (bits == 4 && bmp.packing == kRuns4)) {
      return {};
    }
    if (bits == 32 && bmp.packing == kMasks) {
      if (at(54, 4) != 0xff0000 || at(58, 4) != 0xff00 || at(62, 4) != 0xff) {
        return NotRead("a BMP with unusual masks of colours");
      }
      return header >= 56 && at(66, 4) != 0 ? NotRead("a BMP with alpha") : Refusal();
    }
    return NotRead("a BMP of " + std::to_string(bits) + " bits a pixel that is packed by method " +
                   std::to_string(bmp.packing));
  }
  return NotRead("a BMP of " + std::to_string(bmp.bits) + " bits a pixel");
}

// Indices [height, width] in the file's order of rows, of a run-length code.
Refusal DecodeRuns(std::string_view code, const Bmp& bmp, std::vector<uint8_t>& indices) {
  indices.assign(static_cast<size_t>(bmp.height * bmp.width), 0);
  const Refusal damaged = Damaged("the BMP's run-length code is truncated or damaged");
  constexpr int kEndOfRow = 0, kEnd = 1, kMove = 2;  // else a count of indices, after a 0
  size_t next = 0;
  const auto take = [&] {
    const int value = next < code.size() ? static_cast<uint8_t>(code[next]) : -1;
    ++next;
    return value;
  };
  const bool halves = bmp.packing == kRuns4;  // two indices a byte, the upper four bits first
  int64_t y = 0, x = 0;
  for (;;) {
    const int count = take(), value = take();
    if (value < 0) return damaged;
    if (count == 0 && value == kEnd) return {};
    if (count == 0 && value == kEndOfRow) {
      if (++y == bmp.height) return {};
      x = 0;
    } else if (count == 0 && value == kMove) {
      const int right = take(), down = take();
      if (down < 0) return damaged;
      x += right, y += down;
    } else {
      const int pixels = count > 0 ? count : value;
      if (y >= bmp.height || pixels > bmp.width - x) return damaged;
      uint8_t* const to = &indices[static_cast<size_t>(y * bmp.width + x)];
      int byte = value;
      for (int i = 0; i < pixels; ++i) {
        if (count == 0 && (!halves || i % 2 == 0)) byte = take();
        if (byte < 0) return damaged;
        to[i] = static_cast<uint8_t>(!halves ? byte : i % 2 == 0 ? byte >> 4 : byte & 15);
      }
      x += pixels;
      if (count == 0) next += next % 2;  // two bytes are a unit
    }
  }
}

}  // namespace

Refusal ReadBmpHeader(std::string_view file, PictureHeader& header) {
  Bmp bmp;
  const Refusal refusal = ReadBmp(file, bmp);
  return refusal.refused() ? refusal : SetSize("BMP", bmp.height, bmp.width, header);
}

Refusal DecodeBmp(std::string_view file, const PictureHeader& header, const Window& stored,
                  RowFunction row) {
  Bmp bmp;
  Refusal refusal = ReadBmp(file, bmp);
  if (refusal.refused()) return refusal;
  std::string_view data = file.substr(std::min(bmp.pixels, file.size()));
  int64_t bits = bmp.bits, row_bytes = (bmp.width * bits + 31) / 32 * 4;
  std::vector<uint8_t> indices;
  if (bmp.packing == kRuns8 || bmp.packing == kRuns4) {
    refusal = DecodeRuns(data, bmp, indices);
    data = {reinterpret_cast<const char*>(indices.data()), indices.size()};
    bits = 8, row_bytes = bmp.width;
  } else {
    refusal = CheckBytes("BMP", header, bmp.height * row_bytes, static_cast<int64_t>(data.size()));
  }
  if (refusal.refused()) return refusal;
  if (file.size() < bmp.palette + bmp.colors * bmp.entry) {
    return Damaged("expected a BMP's palette of " + std::to_string(bmp.colors) +
                   " colours: it is truncated");
  }
  std::array<uint32_t, 256> palette = {};
  for (size_t i = 0; i < bmp.colors; ++i) {
    palette[i] = LittleEndian(file, bmp.palette + i * bmp.entry, 3);
  }
  std::vector<uint8_t> shown(static_cast<size_t>(stored.width * 3));
  for (int64_t y = stored.top; y < stored.top + stored.height; ++y) {
    const int64_t in_file = bmp.top_down ? y : bmp.height - 1 - y;
    const auto* const from = reinterpret_cast<const uint8_t*>(data.data()) + in_file * row_bytes;
    uint8_t* to = shown.data();
    for (int64_t x = stored.left; x < stored.left + stored.width; ++x, to += 3) {
      const uint8_t* const at = from + x * bits / 8;
      if (bits > 8) {
        to[0] = at[2], to[1] = at[1], to[2] = at[0];
      } else {
        const auto shift = static_cast<int>(8 - bits - x * bits % 8);
        const uint32_t color = palette[static_cast<size_t>((*at >> shift) & ((1 << bits) - 1))];
        to[0] = static_cast<uint8_t>(color >> 16);
        to[1] = static_cast<uint8_t>(color >> 8);
        to[2] = static_cast<uint8_t>(color);
      }
    }
    row(shown.data(), 3);
  }
  return {};
}

}  // namespace gyre
