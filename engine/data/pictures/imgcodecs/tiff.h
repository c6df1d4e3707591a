// tiff.h: TIFFs by libtiff's RGBA interface, which reads every layout, depth and compression that
// libtiff knows to red, green, blue and alpha of 8 bits.  OpenCV's own reader goes on where a strip
// is damaged, drops alpha of grey, and mixes up some layouts.  Pure functions.  Any thread.
#pragma once

#include <string_view>

#include "engine/data/pictures/imgcodecs/decoding.h"
#include "engine/data/pictures/imgcodecs/refusal.h"
#include "engine/data/pictures/picture.h"

namespace gyre {

// The first page's size and orientation.
// Errors: DataLoss for a directory that libtiff cannot read, a side above 2^20, and more pixels
// than JPEGs of so few bytes have.  InvalidArgument for samples that are no unsigned integers of at
// most 16 bits, and colours that libtiff does not turn into RGB.
Refusal ReadTiffHeader(std::string_view file, PictureHeader& header);

// Calls `row` with each row of the stored window, from the top.  Alpha is not premultiplied.
//   16 bits of colours   rounded to 8
//   16 bits of grey      the upper 8, which may be 1 less or more than rounded
//   palettes             the upper 8 of 16 bits
//   several pages        the first
// Memory: a row.  Of tiles, subsampled colours and PackBits a decoded tile or strip, and 4 bytes a
// pixel of the rows that it has: at most 64 MiB each.
// Errors: DataLoss for a strip or tile that is missing, or that libtiff or libjpeg complain or warn
// of.  InvalidArgument for a row of tiles, or a strip that is not read by rows, of more than 2^24
// pixels.
Refusal DecodeTiff(std::string_view file, const PictureHeader& header, const Window& stored,
                   RowFunction row);

}  // namespace gyre
