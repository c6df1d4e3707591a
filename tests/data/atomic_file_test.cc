#include "engine/data/files/atomic_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <zlib.h>

#include <atomic>
#include <functional>
#include <random>
#include <thread>

#include "tests/data/temp_folder.h"

namespace {

std::function<ssize_t(int fd, const void* data, size_t count, off_t at)> on_pwrite;

}  // namespace

// In place of the C library's, so that the test says what a file system does.
extern "C" ssize_t pwrite(int fd, const void* data, size_t count, off_t at) {
  return on_pwrite ? on_pwrite(fd, data, count, at) : syscall(SYS_pwrite64, fd, data, count, at);
}

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

absl::Status Write(const std::string& path, const std::string& bytes) {
  return WriteFileAtomically(path, [&](const FileSink& sink) { return sink(bytes); });
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

TEST(WriteFileTest, WritesWhatTheSinkGotAndNothingElse) {
  TempFolder folder;
  std::mt19937_64 random(1);
  for (size_t size : {0, 1, 4095, 4097, 1 << 22, (1 << 22) + 1, 9000001}) {
    std::string bytes(size, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    const absl::Status status =
        WriteFileAtomically(folder / "x", [&](const FileSink& sink) -> absl::Status {
          for (size_t at = 0; at < size;) {
            const size_t count = std::min<size_t>(size - at, random() % 100000);
            const absl::Status status = sink(std::string_view(bytes).substr(at, count));
            if (!status.ok()) return status;
            at += count;
          }
          return absl::OkStatus();
        });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(ReadBytes(folder / "x"), bytes);
    EXPECT_EQ(ReadFile(folder / "x").value(), bytes);
    EXPECT_THAT(folder.List(), ElementsAre("x"));
  }
}

TEST(WriteFileTest, WhatBeginsItIsGivenLast) {
  TempFolder folder;
  for (const size_t size : {3, 4100, 9000001}) {
    std::string bytes(size, 'x'), begin;
    const auto write = [&](const FileSink& sink) {
      begin = "abc";
      return sink(bytes);
    };
    ASSERT_TRUE(WriteFileAtomically(folder / "x", write, &begin).ok());
    EXPECT_EQ(ReadBytes(folder / "x"), bytes.replace(0, 3, begin));
  }
}

// Of a file system that takes the flag for direct writes, and then refuses them or stops short.
TEST(WriteFileTest, DirectWritesMayBeRefused) {
  TempFolder folder;
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
    ASSERT_TRUE(Write(folder / "x", bytes).ok());
    on_pwrite = nullptr;
    EXPECT_EQ(ReadBytes(folder / "x"), bytes);
    EXPECT_LE(direct, refused ? 1 : 4);
  }
}

TEST(WriteFileTest, IsInvisibleUntilItIsWhole) {
  TempFolder folder;
  ASSERT_TRUE(Write(folder / "x", "old").ok());
  const absl::Status status = WriteFileAtomically(folder / "x", [&](const FileSink& sink) {
    EXPECT_TRUE(sink("new").ok());
    EXPECT_EQ(ReadBytes(folder / "x"), "old");
    return absl::OkStatus();
  });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(ReadBytes(folder / "x"), "new");
}

TEST(WriteFileTest, AFailureOfTheWriterLeavesTheOldFile) {
  TempFolder folder;
  ASSERT_TRUE(Write(folder / "x", "old").ok());
  const absl::Status status = WriteFileAtomically(folder / "x", [&](const FileSink& sink) {
    EXPECT_TRUE(sink("half of the n").ok());
    return absl::DataLossError("no more");
  });
  EXPECT_EQ(status, absl::DataLossError("no more"));
  EXPECT_EQ(ReadBytes(folder / "x"), "old");
  EXPECT_THAT(folder.List(), ElementsAre("x"));
}

TEST(WriteFileTest, NamesThePathAndTheReason) {
  TempFolder folder;
  WriteBytes(folder / "file", "");
  mkdir((folder / "sub").c_str(), 0777);

  absl::Status status = Write(folder / "none/x", "1");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr("cannot create " + (folder / "none/x")));
  EXPECT_THAT(Message(status), HasSubstr("No such file or directory"));

  status = Write(folder / "file/x", "1");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Message(status), HasSubstr(folder / "file/x"));
  EXPECT_THAT(Message(status), HasSubstr("Not a directory"));

  status = Write(folder / "sub", "1");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Message(status), HasSubstr("Is a directory"));

  chmod((folder / "sub").c_str(), 0555);
  {
    ObeyPermissions obey;
    status = Write(folder / "sub/x", "1");
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(Message(status), HasSubstr(folder / "sub/x"));
    EXPECT_THAT(Message(status), HasSubstr("Permission denied"));
  }
  EXPECT_FALSE(Write("/proc/x", "1").ok());
  EXPECT_FALSE(Write("", "1").ok());
  EXPECT_THAT(folder.List(), ElementsAre("file", "sub"));
}

TEST(WriteFileTest, AFullDiskLeavesTheOldFile) {
  TempFolder folder;
  ASSERT_TRUE(Write(folder / "x", "old").ok());
  constexpr off_t kRoom = 4096;
  on_pwrite = [](int fd, const void* data, size_t count, off_t at) -> ssize_t {
    if (at < kRoom) return syscall(SYS_pwrite64, fd, data, std::min<size_t>(count, kRoom - at), at);
    errno = ENOSPC;
    return -1;
  };
  const absl::Status status = Write(folder / "x", std::string(10000, 'n'));
  on_pwrite = nullptr;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Message(status), HasSubstr("cannot write " + (folder / "x")));
  EXPECT_THAT(Message(status), HasSubstr("No space left on device"));
  EXPECT_EQ(ReadBytes(folder / "x"), "old");
  EXPECT_THAT(folder.List(), ElementsAre("x"));
}

TEST(WriteFileTest, TemporariesOfEarlierProcessesAreHarmless) {
  TempFolder folder;
  WriteBytes(folder / "victim", "mine");
  WriteBytes(folder / ".x.tmp-1", "another's");
  const std::string own = folder / (".x.tmp-" + std::to_string(getpid()));
  ASSERT_EQ(symlink((folder / "victim").c_str(), own.c_str()), 0);
  ASSERT_TRUE(Write(folder / "x", "new").ok());
  EXPECT_EQ(ReadBytes(folder / "victim"), "mine");
  EXPECT_EQ(ReadBytes(folder / "x"), "new");

  mkdir((folder / ".y.tmp-1").c_str(), 0777);
  WriteBytes(folder / ".y.tmp-1/z", "");
  WriteBytes(folder / ".hidden", "");
  WriteBytes(folder / "y.tmp-1", "");
  ASSERT_TRUE(RemoveTemporaries(folder.path()).ok());
  EXPECT_THAT(folder.List(), ElementsAre(".hidden", "victim", "x", "y.tmp-1"));
  EXPECT_EQ(RemoveTemporaries(folder / "none").code(), absl::StatusCode::kNotFound);
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

TEST(WriteFolderTest, AppearsWholeAndReplaces) {
  TempFolder folder;
  for (const char* name : {"d", "d/"}) {
    for (const char* content : {"1", "2"}) {
      ASSERT_TRUE(WritePair(folder / name, content).ok());
      EXPECT_EQ(ReadBytes(folder / "d/a"), content);
      EXPECT_EQ(ReadBytes(folder / "d/sub/b"), content);
      EXPECT_THAT(folder.List(), ElementsAre("d"));
    }
  }
  mkdir((folder / "empty").c_str(), 0777);
  ASSERT_TRUE(WritePair(folder / "empty", "3").ok());
  EXPECT_EQ(ReadBytes(folder / "empty/a"), "3");
  ASSERT_TRUE(PublishFolder(StageFolder(folder / "nothing", "1").value(), folder / "nothing").ok());
  EXPECT_THAT(folder.List(), ElementsAre("d", "empty", "nothing"));

  ASSERT_TRUE(RemoveFolderAtomically(folder / "d").ok());
  EXPECT_THAT(folder.List(), ElementsAre("empty", "nothing"));
  EXPECT_EQ(RemoveFolderAtomically(folder / "d").code(), absl::StatusCode::kNotFound);
}

TEST(WriteFolderTest, AFailureLeavesTheOldFolder) {
  TempFolder folder;
  ASSERT_TRUE(WritePair(folder / "d", "old").ok());
  for (const char* token : {"1", "2"}) {  // each has a folder of its own, which nobody reads
    EXPECT_TRUE(std::filesystem::is_empty(StageFolder(folder / "d", token).value()));
    WriteBytes(StageFolder(folder / "d", token).value() + "/a", "half");
  }
  EXPECT_EQ(ReadBytes(folder / "d/sub/b"), "old");
  ASSERT_TRUE(RemoveTemporaries(folder.path()).ok());
  EXPECT_THAT(folder.List(), ElementsAre("d"));
  mkdir((folder / "victim").c_str(), 0777);
  ASSERT_EQ(symlink((folder / "victim").c_str(), (folder / ".d.tmp-1").c_str()), 0);
  EXPECT_EQ(StageFolder(folder / "d", "1").status().code(), absl::StatusCode::kAlreadyExists);
  std::filesystem::remove(folder / ".d.tmp-1");
  std::filesystem::remove(folder / "victim");

  WriteBytes(folder / "file", "mine");
  EXPECT_THAT(Message(WritePair(folder / "file", "1")), HasSubstr("Not a directory"));
  EXPECT_EQ(ReadBytes(folder / "file"), "mine");
  EXPECT_THAT(Message(WritePair(folder / "file/d", "1")), HasSubstr(folder / "file/d"));
  EXPECT_EQ(WritePair(folder / "none/d", "1").code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(folder.List(), ElementsAre("d", "file"));
}

TEST(WriteFolderTest, ThereIsAlwaysAFolderOfTheName) {
  TempFolder folder;
  ASSERT_TRUE(WritePair(folder / "d", "0").ok());
  std::atomic<bool> done = false;
  std::atomic<int> reads = 0;
  std::thread reader([&] {
    struct stat status;
    while (!done) {
      EXPECT_EQ(stat((folder / "d").c_str(), &status), 0);
      ++reads;
    }
  });
  for (int version = 1; version < 100 || reads < 1000; ++version) {
    ASSERT_TRUE(WritePair(folder / "d", std::to_string(version)).ok());
    EXPECT_EQ(ReadBytes(folder / "d/a"), std::to_string(version));
  }
  done = true;
  reader.join();
}

TEST(ReadFileTest, NamesWhatIsMissing) {
  TempFolder folder;
  const absl::Status status = ReadFile(folder / "none").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(status), HasSubstr(folder / "none"));
  EXPECT_THAT(Message(ReadFile(folder.path()).status()), HasSubstr("Is a directory"));
  EXPECT_FALSE(Crc32OfFile(folder / "none").ok());
  EXPECT_THAT(ReadFile("/proc/self/stat").value(), testing::Not(IsEmpty()));  // of size 0, it says
}

TEST(ReadFileTest, ReadsNoMoreThanAllowed) {
  TempFolder folder;
  WriteBytes(folder / "x", "12345");
  EXPECT_EQ(ReadFile(folder / "x", 5).value(), "12345");
  EXPECT_EQ(Message(ReadFile(folder / "x", 4).status()),
            folder / "x: has 5 bytes, at most 4 are allowed");
  EXPECT_EQ(ReadFile("/proc/self/stat", 1).status().code(), absl::StatusCode::kDataLoss);
  std::filesystem::resize_file(folder / "x", uint64_t{1} << 42);  // zeros, which take no space
  EXPECT_EQ(ReadFile(folder / "x").status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& endless : {folder / "pipe", std::string("/dev/zero")}) {
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
  // Each of the library's ways, from any address, as zlib has it.
  std::mt19937 random(1);
  std::string bytes(700, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (size_t size = 0; size < 600; ++size) {
    for (const size_t at : {0, 1, 7, 64}) {
      EXPECT_EQ(Crc32(std::string_view(bytes).substr(at, size), 5),
                crc32(5, reinterpret_cast<const Bytef*>(&bytes[at]), static_cast<uInt>(size)));
    }
  }
}

}  // namespace
}  // namespace gyre
