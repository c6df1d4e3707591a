// imgcodecs.h: what libgyre_imgcodecs.so does: reads TIFFs by libtiff, JPEG 2000 by OpenJPEG, BMPs
// and PNM files itself, and draws text by OpenCV's imgproc.  Each start would map these libraries
// in 9 ms, so a program opens the library at first use (imgcodecs_library.h).  The two share no
// code, hence the interface: of C, with plain types, errors as a code and a text, no exceptions.
// Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/data/pictures/picture.h"

namespace gyre {

enum class OtherFormat { kBmp, kJpeg2000, kPnm, kTiff };

// Room for an error's text, which ends with 0.
constexpr size_t kImgcodecsText = 512;

// Takes pixels of a row of 8-bit samples, as FormatPixels does.
using TakeRow = void(void* taker, const uint8_t* pixels, int channels);

// Reads the size and the orientation.  Returns absl::StatusCode's number, and fills `header` or
// `text`.
using ReadOtherHeaderFunction = int(OtherFormat format, std::string_view file,
                                    PictureHeader* header, char* text);

// Decodes a picture and hands on each row of the stored window, from the top.  Returns
// absl::StatusCode's number, with a text unless it is 0.
// Precondition: `header` is this file's, and the window lies within it.
using DecodeOtherFunction = int(OtherFormat format, std::string_view file,
                                const PictureHeader& header, const Window& stored, TakeRow* take,
                                void* taker, char* text);

// Fills `to`, [height, width] grey, with a line of text (text_line.h).  Returns as DecodeOther
// does.
using DrawTextFunction = int(std::string_view line, int64_t height, int64_t width, uint8_t* to,
                             char* text);

constexpr char kReadOtherHeader[] = "gyre_imgcodecs_read_header";
constexpr char kDecodeOther[] = "gyre_imgcodecs_decode";
constexpr char kDrawText[] = "gyre_imgcodecs_draw_text";

}  // namespace gyre

extern "C" {
gyre::ReadOtherHeaderFunction gyre_imgcodecs_read_header;
gyre::DecodeOtherFunction gyre_imgcodecs_decode;
gyre::DrawTextFunction gyre_imgcodecs_draw_text;
}
