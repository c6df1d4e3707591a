#include "distributed/transport/shared_memory_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

TEST(SharedMemoryFolder, IsOnesOwnAndGoesWithItsOwner) {
  const TempFolder parent;
  auto a = SharedMemoryFolder::Create(parent.path());
  auto b = SharedMemoryFolder::Create(parent.path());
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_NE((*a)->path(), (*b)->path());
  EXPECT_EQ(fs::status((*a)->path()).permissions(), fs::perms::owner_all);
  const std::string path = (*a)->path();
  std::ofstream(path + "/segment") << "bytes";
  a->reset();
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::exists((*b)->path()));
}

// The lock tells a living process's folder, of whatever pid namespace, from a dead one's.
TEST(SharedMemoryFolder, RemovesWhatTheKilledLeave) {
  const TempFolder parent;
  fs::create_directory(parent / "another");
  int made[2];
  ASSERT_EQ(pipe(made), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto folder = SharedMemoryFolder::Create(parent.path());
    const bool wrote = folder.ok() && write(made[1], (*folder)->path().c_str(), 1) == 1;
    while (wrote) pause();
    _exit(1);
  }
  close(made[1]);
  char byte;
  ASSERT_EQ(read(made[0], &byte, 1), 1);
  close(made[0]);
  const auto count = [&] {
    return std::distance(fs::directory_iterator(parent.path()), fs::directory_iterator());
  };
  EXPECT_TRUE(SharedMemoryFolder::Create(parent.path()).ok());
  EXPECT_EQ(count(), 2);  // "another" and the child's
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(count(), 2);
  EXPECT_TRUE(SharedMemoryFolder::Create(parent.path()).ok());
  EXPECT_EQ(count(), 1);
  EXPECT_TRUE(fs::exists(parent / "another"));
}

TEST(SharedMemoryFolder, NowhereToBe) {
  EXPECT_EQ(SharedMemoryFolder::Create("/none/such").status().message(),
            absl::string_view("cannot create a folder in /none/such: No such file or directory"));
}

}  // namespace
}  // namespace gyre
