// temp_folder.h: a new, empty folder for a test, removed with all it holds at the end.
#pragma once

#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "engine/runtime/check.h"

namespace gyre {

class TempFolder {
 public:
  TempFolder() {
    const char* base = getenv("TEST_TMPDIR");  // Bazel's
    std::string name = std::string(base != nullptr ? base : "/tmp") + "/gyre_test_XXXXXX";
    GYRE_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

  // The names in the folder, sorted.
  std::vector<std::string> List() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) {
      names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::string path_;
};

// Writes and reads a file the plain way, so that tests do not judge a room's files by its own code.
inline void WriteBytes(const std::string& path, std::string_view bytes) {
  std::filesystem::remove(path);  // ext4 flushes a file that is overwritten, not a new one
  std::ofstream file(path, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  GYRE_CHECK(file.good());
}
inline std::string ReadBytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  GYRE_CHECK(file.good());
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace gyre
