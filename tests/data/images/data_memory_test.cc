#include "engine/data/sets/data_memory.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <span>
#include <thread>

#include "engine/data/batches/batch_loader.h"
#include "engine/runtime/device/device.h"
#include "tests/data/images/image_fixture.h"

namespace gyre {
namespace {

using testing::Contains;

class DataMemoryTest : public Images {
 protected:
  std::unique_ptr<Dataset> OpenKept(const std::string& text,
                                    const std::shared_ptr<DataMemory>& memory) const {
    return Open(text, /*train=*/true, {}, memory).value();
  }
  // Three epochs of batches.
  static std::vector<float> Run(const Dataset& data, int workers) {
    const auto device = NewCpuDevice({});
    const auto loader = *BatchLoader::Create(
        data, SampleOrder(data.size(), 3), *device,
        {.arrays = {{.array = 0, .augmented = true}, {.array = 1, .dtype = DType::kI32}},
         .augmentation = {.flip = true},
         .changes = {.brightness = 0.4},
         .count = 4,
         .advance = 4,
         .workers = workers});
    std::vector<float> values;
    for (int64_t step = 0; step < 3 * data.size() / 4; ++step) {
      const Batch batch = loader->Next();
      const float* pixels = batch.arrays[0].as<float>();
      values.insert(values.end(), pixels, pixels + batch.arrays[0].elements());
      const int32_t* labels = batch.arrays[1].as<int32_t>();
      values.insert(values.end(), labels, labels + batch.arrays[1].elements());
      loader->Release(batch);
    }
    return values;
  }
};

// Whether a window of the picture is drawn, or it comes whole, and with masks.
TEST_F(DataMemoryTest, ChangesNoBits) {
  std::string classes, masks;
  for (int i = 0; i < 24; ++i) {
    const int64_t height = 5 + i % 7 * 3, width = 9 + i % 5 * 2;
    Picture(absl::StrCat(i, ".png"), height, width);
    Picture(absl::StrCat("m", i, ".png"), height, width, 1);
    absl::StrAppend(&classes, i, ".png\t", i % 3, "\n");
    absl::StrAppend(&masks, i, ".png\tm", i, ".png\n");
  }
  Write("list", classes);
  Write("masks", masks);
  for (const std::string text :
       {"train { images { list: 'list' fit: LETTERBOX } }",
        "train { images { list: 'list' } } augmentation { random_crop {} }",
        "train { images { list: 'masks' } } augmentation { random_crop {} }"}) {
    const bool masked = text.find("masks") != std::string::npos;
    inputs_[1].dims = masked ? std::vector<int64_t>{4, 6} : std::vector<int64_t>{};
    const std::vector<float> plain = Run(*OpenKept(text, nullptr), 1);
    for (const size_t capacity : {size_t{0}, size_t{3000}, size_t{1} << 30}) {
      for (const int workers : {1, 4}) {
        const auto memory = std::make_shared<DataMemory>(capacity);
        auto data = OpenKept(text, memory);
        EXPECT_EQ(Run(*data, workers), plain) << text << " " << capacity << " " << workers;
        EXPECT_LE(memory->taken(), capacity);
        const int64_t all = masked ? 48 : 24;
        EXPECT_GE(memory->pictures(), capacity == 0 ? 0 : capacity == 3000 ? 1 : all);
        EXPECT_LE(memory->pictures(), capacity == 0 ? 0 : capacity == 3000 ? all - 1 : all);
        data.reset();
        EXPECT_EQ(memory->taken(), 0U);
      }
    }
  }
}

TEST_F(DataMemoryTest, KeepsTheFirstThatFit) {
  Write("list", "a.png\t0\nb.png\t1\nc.png\t0\n");
  for (const char* name : {"a.png", "b.png", "c.png"}) Picture(name);
  const size_t one = [&] {
    const auto all = std::make_shared<DataMemory>(1 << 20);
    const auto data = OpenKept("train { images { list: 'list' } }", all);
    EXPECT_TRUE(ReadSample(*data, 0, 0).ok());
    return all->taken();
  }();
  EXPECT_GE(one, 4U * 6 * 3);
  const auto memory = std::make_shared<DataMemory>(3 * one - 1);
  const auto data = OpenKept("train { images { list: 'list' } }", memory);
  for (const int64_t i : {2, 0, 1, 2}) EXPECT_TRUE(ReadSample(*data, i, 0).ok());
  EXPECT_EQ(memory->pictures(), 2);
  for (const char* name : {"a.png", "b.png", "c.png"}) std::filesystem::remove(folder_ / name);
  EXPECT_TRUE(ReadSample(*data, 0, 0).ok());
  EXPECT_FALSE(ReadSample(*data, 1, 0).ok());
  EXPECT_TRUE(ReadSample(*data, 2, 0).ok());
}

// A window above the damage is read as it is without memory.
TEST_F(DataMemoryTest, KeepsNoDamagedPicture) {
  const std::vector<uint8_t> pixels = RandomPixels(256 * 48 * 3);
  std::string jpeg = *JpegOf({256, 48, 3, pixels.data()}, 90);
  std::fill_n(jpeg.end() - static_cast<int64_t>(jpeg.size() / 3), 200, '\xff');
  Write("list", "a.jpg\t0\n");
  Write("a.jpg", jpeg);
  const std::string text = "train { images { list: 'list' } } augmentation { random_crop {} }";
  const auto plain = OpenKept(text, nullptr);
  const auto memory = std::make_shared<DataMemory>(1 << 20);
  const auto kept = OpenKept(text, memory);
  SampleMemory samples;
  std::vector<bool> read;
  for (int64_t position = 0; position < 40; ++position) {
    const SampleDraw draw{.seed = 1, .position = position};
    const auto a = plain->Read(0, 0, samples, draw);
    const std::vector<uint8_t> expected(a.ok() ? a->as<uint8_t>() : nullptr,
                                        a.ok() ? a->as<uint8_t>() + a->elements() : nullptr);
    const auto b = kept->Read(0, 0, samples, draw);
    ASSERT_EQ(a.status(), b.status());
    read.push_back(a.ok());
    if (!a.ok()) continue;
    EXPECT_TRUE(std::ranges::equal(expected, std::span(b->as<uint8_t>(), 72)));
  }
  EXPECT_THAT(read, Contains(true));
  EXPECT_THAT(read, Contains(false));
  EXPECT_EQ(memory->pictures(), 0);
  EXPECT_EQ(memory->taken(), 0U);
}

TEST(DataMemory, ThreadsTakeNoMoreThanThereIs) {
  DataMemory memory(1000);
  std::vector<std::thread> threads;
  std::vector<int> taken(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 1000; ++i) taken[static_cast<size_t>(t)] += memory.Take(7) ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::accumulate(taken.begin(), taken.end(), 0), 142);
  EXPECT_EQ(memory.taken(), 994U);
  EXPECT_FALSE(memory.Take(size_t{0} - 1));
  EXPECT_TRUE(memory.Take(6));
}

}  // namespace
}  // namespace gyre
