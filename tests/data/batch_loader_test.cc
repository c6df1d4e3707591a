#include "engine/data/batches/batch_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "tests/data/read_sample.h"

namespace gyre {
namespace {

constexpr int64_t kPixels = 6;

// Byte i of sample s is 100 * s + i, as is that of its mask; its label is s; one sample may fail.
class FakeDataset : public Dataset {
 public:
  explicit FakeDataset(int64_t size, int64_t broken = -1) : size_(size), broken_(broken) {
    for (int s = 0; s < size; ++s) {
      labels_.push_back(s);
      for (int i = 0; i < kPixels; ++i) pixels_.push_back(static_cast<uint8_t>(100 * s + i));
    }
  }
  int64_t size() const override { return size_; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory&,
                              const std::optional<SampleDraw>&) const override {
    Tensor sample{&labels_[static_cast<size_t>(index)], arrays_[array].shape, arrays_[array].dtype};
    if (array == 1) return sample;
    ++reads;
    if (index == broken_) return absl::DataLossError("sample is broken");
    sample.data = &pixels_[static_cast<size_t>(index * kPixels)];
    return sample;
  }

  mutable std::atomic<int64_t> reads = 0;

 private:
  const int64_t size_, broken_;
  const std::vector<DataArray> arrays_ = {
      {.input = "image", .file = "images", .shape = {2, 3, 1}, .dtype = DType::kU8},
      {.input = "label", .file = "labels", .shape = {}, .dtype = DType::kI32},
      {.input = "mask", .file = "masks", .shape = {2, 3}, .dtype = DType::kU8}};
  mutable std::vector<uint8_t> pixels_;
  mutable std::vector<int32_t> labels_;
};

// Options for its images and labels.
BatchLoaderOptions Options() {
  return {.arrays = {{.array = 0, .dtype = DType::kI32}, {.array = 1, .dtype = DType::kI32}}};
}

void ExpectSamples(const Batch& batch, SampleOrder& order) {
  for (int64_t i = 0; i < batch.arrays[1].elements(); ++i) {
    const int64_t sample = order.At(batch.first_position + i);
    ASSERT_EQ(batch.arrays[1].as<int32_t>()[i], sample);
    ASSERT_EQ(batch.samples[i], sample);
    for (int64_t j = 0; j < kPixels; ++j) {
      ASSERT_EQ(batch.arrays[0].as<int32_t>()[i * kPixels + j],
                static_cast<uint8_t>(100 * sample + j));
    }
  }
}

class BatchLoaderTest : public testing::TestWithParam<DeviceKind> {
 protected:
  BatchLoaderTest()
      : device_(GetParam() == DeviceKind::kCpu ? NewCpuDevice({}) : NewSimDevice({})) {}

  std::unique_ptr<BatchLoader> Load(const Dataset& dataset, const BatchLoaderOptions& options) {
    auto loader = BatchLoader::Create(dataset, SampleOrder(dataset.size(), 3), *device_, options);
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
    BatchLoaderOptions options = Options();
    options.count = static_cast<int64_t>(random() % 9);
    options.advance = options.count + static_cast<int64_t>(random() % 20);
    options.first_position = static_cast<int64_t>(random() % 1000);
    options.depth = 2 + static_cast<int>(random() % 4);
    options.workers = 1 + static_cast<int>(random() % 4);
    const auto loader = Load(dataset, options);
    SampleOrder order(dataset.size(), 3);
    std::deque<Batch> held;
    for (int64_t step = 0; step < 60; ++step) {
      const Batch batch = loader->Next();
      EXPECT_EQ(batch.first_position, options.first_position + step * options.advance);
      EXPECT_EQ(batch.arrays[0].shape, (Shape{options.count, 2, 3, 1}));
      EXPECT_EQ(batch.arrays[0].dtype, DType::kI32);
      EXPECT_EQ(batch.arrays[1].shape, Shape{options.count});
      held.push_back(batch);
      while (static_cast<int>(held.size()) > options.depth - 2 || (!held.empty() && random() % 2)) {
        const size_t which = random() % held.size();
        ExpectSamples(held[which], order);
        loader->Release(held[which]);
        held.erase(held.begin() + static_cast<std::ptrdiff_t>(which));
      }
    }
  }
}

// A sample is moved as its position says, wherever the rank's share and the run began.
TEST_P(BatchLoaderTest, AugmentationFollowsThePosition) {
  const FakeDataset dataset(5);
  BatchLoaderOptions options = Options();
  options.arrays[0].augmented = true;
  options.augmentation = {.flip = true, .shift = 1};
  options.seed = 9;
  options.count = 3;
  options.advance = 4;
  int moved = 0;
  for (const int64_t first : {0, 1, 29}) {
    options.first_position = first;
    const auto loader = Load(dataset, options);
    for (int step = 0; step < 24; ++step) {
      const Batch batch = loader->Next();
      for (int64_t i = 0; i < options.count; ++i) {
        const int64_t position = first + step * options.advance + i;
        const Tensor stored = ReadSample(dataset, batch.samples[i], 0).value();
        std::array<int32_t, kPixels> expected;
        (void)Decoder(DType::kU8, DType::kI32, {})
            .Decode(stored, MoveAt(options.augmentation, options.seed, position),
                    {expected.data(), stored.shape, DType::kI32});
        const int32_t* got = batch.arrays[0].as<int32_t>() + i * kPixels;
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), got));
        moved += std::equal(got, got + kPixels, stored.as<uint8_t>()) ? 0 : 1;
      }
      loader->Release(batch);
    }
  }
  EXPECT_GT(moved, 100);
}

// Turning alone differs: a mask's pixels are the nearest.
TEST_P(BatchLoaderTest, MasksMoveWithTheirPicture) {
  const FakeDataset dataset(5);
  for (const double rotate : {0., 30.}) {
    BatchLoaderOptions options{.arrays = {{.array = 0, .dtype = DType::kI32, .augmented = true},
                                          {.array = 2, .dtype = DType::kI32, .augmented = true}},
                               .augmentation = {.flip = true, .shift = 1},
                               .changes = {.rotate = rotate, .brightness = rotate > 0 ? 0.4 : 0},
                               .count = 3,
                               .advance = 3};
    const auto loader = Load(dataset, options);
    int turned = 0;
    for (int step = 0; step < 20; ++step) {
      const Batch batch = loader->Next();
      for (int64_t i = 0; i < options.count; ++i) {
        const int64_t position = batch.first_position + i;
        Tensor mask = ReadSample(dataset, batch.samples[i], 2).value();
        std::array<uint8_t, kPixels> pixels;
        std::copy_n(mask.as<uint8_t>(), kPixels, pixels.begin());
        mask.data = pixels.data();
        ChangeMask(options.changes, {options.seed, position}, 2, 3, pixels.data());
        std::array<int32_t, kPixels> expected;
        (void)Decoder(DType::kU8, DType::kI32, {})
            .Decode(mask, MoveAt(options.augmentation, options.seed, position),
                    {expected.data(), mask.shape, DType::kI32});
        const int32_t* got = batch.arrays[1].as<int32_t>() + i * kPixels;
        const int32_t* picture = batch.arrays[0].as<int32_t>() + i * kPixels;
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), got));
        turned += std::equal(got, got + kPixels, picture) ? 0 : 1;
      }
      loader->Release(batch);
    }
    EXPECT_EQ(turned > 0, rotate > 0);
  }
}

// A class as reals, beside its sample's weight: samples / (classes * samples of the class).
TEST_P(BatchLoaderTest, ClassesBecomeDistributionsAndWeights) {
  const FakeDataset dataset(4);
  SampleClasses classes{.of_sample = {1, 0, 1, 1}, .counts = {1, 3}};
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    BatchLoaderOptions options{.arrays = {{.array = 1, .dtype = dtype, .classes = 4},
                                          {.array = 3, .dtype = dtype, .weight = true}},
                               .count = 4,
                               .advance = 4};
    for (const bool weighs : {false, true}) {
      if (weighs) options.weighed_by = std::make_shared<SampleClasses>(classes);
      const auto loader = Load(dataset, options);
      const Batch batch = loader->Next();
      EXPECT_EQ(batch.arrays[0].shape, (Shape{4, 4}));
      EXPECT_EQ(batch.arrays[1].shape, Shape{4});
      VisitReal(dtype, [&]<typename T>() {
        for (int64_t i = 0; i < 4; ++i) {
          for (int64_t c = 0; c < 4; ++c) {
            EXPECT_EQ(double(batch.arrays[0].as<T>()[i * 4 + c]), batch.samples[i] == c ? 1 : 0);
          }
          const double weight = !weighs ? 1 : batch.samples[i] == 1 ? 2 : 2. / 3;
          EXPECT_EQ(batch.arrays[1].as<T>()[i], static_cast<T>(weight));
        }
      });
    }
  }
  const auto loader = Load(dataset, {.arrays = {{.array = 1, .classes = 3}}, .count = 4});
  EXPECT_EQ(loader->Next().faults.at(0).message,
            "labels: sample 3 (the first is 0): expected a class from 0 to 2, got 3");
}

// A sample and the one before it are moved as their draws say, then their bytes are mixed, and
// their labels.
TEST_P(BatchLoaderTest, MixesTwoSamplesAndTheirLabels) {
  const FakeDataset dataset(5);
  const Decoder mover(DType::kU8, DType::kU8, {});
  BatchLoaderOptions options{
      .arrays = {{.array = 0, .augmented = true, .mixed = true},
                 {.array = 1, .mixed = true, .classes = 5}},
      .augmentation = {.flip = true, .shift = 1},
      .mixing = {.mixup = 0.9, .cutmix = 1, .cutmix_alpha = 0.5, .height = 2, .width = 3},
      .seed = 11,
      .count = 4,
      .advance = 4};
  for (const DType dtype : {DType::kF32, DType::kU8}) {
    options.arrays[0].dtype = dtype;  // bytes that a device will normalise are the same bytes
    int mixed = 0;
    const auto loader = Load(dataset, options);
    SampleOrder order(5, 3);
    for (int step = 0; step < 50; ++step) {
      const Batch batch = loader->Next();
      for (int64_t i = 0; i < options.count; ++i) {
        const int64_t position = batch.first_position + i;
        const int64_t before = position % 5 == 0 ? position + 1 : position - 1;
        const Mix mix = MixAt(options.mixing, {options.seed, position});
        std::array<uint8_t, kPixels> own, other;
        const auto move = [&](int64_t at, std::array<uint8_t, kPixels>& to) {
          const Tensor stored = ReadSample(dataset, order.At(at), 0).value();
          (void)mover.Decode(stored, MoveAt(options.augmentation, options.seed, at),
                             {to.data(), stored.shape, DType::kU8});
        };
        move(position, own);
        move(before, other);
        std::array<double, 5> label = {};
        label[static_cast<size_t>(batch.samples[i])] = mix.share;
        if (mix.mixes) label[static_cast<size_t>(order.At(before))] += 1 - mix.share;
        mixed += mix.mixes;
        for (int64_t j = 0; j < kPixels; ++j) {
          const int64_t y = j / 3, x = j % 3;
          double expected = own[j];
          if (mix.window) {
            const bool in = y >= mix.top && y < mix.bottom && x >= mix.left && x < mix.right;
            if (in) expected = other[j];
          } else if (mix.mixes) {
            expected = std::floor(mix.share * own[j] + (1 - mix.share) * other[j] + 0.5);
          }
          const int64_t at = i * kPixels + j;
          const double got = dtype == DType::kU8 ? batch.arrays[0].as<uint8_t>()[at]
                                                 : batch.arrays[0].as<float>()[at] * 255.;
          ASSERT_NEAR(got, expected, 1e-4);
        }
        for (int64_t c = 0; c < 5; ++c) {
          ASSERT_NEAR(batch.arrays[1].as<float>()[i * 5 + c], label[c], 1e-6);
        }
      }
      loader->Release(batch);
    }
    EXPECT_GT(mixed, 150);
  }
}

// All that depends on positions alone, at once: the same bytes and faults however they are shared.
TEST_P(BatchLoaderTest, RanksWorkersAndResumptionChangeNothing) {
  const FakeDataset dataset(12, /*broken=*/4);
  const SampleClasses classes{.of_sample = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 2, 2},
                              .counts = {8, 2, 2}};
  constexpr int64_t kGlobal = 7, kSteps = 24;
  std::vector<int64_t> faulty;  // positions
  const auto load = [&](int ranks, int workers, int64_t first_step) {
    std::vector<std::string> samples(static_cast<size_t>(kGlobal * kSteps));
    faulty.clear();
    for (int rank = 0; rank < ranks; ++rank) {
      const Share share = ShareOf(kGlobal, rank, ranks);
      const BatchLoaderOptions options{
          .arrays = {{.array = 0, .augmented = true, .mixed = true},
                     {.array = 1, .mixed = true, .classes = 12},
                     {.array = 3, .mixed = true, .weight = true}},
          .augmentation = {.flip = true, .shift = 1},
          .changes = {.rotate = 20, .noise = 0.1},
          .mixing = {.mixup = 0.5, .cutmix = 0.5, .height = 2, .width = 3},
          .weighed_by = std::make_shared<SampleClasses>(classes),
          .first_position = first_step * kGlobal + share.first,
          .count = share.count,
          .advance = kGlobal,
          .workers = workers};
      const auto loader =
          BatchLoader::Create(dataset, SampleOrder::Balanced(classes.of_sample, 3).Repeated(2),
                              *device_, options)
              .value();
      for (int64_t step = first_step; step < kSteps; ++step) {
        const Batch batch = loader->Next();
        for (int64_t i = 0; i < share.count; ++i) {
          std::string& sample = samples[static_cast<size_t>(batch.first_position + i)];
          for (const Tensor& array : batch.arrays) {
            const size_t bytes = array.bytes() / static_cast<size_t>(share.count);
            sample.append(static_cast<const char*>(array.data) + static_cast<size_t>(i) * bytes,
                          bytes);
          }
        }
        for (const Batch::FaultySample& fault : batch.faults) {
          EXPECT_EQ(fault.message, "sample is broken");
          faulty.push_back(batch.first_position + fault.sample);
        }
        loader->Release(batch);
      }
      const LoaderTimes times = loader->times();
      EXPECT_TRUE(times.next_waited >= 0 && times.workers_worked > 0 && times.workers_waited >= 0);
    }
    return samples;
  };
  const std::vector<std::string> all = load(1, 1, 0);
  const std::string zeros(kPixels * 4 + 12 * 4 + 4, '\0');
  EXPECT_GT(faulty.size(), 3u);  // itself, or mixed in
  EXPECT_EQ(static_cast<size_t>(std::ranges::count(all, zeros)), faulty.size());
  for (const int64_t position : faulty) EXPECT_EQ(all[static_cast<size_t>(position)], zeros);
  for (const int ranks : {1, 2, 3}) {
    for (const int workers : {1, 2, 4}) EXPECT_EQ(load(ranks, workers, 0), all);
  }
  const std::vector<std::string> resumed = load(2, 3, 10);
  for (size_t i = 10 * kGlobal; i < kSteps * kGlobal; ++i) EXPECT_EQ(resumed[i], all[i]);
}

TEST_P(BatchLoaderTest, AnEmptyShareGivesEmptyBatches) {
  const FakeDataset dataset(3);
  BatchLoaderOptions options = Options();
  options.advance = 2;
  const auto loader = Load(dataset, options);
  for (int64_t step = 0; step < 10; ++step) {
    const Batch batch = loader->Next();
    EXPECT_EQ(batch.arrays[0].shape, (Shape{0, 2, 3, 1}));
    EXPECT_EQ(batch.arrays[1].shape, Shape{0});
    EXPECT_TRUE(batch.arrays[0]);
    EXPECT_TRUE(batch.arrays[1]);
    EXPECT_EQ(batch.first_position, step * 2);
    loader->Release(batch);
  }
  EXPECT_EQ(dataset.reads, 0);
}

TEST_P(BatchLoaderTest, ReadsAheadAndNoFurther) {
  const FakeDataset dataset(100);
  BatchLoaderOptions options = Options();
  options.count = options.advance = 5;
  options.depth = 4;
  const auto loader = Load(dataset, options);
  while (dataset.reads < 4 * 5) std::this_thread::yield();
  const Batch first = loader->Next(), second = loader->Next();
  EXPECT_EQ(dataset.reads, 4 * 5);  // taking frees nothing
  loader->Release(second);
  while (dataset.reads < 5 * 5) std::this_thread::yield();
  EXPECT_EQ(first.first_position, 0);
}

TEST_P(BatchLoaderTest, MayBeDestroyedAtAnyMoment) {
  for (int moment = 0; moment < 60; ++moment) {
    const FakeDataset dataset(10, moment % 3 == 0 ? 4 : -1);
    BatchLoaderOptions options = Options();
    options.count = options.advance = 3;
    const auto loader = Load(dataset, options);
    if (moment % 4 == 1) {  // the thread waits for a slot
      while (dataset.reads < (moment % 3 == 0 ? 1 : 9)) std::this_thread::yield();
    }
    for (int held = 0; held < moment % 3; ++held) loader->Next();
  }
}

TEST_P(BatchLoaderTest, RefusesWhatItCannotDo) {
  const FakeDataset dataset(10);
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const std::function<void(BatchLoaderOptions&)> bad[] = {
      [](BatchLoaderOptions& options) { options.depth = 1; },
      [](BatchLoaderOptions& options) { options.count = -1; },
      [](BatchLoaderOptions& options) { options.arrays[0].dtype = DType::kI64; },
      [](BatchLoaderOptions& options) { options.arrays.clear(); },
      [](BatchLoaderOptions& options) { options.count = int64_t{1} << 61; },
      [](BatchLoaderOptions& options) { options.count = kMost; },
  };
  for (const auto& spoil : bad) {
    BatchLoaderOptions options = Options();
    spoil(options);
    EXPECT_EQ(BatchLoader::Create(dataset, SampleOrder(10, 3), *device_, options).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(BatchLoaderDeathTest, HoldingTooManyIsABug) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const FakeDataset dataset(10);
  const auto device = NewCpuDevice({});
  BatchLoaderOptions options = Options();
  options.depth = 2;
  options.count = options.advance = 1;
  EXPECT_DEATH(
      {
        const auto loader =
            BatchLoader::Create(dataset, SampleOrder(10, 3), *device, options).value();
        loader->Next();
        loader->Next();
      },
      "check failed");
}

}  // namespace
}  // namespace gyre
