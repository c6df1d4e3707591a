#include "distributed/transport/shared_memory_folder.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

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

constexpr char kMark[] = "Gyre made this folder for Open MPI's shared memory, and removes it.\n";

// The lock tells a living process's folder, of whatever pid namespace, from a dead one's.
TEST(SharedMemoryFolder, RemovesWhatTheKilledLeave) {
  const TempFolder parent;
  int made[2];
  ASSERT_EQ(pipe(made), 0);
  const pid_t child = fork();
  if (child == 0) {
    const auto folder = SharedMemoryFolder::Create(parent.path());
    if (folder.ok()) std::ofstream((*folder)->path() + "/segment") << "bytes";
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
  EXPECT_EQ(count(), 1);  // the child's
  for (const auto& folder : fs::directory_iterator(parent.path())) {
    std::ifstream mark(folder.path() / "made-by-gyre");
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(mark), {}), kMark);
  }
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(count(), 1);
  EXPECT_TRUE(SharedMemoryFolder::Create(parent.path()).ok());
  EXPECT_EQ(count(), 0);
}

// Jobs that start together look at each other's folders while they are marked.
TEST(SharedMemoryFolder, ManyAreMadeAtOnce) {
  const TempFolder parent;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int made = 0; made < 500; ++made) {
        const auto folder = SharedMemoryFolder::Create(parent.path());
        ASSERT_TRUE(folder.ok()) << folder.status();
        EXPECT_TRUE(fs::exists((*folder)->path() + "/made-by-gyre"));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

// Nobody has locked these: what has not the name, and the mark inside, is somebody else's.
TEST(SharedMemoryFolder, LeavesWhatOthersMade) {
  const TempFolder parent;
  const std::string name = parent / "gyre.mpi-segments.";
  const std::string kept[] = {parent / "gyre.runs/a/checkpoints/step_00000100/part",
                              parent / "gyre.AbC123/segment",
                              parent / "runs/made-by-gyre",
                              name + "000001/segment",
                              name + "000002/made-by-gyre",
                              name + "000003/made-by-gyre/part",
                              name + "000004/runs/part"};
  for (const std::string& file : kept) {
    fs::create_directories(fs::path(file).parent_path());
    std::ofstream(file) << "bytes";
  }
  std::ofstream(parent / "runs/made-by-gyre") << kMark;
  fs::create_directory_symlink(parent / "runs", name + "000005");
  // Marked, with a folder that Open MPI has not made.
  std::ofstream(name + "000004/made-by-gyre") << kMark;
  EXPECT_TRUE(SharedMemoryFolder::Create(parent.path()).ok());
  for (const std::string& file : kept) EXPECT_TRUE(fs::exists(file)) << file;
}

TEST(SharedMemoryFolder, IsThereWithoutBytesAfterItWasHidden) {
  const TempFolder parent;
  auto folder = SharedMemoryFolder::Create(parent.path()).value();
  const std::string segment = folder->path() + "/segment";
  std::ofstream(segment) << "bytes";
  folder->Hide();
  EXPECT_TRUE(fs::is_empty(parent.path()));
  folder->Restore();
  EXPECT_EQ(fs::file_size(segment), 0u);
  folder.reset();
  EXPECT_TRUE(fs::is_empty(parent.path()));
}

TEST(SharedMemoryFolder, NowhereToBe) {
  EXPECT_EQ(SharedMemoryFolder::Create("/none/such").status().message(),
            absl::string_view("cannot create a folder in /none/such: No such file or directory"));
}

}  // namespace
}  // namespace gyre
