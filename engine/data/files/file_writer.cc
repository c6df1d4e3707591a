#include "engine/data/files/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// A multiple of what any disk and memory page wants; direct writes of less cost more, each.
constexpr size_t kBufferBytes = size_t{4} << 20;
constexpr std::align_val_t kAlignment{4096};

}  // namespace

FileWriter::FileWriter(int fd, std::string path)
    : fd_(fd),
      path_(std::move(path)),
      buffer_(static_cast<std::byte*>(::operator new(kBufferBytes, kAlignment))) {}

FileWriter::~FileWriter() { ::operator delete(buffer_, kAlignment); }

absl::Status FileWriter::Append(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t count = std::min(bytes.size(), kBufferBytes - buffered_);
    std::memcpy(buffer_ + buffered_, bytes.data(), count);
    buffered_ += count;
    bytes.remove_prefix(count);
    if (buffered_ < kBufferBytes) break;
    // Not for what fits the buffer: a small file may well be read soon.
    if (!direct_ && !plain_) plain_ = !SetDirect(true);
    RETURN_IF_ERROR(WriteBuffer());
  }
  return absl::OkStatus();
}

absl::Status FileWriter::Flush() {
  SetDirect(false);  // the rest is no multiple of anything
  plain_ = true;
  return WriteBuffer();
}

absl::Status FileWriter::Over(uint64_t at, std::string_view bytes) { return Write(bytes, at); }

absl::Status FileWriter::WriteBuffer() {
  RETURN_IF_ERROR(Write({reinterpret_cast<const char*>(buffer_), buffered_}, written_));
  written_ += std::exchange(buffered_, 0);
  return absl::OkStatus();
}

absl::Status FileWriter::Write(std::string_view bytes, uint64_t at) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    // A file system may take the flag, and not the write.
    if (written < 0 && errno == EINVAL && direct_ && SetDirect(false)) {
      plain_ = true;
      continue;
    }
    if (written < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path_));
    at += static_cast<uint64_t>(written);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

bool FileWriter::SetDirect(bool direct) {
  const int flags = fcntl(fd_, F_GETFL);
  if (flags < 0 || fcntl(fd_, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) != 0) {
    return false;
  }
  direct_ = direct;
  return true;
}

}  // namespace gyre
