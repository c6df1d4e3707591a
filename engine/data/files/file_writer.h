// file_writer.h: bytes appended to an open file, past the system's cache of files where there are
// many: a copy there of each byte, and the fresh memory under it, cost a run that saves 1 GiB
// beside its training more than all else that saving takes.  Used by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace gyre {

class FileWriter {
 public:
  // fd: an empty file open for writing, which must outlive this; path: what errors call it.
  FileWriter(int fd, std::string path);
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();

  // Errors of both: what absl::ErrnoToStatusCode knows, naming path and errno's text.
  absl::Status Append(std::string_view bytes);
  // After the last Append: hands the system what is left.
  absl::Status Flush();
  // After Flush: writes over what was appended.
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
