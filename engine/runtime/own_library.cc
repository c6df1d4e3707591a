#include "engine/runtime/own_library.h"

#include <filesystem>
#include <system_error>

namespace gyre {

std::string PathOfOwnLibrary(const std::string& name, const std::string& in_build) {
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::filesystem::path beside = program.parent_path() / name;
  if (std::filesystem::exists(beside, error)) return beside.string();
  for (auto folder = program.parent_path(); folder.has_relative_path();
       folder = folder.parent_path()) {
    // Of Bazel: bazel-out/CONFIGURATION/bin.
    if (folder.filename() != "bin") continue;
    if (folder.parent_path().parent_path().filename() != "bazel-out") continue;
    const auto built = folder / in_build / name;
    if (std::filesystem::exists(built, error)) return built.string();
  }
  return name;
}

}  // namespace gyre
