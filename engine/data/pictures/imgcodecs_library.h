// imgcodecs_library.h: libgyre_imgcodecs.so (imgcodecs/imgcodecs.h), opened at first use.  Private
// to the room.  Any thread.
#pragma once

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/data/pictures/imgcodecs/imgcodecs.h"

namespace gyre {

struct ImgcodecsLibrary {
  ReadOtherHeaderFunction* read_header = nullptr;
  DecodeOtherFunction* decode = nullptr;
  DrawTextFunction* draw_text = nullptr;
};

// The library stays open.
// Errors: Unavailable, with what to do, if it is missing, does not load, or is another version's.
absl::StatusOr<ImgcodecsLibrary> LoadImgcodecs();

// What a function of the library returned.
absl::Status ImgcodecsStatus(int code, const char* text);

}  // namespace gyre
