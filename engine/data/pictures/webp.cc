#include "engine/data/pictures/webp.h"

#include <webp/decode.h>
#include <webp/demux.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/data/pictures/exif.h"
#include "engine/data/pictures/format_pixels.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

struct DeleteDemuxer {
  void operator()(WebPDemuxer* demuxer) const { WebPDemuxDelete(demuxer); }
};

const uint8_t* Bytes(std::string_view file) {
  return reinterpret_cast<const uint8_t*>(file.data());
}

absl::Status Damaged(const char* why) {
  return absl::DataLossError(absl::StrCat("the WebP is truncated or damaged: ", why));
}

const char* TextOf(VP8StatusCode status) {
  switch (status) {
    case VP8_STATUS_BITSTREAM_ERROR:
      return "its data cannot be decoded";
    case VP8_STATUS_UNSUPPORTED_FEATURE:
      return "libwebp does not know a feature of it";
    case VP8_STATUS_SUSPENDED:
    case VP8_STATUS_NOT_ENOUGH_DATA:
      return "its data ends early";
    default:
      return "libwebp refuses it";
  }
}

// What is decoded for a window of a picture of [height, width].  A pixel's colour depends on those
// around it, of which libwebp sees none outside of what it decodes.  Two colours of a lossy picture
// have a value for 2 x 2 pixels, so both ends are even.  Alpha of a row may be stored as a
// difference from the row above, which libwebp 1.2 has not decoded at the upper end.
Window Decoded(const Window& window, int64_t height, int64_t width, bool alpha) {
  constexpr int64_t kMargin = 2;
  Window decoded;
  decoded.top = alpha ? 0 : std::max<int64_t>(0, window.top - kMargin) / 2 * 2;
  decoded.left = std::max<int64_t>(0, window.left - kMargin) / 2 * 2;
  const int64_t bottom = std::min(height, (window.top + window.height + kMargin + 1) / 2 * 2);
  const int64_t right = std::min(width, (window.left + window.width + kMargin + 1) / 2 * 2);
  decoded.height = bottom - decoded.top;
  decoded.width = right - decoded.left;
  return decoded;
}

}  // namespace

absl::StatusOr<PictureHeader> ReadWebpHeader(std::string_view file) {
  const WebPData data = {Bytes(file), file.size()};
  const std::unique_ptr<WebPDemuxer, DeleteDemuxer> demuxer(WebPDemux(&data));
  if (demuxer == nullptr) return Damaged("expected a whole container (RIFF) with a picture");
  const uint32_t flags = WebPDemuxGetI(demuxer.get(), WEBP_FF_FORMAT_FLAGS);
  const uint32_t frames = WebPDemuxGetI(demuxer.get(), WEBP_FF_FRAME_COUNT);
  if ((flags & ANIMATION_FLAG) != 0 || frames != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a WebP of one picture, got an animation of ", frames));
  }
  PictureHeader header;
  header.format = PictureFormat::kWebp;
  header.kind = (flags & ALPHA_FLAG) != 0 ? "colour, alpha" : "colour";
  header.height = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT);
  header.width = WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH);
  WebPChunkIterator exif;
  if (WebPDemuxGetChunk(demuxer.get(), "EXIF", 1, &exif) != 0) {
    header.orientation =
        ExifOrientation({reinterpret_cast<const char*>(exif.chunk.bytes), exif.chunk.size});
    WebPDemuxReleaseChunkIterator(&exif);
  }
  if (header.orientation >= 5) std::swap(header.height, header.width);
  return header;
}

absl::Status DecodeWebp(std::string_view file, const PictureHeader& header, const Window& stored,
                        const PixelFormat& format, uint8_t* to) {
  WebPDecoderConfig config;
  GYRE_CHECK(WebPInitDecoderConfig(&config) != 0);  // the header is the library's
  VP8StatusCode status = WebPGetFeatures(Bytes(file), file.size(), &config.input);
  if (status != VP8_STATUS_OK) return Damaged(TextOf(status));
  const int64_t height = config.input.height, width = config.input.width;
  if (height * width != header.height * header.width) return Damaged("it has two sizes");
  const bool alpha = config.input.has_alpha != 0;
  const Window decoded = Decoded(stored, height, width, alpha);
  const int channels = alpha ? 4 : 3;
  const bool direct = channels == format.channels && decoded.height == stored.height &&
                      decoded.width == stored.width;
  const int64_t stride = decoded.width * channels;
  std::unique_ptr<uint8_t[]> pixels;
  if (!direct) pixels = std::make_unique_for_overwrite<uint8_t[]>(decoded.height * stride);

  config.options.use_cropping = 1;
  config.options.crop_top = static_cast<int>(decoded.top);
  config.options.crop_left = static_cast<int>(decoded.left);
  config.options.crop_height = static_cast<int>(decoded.height);
  config.options.crop_width = static_cast<int>(decoded.width);
  config.output.colorspace = alpha ? MODE_RGBA : MODE_RGB;
  config.output.is_external_memory = 1;
  config.output.u.RGBA.rgba = direct ? to : pixels.get();
  config.output.u.RGBA.stride = static_cast<int>(stride);
  config.output.u.RGBA.size = static_cast<size_t>(decoded.height * stride);
  status = WebPDecode(Bytes(file), file.size(), &config);
  WebPFreeDecBuffer(&config.output);
  if (status == VP8_STATUS_OUT_OF_MEMORY) {
    return absl::ResourceExhaustedError(
        absl::StrCat("too little memory for a WebP of ", width, " x ", height));
  }
  if (status != VP8_STATUS_OK) return Damaged(TextOf(status));
  if (direct) return absl::OkStatus();
  const uint8_t* from =
      pixels.get() + (stored.top - decoded.top) * stride + (stored.left - decoded.left) * channels;
  for (int64_t y = 0; y < stored.height; ++y) {
    FormatPixels(from + y * stride, channels, stored.width, format,
                 to + y * stored.width * format.channels);
  }
  return absl::OkStatus();
}

}  // namespace gyre
