// The same under mpirun: processes, real messages.  Failing ranks are in mpi_abort_test.sh.

#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "distributed/process_group.h"
#include "distributed/transport/launcher.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

// MPI starts and finishes once in a process.
class MpiTest : public testing::Test {
 protected:
  static void TearDownTestSuite() {
    delete group_;
    group_ = nullptr;
  }

  void SetUp() override {
    if (group_ != nullptr) return;
    auto group =
        ProcessGroup::Start([] { return NewMpiCommunicator(/*timeout_ms=*/20'000); }, {"ring"});
    ASSERT_TRUE(group.ok()) << group.status();
    group_ = group->release();
  }

  static ProcessGroup* group_;
};

ProcessGroup* MpiTest::group_ = nullptr;

TEST_F(MpiTest, RankIsTheAnnouncedOne) {
  EXPECT_TRUE(StartedAsRank());
  EXPECT_EQ(group_->rank(), AnnouncedRank().rank);
  EXPECT_EQ(group_->size(), AnnouncedRank().size);
}

// Another job's segment cannot be in it: the folder is new, and its name is none that mpirun chose.
// It has no name any more, so nothing is left of a job that is killed.
TEST_F(MpiTest, SharedMemoryIsItsOwn) {
  ASSERT_TRUE(group_->Barrier().ok());  // all have started
  const char* const folder = std::getenv("OMPI_MCA_btl_vader_backing_directory");
  ASSERT_NE(folder, nullptr);
  EXPECT_TRUE(std::string(folder).starts_with("/dev/shm/gyre.mpi-segments.")) << folder;
  EXPECT_FALSE(std::filesystem::exists(folder));
  std::ifstream maps("/proc/self/maps");
  int segments = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/dev/shm/gyre.mpi-segments.") == std::string::npos) continue;
    EXPECT_TRUE(line.ends_with("(deleted)")) << line;
    ++segments;
  }
  EXPECT_EQ(segments, group_->size() == 1 ? 0 : group_->size());
}

// All ranks are on this host, so none is to be reached from another.
TEST_F(MpiTest, ListensToNoNetwork) {
  std::set<std::string> own;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    own.insert(std::filesystem::read_symlink(entry, ignored));
  }
  for (const char* const table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream lines(table);
    for (std::string line; std::getline(lines, line);) {
      const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
      ASSERT_GE(words.size(), 10u) << line;
      const bool listens = words[3] == "0A";
      EXPECT_FALSE(listens && own.contains("socket:[" + words[9] + "]")) << line;
    }
  }
}

TEST_F(MpiTest, TagsAreAsManyAsMpiSays) {
  const auto look = [](Communicator& communicator) {
    const int* most = nullptr;
    int found = 0;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    EXPECT_EQ(communicator.max_tag(), found != 0 ? *most : -1);
    return absl::OkStatus();
  };
  EXPECT_EQ(group_->Call("tags", look), absl::OkStatus());
}

// Of a size that a plain send is rid of at once.
TEST_F(MpiTest, WhatIsHandedOverIsTaken) {
  const int ranks = group_->size();
  const auto exchange = [&](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank(), tag = kFirstOperationTag + 100;
    const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    int taken = -1;
    ASSIGN_OR_RETURN(const Request sent, communicator.HandOver(&rank, sizeof(rank), next, tag));
    for (int i = 0; i < 1000; ++i) {
      ASSIGN_OR_RETURN(const bool done, communicator.Test(sent));
      if (done) return absl::InternalError("nobody has taken it");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    ASSIGN_OR_RETURN(const Request received,
                     communicator.Receive(&taken, sizeof(taken), last, tag));
    RETURN_IF_ERROR(WaitFor(communicator, received));
    EXPECT_EQ(taken, last);
    return WaitFor(communicator, sent);
  };
  EXPECT_EQ(group_->Call("handing over", exchange), absl::OkStatus());
}

// More than MPI's requests have places for at first, asked for in another order than they come in;
// then their places again, of which some are withdrawn unfilled.  Of so many Open MPI keeps some
// waiting, under locks whose order ThreadSanitizer finds fault with.
TEST_F(MpiTest, ManyMessagesAreLookedAtTogether) {
  const int ranks = group_->size(), messages = kSanitized ? 20 : kUsualRequests + 44;
  const auto exchange = [&](Communicator& communicator) -> absl::Status {
    const int rank = communicator.rank(), tag = kFirstOperationTag + 200;
    const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
    for (const int withdrawn : {0, 5, 1}) {
      std::vector<int> out(messages), in(messages, -1);
      std::vector<Request> waiting, expected;
      for (int i = 0; i < withdrawn; ++i) {
        ASSIGN_OR_RETURN(expected.emplace_back(),
                         communicator.Expect(&in[i], sizeof(int), last, tag + messages));
      }
      for (int i = 0; i < messages; ++i) {
        out[i] = 1000 * rank + i;
        ASSIGN_OR_RETURN(waiting.emplace_back(),
                         communicator.Expect(&in[i], sizeof(int), last, tag + i));
      }
      for (int i = 0; i < messages; ++i) {
        ASSIGN_OR_RETURN(waiting.emplace_back(),
                         communicator.Send(&out[i], sizeof(int), next, tag + i));
      }
      while (!waiting.empty()) {
        std::vector<Request> left;
        for (auto request = waiting.rbegin(); request != waiting.rend(); ++request) {
          ASSIGN_OR_RETURN(const bool done, communicator.Test(*request));
          if (!done) left.push_back(*request);
        }
        waiting = left;
      }
      for (const Request request : expected) RETURN_IF_ERROR(communicator.Withdraw(request));
      for (int i = 0; i < messages; ++i) EXPECT_EQ(in[i], 1000 * last + i);
    }
    return absl::OkStatus();
  };
  EXPECT_EQ(group_->Call("many messages", exchange), absl::OkStatus());
}

TEST_F(MpiTest, StartsOnce) {
  EXPECT_EQ(NewMpiCommunicator(1000).status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace gyre
