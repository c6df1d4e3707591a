#include "engine/data/files/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "tests/data/temp_folder.h"

namespace {

std::function<ssize_t(int fd, const void* data, size_t count, off_t at)> on_pwrite;
std::function<void(const std::string& path)> on_fsync;

}  // namespace

// In place of the C library's, so that the test says what a file system does.
extern "C" ssize_t pwrite(int fd, const void* data, size_t count, off_t at) {
  return on_pwrite ? on_pwrite(fd, data, count, at) : syscall(SYS_pwrite64, fd, data, count, at);
}
extern "C" int fsync(int fd) {
  char path[4096];
  const ssize_t length =
      readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof(path));
  if (on_fsync && length > 0) on_fsync(std::string(path, static_cast<size_t>(length)));
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;

absl::Status Write(const std::string& path, const std::string& bytes) {
  return WriteFileAtomically(path, bytes);
}

// What `work` syncs, in order, each with whether `path` was there by then.
template <typename Work>
std::vector<std::string> Synced(const std::string& path, const Work& work) {
  std::vector<std::string> synced;
  on_fsync = [&](const std::string& what) {
    synced.push_back(what + (access(path.c_str(), F_OK) == 0 ? " named" : " unnamed"));
  };
  EXPECT_TRUE(work().ok());
  on_fsync = nullptr;
  return synced;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Root may write anywhere: without this capability it obeys the permissions of its own files.
class ObeyPermissions {
 public:
  ObeyPermissions() {
    syscall(SYS_capget, &header_, before_);
    __user_cap_data_struct now[2] = {before_[0], before_[1]};
    now[0].effective &= ~(1u << CAP_DAC_OVERRIDE);
    EXPECT_EQ(syscall(SYS_capset, &header_, now), 0);
  }
  ~ObeyPermissions() { syscall(SYS_capset, &header_, before_); }

 private:
  __user_cap_header_struct header_ = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct before_[2] = {};
};

struct WithFolder : testing::Test {
  TempFolder folder_;
};
using WriteFileTest = WithFolder;
using WriteFolderTest = WithFolder;
using ReadFileTest = WithFolder;

TEST_F(WriteFileTest, WritesWhatTheSinkGotAndNothingElse) {
  std::mt19937_64 random(1);
  for (size_t size : {0, 1, 4095, 4097, 1 << 22, (1 << 22) + 1, 9000001}) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const absl::Status status =
        WriteFileAtomically(folder_ / "x", [&](const FileSink& sink) -> absl::Status {
          for (size_t at = 0; at < size;) {
            const size_t count = std::min<size_t>(size - at, random() % 100000);
            const absl::Status status = sink(std::string_view(bytes).substr(at, count));
            if (!status.ok()) return status;
            at += count;
          }
          return absl::OkStatus();
        });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(ReadBytes(folder_ / "x"), bytes);
    EXPECT_EQ(ReadFile(folder_ / "x").value(), bytes);
    EXPECT_THAT(folder_.List(), ElementsAre("x"));
  }
}

TEST_F(WriteFileTest, WhatBeginsItIsGivenLast) {
  for (const size_t size : {3, 4100, 9000001}) {
    std::string bytes(size, 'x'), begin;
    const auto write = [&](const FileSink& sink) {
      begin = "abc";
      return sink(bytes);
    };
    ASSERT_TRUE(WriteFileAtomically(folder_ / "x", write, &begin).ok());
    EXPECT_EQ(ReadBytes(folder_ / "x"), bytes.replace(0, 3, begin));
  }
}

// Of a file system that takes the flag for direct writes, and then refuses them or stops short.
TEST_F(WriteFileTest, DirectWritesMayBeRefused) {
  std::string bytes(20000001, '\0');
  for (size_t i = 0; i < bytes.size(); i += 251) bytes[i] = static_cast<char>(i / 251);
  for (const bool refused : {true, false}) {
    int direct = 0;
    on_pwrite = [&](int fd, const void* data, size_t count, off_t at) -> ssize_t {
      if ((fcntl(fd, F_GETFL) & O_DIRECT) != 0) {
        EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0u);
        EXPECT_EQ(count % 4096, 0u);
        EXPECT_EQ(at % 4096, 0);
        if (++direct > 2) count -= 4000;  // so that the next is refused by any
        if (refused || at % 4096 != 0) {
          errno = EINVAL;
          return -1;
        }
      }
      return syscall(SYS_pwrite64, fd, data, count, at);
    };
    ASSERT_TRUE(Write(folder_ / "x", bytes).ok());
    on_pwrite = nullptr;
    EXPECT_EQ(ReadBytes(folder_ / "x"), bytes);
    EXPECT_LE(direct, refused ? 1 : 4);
  }
}

TEST_F(WriteFileTest, IsInvisibleUntilItIsWhole) {
  ASSERT_TRUE(Write(folder_ / "x", "old").ok());
  const absl::Status status = WriteFileAtomically(folder_ / "x", [&](const FileSink& sink) {
    EXPECT_TRUE(sink("new").ok());
    EXPECT_EQ(ReadBytes(folder_ / "x"), "old");
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ReadBytes(folder_ / "x"), "new");
}

// Else a power cut could leave an empty file of the name.
TEST_F(WriteFileTest, IsOnTheDiskBeforeItHasItsName) {
  const std::string path = folder_ / "x";
  EXPECT_THAT(Synced(path, [&] { return Write(path, "1"); }),
              ElementsAre(HasSubstr("/.x.tmp-"), EndsWith(" named")));
  EXPECT_THAT(Synced(folder_ / "y", [&] { return Write(folder_ / "y", "1"); })[0],
              EndsWith(" unnamed"));
}

TEST_F(WriteFileTest, AFailureOfTheWriterLeavesTheOldFile) {
  ASSERT_TRUE(Write(folder_ / "x", "old").ok());
  const absl::Status status = WriteFileAtomically(folder_ / "x", [&](const FileSink& sink) {
    EXPECT_TRUE(sink("half of the n").ok());
    return absl::DataLossError("no more");
  });
  EXPECT_EQ(status, absl::DataLossError("no more"));
  EXPECT_EQ(ReadBytes(folder_ / "x"), "old");
  EXPECT_THAT(folder_.List(), ElementsAre("x"));
}

TEST_F(WriteFileTest, NamesThePathAndTheReason) {
  WriteBytes(folder_ / "file", "");
  mkdir((folder_ / "sub").c_str(), 0777);

  const auto error = [&](const std::string& path) { return Write(path, "1").ToString(); };
  EXPECT_EQ(error(folder_ / "none/x"),
            "NOT_FOUND: cannot create " + (folder_ / "none/x: No such file or directory"));
  EXPECT_EQ(error(folder_ / "file/x"),
            "FAILED_PRECONDITION: cannot create " + (folder_ / "file/x: Not a directory"));
  EXPECT_THAT(error(folder_ / "sub"), EndsWith("Is a directory"));
  chmod((folder_ / "sub").c_str(), 0555);
  {
    ObeyPermissions obey;
    EXPECT_EQ(error(folder_ / "sub/x"),
              "PERMISSION_DENIED: cannot create " + (folder_ / "sub/x: Permission denied"));
  }
  EXPECT_FALSE(Write("/proc/x", "1").ok());
  EXPECT_FALSE(Write("", "1").ok());
  EXPECT_THAT(folder_.List(), ElementsAre("file", "sub"));
}

TEST_F(WriteFileTest, AFullDiskLeavesTheOldFile) {
  ASSERT_TRUE(Write(folder_ / "x", "old").ok());
  constexpr off_t kRoom = 4096;
  on_pwrite = [](int fd, const void* data, size_t count, off_t at) -> ssize_t {
    if (at < kRoom) return syscall(SYS_pwrite64, fd, data, std::min<size_t>(count, kRoom - at), at);
    errno = ENOSPC;
    return -1;
  };
  const absl::Status status = Write(folder_ / "x", std::string(10000, 'n'));
  on_pwrite = nullptr;
  EXPECT_EQ(status, absl::ResourceExhaustedError("cannot write " +
                                                 (folder_ / "x: No space left on device")));
  EXPECT_EQ(ReadBytes(folder_ / "x"), "old");
  EXPECT_THAT(folder_.List(), ElementsAre("x"));
}

TEST_F(WriteFileTest, TemporariesOfEarlierProcessesAreHarmless) {
  WriteBytes(folder_ / "victim", "mine");
  WriteBytes(folder_ / ".x.tmp-1", "another's");
  const std::string own = folder_ / (".x.tmp-" + std::to_string(getpid()));
  ASSERT_EQ(symlink((folder_ / "victim").c_str(), own.c_str()), 0);
  ASSERT_TRUE(Write(folder_ / "x", "new").ok());
  EXPECT_EQ(ReadBytes(folder_ / "victim"), "mine");
  EXPECT_EQ(ReadBytes(folder_ / "x"), "new");

  mkdir((folder_ / ".y.tmp-1").c_str(), 0777);
  WriteBytes(folder_ / ".y.tmp-1/z", "");
  WriteBytes(folder_ / ".hidden", "");
  WriteBytes(folder_ / "y.tmp-1", "");
  WriteBytes(folder_ / ".w.tmp-1", "");
  WriteBytes(folder_ / ".ww.tmp-1", "");
  ASSERT_TRUE(RemoveTemporaries(folder_.path(), "w").ok());
  EXPECT_THAT(folder_.List(), ElementsAre(".hidden", ".ww.tmp-1", ".x.tmp-1", ".y.tmp-1", "victim",
                                          "x", "y.tmp-1"));
  ASSERT_TRUE(RemoveTemporaries(folder_.path()).ok());
  EXPECT_THAT(folder_.List(), ElementsAre(".hidden", "victim", "x", "y.tmp-1"));
  EXPECT_EQ(RemoveTemporaries(folder_ / "none").code(), absl::StatusCode::kNotFound);
}

// Publishes a folder with two files of the same content, by two writers.
absl::Status WritePair(const std::string& path, const std::string& content) {
  ASSIGN_OR_RETURN(const std::string staged, StageFolder(path, "token"));
  WriteBytes(staged + "/a", content);
  EXPECT_EQ(StageFolder(path, "token").value(), staged);
  mkdir((staged + "/sub").c_str(), 0777);
  WriteBytes(staged + "/sub/b", content);
  return PublishFolder(staged, path);
}

TEST_F(WriteFolderTest, AppearsWholeAndReplaces) {
  for (const char* name : {"d", "d/"}) {
    for (const char* content : {"1", "2"}) {
      ASSERT_TRUE(WritePair(folder_ / name, content).ok());
      EXPECT_EQ(ReadBytes(folder_ / "d/a"), content);
      EXPECT_EQ(ReadBytes(folder_ / "d/sub/b"), content);
      EXPECT_THAT(folder_.List(), ElementsAre("d"));
    }
  }
  mkdir((folder_ / "empty").c_str(), 0777);
  ASSERT_TRUE(WritePair(folder_ / "empty", "3").ok());
  EXPECT_EQ(ReadBytes(folder_ / "empty/a"), "3");
  ASSERT_TRUE(
      PublishFolder(StageFolder(folder_ / "nothing", "1").value(), folder_ / "nothing").ok());
  EXPECT_THAT(folder_.List(), ElementsAre("d", "empty", "nothing"));

  ASSERT_TRUE(RemoveFolderAtomically(folder_ / "d").ok());
  EXPECT_THAT(folder_.List(), ElementsAre("empty", "nothing"));
  EXPECT_EQ(RemoveFolderAtomically(folder_ / "d").code(), absl::StatusCode::kNotFound);
}

TEST_F(WriteFolderTest, IsOnTheDiskBeforeItHasItsName) {
  const std::string path = folder_ / "new";
  const std::string staged = *StageFolder(path, "1");
  WriteBytes(staged + "/a", "1");
  EXPECT_THAT(Synced(path, [&] { return PublishFolder(staged, path); }),
              ElementsAre(EndsWith("/a unnamed"), EndsWith(".tmp-1 unnamed"), EndsWith(" named")));
}

TEST_F(WriteFolderTest, AFailureLeavesTheOldFolder) {
  ASSERT_TRUE(WritePair(folder_ / "d", "old").ok());
  for (const char* token : {"1", "2"}) {  // each has a folder of its own, which nobody reads
    EXPECT_TRUE(std::filesystem::is_empty(StageFolder(folder_ / "d", token).value()));
    WriteBytes(StageFolder(folder_ / "d", token).value() + "/a", "half");
  }
  EXPECT_EQ(ReadBytes(folder_ / "d/sub/b"), "old");
  ASSERT_TRUE(RemoveTemporaries(folder_.path()).ok());
  EXPECT_THAT(folder_.List(), ElementsAre("d"));
  mkdir((folder_ / "victim").c_str(), 0777);
  ASSERT_EQ(symlink((folder_ / "victim").c_str(), (folder_ / ".d.tmp-1").c_str()), 0);
  EXPECT_EQ(StageFolder(folder_ / "d", "1").status().code(), absl::StatusCode::kAlreadyExists);
  std::filesystem::remove(folder_ / ".d.tmp-1");
  std::filesystem::remove(folder_ / "victim");

  WriteBytes(folder_ / "file", "mine");
  EXPECT_THAT(Message(WritePair(folder_ / "file", "1")), HasSubstr("Not a directory"));
  EXPECT_EQ(ReadBytes(folder_ / "file"), "mine");
  EXPECT_THAT(Message(WritePair(folder_ / "file/d", "1")), HasSubstr(folder_ / "file/d"));
  EXPECT_EQ(WritePair(folder_ / "none/d", "1").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(folder_.List(), ElementsAre("d", "file"));
}

TEST_F(WriteFolderTest, ThereIsAlwaysAFolderOfTheName) {
  ASSERT_TRUE(WritePair(folder_ / "d", "0").ok());
  std::atomic<bool> done = false;
  std::atomic<int> reads = 0;
  std::thread reader([&] {
    struct stat status;
    while (!done) {
      EXPECT_EQ(stat((folder_ / "d").c_str(), &status), 0);
      ++reads;
    }
  });
  for (int version = 1; version < 100 || reads < 1000; ++version) {
    ASSERT_TRUE(WritePair(folder_ / "d", std::to_string(version)).ok());
    EXPECT_EQ(ReadBytes(folder_ / "d/a"), std::to_string(version));
  }
  done = true;
  reader.join();
}

TEST_F(ReadFileTest, NamesWhatIsMissing) {
  EXPECT_EQ(ReadFile(folder_ / "none").status(),
            absl::NotFoundError("cannot open " + (folder_ / "none: No such file or directory")));
  EXPECT_THAT(Message(ReadFile(folder_.path()).status()), HasSubstr("Is a directory"));
  EXPECT_FALSE(Crc32OfFile(folder_ / "none").ok());
  EXPECT_THAT(ReadFile("/proc/self/stat").value(), testing::Not(IsEmpty()));  // of size 0, it says
}

TEST_F(ReadFileTest, ReadsNoMoreThanAllowed) {
  WriteBytes(folder_ / "x", "12345");
  EXPECT_EQ(ReadFile(folder_ / "x", 5).value(), "12345");
  EXPECT_EQ(Message(ReadFile(folder_ / "x", 4).status()),
            folder_ / "x: has 5 bytes, at most 4 are allowed");
  EXPECT_EQ(ReadFile("/proc/self/stat", 1).status().code(), absl::StatusCode::kDataLoss);
  std::filesystem::resize_file(folder_ / "x", uint64_t{1} << 42);  // zeros, which take no space
  EXPECT_EQ(ReadFile(folder_ / "x").status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  for (const std::string& endless : {folder_ / "pipe", std::string("/dev/zero")}) {
    EXPECT_EQ(Message(ReadFile(endless).status()),
              "cannot read " + endless + ": it is a pipe or a device, expected a file");
  }
}

// FIPS 180-2, appendix B.
TEST(Sha256Test, KnownAnswers) {
  EXPECT_EQ(Sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const std::string million(1000000, 'a');
  EXPECT_EQ(Sha256(million), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

// The check value of CRC-32/ISO-HDLC in the catalogue of parametrised CRC algorithms.
TEST(Crc32Test, KnownAnswers) {
  EXPECT_EQ(Crc32(""), 0u);
  EXPECT_EQ(Crc32("123456789"), 0xCBF43926u);
  EXPECT_EQ(Crc32("56789", Crc32({}, Crc32("1234"))), 0xCBF43926u);
  EXPECT_EQ(JoinCrc32(Crc32("1234"), Crc32("56789"), 5), 0xCBF43926u);
  TempFolder folder;
  const std::string million(1000000, 'a');
  WriteBytes(folder / "x", million);
  EXPECT_EQ(Crc32OfFile(folder / "x").value(), Crc32(million));
}

}  // namespace
}  // namespace gyre
