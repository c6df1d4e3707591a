// What ranks tell each other of a checkpoint's parts, and when all know.

#include "engine/training/checkpoint/checkpoint_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace gyre {
namespace {

using std::chrono_literals::operator""ms;

// As sums of training's steps do.
size_t Tell(std::vector<std::unique_ptr<CheckpointShards>>& ranks) {
  std::vector<double> sums;
  for (auto& rank : ranks) {
    std::vector<double> own;
    rank->AppendTo(own);
    sums.resize(own.size());
    std::ranges::transform(own, sums, sums.begin(), std::plus());
  }
  for (auto& rank : ranks) rank->Take(sums);
  return sums.size();
}

const std::vector<std::vector<std::string>> kFilesOfRanks = {
    {"w", "a1", "b1"}, {"a2"}, {"a3", "b3"}};

std::vector<std::unique_ptr<CheckpointShards>> PartsOfThree(bool copied) {
  std::vector<std::unique_ptr<CheckpointShards>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<CheckpointShards>(kFilesOfRanks, rank, copied));
  }
  return ranks;
}

TEST(CheckpointShards, AreKnownOnceAllHaveTold) {
  auto ranks = PartsOfThree(/*copied=*/false);
  std::map<std::string, uint32_t> crc32s = {{"w", 0},  {"a1", ~0u},        {"a2", 1},
                                            {"a3", 7}, {"b1", 0x80000000}, {"b3", 0xfffffffe}};
  for (int rank : {2, 0, 1}) {
    for (const std::string& file : kFilesOfRanks[rank]) {
      EXPECT_FALSE(ranks[rank]->complete());
      EXPECT_EQ(Tell(ranks), 6u);
      ranks[rank]->Wrote(file, crc32s[file]);
      EXPECT_FALSE(ranks[0]->complete());  // not before a sum, so that all know at once
    }
  }
  Tell(ranks);
  for (auto& rank : ranks) {
    EXPECT_TRUE(rank->Await(CheckpointShards::kWritten, 0ms));
    EXPECT_EQ(rank->crc32_of_file(), crc32s);
    EXPECT_TRUE(rank->complete());
  }
  EXPECT_EQ(Tell(ranks), 0u);

  EXPECT_FALSE(CheckpointShards({{"a"}, {"b"}}, 1, false).Await(CheckpointShards::kWritten, 0ms));
  EXPECT_TRUE(CheckpointShards({{}, {}}, 0, false).complete());  // rank 0 writes all
}

// Copies follow what is written, and rank 0's publishing them: each stage is that of all.
TEST(CheckpointShards, AreCopiedBeforeTheyAreComplete) {
  auto ranks = PartsOfThree(/*copied=*/true);
  for (int rank = 0; rank < 3; ++rank) {
    for (const std::string& file : kFilesOfRanks[rank]) ranks[rank]->Wrote(file, 3);
  }
  EXPECT_EQ(Tell(ranks), 8u);
  EXPECT_FALSE(ranks[1]->AwaitMail(0ms));
  for (int rank : {1, 0, 2}) {
    EXPECT_TRUE(ranks[rank]->reached(CheckpointShards::kWritten));
    EXPECT_FALSE(ranks[rank]->reached(CheckpointShards::kCopied));
    ranks[rank]->MailCame();
    EXPECT_TRUE(ranks[rank]->AwaitMail(0ms));
    ranks[rank]->Reached(CheckpointShards::kCopied);
    EXPECT_EQ(Tell(ranks), 8u);
  }
  for (auto& rank : ranks) {
    EXPECT_TRUE(rank->Await(CheckpointShards::kCopied, 0ms));
    EXPECT_FALSE(rank->complete());
  }
  ranks[0]->Reached(CheckpointShards::kPublished);
  EXPECT_EQ(Tell(ranks), 8u);
  for (auto& rank : ranks) EXPECT_TRUE(rank->complete());
  EXPECT_EQ(Tell(ranks), 0u);
}

}  // namespace
}  // namespace gyre
