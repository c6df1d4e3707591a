// byte_source.h: the decoded content of a plain file, a gzip file, or an entry of a zip archive,
// whose checksum is compared.  Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

class ByteSource {
 public:
  // Reads the file's bytes, unpacked if they are gzip.
  // Errors: those of FileReader::Open.
  static absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path);
  // Reads a zip archive's entry.  Errors: also DataLoss (no archive), NotFound (names the entries).
  static absl::StatusOr<std::unique_ptr<ByteSource>> OpenZipEntry(const std::string& path,
                                                                  const std::string& entry);
  virtual ~ByteSource() = default;

  // Reads `bytes` bytes, or fewer at the end.  Errors: DataLoss for broken or truncated data.
  virtual absl::StatusOr<size_t> Read(char* to, size_t bytes) = 0;
  // Total bytes, if known before they are read.
  virtual std::optional<uint64_t> size() const = 0;
};

// The names of a zip archive's entries, in its order.  Errors: DataLoss for no archive.
absl::StatusOr<std::vector<std::string>> ZipEntries(const std::string& path);

}  // namespace gyre
