#include "engine/data/files/atomic_file.h"

#include <fcntl.h>
#include <libdeflate.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/files/file_writer.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

constexpr char kTemporaryMark[] = ".tmp-";
constexpr size_t kReadChunkBytes = size_t{1} << 16;  // the copy outweighs the system call

absl::Status Failed(const char* action, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", action, " ", path));
}

absl::Status Failed(const char* action, const std::string& path, std::error_code error) {
  return Failed(action, path, error.value());
}

// Closes on destruction; Close reports the error that a delayed write may leave.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }
  bool Close() { return close(std::exchange(fd_, -1)) == 0; }

 private:
  int fd_;
};

// "a/b" -> "a"; "b" and "b/" -> ".".
fs::path ParentOf(const fs::path& path) {
  const fs::path parent = path.parent_path();
  return parent.empty() ? fs::path(".") : parent;
}

// `path` without trailing slashes, so that its last component is its name.
fs::path Named(const std::string& path) {
  const fs::path normal(path);
  return normal.has_filename() ? normal : normal.parent_path();
}

fs::path TemporaryOf(const fs::path& path, const std::string& token) {
  return ParentOf(path) / absl::StrCat(".", path.filename().string(), kTemporaryMark, token);
}

fs::path TemporaryOf(const fs::path& path) { return TemporaryOf(path, std::to_string(getpid())); }

// The temporaries in the folder of the file `name` or, if that is "", of all.
std::vector<fs::path> TemporariesIn(const fs::path& folder, const std::string& name,
                                    std::error_code& error) {
  const std::string begin = name.empty() ? "." : absl::StrCat(".", name, kTemporaryMark);
  std::vector<fs::path> temporaries;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    if (found.starts_with(begin) && found.find(kTemporaryMark) != std::string::npos) {
      temporaries.push_back(entry->path());
    }
  }
  return temporaries;
}

absl::Status RemoveAll(const fs::path& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) return Failed("remove", path, error);
  return absl::OkStatus();
}

absl::Status Sync(const fs::path& path) {
  FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0 || fsync(file.get()) != 0) return Failed("sync", path, errno);
  return absl::OkStatus();
}

// Syncs everything below a folder, then the folder.
absl::Status SyncTree(const fs::path& folder) {
  std::error_code error;
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator(); entry.increment(error)) {
    RETURN_IF_ERROR(Sync(entry->path()));
  }
  if (error) return Failed("list", folder, error);
  return Sync(folder);
}

absl::Status WriteTemporary(const fs::path& temporary, const std::string& path,
                            const std::function<absl::Status(const FileSink&)>& write,
                            const std::string* begin) {
  // O_EXCL: a temporary of an earlier process with this id, or a link planted under its name, must
  // not be written through.
  unlink(temporary.c_str());
  FileDescriptor file(
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (file.get() < 0) return Failed("create", path, errno);
  FileWriter writer(file.get(), path);
  RETURN_IF_ERROR(write([&](std::string_view bytes) { return writer.Append(bytes); }));
  RETURN_IF_ERROR(writer.Flush());
  if (begin != nullptr) RETURN_IF_ERROR(writer.Over(0, *begin));
  if (fsync(file.get()) != 0) return Failed("sync", path, errno);
  if (!file.Close()) return Failed("close", path, errno);
  return absl::OkStatus();
}

// Gives the folder `temporary` the name `path`; if a folder has it, that one is removed after.
absl::Status Replace(const fs::path& temporary, const fs::path& path) {
  if (rename(temporary.c_str(), path.c_str()) == 0) return Sync(ParentOf(path));
  if (errno != ENOTEMPTY && errno != EEXIST) return Failed("create", path, errno);

  fs::path old = temporary;  // where the exchange leaves it
  if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path.c_str(), RENAME_EXCHANGE) != 0) {
    if (errno != EINVAL && errno != ENOSYS) return Failed("replace", path, errno);
    // This file system cannot exchange: for a moment there is no folder of that name.
    old += "-old";
    RETURN_IF_ERROR(RemoveAll(old));
    if (rename(path.c_str(), old.c_str()) != 0) return Failed("replace", path, errno);
    if (rename(temporary.c_str(), path.c_str()) != 0) {
      const int error = errno;
      rename(old.c_str(), path.c_str());
      return Failed("replace", path, error);
    }
  }
  RETURN_IF_ERROR(Sync(ParentOf(path)));
  return RemoveAll(old);
}

// Calls `use` with the file's bytes, piece by piece.
template <typename Use>
absl::Status ReadPieces(FileReader& file, Use use) {
  std::vector<char> piece(kReadChunkBytes);
  while (true) {
    ASSIGN_OR_RETURN(const size_t count, file.Read(piece.data(), piece.size()));
    if (count == 0) return absl::OkStatus();
    RETURN_IF_ERROR(use(std::string_view(piece.data(), count)));
  }
}

}  // namespace

absl::Status WriteFileAtomically(const std::string& path,
                                 const std::function<absl::Status(const FileSink&)>& write,
                                 const std::string* begin) {
  const fs::path temporary = TemporaryOf(path);
  absl::Status status = WriteTemporary(temporary, path, write, begin);
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = Failed("create", path, errno);
  }
  if (!status.ok()) {
    unlink(temporary.c_str());
    return status;
  }
  return Sync(ParentOf(path));
}

absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes) {
  return WriteFileAtomically(path, [bytes](const FileSink& sink) { return sink(bytes); });
}

absl::StatusOr<std::string> StageFolder(const std::string& path, const std::string& token) {
  const fs::path named = Named(path), staged = TemporaryOf(named, token);
  if (mkdir(staged.c_str(), 0777) == 0) return staged.string();
  const int why = errno;
  std::error_code error;  // a link planted under its name must not be written through
  if (why == EEXIST && fs::is_directory(fs::symlink_status(staged, error))) return staged.string();
  return Failed("create", named, why);
}

std::vector<std::string> StagedFolders(const std::string& path) {
  const fs::path named = Named(path);
  std::vector<std::string> staged;
  std::error_code error;
  for (const fs::path& temporary : TemporariesIn(ParentOf(named), named.filename(), error)) {
    if (fs::is_directory(fs::symlink_status(temporary, error))) staged.push_back(temporary);
  }
  return staged;
}

absl::Status PublishFolder(const std::string& staged, const std::string& path) {
  absl::Status status = SyncTree(staged);
  if (status.ok()) status = Replace(staged, Named(path));
  if (!status.ok()) RemoveAll(staged).IgnoreError();  // the first error is the one to report
  return status;
}

absl::Status RemoveFolderAtomically(const std::string& path) {
  const fs::path named = Named(path);
  const fs::path temporary = TemporaryOf(named);
  RETURN_IF_ERROR(RemoveAll(temporary));
  if (rename(named.c_str(), temporary.c_str()) != 0) return Failed("remove", path, errno);
  return RemoveAll(temporary);
}

absl::Status RemoveTemporaries(const std::string& folder, const std::string& name) {
  std::error_code error;
  const std::vector<fs::path> temporaries = TemporariesIn(folder, name, error);
  if (error) return Failed("list", folder, error);
  for (const fs::path& temporary : temporaries) RETURN_IF_ERROR(RemoveAll(temporary));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadFile(const std::string& path, uint64_t most_bytes) {
  ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  RETURN_IF_ERROR(CheckFitsMemory(path, file.size()));
  std::string bytes;
  const auto append = [&](std::string_view piece) -> absl::Status {
    bytes.append(piece);
    if (bytes.size() <= most_bytes && file.size() <= most_bytes) return absl::OkStatus();
    return absl::DataLossError(absl::StrCat(path, ": has ", std::max(file.size(), bytes.size()),
                                            " bytes, at most ", most_bytes, " are allowed"));
  };
  RETURN_IF_ERROR(ReadPieces(file, append));
  return bytes;
}

Sha256Digest::Sha256Digest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
  GYRE_CHECK(EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256Digest::Add(std::string_view bytes) {
  GYRE_CHECK(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
}

std::string Sha256Digest::Hex() {
  std::string digest(32, '\0');
  GYRE_CHECK(EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                nullptr) == 1);
  return absl::BytesToHexString(digest);
}

std::string Sha256(std::string_view bytes) {
  Sha256Digest digest;
  digest.Add(bytes);
  return digest.Hex();
}

uint32_t Crc32(std::string_view bytes, uint32_t first) {
  if (bytes.empty()) return first;  // the library takes null for a question
  return libdeflate_crc32(first, bytes.data(), bytes.size());
}

absl::StatusOr<uint32_t> Crc32OfFile(const std::string& path) {
  ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  uint32_t crc = 0;
  RETURN_IF_ERROR(ReadPieces(file, [&](std::string_view piece) {
    crc = Crc32(piece, crc);
    return absl::OkStatus();
  }));
  return crc;
}

uint32_t JoinCrc32(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return static_cast<uint32_t>(crc32_combine(first, second, static_cast<z_off_t>(second_bytes)));
}

}  // namespace gyre
