#include "engine/data/batches/sample_statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// high + low, with |low| at most half a unit of high's last place.
// Source: Dekker 1971, "A floating-point technique for extending the available precision".
struct TwoDoubles {
  double high = 0, low = 0;

  void Add(double x, double less = 0) {
    const double sum = high + x, of_x = sum - high;
    low += (high - (sum - of_x)) + (x - of_x) + less;
    high = sum + low;
    low -= high - sum;
  }
  TwoDoubles operator/(double n) const {
    const double quotient = high / n;
    return {quotient, (std::fma(-quotient, n, high) + low) / n};
  }
};

struct Moments {
  double mean = 0, variance = 0;
};

// Of up to 2^64 / 255^2 values of a channel.  10,000 pictures of 2^28 pixels have fewer.
struct ByteSums {
  static constexpr bool zero_one = false;
  uint64_t sum = 0, squares = 0;

  void Add(uint8_t x) {
    sum += x;
    squares += uint64_t{x} * x;
  }
  Moments Of(int64_t count) const {
    using Wide = unsigned __int128;
    const auto n = static_cast<Wide>(count);
    const double scale = 255. * static_cast<double>(count);
    // n^2 times the variance, exact.
    const Wide spread = n * squares - Wide{sum} * sum;
    return {static_cast<double>(sum) / scale, static_cast<double>(spread) / scale / scale};
  }
};

template <typename T>
struct RealSums {
  TwoDoubles sum, squares;
  double first = std::numeric_limits<double>::quiet_NaN();
  bool varies = false, zero_one = true;

  void Add(T x) {
    const double value = x, square = value * value;
    // The square of an F32 is exact in F64.
    const double less = std::is_same_v<T, float> ? 0 : std::fma(value, value, -square);
    sum.Add(value);
    squares.Add(square, less);
    if (std::isnan(first)) first = value;
    varies = varies || value != first;
    zero_one = zero_one && (value == 0 || value == 1);
  }
  // mean(x^2) - mean(x)^2, whose leading digits cancel.
  Moments Of(int64_t count) const {
    const auto n = static_cast<double>(count);
    const TwoDoubles mean = sum / n, square = squares / n;
    const double of_mean = mean.high * mean.high;
    const double less = std::fma(mean.high, mean.high, -of_mean) + 2 * mean.high * mean.low;
    const double variance = (square.high - of_mean) + (square.low - less);
    return varies ? Moments{mean.high, variance} : Moments{first, 0};
  }
};

// Elements of a sample that are not padding.
int64_t ValuesOf(const Dataset& dataset, int64_t sample, const Shape& shape) {
  const std::span<const int32_t> lengths = dataset.lengths();
  if (lengths.empty() || shape.rank() < 2) return shape.elements();
  const int64_t rows = std::min<int64_t>(shape[0], lengths[static_cast<size_t>(sample)]);
  return rows * (shape.elements() / shape[0]);
}

// The i-th of `count` indices among `size`.
int64_t EvenlySpread(int64_t i, int64_t count, int64_t size) {
  return static_cast<int64_t>(static_cast<__int128>(i) * size / count);
}

template <typename T, typename Sums>
absl::StatusOr<SampleStatistics> Sum(const Dataset& dataset, size_t array, int64_t samples,
                                     bool skip_faulty) {
  const DataArray& read = dataset.arrays()[array];
  const auto channels =
      static_cast<size_t>(read.shape.rank() == 0 ? 1 : read.shape[read.shape.rank() - 1]);
  std::vector<Sums> sums(channels);
  SampleStatistics result{.mean = std::vector<double>(channels),
                          .std = std::vector<double>(channels),
                          .values = std::vector<int64_t>(channels),
                          .zero_one = std::vector<bool>(channels)};
  SampleMemory memory;
  absl::Status fault;  // the first
  int64_t sound = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const int64_t sample = EvenlySpread(i, samples, dataset.size());
    const absl::StatusOr<Tensor> stored = dataset.Read(sample, array, memory, {});
    fault.Update(stored.status());
    if (!stored.ok() && skip_faulty) continue;
    RETURN_IF_ERROR(stored.status());
    const T* x = stored->as<T>();
    const int64_t values = ValuesOf(dataset, sample, read.shape);
    const T* const end = x + values;
    const T* const bad = std::find_if_not(x, end, [](T value) {
      return std::isfinite(static_cast<double>(value) * static_cast<double>(value));
    });
    if (bad != end) {
      const auto value = static_cast<double>(*bad);
      fault.Update(absl::InvalidArgumentError(absl::StrFormat(
          "%s: sample %d (the first is 0) holds %g%s", read.file, dataset.NumberInFile(sample),
          value, std::isfinite(value) ? ", whose square is beyond F64" : "")));
      if (skip_faulty) continue;
      return fault;
    }
    ++sound;
    while (x != end) {
      for (Sums& channel : sums) channel.Add(*x++);
    }
    for (int64_t& counted : result.values) counted += values / static_cast<int64_t>(channels);
  }
  if (sound == 0) RETURN_IF_ERROR(fault);
  for (size_t c = 0; c < channels; ++c) {
    if (result.values[c] == 0) continue;
    const Moments moments = sums[c].Of(result.values[c]);
    result.zero_one[c] = sums[c].zero_one;
    result.mean[c] = moments.mean;
    result.std[c] = std::sqrt(std::max(moments.variance, 0.0));
  }
  return result;
}

}  // namespace

absl::StatusOr<SampleStatistics> StatisticsOf(const Dataset& dataset, size_t array, int64_t samples,
                                              bool skip_faulty) {
  GYRE_CHECK(samples >= 0 && samples <= dataset.size());
  switch (dataset.arrays()[array].dtype) {
    case DType::kU8:
      return Sum<uint8_t, ByteSums>(dataset, array, samples, skip_faulty);
    case DType::kF32:
      return Sum<float, RealSums<float>>(dataset, array, samples, skip_faulty);
    default:
      GYRE_CHECK(dataset.arrays()[array].dtype == DType::kF64);
      return Sum<double, RealSums<double>>(dataset, array, samples, skip_faulty);
  }
}

}  // namespace gyre
