#include "memory/pager/disk/page_folder.h"

#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

// By statfs(2); numbers that linux/magic.h lacks are those of the file systems' own sources.
struct FileSystem {
  uint32_t type;
  const char* name;
};
constexpr FileSystem kNotOnDisk[] = {
    {0x01021994, "tmpfs (memory)"},       {0x858458f6, "ramfs (memory)"},
    {0x6969, "NFS (a network)"},          {0x517b, "SMB (a network)"},
    {0xfe534d42, "SMB (a network)"},      {0xff534d42, "CIFS (a network)"},
    {0x0bd00bd0, "Lustre (a network)"},   {0x47504653, "GPFS (a network)"},
    {0x19830326, "BeeGFS (a network)"},   {0x00c36400, "Ceph (a network)"},
    {0x5346414f, "AFS (a network)"},      {0x6b414653, "AFS (a network)"},
    {0x20030528, "OrangeFS (a network)"}, {0xaad7aaea, "PanFS (a network)"},
    {0x01161970, "GFS2 (a network)"},     {0x7461636f, "OCFS2 (a network)"},
    {0x01021997, "9p (another machine)"}, {0x65735546, "FUSE (a program)"},
};

// Why pages may not be there; empty: they may.
std::string Objection(const fs::path& folder) {
  struct statfs system;
  if (statfs(folder.c_str(), &system) != 0 || access(folder.c_str(), W_OK) != 0) {
    return strerror(errno);
  }
  const auto* const found =
      std::ranges::find(kNotOnDisk, static_cast<uint32_t>(system.f_type), &FileSystem::type);
  return found == std::end(kNotOnDisk) ? "" : found->name;
}

}  // namespace

absl::StatusOr<std::string> DefaultPageFolder(const std::string& near) {
  std::error_code ignored;
  fs::path there = fs::absolute(near, ignored);
  while (!fs::is_directory(there, ignored) && there.has_relative_path()) {
    there = there.parent_path();
  }
  std::vector<fs::path> folders = {there};
  if (const char* const temporary = std::getenv("TMPDIR")) folders.emplace_back(temporary);
  folders.insert(folders.end(), {"/var/tmp", "/tmp"});
  std::vector<std::string> objections;
  for (const fs::path& folder : folders) {
    const std::string objection = Objection(folder);
    if (objection.empty()) return fs::absolute(folder, ignored).string();
    objections.push_back(absl::StrCat(folder.string(), ": ", objection));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("pages on disk: none of these folders is on a disk of this host (",
                   absl::StrJoin(objections, "; "), "); name one by --page_folder"));
}

}  // namespace gyre
