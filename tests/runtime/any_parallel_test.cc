// The loop skeletons against plain loops, exactly, and over and over: a reduction whose threads
// race is right most of the time.  Runs on sim; with GYRE_TEST_DEVICE=cuda, on the GPU.
#include "tests/runtime/any_parallel.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "engine/runtime/device/buffer.h"
#include "tests/runtime/scatter_case.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

class AnyParallelTest : public testing::Test {
 protected:
  template <typename T>
  Buffer Upload(const std::vector<T>& values) {
    Buffer buffer = Make(values.size() * sizeof(T));
    EXPECT_TRUE(stream_->Copy(buffer.data(), values.data(), buffer.bytes()).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return buffer;
  }
  template <typename T>
  std::vector<T> Download(const Buffer& buffer) {
    std::vector<T> values(buffer.bytes() / sizeof(T));
    EXPECT_TRUE(stream_->Copy(values.data(), buffer.data(), buffer.bytes()).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return values;
  }
  Buffer Make(size_t bytes) {
    return std::move(Buffer::Allocate(*opened_.device, MemoryKind::kDevice, bytes)).value();
  }
  std::vector<int64_t> Random(int64_t n) {
    std::vector<int64_t> values(static_cast<size_t>(n));
    for (int64_t& value : values) value = static_cast<int64_t>(random_() >> 24) - (1ll << 39);
    return values;
  }

  // What y must be.
  static std::vector<int64_t> Expected(Skeleton skeleton, int64_t rows, int64_t columns,
                                       const std::vector<int64_t>& x) {
    std::vector<int64_t> of_rows(rows), of_columns(columns), y(x);
    for (int64_t i = 0; i < rows * columns; ++i) {
      of_rows[i / columns] += x[i];
      of_columns[i % columns] += x[i];
    }
    if (skeleton == Skeleton::kForEachRow) return of_rows;
    if (skeleton == Skeleton::kReduceColumns) return of_columns;
    for (int64_t i = 0; i < rows * columns; ++i) {
      y[i] = skeleton == Skeleton::kTransformRows ? x[i] - of_rows[i / columns] : x[i] + 1;
    }
    return y;
  }

  void CheckExtents(int64_t rows, int64_t columns) {
    const std::vector<int64_t> x = Random(rows * columns);
    const Buffer device_x = Upload(x);
    for (const Skeleton skeleton :
         {Skeleton::kForEach, Skeleton::kForEachCell, Skeleton::kForEachRow,
          Skeleton::kReduceColumns, Skeleton::kTransformRows}) {
      const std::vector<int64_t> expected = Expected(skeleton, rows, columns, x);
      const Buffer y = Make(expected.size() * sizeof(int64_t));
      const Buffer scratch = Make(AnyParallelScratch(skeleton, rows, columns));
      for (int turn = 0; turn < 4; ++turn) {
        EXPECT_TRUE(AnyParallel(*stream_, skeleton, rows, columns,
                                reinterpret_cast<const int64_t*>(device_x.data()),
                                reinterpret_cast<int64_t*>(y.data()),
                                turn % 2 == 0 ? nullptr : scratch.data())
                        .ok());
        EXPECT_EQ(Download<int64_t>(y), expected)
            << "skeleton " << static_cast<int>(skeleton) << " of " << rows << " x " << columns;
      }
    }
  }

  const TestDevice opened_ = OpenTestDevice(NamedDevice().value_or(DeviceKind::kSim));
  const std::unique_ptr<Stream> stream_ = std::move(opened_.device->NewStream()).value();
  std::mt19937_64 random_{5};
};

TEST_F(AnyParallelTest, AgreesWithPlainLoops) {
  const int64_t extents[] = {0, 1, 3, 31, 32, 33, 255, 257};
  for (const int64_t rows : extents) {
    for (const int64_t columns : extents) CheckExtents(rows, columns);
  }
  // A few long ones, in pieces; many short ones; more than the blocks of a launch.
  for (const int64_t long_one : {511, 513, 8191, 8193, 50001}) {
    CheckExtents(3, long_one);
    CheckExtents(long_one, 3);
  }
  CheckExtents(9000, 40);
  CheckExtents(70, 5000);
}

TEST_F(AnyParallelTest, ScattersInTheOrderOfRows) {
  for (const int64_t rows : {1, 50, 700}) {
    for (const int64_t columns : {1, 129, 1025}) {
      std::vector<double> values(rows * columns);
      for (double& value : values) value = std::normal_distribution<double>()(random_);
      const ScatterCase c(values, rows, columns, /*destinations=*/5, random_);
      const Buffer destination = Upload(c.destination), x = Upload(c.x), y = Upload(c.fresh);
      EXPECT_TRUE(
          AnyScatter(*stream_, rows, columns, reinterpret_cast<const int64_t*>(destination.data()),
                     reinterpret_cast<const float*>(x.data()), reinterpret_cast<float*>(y.data()))
              .ok());
      EXPECT_EQ(Download<float>(y), c.expected) << rows << " x " << columns;
    }
  }
}

}  // namespace
}  // namespace gyre
