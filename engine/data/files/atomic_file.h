// atomic_file.h: files that are either whole or absent.  A file is written under a temporary name
// in the same folder, `.NAME.tmp-PID`, synced, and renamed; so is a folder of files.  A process
// that dies leaves at most temporaries behind, which no reader looks at.
//
// One writer a path at a time within a process; other than that, any thread.
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

// Calls `write` with a sink, which appends bytes, and publishes the file at `path` if it succeeds;
// otherwise removes the temporary.  What `write` leaves in *begin, as many bytes as it appended
// first, takes their place, if it is given.  Errors: those of `write`; PermissionDenied, NotFound,
// ResourceExhausted (no space) and what else absl::ErrnoToStatusCode knows, naming path and errno's
// text.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::function<absl::Status(const FileSink&)>& write,
                                 const std::string* begin = nullptr);

// Likewise a folder, which several writers may fill, of other processes and hosts too: each of them
// asks for the temporary one, whose path they get who name the same `token`, and writes files into
// it; one of them gives it its name once all is there.
absl::StatusOr<std::string> StageFolder(const std::string& path, const std::string& token);
// Those of that path that are there, whatever their token.
std::vector<std::string> StagedFolders(const std::string& path);
// Syncs what StageFolder has returned and gives it the name `path`; if that fails, removes it.  An
// existing folder of that name is replaced: on kernels with renameat2 there is no moment without a
// folder of that name.
absl::Status PublishFolder(const std::string& staged, const std::string& path);

// Removes the folder and all it holds; no reader sees it half removed.
absl::Status RemoveFolderAtomically(const std::string& path);

// Removes from `folder` the temporaries that dead writers left.  Precondition: nobody is writing
// files or folders in `folder`.
absl::Status RemoveTemporaries(const std::string& folder);

// The whole file.  Errors, naming path: those of FileReader::Open; DataLoss for more than
// most_bytes; ResourceExhausted for more than the machine's memory.
absl::StatusOr<std::string> ReadFile(const std::string& path,
                                     uint64_t most_bytes = std::numeric_limits<uint64_t>::max());

// SHA-256 of bytes that come piece by piece.
class Sha256Digest {
 public:
  Sha256Digest();
  void Add(std::string_view bytes);
  std::string Hex();  // lower-case; once, at the end

 private:
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

// Lower-case hex SHA-256.
std::string Sha256(std::string_view bytes);

// CRC-32, as gzip has it.  first: of the bytes ahead.  Errors of a file: those of FileReader.
uint32_t Crc32(std::string_view bytes, uint32_t first = 0);
absl::StatusOr<uint32_t> Crc32OfFile(const std::string& path);
// Of two pieces, of their CRCs and the length of the second.
uint32_t JoinCrc32(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace gyre
