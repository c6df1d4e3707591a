#include "engine/data/pictures/png.h"

#include <png.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/pictures/exif.h"
#include "engine/data/pictures/format_pixels.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

constexpr std::string_view kSignature = "\x89PNG\r\n\x1a\n";

uint32_t BigEndian(std::string_view bytes) {
  return png_get_uint_32(reinterpret_cast<png_const_bytep>(bytes.data()));
}

struct PngChunk {
  std::string_view type, data;
};

// Source: PNG specification, second edition, section 11.2.2.
const char* KindOf(uint8_t depth, uint8_t color_type, bool transparent) {
  if (color_type == PNG_COLOR_TYPE_PALETTE) return transparent ? "palette, alpha" : "palette";
  const bool alpha = (color_type & PNG_COLOR_MASK_ALPHA) != 0 || transparent;
  if ((color_type & PNG_COLOR_MASK_COLOR) == 0) {
    return depth < 16 ? (alpha ? "grey, alpha" : "grey")
                      : (alpha ? "grey 16-bit, alpha" : "grey 16-bit");
  }
  return depth < 16 ? (alpha ? "colour, alpha" : "colour")
                    : (alpha ? "colour 16-bit, alpha" : "colour 16-bit");
}

// Returns the chunk at byte `at`, and moves `at` behind it.
absl::StatusOr<PngChunk> NextChunk(std::string_view file, size_t& at) {
  constexpr size_t kAround = 12;  // length, type, CRC-32
  if (file.size() - at < kAround) {
    return absl::DataLossError(absl::StrFormat(
        "expected a PNG that ends with chunk IEND, got one that ends at byte %d: it is truncated",
        file.size()));
  }
  const std::string_view rest = file.substr(at);
  const size_t length = BigEndian(rest);
  const PngChunk chunk = {rest.substr(4, 4), rest.substr(8, length)};
  if (rest.size() - kAround < length) {
    return absl::DataLossError(
        absl::StrFormat("expected %d bytes of the PNG's chunk at byte %d, got %d: it is truncated",
                        length + kAround, at, rest.size()));
  }
  const uint32_t expected = BigEndian(rest.substr(8 + length));
  const uint32_t got = Crc32(rest.substr(4, 4 + length));
  if (got != expected) {
    return absl::DataLossError(absl::StrFormat(
        "expected CRC-32 %08x of the PNG's chunk at byte %d, got %08x: the file is damaged",
        expected, at, got));
  }
  at += kAround + length;
  return chunk;
}

// libpng's structures for one file, and why it gave up.
class PngReader {
 public:
  explicit PngReader(std::string_view file) : rest_(file) {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
    GYRE_CHECK(png_ != nullptr);  // it lacks memory, or the header is another version's
    info_ = png_create_info_struct(png_);
    GYRE_CHECK(info_ != nullptr);
    png_set_read_fn(png_, this, OnRead);
    // NextChunk has checked the sums.
    png_set_crc_action(png_, PNG_CRC_QUIET_USE, PNG_CRC_QUIET_USE);
    // Ignores all ancillary chunks but tRNS.  Of the others an oddity is an error: Adler-32s are.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_benign_errors(png_, 0);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  const char* message() const { return message_; }

  // Decodes, or returns false with a message.  libpng leaves by longjmp past this function's
  // callees, so nothing in them has a destructor.
  bool Decode(const Window& window, const PixelFormat& format, uint8_t* to) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_info(png_, info_);
    if (format.indices) {
      png_set_packing(png_);  // a byte each
      png_set_check_for_invalid_index(png_, 0);
    } else {
      png_set_expand(png_);  // palettes to colours, tRNS to alpha, fewer bits to 8
      png_set_scale_16(png_);
    }
    png_read_update_info(png_, info_);
    row_.resize(png_get_rowbytes(png_, info_));
    bool to_end = true;
    if (png_get_interlace_type(png_, info_) == PNG_INTERLACE_NONE) {
      to_end = ReadPass(InterlacePass{}, window, format, to);
    } else {
      for (int i = 0; i < PNG_INTERLACE_ADAM7_PASSES; ++i) {
        to_end = ReadPass({PNG_PASS_START_ROW(i), PNG_PASS_START_COL(i), 1 << PNG_PASS_ROW_SHIFT(i),
                           1 << PNG_PASS_COL_SHIFT(i), i == PNG_INTERLACE_ADAM7_PASSES - 1},
                          window, format, to);
      }
    }
    if (to_end) png_read_end(png_, nullptr);
    return true;
  }

 private:
  // Which pixels one pass over the picture has: from (top, left) on, in steps.
  struct InterlacePass {
    int64_t top = 0, left = 0, row_step = 1, column_step = 1;
    bool last = true;
  };

  // Returns whether it read all rows of the pass.  The last pass ends with the window.
  bool ReadPass(const InterlacePass& pass, const Window& window, const PixelFormat& format,
                uint8_t* to) {
    const int64_t height = png_get_image_height(png_, info_);
    const int channels = png_get_channels(png_, info_);
    // Columns of the pass within the window, as counted in the pass.
    const int64_t right = window.left + window.width;
    const int64_t begin = CountBefore(window.left, pass.left, pass.column_step);
    const int64_t end = CountBefore(right, pass.left, pass.column_step);
    const int64_t shift = pass.left + begin * pass.column_step - window.left;
    if (pass.left >= png_get_image_width(png_, info_)) return true;  // libpng has no rows of it
    for (int64_t y = pass.top; y < height; y += pass.row_step) {
      if (pass.last && y >= window.top + window.height) return false;
      png_read_row(png_, row_.data(), nullptr);
      if (begin == end || y < window.top || y >= window.top + window.height) continue;
      FormatPixels(row_.data() + begin * channels, channels, end - begin, format,
                   to + ((y - window.top) * window.width + shift) * format.channels,
                   pass.column_step);
    }
    return true;
  }

  // How many of first, first + step, ... are less than `below`.
  static int64_t CountBefore(int64_t below, int64_t first, int64_t step) {
    return below <= first ? 0 : CeilDiv(below - first, step);
  }

  static void OnRead(png_structp png, png_bytep to, size_t bytes) {
    std::string_view& rest = static_cast<PngReader*>(png_get_io_ptr(png))->rest_;
    if (rest.size() < bytes) png_error(png, "the file is too short");
    std::memcpy(to, rest.data(), bytes);
    rest.remove_prefix(bytes);
  }
  static void OnError(png_structp png, png_const_charp text) {
    PngReader& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
    std::snprintf(reader.message_, sizeof(reader.message_), "%s", text);
    png_longjmp(png, 1);
  }
  static void OnWarning(png_structp, png_const_charp) {}

  std::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::vector<uint8_t> row_;
  char message_[128] = "";
};

// Source: PNG specification, second edition, section 11.2.2.
absl::Status CheckIndices(std::string_view file) {
  const auto depth = static_cast<uint8_t>(file[24]), color_type = static_cast<uint8_t>(file[25]);
  const char* got = nullptr;
  if (color_type == PNG_COLOR_TYPE_RGB || color_type == PNG_COLOR_TYPE_RGB_ALPHA) {
    got = "a PNG of colours";
  } else if (color_type == PNG_COLOR_TYPE_GRAY_ALPHA) {
    got = "a PNG of grey and alpha";
  } else if (depth == 16) {
    got = "a PNG of 16 bits";
  }
  if (got == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(kMaskExpected, got));
}

}  // namespace

absl::StatusOr<PictureHeader> ReadPngHeader(std::string_view file) {
  if (!file.starts_with(kSignature)) {
    return absl::InvalidArgumentError("expected a PNG, got another signature");
  }
  size_t at = kSignature.size();
  ASSIGN_OR_RETURN(PngChunk chunk, NextChunk(file, at));
  if (chunk.type != "IHDR" || chunk.data.size() != 13) {
    return absl::DataLossError(
        "expected a PNG whose first chunk is an IHDR of 13 bytes, got another chunk");
  }
  PictureHeader header;
  header.format = PictureFormat::kPng;
  const uint32_t width = BigEndian(chunk.data), height = BigEndian(chunk.data.substr(4));
  if (width == 0 || height == 0) {
    return absl::DataLossError(
        absl::StrCat("expected a PNG of 1 pixel or more, got ", width, " x ", height));
  }
  if (width > PNG_USER_WIDTH_MAX || height > PNG_USER_HEIGHT_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("expected a PNG of at most ", PNG_USER_WIDTH_MAX,
                                                   " pixels a side, got ", width, " x ", height));
  }
  const auto depth = static_cast<uint8_t>(chunk.data[8]),
             color_type = static_cast<uint8_t>(chunk.data[9]);
  bool transparent = false;
  while (chunk.type != "IEND") {
    ASSIGN_OR_RETURN(chunk, NextChunk(file, at));
    if (chunk.type == "tRNS") transparent = true;
    if (chunk.type == "eXIf") header.orientation = ExifOrientation(chunk.data);
  }
  header.kind = KindOf(depth, color_type, transparent);
  header.height = height, header.width = width;
  if (header.orientation >= 5) std::swap(header.height, header.width);
  return header;
}

absl::Status DecodePng(std::string_view file, const PictureHeader&, const Window& stored,
                       const PixelFormat& format, uint8_t* to) {
  if (format.indices) RETURN_IF_ERROR(CheckIndices(file));
  PngReader reader(file);
  if (reader.Decode(stored, format, to)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("the PNG is damaged: ", reader.message()));
}

}  // namespace gyre
