// Random orders, with padding and samples that never come.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/training/predict/predict.h"

namespace gyre {
namespace {

TEST(InDataOrder, HandsOnAscendingWhateverTheOrder) {
  std::mt19937 random(1);
  for (int64_t samples = 0; samples < 12; ++samples) {
    std::vector<int64_t> order;
    for (int64_t i = 0; i < samples; ++i) order.push_back(i);
    std::ranges::shuffle(order, random);
    if (samples > 4) order.resize(static_cast<size_t>(samples - 2));
    order.insert(order.begin() + static_cast<int64_t>(order.size()) / 2, samples);  // padding
    std::vector<int64_t> got;
    InDataOrder ordered(samples, [&](int64_t sample, std::span<const Tensor> values) {
      got.push_back(sample);
      EXPECT_EQ(values.size(), sample % 3 == 0 ? 0u : 1u);
      for (const Tensor& value : values) EXPECT_EQ(value.as<double>()[1], sample);
      return absl::OkStatus();
    });
    for (const int64_t sample : order) {
      double values[2] = {0, static_cast<double>(sample)};
      const Tensor tensor{values, Shape({1, 2}), DType::kF64};
      ASSERT_TRUE(ordered.Add(sample, {&tensor, sample % 3 == 0 ? 0u : 1u}).ok());
    }
    ASSERT_TRUE(ordered.Finish().ok());
    std::erase(order, samples);
    std::ranges::sort(order);
    EXPECT_EQ(got, order);
  }
}

// Nothing waits for what comes in order.
TEST(InDataOrder, HandsOnAtOnce) {
  int64_t got = 0;
  InDataOrder ordered(9, [&](int64_t, std::span<const Tensor>) {
    return ++got < 4 ? absl::OkStatus() : absl::InternalError("full");
  });
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(ordered.Add(i, {}).ok());
    EXPECT_EQ(got, i + 1);
  }
  EXPECT_FALSE(ordered.Add(3, {}).ok());
}

}  // namespace
}  // namespace gyre
