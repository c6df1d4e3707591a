// exif.h: how Exif data says that a picture is turned.  JPEG has it in APP1, PNG in eXIf, WebP in
// EXIF.  A pure function.  Any thread.
#pragma once

#include <string_view>

namespace gyre {

// The orientation, 1 to 8, of the first directory of `exif`.  The data is a TIFF header and what
// follows, with or without "Exif" and two bytes before it.
// 1 (as stored) for data that is broken, lacks the tag, or has another value there.
// Source: Exif 2.32 (CIPA DC-008), sections 4.5 and 4.6.4, tag 0x0112.
int ExifOrientation(std::string_view exif);

}  // namespace gyre
