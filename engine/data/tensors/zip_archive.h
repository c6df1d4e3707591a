// zip_archive.h: owns a libzip archive that is read (byte_source.cc) or written (npz.cc).
#pragma once

#include <zip.h>

#include <memory>

namespace gyre {

// Discards changes.  Only zip_close writes an archive.
struct DiscardArchive {
  void operator()(zip_t* archive) const { zip_discard(archive); }
};
using ZipArchive = std::unique_ptr<zip_t, DiscardArchive>;

}  // namespace gyre
