// Folders that their user alone can read, and what becomes of those whose process was killed.
#include "engine/data/files/private_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

mode_t ModeOf(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status.st_mode & 0777;
}

TEST(PrivateFolder, IsItsUsersWhateverTheUmask) {
  TempFolder parent;
  for (const mode_t mask : {0, 022, 0777}) {
    const mode_t before = umask(mask);
    {
      const auto folder = PrivateFolder::Make(parent.path(), "data", "1").value();
      EXPECT_EQ(ModeOf(folder.path()), 0700u);
      close(folder.Create("a/b/c").value());
      for (const char* inner : {"/a", "/a/b"}) EXPECT_EQ(ModeOf(folder.path() + inner), 0700u);
      EXPECT_EQ(ModeOf(folder.path() + "/a/b/c"), 0600u);
      EXPECT_FALSE(folder.Create("a/b/c").ok()) << "made twice";
      const auto shared = PrivateFolder::Make(parent.path(), "data", "1");
      EXPECT_EQ(shared->path(), folder.path());
    }
    EXPECT_TRUE(parent.List().empty());
    umask(before);
  }
}

TEST(PrivateFolder, IsNotTakenFromOthers) {
  TempFolder parent;
  std::filesystem::create_directory(parent / "data_1");
  chmod((parent / "data_1").c_str(), 0755);
  EXPECT_EQ(PrivateFolder::Make(parent.path(), "data", "1").status().message(),
            parent / "data_1" + ": expected a folder of this user alone, got something else");
  std::filesystem::create_directory_symlink("/", parent / "data_2");
  EXPECT_FALSE(PrivateFolder::Make(parent.path(), "data", "2").ok());
}

TEST(PrivateFolder, WhatAKilledProcessLeavesGoesWithTheNext) {
  TempFolder parent;
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto folder = PrivateFolder::Make(parent.path(), "data", "child");
    const bool made = folder.ok() && folder->Create("x/y").ok();
    if (write(ready[1], made ? "1" : "0", 1) == 1) pause();
    _exit(1);
  }
  char made = 0;
  ASSERT_EQ(read(ready[0], &made, 1), 1);
  EXPECT_EQ(made, '1');
  // None of these was made by us, or is of another run's prefix.
  for (const char* name : {"data_mine", "other_1"}) {
    std::filesystem::create_directory(parent / name);
    chmod((parent / name).c_str(), 0700);
  }
  WriteBytes(parent / "data_mine/.gyre_temporary", "mine");
  WriteBytes(parent / "data_file", "a temporary folder of a run of Gyre\n");
  PrivateFolder::Make(parent.path(), "data", "1").IgnoreError();
  EXPECT_THAT(parent.List(),
              testing::ElementsAre("data_child", "data_file", "data_mine", "other_1"))
      << "while the other process lives";
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  PrivateFolder::Make(parent.path(), "data", "2").IgnoreError();
  EXPECT_THAT(parent.List(), testing::ElementsAre("data_file", "data_mine", "other_1"));
  close(ready[0]);
  close(ready[1]);
}

}  // namespace
}  // namespace gyre
