// Means and deviations against sums of 113 bits, for values that cost plain sums their digits.
#include "engine/data/batches/sample_statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "absl/strings/str_replace.h"
#include "engine/data/sets/memory_dataset.h"

namespace gyre {
namespace {

// A data set of one array of these elements, [samples, sample...].
template <typename T>
MemoryDataset DatasetOf(const std::vector<T>& values, int64_t samples,
                        const std::vector<int64_t>& sample) {
  HostArray array = NewArray<T>(samples, sample);
  EXPECT_EQ(array.bytes.size(), values.size() * sizeof(T));
  std::ranges::copy(values, ElementsOf<T>(array));
  MemoryDataset dataset;
  EXPECT_EQ(dataset.Add("x", "file", std::move(array)), absl::OkStatus());
  return dataset;
}

// Of every `channels`-th value from `channel` on, in two passes.
template <typename T>
std::pair<double, double> Expected(const std::vector<T>& values, size_t channels, size_t channel) {
  const __float128 unit = std::is_same_v<T, uint8_t> ? 255 : 1;
  __float128 sum = 0, squares = 0;
  const auto n = static_cast<__float128>(values.size() / channels);
  for (size_t i = channel; i < values.size(); i += channels) sum += values[i] / unit;
  for (size_t i = channel; i < values.size(); i += channels) {
    const __float128 from_mean = values[i] / unit - sum / n;
    squares += from_mean * from_mean;
  }
  const auto variance = static_cast<long double>(squares / n);
  return {static_cast<double>(sum / n), static_cast<double>(std::sqrt(variance))};
}

template <typename T>
void ExpectExact(const std::vector<T>& values, int64_t samples, const std::vector<int64_t>& sample,
                 double tolerance = 1e-15) {
  const MemoryDataset dataset = DatasetOf(values, samples, sample);
  const auto found = StatisticsOf(dataset, 0, samples).value();
  const size_t channels = sample.empty() ? 1 : static_cast<size_t>(sample.back());
  ASSERT_EQ(found.mean.size(), channels);
  ASSERT_EQ(found.std.size(), channels);
  for (size_t c = 0; c < channels; ++c) {
    const auto [mean, std] = Expected(values, channels, c);
    EXPECT_LE(std::abs(found.mean[c] - mean), tolerance * std::max(std::abs(mean), std)) << c;
    EXPECT_LE(std::abs(found.std[c] - std), tolerance * std) << c << ": " << std;
    EXPECT_EQ(found.values[c], static_cast<int64_t>(values.size() / channels));
  }
}

template <typename T>
std::vector<T> Random(size_t count, double mean, double std, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(mean, std);
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(normal(random));
  return values;
}

TEST(SampleStatistics, RandomValues) {
  std::mt19937_64 random(1);
  for (const auto& [samples, sample] : std::vector<std::pair<int64_t, std::vector<int64_t>>>{
           {1, {}}, {2, {}}, {7, {1}}, {5, {3}}, {1, {2, 3}}, {11, {3, 5, 2}}, {3, {7, 1}}}) {
    size_t count = static_cast<size_t>(samples);
    for (const int64_t extent : sample) count *= static_cast<size_t>(extent);
    std::vector<uint8_t> bytes(count);
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
    ExpectExact(bytes, samples, sample);
    for (const double mean : {0., 1., -1e4}) {
      ExpectExact(Random<float>(count, mean, 1, count), samples, sample);
      ExpectExact(Random<double>(count, mean, 1e-3, count), samples, sample);
    }
  }
}

// Each of them costs a sum of F64 more than 1e-12.
TEST(SampleStatistics, DigitsThatPlainSumsLose) {
  constexpr int64_t kSamples = 100'000;
  std::vector<double> tenths(kSamples, 0.1);
  tenths[17] = 0.2;
  ExpectExact(tenths, kSamples, {});
  // Microseconds since 1970.  19 of 32 digits cancel.
  ExpectExact(Random<double>(kSamples, 1.7e15, 1e6, 2), kSamples, {}, 1e-12);
  std::vector<double> outlier = Random<double>(kSamples, 0, 1, 3);
  outlier[0] = 1e9;
  ExpectExact(outlier, kSamples, {});
  // The rest of a cancelled sum.
  std::vector<double> cancels(kSamples, 1e-3);
  for (size_t i = 0; i + 1 < cancels.size(); i += 3) {
    cancels[i] = 1e16;
    cancels[i + 1] = -1e16;
  }
  const auto found = *StatisticsOf(DatasetOf(cancels, kSamples, {}), 0, kSamples);
  EXPECT_NEAR(found.mean[0], Expected(cancels, 1, 0).first, 1e-18);
  std::vector<uint8_t> nearly(kSamples * 3, 255);
  nearly[5] = 254;
  ExpectExact(nearly, kSamples, {3});
}

TEST(SampleStatistics, ConstantChannelsDoNotDeviate) {
  const MemoryDataset reals = DatasetOf<float>({0.1f, -2, 0.1f, -2, 0.1f, -2}, 3, {2});
  const auto of_reals = *StatisticsOf(reals, 0, 3);
  EXPECT_EQ(of_reals.mean, (std::vector<double>{0.1f, -2}));
  EXPECT_EQ(of_reals.std, (std::vector<double>{0, 0}));
  const auto of_bytes = *StatisticsOf(DatasetOf<uint8_t>({9, 9, 9}, 3, {}), 0, 3);
  EXPECT_EQ(of_bytes.mean, std::vector<double>{9 / 255.});
  EXPECT_EQ(of_bytes.std, std::vector<double>{0});
}

TEST(SampleStatistics, SomeSamplesOrNone) {
  const MemoryDataset dataset = DatasetOf<double>({1, 3, 100}, 3, {});
  const auto two = *StatisticsOf(dataset, 0, 2);
  EXPECT_EQ(two.mean[0], 2);
  EXPECT_EQ(two.std[0], 1);
  EXPECT_EQ(two.values[0], 2);
  const MemoryDataset ten = DatasetOf<double>({1, -9, -9, 2, -9, -9, 6, -9, -9, -9}, 10, {});
  EXPECT_EQ(StatisticsOf(ten, 0, 3)->mean[0], 3);
  const auto none = *StatisticsOf(dataset, 0, 0);
  EXPECT_EQ(none.mean[0], 0);
  EXPECT_EQ(none.std[0], 0);
  EXPECT_EQ(none.values[0], 0);
}

TEST(SampleStatistics, PaddingDoesNotCount) {
  // Rows of [3, 2], of which 2, 0 and 3 are there.
  MemoryDataset rows = DatasetOf<float>({1, 10, 2, 20, 99, 99, 99, 99, 99, 99, 99, 99,  //
                                         3, 30, 4, 40, 5, 50},
                                        3, {3, 2});
  rows.SetLengths({2, 0, 3});
  const auto found = *StatisticsOf(rows, 0, 3);
  EXPECT_EQ(found.mean, (std::vector<double>{3, 30}));
  EXPECT_EQ(found.values, (std::vector<int64_t>{5, 5}));
  EXPECT_DOUBLE_EQ(found.std[0], std::sqrt(2));
  // The lengths are those of another array.
  MemoryDataset columns = DatasetOf<float>({1, 10, 2, 20}, 2, {2});
  columns.SetLengths({1, 1});
  EXPECT_EQ(StatisticsOf(columns, 0, 2)->mean, (std::vector<double>{1.5, 15}));
  // The blank sample after sequences is none.
  MemoryDataset sequences = DatasetOf<float>({1, 3, 0}, 3, {1});
  sequences.SetSequences({2});
  EXPECT_EQ(StatisticsOf(sequences, 0, sequences.size())->mean[0], 2);
}

TEST(SampleStatistics, ValuesWithoutSquares) {
  const auto error = [](double value) {
    return std::string(
        StatisticsOf(DatasetOf<double>({1, 2, value, 4}, 2, {2}), 0, 2).status().message());
  };
  EXPECT_EQ(error(std::nan("")), "file: sample 1 (the first is 0) holds nan");
  EXPECT_EQ(error(-std::numeric_limits<double>::infinity()),
            "file: sample 1 (the first is 0) holds -inf");
  EXPECT_EQ(error(1e200),
            "file: sample 1 (the first is 0) holds 1e+200, whose square is beyond F64");
  EXPECT_EQ(error(1e150), "");
  const auto kept = DatasetOf<double>({1, 2, 3, std::nan(""), 5, 6}, 3, {2});
  const auto statistics = StatisticsOf(kept, 0, 3, /*skip_faulty=*/true);
  EXPECT_EQ(statistics->mean, (std::vector<double>{3, 4}));
  EXPECT_EQ(statistics->values, (std::vector<int64_t>{2, 2}));
  const auto unsound = DatasetOf<double>({std::nan(""), 1, 2, -INFINITY}, 2, {2});
  EXPECT_EQ(StatisticsOf(unsound, 0, 2, /*skip_faulty=*/true).status().message(),
            "file: sample 0 (the first is 0) holds nan");
}

TEST(SampleStatistics, ChannelsOfZerosAndOnes) {
  const auto of = [](const auto& values) {
    return StatisticsOf(DatasetOf(values, 3, {2}), 0, 3)->zero_one;
  };
  EXPECT_EQ(of(std::vector<double>{0, 1, 1, 0.5, 1, 0}), (std::vector<bool>{true, false}));
  EXPECT_EQ(of(std::vector<float>{0, 0, 1, -1, 0, 0}), (std::vector<bool>{true, false}));
  EXPECT_EQ(of(std::vector<uint8_t>{0, 255, 0, 1, 255, 0}), (std::vector<bool>{false, false}));
}

}  // namespace
}  // namespace gyre
