#include "engine/data/pictures/imgcodecs/imgcodecs.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <new>

#include "engine/data/pictures/imgcodecs/bmp.h"
#include "engine/data/pictures/imgcodecs/jpeg2000.h"
#include "engine/data/pictures/imgcodecs/jpeg2000_size.h"
#include "engine/data/pictures/imgcodecs/pnm.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/imgcodecs/text_line.h"
#include "engine/data/pictures/imgcodecs/tiff.h"

namespace gyre {
namespace {

int Tell(const Refusal& refusal, char* text) {
  const size_t length = std::min(refusal.text.size(), kImgcodecsText - 1);
  std::memcpy(text, refusal.text.data(), length);
  text[length] = '\0';
  return static_cast<int>(refusal.code);
}

// No exception leaves the library.
template <typename Call>
int Guarded(char* text, Call call) {
  try {
    return Tell(call(), text);
  } catch (const std::bad_alloc&) {
    return Tell({absl::StatusCode::kResourceExhausted, "too little memory for the picture"}, text);
  } catch (const std::exception& error) {
    return Tell(Damaged(error.what()), text);
  }
}

Refusal ReadHeader(OtherFormat format, std::string_view file, PictureHeader& header) {
  switch (format) {
    case OtherFormat::kBmp:
      return ReadBmpHeader(file, header);
    case OtherFormat::kPnm:
      return ReadPnmHeader(file, header);
    case OtherFormat::kTiff:
      return ReadTiffHeader(file, header);
    case OtherFormat::kJpeg2000:
      break;
  }
  Jpeg2000Size size;
  Refusal refusal = ReadJpeg2000Size(file, size);
  header = size.header;
  return refusal;
}

}  // namespace
}  // namespace gyre

int gyre_imgcodecs_read_header(gyre::OtherFormat format, std::string_view file,
                               gyre::PictureHeader* header, char* text) {
  return gyre::Guarded(text, [&] { return gyre::ReadHeader(format, file, *header); });
}

int gyre_imgcodecs_decode(gyre::OtherFormat format, std::string_view file,
                          const gyre::PictureHeader& header, const gyre::Window& stored,
                          gyre::TakeRow* take, void* taker, char* text) {
  return gyre::Guarded(text, [&] {
    const auto row = [&](const uint8_t* pixels, int channels) { take(taker, pixels, channels); };
    switch (format) {
      case gyre::OtherFormat::kBmp:
        return gyre::DecodeBmp(file, header, stored, row);
      case gyre::OtherFormat::kPnm:
        return gyre::DecodePnm(file, header, stored, row);
      case gyre::OtherFormat::kTiff:
        return gyre::DecodeTiff(file, header, stored, row);
      case gyre::OtherFormat::kJpeg2000:
        break;
    }
    return gyre::DecodeJpeg2000(file, header, stored, row);
  });
}

int gyre_imgcodecs_draw_text(std::string_view line, int64_t height, int64_t width, uint8_t* to,
                             char* text) {
  return gyre::Guarded(text,
                       [&] { return gyre::DrawTextLine(std::string(line), height, width, to); });
}
