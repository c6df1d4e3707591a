#include "engine/data/pictures/imgcodecs/tiff.h"

#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace gyre {
namespace {

// A file in memory, open in libtiff, which reads nothing from elsewhere and prints nothing.
class OpenTiff {
 public:
  explicit OpenTiff(std::string_view file) : file_(file) {
    TIFFOpenOptions* const options = TIFFOpenOptionsAlloc();
    TIFFOpenOptionsSetMaxSingleMemAlloc(options, kMostBytes);
    TIFFOpenOptionsSetErrorHandlerExtR(options, OnError, this);
    TIFFOpenOptionsSetWarningHandlerExtR(options, OnWarning, this);
    tiff_ = TIFFClientOpenExt("", "r", this, Read, Write, Seek, Close, Size, Map, Unmap, options);
    TIFFOpenOptionsFree(options);
  }
  OpenTiff(const OpenTiff&) = delete;
  OpenTiff& operator=(const OpenTiff&) = delete;
  ~OpenTiff() {
    if (tiff_ != nullptr) TIFFClose(tiff_);
  }

  TIFF* get() const { return tiff_; }
  bool complained() const { return *complaint_ != '\0'; }

  Refusal Refused() const {
    return Damaged(std::string("the TIFF is truncated or damaged: ") +
                   (complained() ? complaint_ : "libtiff refuses it"));
  }

  uint16_t Tag(uint32_t tag) const {
    uint16_t value = 0;
    TIFFGetFieldDefaulted(tiff_, tag, &value);
    return value;
  }
  uint32_t LongTag(uint32_t tag) const {
    uint32_t value = 0;
    TIFFGetFieldDefaulted(tiff_, tag, &value);
    return value;
  }

 private:
  // For one block of memory: offsets of 4 million strips, or a tile.
  static constexpr int64_t kMostBytes = int64_t{64} << 20;

  static OpenTiff& Of(thandle_t handle) { return *static_cast<OpenTiff*>(handle); }

  static tmsize_t Read(thandle_t handle, void* to, tmsize_t bytes) {
    OpenTiff& tiff = Of(handle);
    if (bytes <= 0 || tiff.at_ >= tiff.file_.size()) return 0;
    const size_t count = std::min<size_t>(static_cast<size_t>(bytes), tiff.file_.size() - tiff.at_);
    std::memcpy(to, tiff.file_.data() + tiff.at_, count);
    tiff.at_ += count;
    return static_cast<tmsize_t>(count);
  }
  static tmsize_t Write(thandle_t, void*, tmsize_t) { return 0; }
  static toff_t Seek(thandle_t handle, toff_t offset, int whence) {
    OpenTiff& tiff = Of(handle);
    const uint64_t from = whence == SEEK_SET   ? 0
                          : whence == SEEK_CUR ? tiff.at_
                                               : tiff.file_.size();
    return tiff.at_ = from + offset;
  }
  static int Close(thandle_t) { return 0; }
  static toff_t Size(thandle_t handle) { return Of(handle).file_.size(); }

  // The file as if it were mapped.  libtiff only reads it.  Without, Debian's refuses tiles that
  // are not packed, by the size of its buffer.
  static int Map(thandle_t handle, void** base, toff_t* size) {
    const std::string_view file = Of(handle).file_;
    *base = const_cast<char*>(file.data());
    *size = file.size();
    return 1;
  }
  static void Unmap(thandle_t, void*, toff_t) {}

  static int OnError(TIFF*, void* self, const char*, const char* format, va_list arguments) {
    OpenTiff& tiff = *static_cast<OpenTiff*>(self);
    if (!tiff.complained()) {
      std::vsnprintf(tiff.complaint_, sizeof(tiff.complaint_), format, arguments);
    }
    return 1;  // goes no further
  }
  // Warnings of the decoders, which go on with other pixels, tell of damage, and those of a tag
  // beyond the file's end.  Others are of tags that nobody needs.
  static int OnWarning(TIFF* tiff, void* self, const char* module, const char* format,
                       va_list arguments) {
    const std::string_view decoder = module == nullptr ? "" : module, text = format;
    if (decoder == "JPEGLib" || decoder.starts_with("Fax") || decoder.starts_with("PackBits") ||
        text.starts_with("Improper JPEG") || text.starts_with("IO error")) {
      OnError(tiff, self, module, format, arguments);
    }
    return 1;
  }

  const std::string_view file_;
  uint64_t at_ = 0;
  TIFF* tiff_ = nullptr;
  char complaint_[256] = "";
};

// What libtiff calls alpha: none, or one sample behind the colours.
uint16_t KindOfAlpha(const OpenTiff& tiff) {
  uint16_t count = 0;
  uint16_t* kinds = nullptr;
  TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_EXTRASAMPLES, &count, &kinds);
  return count == 0 ? EXTRASAMPLE_UNSPECIFIED : kinds[0];
}

// Alpha that was multiplied into colours, taken out again.
void Unmultiply(uint8_t* pixels, int64_t count) {
  for (uint8_t* pixel = pixels; pixel != pixels + 4 * count; pixel += 4) {
    const int alpha = pixel[3];
    if (alpha == 0 || alpha == 255) continue;
    for (int i = 0; i < 3; ++i) {
      pixel[i] = static_cast<uint8_t>(std::min(255, (pixel[i] * 255 + alpha / 2) / alpha));
    }
  }
}

// Moves three of four channels together.
void DropAlpha(uint8_t* pixels, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    for (int c = 0; c < 3; ++c) pixels[3 * i + c] = pixels[4 * i + c];
  }
}

// Takes a row of pixels as libtiff shows them, [width].
using TakeShown = absl::FunctionRef<void(uint32_t* pixels)>;

int64_t RowsOfStrip(const OpenTiff& tiff, uint32_t tag, const TIFFRGBAImage& image) {
  return std::clamp<int64_t>(tiff.LongTag(tag), 1, image.height);
}

// Whether a picture can be read row by row: it has no tiles, nor blocks of pixels that share
// colours.  Some writers' PackBits run from one row into the next, which libtiff refuses of rows.
bool HasRows(const OpenTiff& tiff, const TIFFRGBAImage& image) {
  if (TIFFIsTiled(tiff.get()) != 0) return false;
  if (tiff.Tag(TIFFTAG_COMPRESSION) == COMPRESSION_PACKBITS) return false;
  uint16_t across = 1, down = 1;
  TIFFGetFieldDefaulted(tiff.get(), TIFFTAG_YCBCRSUBSAMPLING, &across, &down);
  return image.photometric != PHOTOMETRIC_YCBCR || (across == 1 && down == 1);
}

// One row at a time, where TIFFRGBAImageGet would have a strip's bytes and pixels in memory.
Refusal DecodeRows(std::string_view file, const OpenTiff& tiff, TIFFRGBAImage& image,
                   const Window& stored, TakeShown take) {
  // Where each channel has strips of its own, each has a reader of its own.
  const bool gray = image.photometric == PHOTOMETRIC_MINISWHITE ||
                    image.photometric == PHOTOMETRIC_MINISBLACK ||
                    image.photometric == PHOTOMETRIC_PALETTE;
  const size_t colors = image.isContig != 0 || gray ? 1 : 3;
  const size_t planes = colors + (image.isContig == 0 && image.alpha != 0 ? 1 : 0);
  std::deque<OpenTiff> others;
  std::vector<const OpenTiff*> readers = {&tiff};
  while (readers.size() < planes) readers.push_back(&others.emplace_back(file));
  const auto bytes = static_cast<size_t>(TIFFScanlineSize(tiff.get()));
  std::vector<std::vector<uint8_t>> rows(planes, std::vector<uint8_t>(bytes));
  std::vector<uint32_t> pixels(image.width);

  const int64_t strip = RowsOfStrip(tiff, TIFFTAG_ROWSPERSTRIP, image);
  for (int64_t y = stored.top / strip * strip; y < stored.top + stored.height; ++y) {
    for (size_t plane = 0; plane < planes; ++plane) {
      const OpenTiff& reader = *readers[plane];
      if (reader.get() == nullptr ||
          TIFFReadScanline(reader.get(), rows[plane].data(), static_cast<uint32_t>(y),
                           static_cast<uint16_t>(plane)) < 0 ||
          reader.complained()) {
        return reader.Refused();
      }
    }
    if (y < stored.top) continue;
    if (image.isContig != 0) {
      image.put.contig(&image, pixels.data(), 0, 0, image.width, 1, 0, 0, rows[0].data());
    } else {
      image.put.separate(&image, pixels.data(), 0, 0, image.width, 1, 0, 0, rows[0].data(),
                         rows[colors / 2].data(), rows[colors - 1].data(),
                         planes > colors ? rows[colors].data() : nullptr);
    }
    take(pixels.data());
  }
  return {};
}

// Strips, or rows of tiles, one at a time from their first row: none is decoded twice, and colours
// of several rows are met from the upper one.
Refusal DecodeBlocks(const OpenTiff& tiff, TIFFRGBAImage& image, const Window& stored,
                     TakeShown take) {
  const bool tiled = TIFFIsTiled(tiff.get()) != 0;
  const int64_t strip = RowsOfStrip(tiff, tiled ? TIFFTAG_TILELENGTH : TIFFTAG_ROWSPERSTRIP, image);
  const int64_t width = image.width, bottom = stored.top + stored.height;
  constexpr int64_t kMostPixels = 1 << 24;  // of 4 bytes
  if (strip * width > kMostPixels) {
    return Invalid("expected a TIFF of at most " + std::to_string(kMostPixels) + " pixels in " +
                   (tiled ? "a row of tiles" : "a strip of its kind") + ", got " +
                   SizeText(strip, width) + "; convert it to lower ones");
  }
  // Not cleared: what a damaged file claims takes no memory until it is decoded.
  const int64_t first = stored.top / strip * strip;
  const auto pixels = std::make_unique_for_overwrite<uint32_t[]>(
      static_cast<size_t>(std::min(strip, bottom - first) * width));
  for (int64_t top = first; top < bottom; top += strip) {
    const int64_t rows = std::min(strip, bottom - top);
    image.row_offset = static_cast<int>(top);
    if (TIFFRGBAImageGet(&image, pixels.get(), static_cast<uint32_t>(width),
                         static_cast<uint32_t>(rows)) == 0 ||
        tiff.complained()) {
      return tiff.Refused();
    }
    for (int64_t y = std::max(top, stored.top); y < top + rows; ++y) {
      take(&pixels[(y - top) * width]);
    }
  }
  return {};
}

}  // namespace

Refusal ReadTiffHeader(std::string_view file, PictureHeader& header) {
  const OpenTiff tiff(file);
  if (tiff.get() == nullptr || tiff.complained()) return tiff.Refused();
  const uint16_t bits = tiff.Tag(TIFFTAG_BITSPERSAMPLE), kind = tiff.Tag(TIFFTAG_SAMPLEFORMAT);
  if (bits > 16 || (kind != SAMPLEFORMAT_UINT && kind != SAMPLEFORMAT_VOID)) {
    const char* const name = kind == SAMPLEFORMAT_IEEEFP ? "reals of "
                             : kind == SAMPLEFORMAT_INT  ? "signed integers of "
                                                         : "samples of ";
    return Invalid("expected a TIFF of unsigned integers of at most 16 bits, got " +
                   (name + std::to_string(bits)) + " bits");
  }
  char why[1024] = "";
  if (TIFFRGBAImageOK(tiff.get(), why) == 0) {
    return Invalid(std::string("expected a TIFF that libtiff can show, got: ") + why);
  }
  // libtiff shows it by a screen's curves.
  const uint16_t colors = tiff.Tag(TIFFTAG_PHOTOMETRIC);
  if (colors == PHOTOMETRIC_CIELAB || colors == PHOTOMETRIC_ICCLAB ||
      colors == PHOTOMETRIC_ITULAB) {
    return Invalid("expected a TIFF of grey, RGB, YCbCr, CMYK or a palette, got Lab; convert it");
  }
  const int64_t width = tiff.LongTag(TIFFTAG_IMAGEWIDTH);
  const int64_t height = tiff.LongTag(TIFFTAG_IMAGELENGTH);
  // Decoders of faxes take 16 bytes a column.
  constexpr int64_t kMostSide = 1 << 20;
  if (width == 0 || height == 0 || width > kMostSide || height > kMostSide) {
    return Damaged("expected a TIFF of 1 to " + std::to_string(kMostSide) + " pixels a side, got " +
                   SizeText(height, width));
  }
  // A JPEG of 32 x 32 pixels has 18 blocks of at least two bits.  libtiff would decode zeros.
  constexpr int64_t kPixelsOfByte = 256;
  const int64_t least = height * width / kPixelsOfByte;
  if (tiff.Tag(TIFFTAG_COMPRESSION) == COMPRESSION_JPEG &&
      static_cast<int64_t>(file.size()) < least) {
    return Damaged("expected at least " + std::to_string(least) + " bytes of a TIFF of JPEGs of " +
                   SizeText(height, width) + ", got " + std::to_string(file.size()) +
                   ": it is truncated or damaged");
  }
  header.height = height, header.width = width;
  const uint16_t orientation = tiff.Tag(TIFFTAG_ORIENTATION);
  if (orientation >= 1 && orientation <= 8) header.orientation = orientation;
  if (header.orientation >= 5) std::swap(header.height, header.width);
  return {};
}

Refusal DecodeTiff(std::string_view file, const PictureHeader& header, const Window& stored,
                   RowFunction row) {
  OpenTiff tiff(file);
  if (tiff.get() == nullptr || tiff.complained()) return tiff.Refused();
  const uint16_t alpha = KindOfAlpha(tiff);
  if (alpha == EXTRASAMPLE_UNASSALPHA) {
    // libtiff would multiply it into the colours, which rounds them.
    uint16_t as_it_is[] = {EXTRASAMPLE_ASSOCALPHA};
    TIFFSetField(tiff.get(), TIFFTAG_EXTRASAMPLES, 1, as_it_is);
  }
  TIFFRGBAImage image;
  char why[1024] = "";
  if (TIFFRGBAImageBegin(&image, tiff.get(), /*stop=*/1, why) == 0) return tiff.Refused();
  const std::unique_ptr<TIFFRGBAImage, void (*)(TIFFRGBAImage*)> end(&image, TIFFRGBAImageEnd);
  image.req_orientation = image.orientation;  // as stored
  if (int64_t{image.height} * image.width != header.height * header.width) return tiff.Refused();
  const auto take = [&](uint32_t* pixels) {
    // A pixel is red + 2^8 green + 2^16 blue + 2^24 alpha: bytes in this order.
    auto* const from = reinterpret_cast<uint8_t*>(pixels + stored.left);
    if (alpha == EXTRASAMPLE_ASSOCALPHA) Unmultiply(from, stored.width);
    if (alpha == EXTRASAMPLE_UNSPECIFIED) DropAlpha(from, stored.width);
    row(from, alpha == EXTRASAMPLE_UNSPECIFIED ? 3 : 4);
  };
  return HasRows(tiff, image) ? DecodeRows(file, tiff, image, stored, take)
                              : DecodeBlocks(tiff, image, stored, take);
}

}  // namespace gyre
