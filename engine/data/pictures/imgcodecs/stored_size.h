// stored_size.h: the sizes of BMPs, JPEG 2000 and PNM files by their headers, which OpenCV reads
// only with the whole picture.  Also which of their kinds are read right.  Pure functions.
// Any thread.
#pragma once

#include <string_view>

#include "engine/data/pictures/imgcodecs/imgcodecs.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

struct StoredPicture {
  PictureHeader header;
  int most = 255;     // the largest value of a sample, which is shown as 255
  int64_t tiles = 1;  // of JPEG 2000
};

// Errors: DataLoss for a header that is cut off or broken, or claims far more than the file has.
// InvalidArgument for a kind that is not read, mostly because OpenCV reads it wrongly:
//   BMP        16 bits a pixel (darker), alpha (dropped), unusual masks (mixed up)
//   JPEG 2000  samples of other depths than 8 and 16 bits, signed, or subsampled; grey with
//              alpha; more than 2^12 tiles, or 2^17 code blocks a tile, which take memory
// Precondition: the signature is the format's, and the format is not kTiff.
// Source: BITMAPINFOHEADER and BITMAPV4HEADER (Microsoft); ITU-T T.800 sections A.5.1 and I.4;
// pbm(5), pgm(5), ppm(5) of Netpbm.
Refusal ReadStoredPicture(OtherFormat format, std::string_view file, StoredPicture& picture);

}  // namespace gyre
