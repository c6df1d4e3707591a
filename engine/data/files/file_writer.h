// file_writer.h: appends bytes to an open file, bypassing the page cache where there are many.  A
// run that saves 1 GiB beside its training otherwise spends most of the saving on copies into the
// cache and on its fresh memory.  Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gyre {

class FileWriter {
 public:
  // `fd` is an empty file open for writing, which must outlive this.  `path` is its name in errors.
  FileWriter(int fd, std::string path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  // Errors of both: those of absl::ErrnoToStatusCode, with path and errno's text.
  absl::Status Append(std::string_view bytes);
  // After the last Append.  Passes the rest to the system.
  absl::Status Flush();
  // After Flush.  Overwrites appended bytes from offset `at`.
  absl::Status Over(uint64_t at, std::string_view bytes);

 private:
  absl::Status WriteBuffer();
  absl::Status Write(std::string_view bytes, uint64_t at);
  bool SetDirect(bool direct);

  const int fd_;
  const std::string path_;
  std::byte* const buffer_;
  size_t buffered_ = 0;
  uint64_t written_ = 0;
  bool direct_ = false;
  bool plain_ = false;  // from now on
};

}  // namespace gyre
