// Pages on disk: what is read is what was written, by io_uring and without; and each way in which a
// disk can fail that a test can bring about.

#include "memory/pager/disk/page_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/runtime/device/buffer.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;

constexpr size_t kSector = PageFile::kSectorBytes;

// The descriptor of the only file without a name that this process has in `folder`.
int Descriptor(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own
    const std::string path = std::filesystem::read_symlink(entry.path(), gone).string();
    if (!gone && path.starts_with(folder) && path.ends_with("(deleted)")) {
      return std::stoi(entry.path().filename().string());
    }
  }
  return -1;
}

class Pages : public testing::TestWithParam<bool> {
 protected:
  bool plain() const { return GetParam(); }
  std::unique_ptr<PageFile> Make(size_t sectors, size_t home_sectors = 0) {
    auto file = PageFile::Create(folder_, sectors * kSector, home_sectors * kSector);
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  Buffer Allocate(size_t bytes) {
    return *Buffer::Allocate(*device_, MemoryKind::kPinnedHost, bytes);
  }
  static void FillRandomly(const Buffer& memory, uint64_t seed) {
    std::mt19937_64 rng(seed);
    std::generate_n(memory.data(), memory.bytes(),
                    [&rng] { return static_cast<std::byte>(rng()); });
  }
  // Changes what the file holds behind its back.
  void Overwrite(size_t at, char byte) {
    const int fd = Descriptor(folder_);
    ASSERT_GE(fd, 0);
    // Not that descriptor, which may want whole sectors.
    const int own = open(absl::StrCat("/proc/self/fd/", fd).c_str(), O_WRONLY);
    ASSERT_GE(own, 0);
    ASSERT_EQ(pwrite(own, &byte, 1, static_cast<off_t>(at)), 1);
    ASSERT_EQ(fsync(own), 0);
    close(own);
  }

  const std::string folder_ = std::filesystem::canonical(testing::TempDir()).string();
  const std::unique_ptr<Device> device_ = NewSimDevice({});  // whose memory is not zeros at first
};

INSTANTIATE_TEST_SUITE_P(, Pages, testing::Bool(),
                         [](const auto& info) { return info.param ? "Plain" : "Ring"; });

TEST_P(Pages, AreReadAsTheyWereWritten) {
  constexpr int kSlots = 3, kRounds = 200;
  constexpr size_t kSectors = 40, kMost = 5;
  const std::unique_ptr<PageFile> file = Make(kSectors);
  PageQueue queue(*file, kSlots, plain());
  EXPECT_EQ(queue.plain() || !plain(), true);
  std::mt19937_64 rng(7);
  std::vector<std::byte> expected(kSectors * kSector);
  std::vector<bool> written(kSectors);
  const Buffer memory = Allocate(kSlots * kMost * kSector);
  struct Transfer {
    size_t at = 0, bytes = 0;
    bool reads = false;
  };
  std::vector<Transfer> transfers(kSlots);
  const auto of = [&](int slot) {
    return memory.data() + static_cast<size_t>(slot) * kMost * kSector;
  };
  const auto finish = [&](int slot) {
    ASSERT_EQ(queue.Await(slot), absl::OkStatus());
    const auto [at, bytes, reads] = std::exchange(transfers[slot], {});
    ASSERT_TRUE(!reads || std::memcmp(of(slot), &expected[at], bytes) == 0);
  };
  int read = 0;
  for (int round = 0; round < kRounds && !HasFatalFailure(); ++round) {
    const int slot = round % kSlots;
    finish(slot);
    const size_t count = 1 + rng() % kMost, first = rng() % (kSectors - count + 1);
    const auto begin = written.begin() + static_cast<std::ptrdiff_t>(first);
    const bool known =
        std::all_of(begin, begin + static_cast<std::ptrdiff_t>(count), [](bool is) { return is; });
    const Transfer next = {first * kSector, count * kSector, known && rng() % 3 > 0};
    for (int other = 0; other < kSlots; ++other) {
      const Transfer& its = transfers[other];
      const bool same_place = its.at < next.at + next.bytes && next.at < its.at + its.bytes;
      if (same_place && !(its.reads && next.reads)) finish(other);
    }
    transfers[slot] = next;
    if (next.reads) {
      ++read;
      queue.Read(slot, next.at, of(slot), next.bytes);
      continue;
    }
    std::generate_n(of(slot), next.bytes, [&rng] { return static_cast<std::byte>(rng()); });
    std::copy_n(of(slot), next.bytes, expected.begin() + static_cast<std::ptrdiff_t>(next.at));
    std::fill_n(begin, count, true);
    queue.Write(slot, next.at, of(slot), next.bytes);
  }
  EXPECT_GT(read, kRounds / 4);
}

TEST_P(Pages, HomesAreMapped) {
  const std::unique_ptr<PageFile> file = Make(5, 3);
  PageQueue queue(*file, 1, plain());
  ASSERT_EQ(file->home_bytes(), 3 * kSector);
  const Buffer memory = Allocate(3 * kSector);
  queue.Read(0, 0, memory.data(), memory.bytes());
  ASSERT_TRUE(queue.Await(0).ok());
  EXPECT_TRUE(std::all_of(memory.data(), memory.data() + memory.bytes(),
                          [](std::byte byte) { return byte == std::byte{0}; }));
  // What is changed there is read.
  file->Release();
  for (size_t i = 0; i < file->home_bytes(); ++i) file->homes()[i] = static_cast<std::byte>(i * i);
  queue.Read(0, 0, memory.data(), memory.bytes());
  ASSERT_TRUE(queue.Await(0).ok());
  EXPECT_EQ(std::memcmp(memory.data(), file->homes(), memory.bytes()), 0);
  // And the other way round.
  FillRandomly(memory, 3);
  queue.Write(0, 0, memory.data(), memory.bytes());
  ASSERT_TRUE(queue.Await(0).ok());
  EXPECT_EQ(std::memcmp(memory.data(), file->homes(), memory.bytes()), 0);
  // A change by somebody who does not have them is found.
  file->homes()[kSector + 5] ^= std::byte{1};
  queue.Read(0, 0, memory.data(), memory.bytes());
  EXPECT_EQ(queue.Await(0).code(), absl::StatusCode::kDataLoss);
}

TEST_P(Pages, AFlippedBitIsFound) {
  const std::unique_ptr<PageFile> file = Make(8);
  PageQueue queue(*file, 2, plain());
  const Buffer memory = Allocate(8 * kSector);
  FillRandomly(memory, 4);
  queue.Write(0, 0, memory.data(), memory.bytes());
  ASSERT_TRUE(queue.Await(0).ok());
  const size_t at = 5 * kSector + 77;
  Overwrite(at, static_cast<char>(memory.data()[at] ^ std::byte{16}));
  queue.Read(0, 0, memory.data(), 5 * kSector);
  queue.Read(1, 5 * kSector, memory.data() + 5 * kSector, 3 * kSector);
  EXPECT_TRUE(queue.Await(0).ok());
  const std::string error = queue.Await(1).ToString();
  EXPECT_THAT(error, testing::StartsWith("DATA_LOSS: "));
  EXPECT_THAT(error, HasSubstr(absl::StrCat("the file in ", folder_, " has other bytes from ",
                                            5 * kSector, " on than were written there")));
  EXPECT_THAT(error, HasSubstr("resume from the last checkpoint"));
}

TEST_P(Pages, AFileThatWasCutIsFound) {
  const std::unique_ptr<PageFile> file = Make(8);
  PageQueue queue(*file, 1, plain());
  const Buffer memory = Allocate(8 * kSector);
  queue.Write(0, 0, memory.data(), memory.bytes());
  ASSERT_TRUE(queue.Await(0).ok());
  ASSERT_EQ(ftruncate(Descriptor(folder_), static_cast<off_t>(3 * kSector)), 0);
  queue.Read(0, 0, memory.data(), 3 * kSector);
  EXPECT_TRUE(queue.Await(0).ok());
  queue.Read(0, kSector, memory.data(), 7 * kSector);
  EXPECT_EQ(queue.Await(0), absl::DataLossError(absl::StrCat(
                                "pages on disk: cannot read byte 12288 of the file in ", folder_,
                                ": it has been cut, expected 32768 bytes; resume from the last "
                                "checkpoint")));
}

// As a disk that fails.
TEST_P(Pages, ErrorsOfTheSystemSayWhere) {
  const std::unique_ptr<PageFile> file = Make(2);
  PageQueue queue(*file, 1, plain());
  const Buffer memory = Allocate(kSector);
  const int read_only = open(absl::StrCat("/proc/self/fd/", Descriptor(folder_)).c_str(), O_RDONLY);
  ASSERT_EQ(dup2(read_only, Descriptor(folder_)) >= 0, true);
  queue.Write(0, kSector, memory.data(), kSector);
  EXPECT_THAT(queue.Await(0).message(),
              HasSubstr(absl::StrCat("cannot write byte 4096 of the file in ", folder_)));
  close(read_only);
}

TEST(PageFile, LeavesNothing) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/empty");
  std::filesystem::create_directory(folder);
  {
    const auto file = PageFile::Create(folder, 4 * kSector, kSector).value();
    EXPECT_TRUE(std::filesystem::is_empty(folder));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(PageFile, ReservesItsSpace) {
  const std::string folder = std::filesystem::canonical(testing::TempDir()).string();
  const auto file = PageFile::Create(folder, 100 * kSector, 0).value();
  struct stat status;
  ASSERT_EQ(fstat(Descriptor(folder), &status), 0);
  EXPECT_EQ(status.st_size, static_cast<off_t>(100 * kSector));
  EXPECT_GE(status.st_blocks * 512, static_cast<off_t>(100 * kSector));
  const auto none = PageFile::Create(folder, 0, 0);
  EXPECT_TRUE(none.ok()) << none.status();
}

TEST(PageFile, AFullDiskIsAnErrorAtOnce) {
  const std::string folder = testing::TempDir();
  const auto file = PageFile::Create(folder, size_t{1} << 50, 0);
  EXPECT_THAT(file.status().ToString(),
              testing::MatchesRegex("RESOURCE_EXHAUSTED: pages on disk: .* has no room for "
                                    "1125899906842624 bytes, [0-9]+ are free; name a folder on "
                                    "another disk, or allow more host memory"));
}

}  // namespace
}  // namespace gyre
