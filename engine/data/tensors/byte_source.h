// byte_source.h: the bytes of a file as who stored them meant them: as they lie, unpacked from
// gzip, or an entry of a zip archive, unpacked and compared with its checksum.  Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace gyre {

class ByteSource {
 public:
  // The file's own bytes, or what they unpack to if they are gzip.
  // Errors: those of FileReader::Open.
  static absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path);
  // An entry of a zip archive.  Errors: likewise; DataLoss for what is no archive; NotFound naming
  // the entries that there are.
  static absl::StatusOr<std::unique_ptr<ByteSource>> OpenZipEntry(const std::string& path,
                                                                  const std::string& entry);
  virtual ~ByteSource() = default;

  // Up to `bytes` bytes; fewer only where the data end.  Errors: DataLoss for broken or truncated
  // data.
  virtual absl::StatusOr<size_t> Read(char* to, size_t bytes) = 0;
  // How many there are, if that is known before they are read.
  virtual std::optional<uint64_t> size() const = 0;
};

}  // namespace gyre
