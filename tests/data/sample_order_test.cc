#include "engine/data/batches/sample_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <utility>

namespace gyre {
namespace {

std::vector<int64_t> Epoch(SampleOrder& order, int64_t size, int64_t epoch) {
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < size; ++i) samples.push_back(order.At(epoch * size + i));
  return samples;
}

TEST(SampleOrderTest, EachEpochIsAPermutationOfItsOwn) {
  for (int64_t size : {1, 2, 3, 7, 64, 1001}) {
    SampleOrder order(size, /*seed=*/5);
    std::vector<int64_t> all(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) all[static_cast<size_t>(i)] = i;
    std::vector<std::vector<int64_t>> epochs;
    for (int64_t epoch = 0; epoch < 5; ++epoch) {
      epochs.push_back(Epoch(order, size, epoch));
      EXPECT_THAT(epochs.back(), testing::UnorderedElementsAreArray(all));
    }
    if (size < 64) continue;  // two permutations of few may be equal by chance
    std::sort(epochs.begin(), epochs.end());
    EXPECT_EQ(std::unique(epochs.begin(), epochs.end()), epochs.end());
    EXPECT_THAT(epochs, testing::Not(testing::Contains(all)));
  }
}

TEST(SampleOrderTest, ContiguousRowsGoOnWhereTheyWere) {
  SampleOrder order = SampleOrder::Contiguous(11, 3);  // 0 1 2 | 3 4 5 | 6 7 8, without 9 and 10
  std::vector<int64_t> got;
  for (int64_t position = 0; position < 15; ++position) got.push_back(order.At(position));
  EXPECT_THAT(got, testing::ElementsAre(0, 3, 6, 1, 4, 7, 2, 5, 8, 0, 3, 6, 1, 4, 7));
  EXPECT_EQ(order.At(9 * (int64_t{1} << 40) + 4), 4);
  SampleOrder one = SampleOrder::Contiguous(3, 1), all = SampleOrder::Contiguous(3, 3);
  for (int64_t position = 0; position < 7; ++position) {
    EXPECT_EQ(one.At(position), position % 3);
    EXPECT_EQ(all.At(position), position % 3);
  }
}

TEST(SampleOrderTest, ARowBeginsAnewWhereItsPieceEnds) {
  const SampleOrder order = SampleOrder::Contiguous(11, 3);
  for (int64_t position = 0; position < 30; ++position) {
    EXPECT_EQ(order.BeginsAt(position), position % 9 < 3) << position;
  }
  EXPECT_EQ(order.period(), 9);
  EXPECT_FALSE(SampleOrder(9, 1).BeginsAt(0));
}

// Row r of each step goes on with its sequence, to the end; all steps are the epoch, each sample
// once, and blanks at the rows' ends.
TEST(SampleOrderTest, EachSequenceIsGoneThroughInOneRow) {
  const std::vector<std::vector<int64_t>> cases = {
      {1}, {5}, {3, 1, 2}, {1, 1, 1, 1, 1, 1, 1}, {9, 1, 1, 1, 4, 4, 2, 7, 3, 3, 3, 5, 1}};
  for (const std::vector<int64_t>& samples : cases) {
    const int64_t size = std::accumulate(samples.begin(), samples.end(), int64_t{0});
    std::vector<int64_t> first;
    for (int64_t sum = 0; const int64_t count : samples)
      first.push_back(std::exchange(sum, sum + count));
    for (int64_t rows = 1; rows <= static_cast<int64_t>(samples.size()); ++rows) {
      SampleOrder order = SampleOrder::Sequences(samples, rows, /*seed=*/3);
      const int64_t period = order.period(), steps = period / rows;
      ASSERT_EQ(period, steps * rows);
      ASSERT_GE(period, size);
      ASSERT_LE(3 * (steps - 1),
                4 * std::max((size + rows - 1) / rows, *std::ranges::max_element(samples)));
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::vector<int64_t> times(static_cast<size_t>(size) + 1, 0);
        for (int64_t row = 0; row < rows; ++row) {
          int64_t before = size;
          for (int64_t step = 0; step < steps; ++step) {
            const int64_t sample = order.At(epoch * period + step * rows + row);
            const bool begins = std::ranges::binary_search(first, sample);
            const bool ended =
                step == 0 || before + 1 == size || std::ranges::binary_search(first, before + 1);
            if (begins || sample == size) {
              ASSERT_TRUE(ended || before == sample);  // no blank one is followed by a sequence
            } else {
              ASSERT_EQ(sample, before + 1);
            }
            ++times[static_cast<size_t>(sample)];
            before = sample;
          }
        }
        EXPECT_EQ(times.back(), period - size);
        times.pop_back();
        EXPECT_THAT(times, testing::Each(1));
      }
    }
  }
}

TEST(SampleOrderTest, SequencesChangePlacesFromEpochToEpoch) {
  const std::vector<int64_t> samples(40, 2);
  SampleOrder order = SampleOrder::Sequences(samples, 4, 3),
              other = SampleOrder::Sequences(samples, 4, 4);
  EXPECT_NE(Epoch(order, 80, 0), Epoch(order, 80, 1));
  EXPECT_NE(Epoch(order, 80, 0), Epoch(other, 80, 0));
  EXPECT_EQ(Epoch(order, 80, 1), Epoch(order, 80, 1));
  // Which row gets which of the equally long ones, one each; and in which order those of one row
  // come, which it has in every epoch.
  SampleOrder one_each = SampleOrder::Sequences(samples, 40, 3),
              one_row = SampleOrder::Sequences(std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7}, 1, 3);
  EXPECT_NE(Epoch(one_each, 80, 0), Epoch(one_each, 80, 1));
  EXPECT_NE(Epoch(one_row, 28, 0), Epoch(one_row, 28, 1));
}

// An epoch is a permutation; a batch has samples of like length, whatever ranks share it.
TEST(SampleOrderTest, BucketsAreOfLikeLength) {
  std::mt19937 random(7);
  for (const int64_t size : {1, 5, 64, 1003}) {
    std::vector<int32_t> lengths;
    for (int64_t i = 0; i < size; ++i) lengths.push_back(static_cast<int32_t>(random() % 1000));
    for (const int64_t batch : {1, 7, 32, 2000}) {
      SampleOrder order = SampleOrder::Bucketed(lengths, batch, 5), plain(size, 5);
      std::vector<int64_t> all(static_cast<size_t>(size));
      std::iota(all.begin(), all.end(), int64_t{0});
      for (int64_t epoch = 0; epoch < 4; ++epoch) {
        EXPECT_THAT(Epoch(order, size, epoch), testing::UnorderedElementsAreArray(all));
      }
      if (size < 1000 || batch == 1 || batch > size) continue;
      EXPECT_NE(Epoch(order, size, 0), Epoch(order, size, 1));
      std::vector<int32_t> firsts;  // of batches, which do not come by length
      for (int64_t p = 0; p < size; p += batch) {
        firsts.push_back(lengths[static_cast<size_t>(order.At(p))]);
      }
      EXPECT_FALSE(std::ranges::is_sorted(firsts));
      const auto padded = [&](SampleOrder& of) {
        int64_t padding = 0;
        for (int64_t first = 0; first < 4 * size; first += batch) {
          int32_t most = 0;
          int64_t sum = 0;
          for (int64_t p = first; p < first + batch; ++p) {
            const int32_t length = lengths[static_cast<size_t>(of.At(p))];
            most = std::max(most, length);
            sum += length;
          }
          padding += most * batch - sum;
        }
        return padding;
      };
      EXPECT_LT(padded(order) * 5, padded(plain)) << batch;
    }
  }
}

// Each epoch has each sample once.  A window has whole runs of few places, all shuffled.
TEST(SampleOrderTest, WindowsAreOfFewPlaces) {
  const std::vector<int64_t> files = {300, 1, 0, 77, 622};
  for (const int64_t window : {1, 2, 64, 100, 999, 1000, 5000}) {
    SampleOrder order = SampleOrder::Windowed(files, window, 5);
    ASSERT_EQ(order.period(), 1000);
    EXPECT_NE(Epoch(order, 1000, 0), Epoch(order, 1000, 1));
    for (int64_t epoch = 0; epoch < 3; ++epoch) {
      for (int64_t first = epoch * 1000; first < (epoch + 1) * 1000;) {
        const int64_t end = order.WindowEnd(first);
        ASSERT_GT(end, first);
        ASSERT_LE(end - first, window);
        ASSERT_LE(end, (epoch + 1) * 1000);
        EXPECT_EQ(order.WindowEnd(end - 1), end);
        std::vector<int64_t> samples;
        for (int64_t p = first; p < end; ++p) samples.push_back(order.At(p));
        EXPECT_TRUE(samples.size() < 30 || !std::ranges::is_sorted(samples));
        std::ranges::sort(samples);
        int64_t places = 1;
        for (size_t i = 1; i < samples.size(); ++i) places += samples[i] != samples[i - 1] + 1;
        // Blocks of a window's 1/16, those of a file about as long, and its ends.
        EXPECT_LE(places, 16 * 2 + 2) << window;
        first = end;
      }
      std::vector<int64_t> all = Epoch(order, 1000, epoch);
      std::ranges::sort(all);
      for (int64_t i = 0; i < 1000; ++i) ASSERT_EQ(all[static_cast<size_t>(i)], i);
    }
  }
  EXPECT_EQ(SampleOrder(9, 1).WindowEnd(3), 0);
}

TEST(SampleOrderTest, DependsOnSeedAndPositionAloneInWhateverOrderAsked) {
  std::mt19937_64 random(1);
  for (uint64_t seed : {0ull, 1ull, ~0ull}) {
    constexpr int64_t kSize = 37;
    SampleOrder straight(kSize, seed), jumping(kSize, seed);
    std::vector<int64_t> expected;
    for (int64_t position = 0; position < 10 * kSize; ++position) {
      expected.push_back(straight.At(position));
    }
    for (int i = 0; i < 500; ++i) {
      const size_t position = random() % expected.size();
      ASSERT_EQ(jumping.At(static_cast<int64_t>(position)), expected[position]);
    }
  }
  SampleOrder one(1000, 1), two(1000, 2);
  EXPECT_NE(Epoch(one, 1000, 0), Epoch(two, 1000, 0));
}

// A resumed run continues an older binary's order: these numbers must never change.
TEST(SampleOrderTest, IsTheSameInEveryBuild) {
  SampleOrder order(10, 42);
  EXPECT_THAT(Epoch(order, 10, 0), testing::ElementsAre(2, 0, 9, 3, 5, 6, 4, 8, 1, 7));
  EXPECT_THAT(Epoch(order, 10, 1), testing::ElementsAre(6, 1, 9, 0, 3, 5, 2, 4, 8, 7));
  SampleOrder large(int64_t{1} << 20, 42);
  EXPECT_EQ(large.At((int64_t{1} << 20) * 1'000'000'007 + 12345), 319584);
  const int64_t samples[] = {1, 3, 2, 2};
  SampleOrder sequences = SampleOrder::Sequences(samples, 2, 42);
  EXPECT_THAT(Epoch(sequences, 8, 1), testing::ElementsAre(1, 6, 2, 7, 3, 4, 0, 5));
  const int32_t lengths[] = {5, 1, 4, 2, 3, 6};
  SampleOrder windows = SampleOrder::Windowed(samples, 3, 42);
  EXPECT_THAT(Epoch(windows, 8, 1), testing::ElementsAre(4, 6, 3, 1, 7, 5, 2, 0));
  SampleOrder buckets = SampleOrder::Bucketed(lengths, 2, 42);
  EXPECT_THAT(Epoch(buckets, 6, 1), testing::ElementsAre(0, 5, 4, 2, 1, 3));
}

// Chi-squared over the 24 permutations of four: 23 degrees of freedom, 99.9999 % below 70.
TEST(SampleOrderTest, PermutationsAreEquallyLikely) {
  std::map<std::vector<int64_t>, int> counts;
  constexpr int kDraws = 24000;
  for (int seed = 0; seed < kDraws / 100; ++seed) {
    SampleOrder order(4, static_cast<uint64_t>(seed));
    for (int64_t epoch = 0; epoch < 100; ++epoch) ++counts[Epoch(order, 4, epoch)];
  }
  EXPECT_EQ(counts.size(), 24u);
  double chi_squared = 0;
  for (const auto& [permutation, count] : counts) {
    const double expected = kDraws / 24.0;
    chi_squared += (count - expected) * (count - expected) / expected;
  }
  EXPECT_LT(chi_squared, 70);
  EXPECT_GT(chi_squared, 3);  // too even would be no randomness either
}

TEST(ShareOfTest, SharesAreContiguousAndEven) {
  for (int ranks : {1, 2, 3, 5, 8}) {
    for (int64_t total : {0, 1, 2, 3, 7, 8, 9, 64, 1000003}) {
      int64_t next = 0, previous = total;
      for (int rank = 0; rank < ranks; ++rank) {
        const Share share = ShareOf(total, rank, ranks);
        EXPECT_EQ(share.first, next);
        EXPECT_LE(share.count, previous);
        EXPECT_GE(share.count, total / ranks);
        EXPECT_LE(share.count, total / ranks + 1);
        next += share.count;
        previous = share.count;
      }
      EXPECT_EQ(next, total);
    }
  }
}

TEST(SampleOrderDeathTest, RefusesWhatHasNoMeaning) {
  EXPECT_DEATH(SampleOrder(0, 1), "check failed");
  EXPECT_DEATH(SampleOrder(3, 1).At(-1), "check failed");
  EXPECT_DEATH(SampleOrder::Contiguous(3, 4), "check failed");
  EXPECT_DEATH(SampleOrder::Contiguous(3, 0), "check failed");
  EXPECT_DEATH(ShareOf(3, 2, 2), "check failed");
}

// Each round has all classes, and each class its samples in turn, whatever their number.
TEST(SampleOrderTest, BalancedDrawsAllClassesEquallyOften) {
  const std::vector<int32_t> classes = {2, 0, 2, 2, 1, 2, 0, 2, 2};  // 2, 1 and 6 samples
  SampleOrder order = SampleOrder::Balanced(classes, 7);
  EXPECT_EQ(order.period(), 9);
  std::vector<std::vector<int64_t>> drawn(3);
  std::map<std::vector<int32_t>, int> rounds;
  for (int64_t position = 0; position < 3 * 60; position += 3) {
    std::vector<int32_t> round;
    for (int64_t i = position; i < position + 3; ++i) {
      const int64_t sample = order.At(i);
      round.push_back(classes[static_cast<size_t>(sample)]);
      drawn[static_cast<size_t>(round.back())].push_back(sample);
    }
    EXPECT_THAT(round, testing::UnorderedElementsAre(0, 1, 2));
    ++rounds[round];
  }
  EXPECT_EQ(rounds.size(), 6u);
  EXPECT_THAT(drawn[1], testing::Each(4));
  std::vector<std::vector<int64_t>> turns;
  for (size_t i = 0; i < 60; i += 6) {
    turns.emplace_back(drawn[2].begin() + i, drawn[2].begin() + i + 6);
    EXPECT_THAT(turns.back(), testing::UnorderedElementsAre(0, 2, 3, 5, 7, 8));
    for (size_t j = i; j < i + 6; j += 2) EXPECT_NE(drawn[0][j], drawn[0][j + 1]);
  }
  std::ranges::sort(turns);
  EXPECT_GT(std::unique(turns.begin(), turns.end()) - turns.begin(), 7);
  // A position's sample does not depend on which were asked for before.
  for (const int64_t position : {170, 3, 91, 0, 179}) {
    EXPECT_EQ(SampleOrder::Balanced(classes, 7).At(position), order.At(position));
  }
  EXPECT_EQ(SampleOrder::Balanced(std::vector<int32_t>{0}, 1).At(5), 0);
}

TEST(SampleOrderTest, RepeatedGivesEachSampleInARow) {
  SampleOrder once(5, 3), thrice = SampleOrder(5, 3).Repeated(3);
  EXPECT_EQ(thrice.period(), 15);
  for (int64_t position = 0; position < 45; ++position) {
    EXPECT_EQ(thrice.At(position), once.At(position / 3));
  }
}

// Another sample of the same epoch, so that a window of files is not left.
TEST(SampleOrderTest, BesideAPositionIsAnother) {
  for (const int64_t size : {1, 2, 7}) {
    for (const int64_t times : {1, 3}) {
      SampleOrder order = SampleOrder(size, 4).Repeated(times);
      for (int64_t position = 0; position < 3 * order.period(); ++position) {
        const int64_t beside = order.Beside(position);
        EXPECT_EQ(beside / order.period(), position / order.period());
        EXPECT_EQ(std::abs(beside - position), size > 1 ? times : 0);
        EXPECT_EQ(order.At(beside) != order.At(position), size > 1);
      }
    }
  }
}

}  // namespace
}  // namespace gyre
