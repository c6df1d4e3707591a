#include "engine/data/pictures/jpeg.h"

#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/pictures/exif.h"
#include "engine/data/pictures/format_pixels.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// libjpeg's state.  Its errors jump to `failed`, so a function that calls setjmp, and those below
// it, own nothing that needs a destructor.
struct JpegDecoder {
  jpeg_decompress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf failed = {};
  bool beyond_header = false;
  int code = 0;  // of the error, as in jerror.h
  char message[JMSG_LENGTH_MAX] = "";

  JpegDecoder();
  ~JpegDecoder() { jpeg_destroy_decompress(&jpeg); }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;

  absl::Status Error() const;
};

[[noreturn]] void Fail(j_common_ptr jpeg) {
  auto* decoder = static_cast<JpegDecoder*>(jpeg->client_data);
  decoder->code = jpeg->err->msg_code;
  jpeg->err->format_message(jpeg, decoder->message);
  std::longjmp(decoder->failed, 1);
}

// libjpeg goes on after a warning, with grey pixels or others' pixels.  Here it is an error at
// once, so that a damaged file costs no more time or memory than the data that it has.
void OnMessage(j_common_ptr jpeg, int level) {
  if (level >= 0) return;  // no warning
  const auto* decoder = static_cast<JpegDecoder*>(jpeg->client_data);
  const jpeg_error_mgr& errors = *jpeg->err;
  if (errors.msg_code != JWRN_JPEG_EOF) {
    // A header's oddities, such as an unknown version of JFIF, change no pixel.
    if (!decoder->beyond_header) return;
    // Webcams leave a sequential scan's bounds of coefficients 0.
    if (errors.msg_code == JWRN_NOT_SEQUENTIAL) return;
    // Cameras pad the data before the end.  Other bytes are of pixels that were not decoded.
    constexpr int kEndOfImage = 0xd9;
    if (errors.msg_code == JWRN_EXTRANEOUS_DATA && errors.msg_parm.i[1] == kEndOfImage) {
      const JOCTET* const end = reinterpret_cast<j_decompress_ptr>(jpeg)->src->next_input_byte;
      const JOCTET* const begin = end - errors.msg_parm.i[0];
      if (std::all_of(begin, end, [&](JOCTET b) { return b == *begin || b == 0xff; })) return;
    }
  }
  Fail(jpeg);
}

[[noreturn]] void FailWith(j_common_ptr jpeg, const char* format, long long number) {
  auto* decoder = static_cast<JpegDecoder*>(jpeg->client_data);
  std::snprintf(decoder->message, sizeof(decoder->message), format, number);
  std::longjmp(decoder->failed, 1);
}

// Pixels whose data an arithmetic scan may imply.  Decoding them takes up to 4 s.
constexpr int64_t kMostImplied = 1 << 24;

// Bounds the time that a small file can take.  libjpeg calls it for each row of MCUs of a file of
// several scans, and for each row that is read.
void OnProgress(j_common_ptr progressing) {
  const auto& jpeg = *reinterpret_cast<j_decompress_ptr>(progressing);
  // Thousands of empty scans each pass over all coefficients.  Encoders write 10, optimizers of
  // scans up to about 25.
  constexpr int kMostScans = 100;
  if (jpeg.input_scan_number > kMostScans)
    FailWith(progressing, "expected at most %lld scans, got more", kMostScans);
  // An arithmetic scan may leave out zeros at its end, so libjpeg adds zeros without a warning.
  if (!jpeg.arith_code || jpeg.unread_marker == 0) return;
  const bool restarts = jpeg.unread_marker >= JPEG_RST0 && jpeg.unread_marker <= JPEG_RST0 + 7;
  if (restarts && jpeg.restart_interval > 0) return;
  const int64_t rows = static_cast<int64_t>(jpeg.total_iMCU_rows) - jpeg.input_iMCU_row;
  const int64_t pixels = rows * jpeg.max_v_samp_factor * DCTSIZE * jpeg.image_width;
  if (pixels > kMostImplied)
    FailWith(progressing, "the arithmetic code ends %lld pixels too early", pixels);
}

// Skips rows, those of an arithmetic scan in steps between which there is progress.
void SkipRows(jpeg_decompress_struct* jpeg, int64_t rows) {
  const int64_t step =
      jpeg->arith_code ? std::max<int64_t>(kMostImplied / jpeg->image_width, 1) : rows;
  for (; rows > 0; rows -= step) {
    jpeg_skip_scanlines(jpeg, static_cast<JDIMENSION>(std::min(rows, step)));
    OnProgress(reinterpret_cast<j_common_ptr>(jpeg));
  }
}

JpegDecoder::JpegDecoder() {
  jpeg.err = jpeg_std_error(&errors);
  errors.error_exit = &Fail;
  errors.emit_message = &OnMessage;
  jpeg.client_data = this;
  progress.progress_monitor = &OnProgress;
}

absl::Status JpegDecoder::Error() const {
  switch (code) {
    case JERR_OUT_OF_MEMORY:
      return absl::ResourceExhaustedError("too little memory for the JPEG");
    case JERR_BAD_PRECISION:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_SOF_UNSUPPORTED:
      return absl::InvalidArgumentError(
          absl::StrCat("a JPEG of a kind that libjpeg does not read: ", message));
    default:
      return absl::DataLossError(absl::StrCat("the JPEG is truncated or damaged: ", message));
  }
}

// Reads up to the first scan's data.  False: there is an error.
bool ReadHeader(std::string_view file, JpegDecoder* decoder) {
  if (setjmp(decoder->failed) != 0) return false;
  jpeg_decompress_struct& jpeg = decoder->jpeg;
  jpeg_create_decompress(&jpeg);
  jpeg.progress = &decoder->progress;
  jpeg_mem_src(&jpeg, reinterpret_cast<const uint8_t*>(file.data()), file.size());
  jpeg_save_markers(&jpeg, JPEG_APP0 + 1, 0xffff);
  jpeg_read_header(&jpeg, TRUE);
  decoder->beyond_header = true;
  return true;
}

bool HasFourInks(const jpeg_decompress_struct& jpeg) {
  return jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
}

J_COLOR_SPACE OutputColors(const jpeg_decompress_struct& jpeg, int channels) {
  if (HasFourInks(jpeg)) return JCS_CMYK;
  return channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_EXT_RGBA;
}

// Inverted C, M, Y, K of `count` pixels become red, green, blue, in place: red = c k / 255,
// rounded.
void MultiplyInks(uint8_t* pixels, int64_t count) {
  uint8_t* to = pixels;
  for (const uint8_t* inks = pixels; inks != pixels + 4 * count; inks += 4, to += 3) {
    const int black = inks[3];
    for (int i = 0; i < 3; ++i) to[i] = static_cast<uint8_t>((inks[i] * black + 127) / 255);
  }
}

// Whether libjpeg smooths blocks: a progressive file ends before all bits of all coefficients.
bool SmoothsBlocks(const jpeg_decompress_struct& jpeg) {
  if (jpeg.coef_bits == nullptr) return false;
  const auto whole = [](const int(&bits)[DCTSIZE2]) {
    return std::ranges::all_of(bits, [](int unknown) { return unknown == 0; });
  };
  return !std::all_of(jpeg.coef_bits, jpeg.coef_bits + jpeg.num_components, whole);
}

// Columns and rows to decode on each side of the window so that its bits are those of the whole.
int64_t Margin(const jpeg_decompress_struct& jpeg, const Window& window) {
  // A smoothed block depends on blocks further away.
  if (SmoothsBlocks(jpeg)) return JPEG_MAX_DIMENSION;
  // Colours of half the resolution are interpolated between neighbours, and libjpeg-turbo takes
  // the first and the last decoded column for the picture's rim.  It interpolates in another way
  // where it decodes no more than two values a row, of a component with a quarter of the columns.
  return window.width <= 8 ? 8 : 2;
}

// Decodes as DecodeJpeg says, after ReadHeader.  False: there is an error.
bool DecodeWindow(JpegDecoder* decoder, const Window& window, const PixelFormat& format,
                  uint8_t* to) {
  if (setjmp(decoder->failed) != 0) return false;
  jpeg_decompress_struct& jpeg = decoder->jpeg;
  jpeg.out_color_space = OutputColors(jpeg, format.channels);
  jpeg_start_decompress(&jpeg);
  const bool inks = HasFourInks(jpeg);

  const int64_t margin = Margin(jpeg, window);
  JDIMENSION left = 0, columns = jpeg.output_width;
  const int64_t first = std::max<int64_t>(window.left - margin, 0);
  const int64_t end = std::min<int64_t>(window.left + window.width + margin, columns);
  if (first > 0 || end < columns) {
    left = static_cast<JDIMENSION>(first);
    columns = static_cast<JDIMENSION>(end - first);
    jpeg_crop_scanline(&jpeg, &left, &columns);  // moves `left` to where a block begins
  }
  const int64_t skipped = std::max<int64_t>(window.top - margin, 0);
  SkipRows(&jpeg, skipped);

  constexpr int64_t kRows = 4;  // libjpeg gives at most as many at once
  // libjpeg-turbo writes aligned rows past the cache, from where copying them takes 3 times as
  // long.
  constexpr JDIMENSION kMisaligned = 8;
  JSAMPARRAY scratch =
      jpeg.mem->alloc_sarray(reinterpret_cast<j_common_ptr>(&jpeg), JPOOL_IMAGE,
                             columns * jpeg.output_components + kMisaligned, kRows);
  const int64_t row_bytes = window.width * format.channels;
  const int64_t offset = (window.left - left) * jpeg.output_components;
  const bool whole_rows = columns == window.width && !inks;
  for (int64_t row = skipped - window.top; row < window.height;) {
    JSAMPROW rows[kRows];
    const int64_t count = std::min(kRows, (row < 0 ? 0 : window.height) - row);
    for (int64_t i = 0; i < count; ++i)
      rows[i] = whole_rows && row >= 0 ? to + (row + i) * row_bytes : scratch[i] + kMisaligned;
    const JDIMENSION read = jpeg_read_scanlines(&jpeg, rows, static_cast<JDIMENSION>(count));
    for (JDIMENSION i = 0; i < read; ++i, ++row) {
      if (row < 0 || whole_rows) continue;
      uint8_t* from = rows[i] + offset;
      if (inks) MultiplyInks(from, window.width);
      FormatPixels(from, inks ? 3 : format.channels, window.width, format, to + row * row_bytes);
    }
  }
  return true;
}

// After DecodeWindow of a window that has the last row: reads up to the end-of-image marker.
// False: there is an error.
bool ReadToEnd(JpegDecoder* decoder) {
  if (setjmp(decoder->failed) != 0) return false;
  jpeg_finish_decompress(&decoder->jpeg);
  return true;
}

bool IsTurned(int orientation) { return orientation >= 5; }

}  // namespace

absl::StatusOr<PictureHeader> ReadJpegHeader(std::string_view file) {
  JpegDecoder decoder;
  if (!ReadHeader(file, &decoder)) return decoder.Error();
  const jpeg_decompress_struct& jpeg = decoder.jpeg;
  if (jpeg.jpeg_color_space == JCS_UNKNOWN)
    return absl::InvalidArgumentError(
        absl::StrCat("expected a JPEG of 1, 3 or 4 components, got ", jpeg.num_components));
  PictureHeader header;
  header.format = PictureFormat::kJpeg;
  for (const jpeg_marker_struct* marker = jpeg.marker_list; marker != nullptr;
       marker = marker->next) {
    const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (!data.starts_with("Exif")) continue;  // APP1 has XMP, too
    header.orientation = ExifOrientation(data);
    break;
  }
  header.kind = jpeg.num_components == 1 ? "grey" : jpeg.num_components == 3 ? "colour" : "CMYK";
  header.height = jpeg.image_height;
  header.width = jpeg.image_width;
  if (IsTurned(header.orientation)) std::swap(header.height, header.width);
  return header;
}

absl::Status DecodeJpeg(std::string_view file, const PictureHeader& header, const Window& stored,
                        const PixelFormat& format, uint8_t* to, bool to_end) {
  JpegDecoder decoder;
  if (!ReadHeader(file, &decoder)) return decoder.Error();
  const jpeg_decompress_struct& jpeg = decoder.jpeg;
  const bool turned = IsTurned(header.orientation);
  GYRE_CHECK(jpeg.image_height == (turned ? header.width : header.height) &&
             jpeg.image_width == (turned ? header.height : header.width));
  // A thumbnail before the first scan has an end of its own.
  const std::string_view scans = file.substr(file.size() - jpeg.src->bytes_in_buffer);
  if (scans.rfind("\xff\xd9") == scans.npos)
    return absl::DataLossError(absl::StrCat(
        "expected a JPEG that ends with bytes ff d9, got one that ends without at byte ",
        file.size(), ": it is truncated"));
  if (!DecodeWindow(&decoder, stored, format, to)) return decoder.Error();
  if (to_end && !ReadToEnd(&decoder)) return decoder.Error();
  return absl::OkStatus();
}

}  // namespace gyre
