// Memory that the ranks of a host share: who sees whose, and what happens without room.

#include "distributed/transport/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <barrier>
#include <csignal>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/runtime/machine.h"
#include "tests/distributed/rank_threads.h"

namespace gyre {
namespace {

TEST(SharedMemory, RanksOfAHostSeeEachOthers) {
  const std::vector<int> hosts = {0, 1, 0, 0, 1};
  std::barrier all_ranks(5);
  RunRanks(NewThreadCommunicators(5, kPatienceMs, hosts), [&](Communicator& communicator) {
    const int rank = communicator.rank();
    const std::vector<int> ranks = RanksOfHost(communicator);
    EXPECT_EQ(ranks, hosts[rank] == 0 ? (std::vector<int>{0, 2, 3}) : (std::vector<int>{1, 4}));
    const auto memory = SharedMemory::Create(communicator, 1000 * (rank + 1));
    ASSERT_TRUE(memory.ok()) << memory.status();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const int index = static_cast<int>(i);
      EXPECT_EQ((*memory)->bytes(index), 1000u * (ranks[i] + 1));
      EXPECT_EQ((*memory)->of(index) == (*memory)->own(), ranks[i] == rank);
    }
    for (size_t i = 0; i < 1000; ++i) ASSERT_EQ((*memory)->own()[i], std::byte{0});
    all_ranks.arrive_and_wait();
    std::memset((*memory)->own(), rank + 1, 1000 * (rank + 1));
    all_ranks.arrive_and_wait();
    for (size_t i = 0; i < ranks.size(); ++i) {
      const std::byte* const theirs = (*memory)->of(static_cast<int>(i));
      EXPECT_EQ(theirs[0], std::byte(ranks[i] + 1));
      EXPECT_EQ(theirs[1000 * (ranks[i] + 1) - 1], std::byte(ranks[i] + 1));
    }
    all_ranks.arrive_and_wait();
  });
}

TEST(SharedMemory, NoRoomIsAnErrorOnAllRanksOfTheHost) {
  RunRanks(3, [](Communicator& communicator) {
    const size_t bytes = communicator.rank() == 1 ? size_t{1} << 60 : 4096;
    EXPECT_EQ(SharedMemory::Create(communicator, bytes).status().code(),
              absl::StatusCode::kResourceExhausted);
    EXPECT_TRUE(SharedMemory::Create(communicator, 4096).ok());  // and nothing is lost
  });
}

// Half of the host's memory is for all that its ranks have, not for each request.  Files of more
// than the limit cannot be made here, so that nothing fills the memory where the bound fails.
TEST(SharedMemory, HalfOfTheMemoryIsForAllRequests) {
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  const rlimit small = {size_t{64} << 20, limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto before = signal(SIGXFSZ, SIG_IGN);
  constexpr size_t kHeld = size_t{1} << 20;
  const size_t half = MemoryBytes() / 2;
  RunRanks(2, [&](Communicator& communicator) {
    const auto first = SharedMemory::Create(communicator, kHeld);
    ASSERT_TRUE(first.ok()) << first.status();
    const size_t bytes = half / 2 - kHeld + 4096;
    EXPECT_EQ(SharedMemory::Create(communicator, bytes).status().message(),
              absl::StrCat("no room for ", bytes,
                           " bytes of shared memory: the ranks of this host would have ",
                           2 * (bytes + kHeld), " bytes in all, expected at most ", half,
                           ", half of its memory"));
  });
  // What they had is free again.
  RunRanks(2, [&](Communicator& communicator) {
    const size_t bytes = half / 2 - kHeld + 4096;
    EXPECT_THAT(SharedMemory::Create(communicator, bytes).status().message(),
                testing::HasSubstr("File too large"));
  });
  signal(SIGXFSZ, before);
  setrlimit(RLIMIT_FSIZE, &limit);
}

// What a communicator may still read and write stays (seen by ASan).
TEST(SharedMemory, MessagesUnderWayKeepTheirMemory) {
  struct Failing final : WrappedCommunicator {
    using WrappedCommunicator::WrappedCommunicator;
    absl::StatusOr<Request> Begin(RequestKind kind, void* data, size_t bytes, int, int) override {
      (IsSend(kind) ? sent : received) = {static_cast<char*>(data), bytes};
      return 0;
    }
    absl::StatusOr<bool> Test(Request) override { return absl::UnavailableError("silent"); }
    std::span<char> sent, received;
  };
  const auto communicators = NewThreadCommunicators(2, kPatienceMs);
  Failing failing(*communicators[0]);
  EXPECT_EQ(SharedMemory::Create(failing, 4096).status(), absl::UnavailableError("silent"));
  ASSERT_EQ(failing.sent.size(), failing.received.size());
  std::ranges::copy(failing.sent, failing.received.begin());
}

}  // namespace
}  // namespace gyre
