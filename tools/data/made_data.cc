#include "tools/data/made_data.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/check.h"
#include "engine/runtime/random.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

absl::Status WriteNewFolder(const std::string& path,
                            const std::function<absl::Status(const std::string& folder)>& write) {
  if (path.empty()) return absl::InvalidArgumentError("--out is missing; see --help");
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored))) {
    return absl::AlreadyExistsError(
        absl::StrCat(path, " is there already; remove it, or choose another --out"));
  }
  if (const fs::path parent = fs::path(path).parent_path(); !parent.empty()) {
    RETURN_IF_ERROR(MakeFolder(parent.string()));
  }
  ASSIGN_OR_RETURN(const std::string staged, StageFolder(path, std::to_string(getpid())));
  const absl::Status written = write(staged);
  if (written.ok()) return PublishFolder(staged, path);
  fs::remove_all(staged, ignored);
  return written;
}

}  // namespace

absl::Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error) return absl::OkStatus();
  return absl::Status(absl::ErrnoToStatusCode(error.value()),
                      absl::StrCat("cannot create ", path, ": ", error.message()));
}

absl::Status WriteText(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good()
             ? absl::OkStatus()
             : absl::ErrnoToStatus(errno != 0 ? errno : EIO, absl::StrCat("cannot write ", path));
}

double Numbers::Uniform(double least, double most) {
  const RandomBits bits = Philox(key_, 0, next_++);
  return least + (most - least) * UniformDouble(bits.v[0], bits.v[1]);
}

double Numbers::Normal() { return Normals(Philox(key_, 1, next_++)).first; }

int64_t Numbers::Below(int64_t bound) {
  return std::min(bound - 1, static_cast<int64_t>(Uniform() * static_cast<double>(bound)));
}

int RunMaker(int argc, char** argv, const char* usage, const std::vector<FlagGroup>& groups,
             const Maker& maker) {
  ParseFlags(argc, argv, usage, groups);
  const std::string folder = absl::GetFlag(maker.out);
  absl::Status status = maker.check();
  if (status.ok()) status = WriteNewFolder(folder, maker.write);
  if (!status.ok()) Fail(nullptr, status);
  std::printf("wrote %d and %d %s to %s\n", absl::GetFlag(maker.train), absl::GetFlag(maker.test),
              maker.what, folder.c_str());
  return FinishOutput(0);
}

}  // namespace gyre
