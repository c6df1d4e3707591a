// atomic_file.h: files and folders that are either whole or absent.  They are written under a
// temporary name in the same folder, `.NAME.tmp-PID`, synced, and renamed.  A process that dies
// leaves at most temporaries, which no reader looks at.  Any thread, but one writer a path.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace gyre {

using FileSink = std::function<absl::Status(std::string_view bytes)>;

// Calls `write` with a sink that appends bytes, then publishes the file at `path`.  If `write`
// fails, removes the temporary.  If `begin` is given, *begin as `write` leaves it replaces as many
// first bytes of the file.
// Errors: those of `write`, and PermissionDenied, NotFound, ResourceExhausted (no space) and others
// of absl::ErrnoToStatusCode, with path and errno's text.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::function<absl::Status(const FileSink&)>& write,
                                 const std::string* begin = nullptr);
// Of bytes that are in memory.
absl::Status WriteFileAtomically(const std::string& path, std::string_view bytes);

// Makes a temporary folder for several writers, also of other processes and hosts.  All that name
// the same `token` get the same path, and write files into it.  One of them publishes it.
absl::StatusOr<std::string> StageFolder(const std::string& path, const std::string& token);
// The temporary folders of `path`, whatever their token.
std::vector<std::string> StagedFolders(const std::string& path);
// Syncs a folder that StageFolder returned and renames it to `path`, or removes it if that fails.
// Replaces an existing folder.  With renameat2 there is no moment without a folder of that name.
absl::Status PublishFolder(const std::string& staged, const std::string& path);

// Removes the folder and its content.  No reader sees it half removed.
absl::Status RemoveFolderAtomically(const std::string& path);

// Removes the temporaries of dead writers from `folder`, of the file `name` or, if that is "", of
// all.  Precondition: nobody is writing those.
absl::Status RemoveTemporaries(const std::string& folder, const std::string& name = "");

// Returns the whole file.  Errors, naming path: those of FileReader::Open, DataLoss for more than
// most_bytes, ResourceExhausted for more than the machine's memory.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t most_bytes = std::numeric_limits<uint64_t>::max());

class Sha256Digest {
 public:
  Sha256Digest();
  void Add(std::string_view bytes);
  std::string Hex();  // lower-case.  Once, at the end

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// Lower-case hex SHA-256.
std::string Sha256(std::string_view bytes);

// CRC-32, as in gzip.  `first` is that of the bytes before.  Errors: those of FileReader.
uint32_t Crc32(std::string_view bytes, uint32_t first = 0);
absl::StatusOr<uint32_t> Crc32OfFile(const std::string& path);
// CRC-32 of two strings of bytes together, from that of each and the length of the second.
uint32_t JoinCrc32(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace gyre
