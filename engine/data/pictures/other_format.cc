#include "engine/data/pictures/other_format.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/data/pictures/format_pixels.h"
#include "engine/data/pictures/imgcodecs/imgcodecs.h"
#include "engine/data/pictures/imgcodecs_library.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using namespace std::string_view_literals;  // signatures have zeros

std::optional<OtherFormat> FormatOf(std::string_view file) {
  for (const std::string_view tiff : {"II*\0"sv, "MM\0*"sv, "II+\0"sv, "MM\0+"sv}) {
    if (file.starts_with(tiff)) return OtherFormat::kTiff;
  }
  if (file.starts_with("\0\0\0\x0cjP  \r\n\x87\n"sv) || file.starts_with("\xff\x4f\xff\x51"sv)) {
    return OtherFormat::kJpeg2000;
  }
  // Two letters begin many a text, so the next bytes count, too: the header's size, and a blank.
  if (file.starts_with("BM"sv) && file.size() >= 26 && file.substr(15, 3) == "\0\0\0"sv) {
    return OtherFormat::kBmp;
  }
  if (file.size() >= 3 && file[0] == 'P' && file[1] >= '1' && file[1] <= '6' &&
      " \t\r\n#"sv.find(file[2]) != std::string_view::npos) {
    return OtherFormat::kPnm;
  }
  return std::nullopt;
}

// What a file that is not read is likely to be.
const char* NameOfUnread(std::string_view file) {
  if (file.starts_with("GIF8"sv)) return "a GIF";
  if (file.size() >= 12 && file.substr(4, 4) == "ftyp"sv) return "a HEIF, AVIF or video file";
  if (file.starts_with("\xff\x0a"sv) || file.substr(0, 12).find("JXL "sv) == 4) return "a JPEG XL";
  if (file.starts_with("\x76\x2f\x31\x01"sv)) return "an OpenEXR";
  if (file.starts_with("#?RADIANCE"sv) || file.starts_with("#?RGBE"sv)) return "a Radiance HDR";
  if (file.starts_with("8BPS"sv)) return "a Photoshop file";
  if (file.starts_with("%PDF"sv)) return "a PDF";
  return nullptr;
}

absl::StatusOr<OtherFormat> KnownFormat(std::string_view file) {
  if (const auto format = FormatOf(file)) return *format;
  constexpr char kExpected[] =
      "expected a picture (JPEG, PNG, WebP, TIFF, BMP, JPEG 2000, PBM, PGM, PPM), got ";
  const char* const name = NameOfUnread(file);
  if (name == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(kExpected, "a file of another kind"));
  }
  return absl::InvalidArgumentError(absl::StrCat(kExpected, name, "; convert it to PNG"));
}

// Where rows of a window go.
struct RowTaker {
  const PixelFormat& format;
  int64_t width;
  uint8_t* to;
};

void Take(void* taker, const uint8_t* pixels, int channels) {
  auto& [format, width, to] = *static_cast<RowTaker*>(taker);
  FormatPixels(pixels, channels, width, format, to);
  to += width * format.channels;
}

}  // namespace

absl::StatusOr<PictureHeader> ReadOtherHeader(std::string_view file) {
  ASSIGN_OR_RETURN(const OtherFormat format, KnownFormat(file));
  ASSIGN_OR_RETURN(const ImgcodecsLibrary library, LoadImgcodecs());
  PictureHeader header;
  char text[kImgcodecsText];
  RETURN_IF_ERROR(ImgcodecsStatus(library.read_header(format, file, &header, text), text));
  return header;
}

absl::Status DecodeOther(std::string_view file, const PictureHeader& header, const Window& stored,
                         const PixelFormat& format, uint8_t* to) {
  ASSIGN_OR_RETURN(const OtherFormat kind, KnownFormat(file));
  ASSIGN_OR_RETURN(const ImgcodecsLibrary library, LoadImgcodecs());
  RowTaker taker = {format, stored.width, to};
  char text[kImgcodecsText];
  return ImgcodecsStatus(library.decode(kind, file, header, stored, &Take, &taker, text), text);
}

}  // namespace gyre
