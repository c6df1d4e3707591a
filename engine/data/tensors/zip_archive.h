// zip_archive.h: the owner of a libzip archive, which is read (byte_source.cc) or built (npz.cc).
#pragma once

#include <zip.h>

#include <memory>

namespace gyre {

// Discards: what is built is written by zip_close alone.
struct DiscardArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using ZipArchive = std::unique_ptr<zip_t, DiscardArchive>;

}  // namespace gyre
