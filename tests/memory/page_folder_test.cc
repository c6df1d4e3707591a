// Where pages are by default.  /dev/shm stands for what is no disk of this host.

#include "memory/pager/disk/page_folder.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/vfs.h>

#include <filesystem>
#include <string>

#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

constexpr char kMemory[] = "/dev/shm";

bool IsMemory(const std::string& folder) {
  struct statfs system;
  return statfs(folder.c_str(), &system) == 0 && system.f_type == 0x01021994;  // tmpfs
}

class PageFolder : public testing::Test {
 protected:
  void SetUp() override {
    if (!IsMemory(kMemory)) GTEST_SKIP() << kMemory << " is no tmpfs here";
    if (IsMemory(disk_.path())) GTEST_SKIP() << disk_.path() << " is no disk here";
  }

  const TempFolder disk_;
};

TEST_F(PageFolder, IsWhereTheRunIsOnADisk) {
  setenv("TMPDIR", "/tmp", 1);
  EXPECT_EQ(DefaultPageFolder(disk_.path()).value(), disk_.path());
  EXPECT_EQ(DefaultPageFolder(disk_ / "runs/a").value(), disk_.path());
}

TEST_F(PageFolder, IsTemporaryWhereTheRunIsOnNone) {
  setenv("TMPDIR", disk_.path().c_str(), 1);
  EXPECT_EQ(DefaultPageFolder(std::string(kMemory) + "/runs/a").value(), disk_.path());
}

TEST_F(PageFolder, IsNeitherInMemoryNorNowhere) {
  for (const char* const temporary : {kMemory, "/none/such"}) {
    setenv("TMPDIR", temporary, 1);
    const auto folder = DefaultPageFolder(kMemory);
    if (folder.ok()) {
      EXPECT_TRUE(*folder == "/var/tmp" || *folder == "/tmp") << *folder;
      continue;
    }
    const std::string message(folder.status().message());
    EXPECT_TRUE(
        message.starts_with("pages on disk: none of these folders is on a disk of this "
                            "host (/dev/shm: tmpfs (memory); "))
        << message;
    EXPECT_TRUE(message.ends_with("; name one by --page_folder")) << message;
  }
}

}  // namespace
}  // namespace gyre
