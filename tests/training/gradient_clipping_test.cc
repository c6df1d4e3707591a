// Sums of squares against plain sums, over types and lengths around the pieces' ends; what clipping
// decides.  Runs on cpu and sim; with GYRE_TEST_DEVICE=cuda, on the GPU.
#include "engine/training/step/gradient_clipping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

class GradientClippingTest : public testing::TestWithParam<DeviceKind> {
 protected:
  void SetUp() override {
    device_ = OpenTestDevice(GetParam()).device;
    stream_ = std::move(device_->NewStream()).value();
  }

  Buffer Upload(const void* data, size_t bytes) {
    Buffer buffer = std::move(Buffer::Allocate(*device_, MemoryKind::kDevice, bytes)).value();
    EXPECT_TRUE(stream_->Copy(buffer.data(), data, bytes).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return buffer;
  }
  template <typename T>
  T Download(const Buffer& buffer) {
    T value;
    EXPECT_TRUE(stream_->Copy(&value, buffer.data(), sizeof(value)).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return value;
  }

  template <typename T>
  double Sum(const std::vector<T>& values) {
    const auto count = static_cast<int64_t>(values.size());
    const Buffer gradient = Upload(values.data(), values.size() * sizeof(T));
    const Buffer scratch =
        *Buffer::Allocate(*device_, MemoryKind::kDevice, kSumSquaresScratchBytes);
    const double fresh = kNaN;
    const Buffer sum = Upload(&fresh, sizeof(fresh));
    const Tensor tensor{gradient.data(), Shape({count}), kDTypeOf<T>};
    EXPECT_TRUE(
        SumSquares(*stream_, tensor, scratch.data(), reinterpret_cast<double*>(sum.data())).ok());
    return Download<double>(sum);
  }

  template <typename T>
  void CheckType(double tolerance) {
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-2, 2);
    for (const int64_t count : {0, 1, 2, 4095, 4096, 8191, 8192, 50001}) {
      std::vector<T> values;
      double expected = 0;
      for (int64_t i = 0; i < count; ++i) {
        values.push_back(static_cast<T>(uniform(random)));
        expected += static_cast<double>(values.back()) * static_cast<double>(values.back());
      }
      EXPECT_NEAR(Sum(values), expected, tolerance * expected) << count;
    }
    for (const double bad : {kNaN, kInf, -kInf}) {
      for (const size_t at : {size_t{0}, size_t{4096}, size_t{20000}}) {
        std::vector<T> values(20001, static_cast<T>(1.0f));
        values[at] = static_cast<T>(static_cast<float>(bad));
        EXPECT_FALSE(std::isfinite(Sum(values))) << bad << " at " << at;
      }
    }
  }

  struct Opened {
    UpdateScalars update;
    GradientReport report;
  };
  Opened Open(const std::vector<double>& sums, std::optional<double> clip_norm) {
    const UpdateScalars scalars;
    const GradientReport fresh{.norm = kNaN, .bad_bucket = 77};
    const Buffer device_sums = Upload(sums.data(), sums.size() * sizeof(double));
    const Buffer step = Upload(&scalars, sizeof(scalars)), report = Upload(&fresh, sizeof(fresh));
    EXPECT_TRUE(ClipGradients(*stream_, reinterpret_cast<const double*>(device_sums.data()),
                              static_cast<int>(sums.size()), clip_norm,
                              reinterpret_cast<UpdateScalars*>(step.data()),
                              reinterpret_cast<GradientReport*>(report.data()))
                    .ok());
    return {Download<UpdateScalars>(step), Download<GradientReport>(report)};
  }

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

INSTANTIATE_TEST_SUITE_P(, GradientClippingTest, testing::ValuesIn(DevicesToTest()), DeviceName);

TEST_P(GradientClippingTest, SumsSquaresOfEveryType) {
  CheckType<double>(1e-13);
  CheckType<float>(1e-13);
  CheckType<Half>(1e-13);
  CheckType<BFloat16>(1e-13);
}

TEST_P(GradientClippingTest, SquaresBeyondFloatAreFinite) {
  EXPECT_EQ(Sum(std::vector<float>{1e30f}), 1e30f * static_cast<double>(1e30f));
}

TEST_P(GradientClippingTest, ClipsOnlyWhatExceedsTheNorm) {
  EXPECT_EQ(Open({9, 16}, std::nullopt).update.gradient_scale, 1);
  EXPECT_EQ(Open({9, 16}, std::nullopt).report.norm, 5);
  EXPECT_EQ(Open({9, 16}, 5).update.gradient_scale, 1);
  EXPECT_EQ(Open({9, 16}, 2).update.gradient_scale, 2.0 / 5);
  EXPECT_EQ(Open({0, 0}, 1).update.gradient_scale, 1);
  EXPECT_EQ(Open({9, 16}, 2).report.bad_bucket, -1);
}

TEST_P(GradientClippingTest, NamesTheFirstBucketThatIsNotFinite) {
  EXPECT_EQ(Open({1, kNaN, kInf, 2}, std::nullopt).report.bad_bucket, 1);
  EXPECT_EQ(Open({kInf, 1}, 1).report.bad_bucket, 0);
  EXPECT_EQ(Open({}, std::nullopt).report.bad_bucket, -1);
}

}  // namespace
}  // namespace gyre
