#include "engine/data/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <limits>
#include <random>
#include <thread>

namespace gyre {
namespace {

constexpr int64_t kPixels = 6;

// Pixel i of sample s is 100 * s + i, its label is s; one sample may fail.
class FakeDataset : public Dataset {
 public:
  explicit FakeDataset(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {}
  int64_t size() const override { return size_; }
  const Shape& sample_shape() const override { return shape_; }
  const PixelValues& pixel_values() const override { return pixel_values_; }
  absl::Status Read(int64_t index, Tensor image, int32_t* label) const override {
    ++reads;
    if (index == broken_) return absl::DataLossError("sample is broken");
    for (int64_t i = 0; i < kPixels; ++i) {
      if (image.dtype == DType::kF64)
        image.as<double>()[i] = 100.0 * static_cast<double>(index) + static_cast<double>(i);
      if (image.dtype == DType::kU8) image.as<uint8_t>()[i] = static_cast<uint8_t>(100 * index + i);
      if (image.dtype == DType::kF32) image.as<float>()[i] = static_cast<float>(100 * index + i);
    }
    *label = static_cast<int32_t>(index);
    return absl::OkStatus();
  }

  mutable std::atomic<int64_t> reads = 0;

 private:
  const int64_t size_, broken_;
  const Shape shape_{2, 3, 1};
  const PixelValues pixel_values_ = {};
};

template <typename T>
void ExpectSamples(const Batch& batch, SampleOrder& order) {
  for (int64_t i = 0; i < batch.labels.elements(); ++i) {
    const int64_t sample = order.At(batch.first_position + i);
    ASSERT_EQ(batch.labels.as<int32_t>()[i], sample);
    ASSERT_EQ(batch.samples[i], sample);
    for (int64_t j = 0; j < kPixels; ++j) {
      ASSERT_EQ(batch.images.as<T>()[i * kPixels + j], static_cast<T>(100 * sample + j));
    }
  }
}

class BatchLoaderTest : public testing::TestWithParam<DeviceKind> {
 protected:
  BatchLoaderTest()
      : device_(GetParam() == DeviceKind::kCpu ? NewCpuDevice({}) : NewSimDevice({})) {}

  std::unique_ptr<BatchLoader> Load(const Dataset& dataset, const BatchLoaderOptions& options) {
    auto loader =
        BatchLoader::Create(dataset, SampleOrder(dataset.size(), 3, true), *device_, options);
    EXPECT_TRUE(loader.ok()) << loader.status();
    return *std::move(loader);
  }

  std::unique_ptr<Device> device_;
};

INSTANTIATE_TEST_SUITE_P(Devices, BatchLoaderTest,
                         testing::Values(DeviceKind::kCpu, DeviceKind::kSim),
                         [](const auto& info) { return std::string(DeviceKindName(info.param)); });

// Holds and releases at random, in any order: every batch is what reading by hand gives.
TEST_P(BatchLoaderTest, GivesTheSamplesOfEachPosition) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const FakeDataset dataset(1 + static_cast<int64_t>(random() % 50));
    BatchLoaderOptions options;
    options.dtype = std::array{DType::kF32, DType::kF64, DType::kU8}[random() % 3];
    options.count = static_cast<int64_t>(random() % 9);
    options.advance = options.count + static_cast<int64_t>(random() % 20);
    options.first_position = static_cast<int64_t>(random() % 1000);
    options.depth = 2 + static_cast<int>(random() % 4);
    const auto loader = Load(dataset, options);
    SampleOrder order(dataset.size(), 3, true);
    std::deque<Batch> held;
    for (int64_t step = 0; step < 60; ++step) {
      const absl::StatusOr<Batch> batch = loader->Next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_EQ(batch->first_position, options.first_position + step * options.advance);
      EXPECT_EQ(batch->images.shape, (Shape{options.count, 2, 3, 1}));
      EXPECT_EQ(batch->images.dtype, options.dtype);
      EXPECT_EQ(batch->labels.shape, Shape{options.count});
      held.push_back(*batch);
      while (static_cast<int>(held.size()) > options.depth - 2 || (!held.empty() && random() % 2)) {
        const size_t which = random() % held.size();
        if (options.dtype == DType::kF32) ExpectSamples<float>(held[which], order);
        if (options.dtype == DType::kF64) ExpectSamples<double>(held[which], order);
        if (options.dtype == DType::kU8) ExpectSamples<uint8_t>(held[which], order);
        EXPECT_EQ(held[which].pixel_values,
                  options.dtype == DType::kU8 ? &dataset.pixel_values() : nullptr);
        loader->Release(held[which]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      }
    }
  }
}

// The ranks' shares together are the global batch, whatever their number.
TEST_P(BatchLoaderTest, RanksShareTheGlobalBatch) {
  const FakeDataset dataset(23);
  constexpr int64_t kBatch = 7;
  SampleOrder order(23, 3, true);
  for (int ranks : {1, 2, 3, 5, 8}) {
    std::vector<std::unique_ptr<BatchLoader>> loaders;
    for (int rank = 0; rank < ranks; ++rank) {
      const Share share = ShareOf(kBatch, rank, ranks);
      BatchLoaderOptions options;
      options.first_position = share.first;
      options.count = share.count;
      options.advance = kBatch;
      loaders.push_back(Load(dataset, options));
    }
    for (int64_t step = 0; step < 10; ++step) {
      std::vector<int32_t> got, expected;
      for (const auto& loader : loaders) {
        const Batch batch = loader->Next().value();
        const int32_t* labels = batch.labels.as<int32_t>();
        got.insert(got.end(), labels, labels + batch.labels.elements());
        loader->Release(batch);
      }
      for (int64_t i = 0; i < kBatch; ++i) {
        expected.push_back(static_cast<int32_t>(order.At(step * kBatch + i)));
      }
      ASSERT_EQ(got, expected);
    }
  }
}

TEST_P(BatchLoaderTest, AnEmptyShareGivesEmptyBatches) {
  const FakeDataset dataset(3);
  BatchLoaderOptions options;
  options.advance = 2;
  const auto loader = Load(dataset, options);
  for (int64_t step = 0; step < 10; ++step) {
    const Batch batch = loader->Next().value();
    EXPECT_EQ(batch.images.shape, (Shape{0, 2, 3, 1}));
    EXPECT_EQ(batch.labels.shape, Shape{0});
    EXPECT_TRUE(batch.images);
    EXPECT_TRUE(batch.labels);
    EXPECT_EQ(batch.first_position, step * 2);
    loader->Release(batch);
  }
  EXPECT_EQ(dataset.reads, 0);
}

TEST_P(BatchLoaderTest, AnErrorSurfacesAtItsBatchAndStays) {
  for (int64_t broken = 0; broken < 12; ++broken) {
    const FakeDataset dataset(12, broken);
    SampleOrder order(12, 3, true);
    int64_t position = 0;
    while (order.At(position) != broken) ++position;
    BatchLoaderOptions options;
    options.count = options.advance = 2;
    const auto loader = Load(dataset, options);
    for (int64_t step = 0; step < position / 2; ++step) {
      const absl::StatusOr<Batch> batch = loader->Next();
      ASSERT_TRUE(batch.ok()) << batch.status();
      ExpectSamples<float>(*batch, order);
      loader->Release(*batch);
    }
    for (int again = 0; again < 3; ++again) {
      EXPECT_EQ(loader->Next().status(), absl::DataLossError("sample is broken"));
    }
  }
}

TEST_P(BatchLoaderTest, ReadsAheadAndNoFurther) {
  const FakeDataset dataset(100);
  BatchLoaderOptions options;
  options.count = options.advance = 5;
  options.depth = 4;
  const auto loader = Load(dataset, options);
  while (dataset.reads < 4 * 5) std::this_thread::yield();
  const Batch first = loader->Next().value(), second = loader->Next().value();
  EXPECT_EQ(dataset.reads, 4 * 5);  // taking frees nothing
  loader->Release(second);
  while (dataset.reads < 5 * 5) std::this_thread::yield();
  EXPECT_EQ(first.first_position, 0);
}

TEST_P(BatchLoaderTest, MayBeDestroyedAtAnyMoment) {
  for (int moment = 0; moment < 60; ++moment) {
    const FakeDataset dataset(10, moment % 3 == 0 ? 4 : -1);
    BatchLoaderOptions options;
    options.count = options.advance = 3;
    const auto loader = Load(dataset, options);
    if (moment % 4 == 1) {  // the thread waits for a slot, or has stopped at the broken sample
      while (dataset.reads < (moment % 3 == 0 ? 1 : 9)) std::this_thread::yield();
    }
    for (int held = 0; held < moment % 3; ++held) loader->Next().IgnoreError();
  }
}

TEST_P(BatchLoaderTest, RefusesWhatItCannotDo) {
  const FakeDataset dataset(10);
  const auto code = [&](const BatchLoaderOptions& options) {
    return BatchLoader::Create(dataset, SampleOrder(10, 3, true), *device_, options)
        .status()
        .code();
  };
  BatchLoaderOptions options;
  options.depth = 1;
  EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  options = {};
  options.count = -1;
  EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  options = {};
  options.dtype = DType::kI32;
  EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  for (int64_t count : {int64_t{1} << 61, std::numeric_limits<int64_t>::max()}) {
    options = {};
    options.count = count;
    EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  }
}

TEST(BatchLoaderDeathTest, HoldingTooManyIsABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const FakeDataset dataset(10);
  const auto device = NewCpuDevice({});
  BatchLoaderOptions options;
  options.depth = 2;
  options.count = options.advance = 1;
  EXPECT_DEATH(
      {
        const auto loader =
            BatchLoader::Create(dataset, SampleOrder(10, 3, true), *device, options).value();
        loader->Next().IgnoreError();
        loader->Next().IgnoreError();
      },
      "check failed");
}

}  // namespace
}  // namespace gyre
