#include "engine/data/pictures/picture.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/pictures/jpeg.h"
#include "engine/data/pictures/other_format.h"
#include "engine/data/pictures/png.h"
#include "engine/data/pictures/webp.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

PictureFormat FormatOf(std::string_view file) {
  if (file.starts_with("\xff\xd8\xff")) return PictureFormat::kJpeg;
  if (file.starts_with("\x89PNG\r\n\x1a\n")) return PictureFormat::kPng;
  if (file.starts_with("RIFF") && file.size() >= 12 && file.substr(8, 4) == "WEBP")
    return PictureFormat::kWebp;
  return PictureFormat::kOther;
}

absl::StatusOr<PictureHeader> ReadHeader(std::string_view file) {
  switch (FormatOf(file)) {
    case PictureFormat::kJpeg:
      return ReadJpegHeader(file);
    case PictureFormat::kPng:
      return ReadPngHeader(file);
    case PictureFormat::kWebp:
      return ReadWebpHeader(file);
    case PictureFormat::kOther:
      break;
  }
  return ReadOtherHeader(file);
}

absl::Status Decode(std::string_view file, const PictureHeader& header, const Window& stored,
                    const PixelFormat& format, uint8_t* to, bool to_end = false) {
  switch (header.format) {
    case PictureFormat::kJpeg:
      return DecodeJpeg(file, header, stored, format, to, to_end);
    case PictureFormat::kPng:
      return DecodePng(file, header, stored, format, to);
    case PictureFormat::kWebp:
      return DecodeWebp(file, header, stored, format, to);
    case PictureFormat::kOther:
      break;
  }
  return DecodeOther(file, header, stored, format, to);
}

// How stored pixels become shown ones: their rows and columns are reversed, then exchanged.
struct Turn {
  bool rows_reversed, columns_reversed, exchanged;
};

// Source: Exif 2.32 (CIPA DC-008), section 4.6.4 A, tag 0x0112: the sides of the shown picture on
// which the stored row 0 and column 0 are.
Turn TurnOf(int orientation) {
  switch (orientation) {
    case 2:
      return {false, true, false};
    case 3:
      return {true, true, false};
    case 4:
      return {true, false, false};
    case 5:
      return {false, false, true};
    case 6:
      return {true, false, true};
    case 7:
      return {true, true, true};
    case 8:
      return {false, true, true};
    default:
      return {false, false, false};
  }
}

// The stored pixels that are shown in `window` of a picture of [height, width] as shown.
Window Stored(Window window, int64_t height, int64_t width, const Turn& turn) {
  if (turn.exchanged) {
    std::swap(height, width);
    std::swap(window.top, window.left);
    std::swap(window.height, window.width);
  }
  if (turn.rows_reversed) window.top = height - window.top - window.height;
  if (turn.columns_reversed) window.left = width - window.left - window.width;
  return window;
}

// Copies stored pixels [height, width, kChannels] to where they are shown.  Tiles keep the rows
// of both sides in the cache where rows and columns are exchanged.
template <int kChannels>
void TurnPixels(const uint8_t* stored, int64_t height, int64_t width, const Turn& turn,
                uint8_t* to) {
  // From a stored pixel to that of the next row and column, in bytes.
  std::ptrdiff_t row_step = kChannels * width, column_step = kChannels;
  if (turn.rows_reversed) stored += row_step * (height - 1), row_step = -row_step;
  if (turn.columns_reversed) stored += column_step * (width - 1), column_step = -column_step;
  // The rest is in the order of what is shown.
  if (turn.exchanged) std::swap(row_step, column_step), std::swap(height, width);
  constexpr int64_t kTile = 64;
  for (int64_t top = 0; top < height; top += kTile) {
    for (int64_t left = 0; left < width; left += kTile) {
      const int64_t bottom = std::min(top + kTile, height), end = std::min(left + kTile, width);
      for (int64_t row = top; row < bottom; ++row) {
        const uint8_t* from = stored + row * row_step + left * column_step;
        uint8_t* pixel = to + (row * width + left) * kChannels;
        for (int64_t column = left; column < end; ++column) {
          std::memcpy(pixel, from, kChannels);
          from += column_step;
          pixel += kChannels;
        }
      }
    }
  }
}

absl::Status CheckFormat(const PictureHeader& header, const PixelFormat& format) {
  if (!format.indices || header.format == PictureFormat::kPng) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(kMaskExpected, "another format"));
}

}  // namespace

absl::StatusOr<PictureHeader> ReadPictureHeader(std::string_view file, int64_t most_pixels) {
  if (file.empty()) return absl::InvalidArgumentError("expected a picture, got an empty file");
  ASSIGN_OR_RETURN(const PictureHeader header, ReadHeader(file));
  // Both extents are below 2^32 in every format, and their product below 2^64.
  const auto pixels = static_cast<uint64_t>(header.height) * static_cast<uint64_t>(header.width);
  if (pixels > static_cast<uint64_t>(std::max<int64_t>(most_pixels, 0)))
    return absl::InvalidArgumentError(
        absl::StrCat("expected at most ", most_pixels, " pixels, got ", header.width, " x ",
                     header.height, "; set most_pixels higher if the picture is meant"));
  return header;
}

absl::Status CheckPicture(std::string_view file, const PictureHeader& header,
                          const PixelFormat& format) {
  RETURN_IF_ERROR(CheckFormat(header, format));
  int64_t height = header.height, width = header.width;  // as stored
  if (TurnOf(header.orientation).exchanged) std::swap(height, width);
  // To the last row all data are read, except that TIFF's strips stand alone.
  const int64_t rows = header.format == PictureFormat::kOther ? height : 1;
  const auto pixels = std::make_unique_for_overwrite<uint8_t[]>(
      static_cast<size_t>(rows * width * format.channels));
  return Decode(file, header, {.top = height - rows, .height = rows, .width = width}, format,
                pixels.get(), /*to_end=*/true);
}

absl::Status DecodePicture(std::string_view file, const PictureHeader& header, const Window& window,
                           const PixelFormat& format, uint8_t* to) {
  GYRE_CHECK(format.channels == 1 || format.channels == 3 || format.channels == 4);
  GYRE_CHECK(!format.indices || format.channels == 1);
  GYRE_CHECK(window.top >= 0 && window.height > 0 && window.top <= header.height - window.height);
  GYRE_CHECK(window.left >= 0 && window.width > 0 && window.left <= header.width - window.width);
  RETURN_IF_ERROR(CheckFormat(header, format));
  const Turn turn = TurnOf(header.orientation);
  const Window stored = Stored(window, header.height, header.width, turn);
  if (header.orientation == 1) return Decode(file, header, stored, format, to);

  const auto pixels = std::make_unique_for_overwrite<uint8_t[]>(
      static_cast<size_t>(stored.height * stored.width * format.channels));
  RETURN_IF_ERROR(Decode(file, header, stored, format, pixels.get()));
  const auto turn_pixels = format.channels == 1   ? &TurnPixels<1>
                           : format.channels == 3 ? &TurnPixels<3>
                                                  : &TurnPixels<4>;
  turn_pixels(pixels.get(), stored.height, stored.width, turn, to);
  return absl::OkStatus();
}

}  // namespace gyre
