// Agreement: the same verdict on all ranks, naming the first rank that differs from rank 0.

#include "distributed/agreement.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/distributed/rank_threads.h"

namespace gyre {
namespace {

std::vector<absl::Status> Verdicts(const std::vector<std::string>& whats,
                                   const std::vector<std::string>& contents, uint64_t seed) {
  std::vector<absl::Status> verdicts(whats.size());
  RunRanks(static_cast<int>(whats.size()), [&](Communicator& transport) {
    DelayingCommunicator communicator(transport, seed);
    const int rank = communicator.rank();
    Agreement agreement(communicator);
    agreement.Start(whats[rank], contents[rank]);
    verdicts[rank] = DriveToEnd([&] { return agreement.Progress(); });
  });
  return verdicts;
}

TEST(Agreement, NamesTheFirstRankThatDiffers) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 60; ++trial) {
    const int ranks = 1 + random() % 9;
    std::vector<std::string> contents(ranks);
    int first = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      contents[rank] =
          std::string(1, static_cast<char>('a' + (random() % 3 == 0 ? random() % 3 : 0)));
      if (first == 0 && contents[rank] != contents[0]) first = rank;
    }
    const absl::Status expected =
        first == 0
            ? absl::OkStatus()
            : absl::FailedPreconditionError("rank " + std::to_string(first) +
                                            " is the first whose plan differs from rank 0's");
    for (const absl::Status& verdict :
         Verdicts(std::vector<std::string>(ranks, "plan"), contents, trial)) {
      EXPECT_EQ(verdict, expected);
    }
  }
}

TEST(Agreement, NamesBothWhats) {
  const std::string longer(500, 'x');
  for (const absl::Status& verdict : Verdicts({"one", "one", longer}, {"", "", ""}, 1)) {
    EXPECT_EQ(verdict.message(),
              "ranks disagree: rank 0 is at one, rank 2 at " + std::string(95, 'x'));
  }
}

// Cut alike, but not the same.
TEST(Agreement, ComparesAllOfALongWhat) {
  const std::string longer(500, 'x');
  for (const absl::Status& verdict : Verdicts({longer + "a", longer + "b"}, {"", ""}, 1)) {
    EXPECT_FALSE(verdict.ok());
  }
}

TEST(Agreement, ServesAgain) {
  RunRanks(5, [](Communicator& communicator) {
    Agreement agreement(communicator);
    for (int i = 0; i < 20; ++i) {
      agreement.Start("round", std::to_string(i));
      EXPECT_TRUE(DriveToEnd([&] { return agreement.Progress(); }).ok());
    }
    agreement.Start("round", std::to_string(communicator.rank() / 3));
    EXPECT_FALSE(DriveToEnd([&] { return agreement.Progress(); }).ok());
  });
}

}  // namespace
}  // namespace gyre
