// One writer a folder, for as long as it lives.
#include "engine/data/files/folder_lock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

TEST(FolderLock, KeepsASecondWriterOut) {
  const TempFolder folder;
  {
    const auto first = FolderLock::Take(folder.path()).value();
    EXPECT_EQ(FolderLock::Take(folder.path(), std::chrono::milliseconds(0)).status(),
              absl::AlreadyExistsError(folder.path() + ": another run is writing there; wait for "
                                                       "it, or choose another --out"));
  }
  EXPECT_TRUE(FolderLock::Take(folder.path()).ok());
}

TEST(FolderLock, WaitsForOneThatEnds) {
  const TempFolder folder;
  auto first = FolderLock::Take(folder.path()).value();
  // Most likely while the second waits; if not, it need not wait.
  std::thread ending([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    first = FolderLock();
  });
  EXPECT_TRUE(FolderLock::Take(folder.path()).ok());
  ending.join();
}

}  // namespace
}  // namespace gyre
