#include "engine/data/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <zlib.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "engine/runtime/machine.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;

std::string BigEndian(uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift);
  return bytes;
}

// An IDX file of bytes with these extents and elements.
std::string Idx(const std::vector<uint32_t>& dims, const std::string& elements) {
  std::string bytes = BigEndian(0x0800 | static_cast<uint32_t>(dims.size()));
  for (uint32_t extent : dims) bytes += BigEndian(extent);
  return bytes + elements;
}

std::string RandomBytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

class DatasetTest : public testing::Test {
 protected:
  // Opens two files of these contents, by paths relative to the configuration's folder.
  absl::StatusOr<std::unique_ptr<Dataset>> Open(const std::string& images,
                                                const std::string& labels) {
    WriteBytes(folder_ / "images", images);
    WriteBytes(folder_ / "labels", labels);
    return Open();
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Open() {
    DatasetConfig config;
    config.mutable_idx()->set_images("images");
    config.mutable_idx()->set_labels("labels");
    return OpenDataset(config, normalization_, folder_ / "trainer.textproto");
  }
  void ExpectError(const std::string& images, const std::string& labels, absl::StatusCode code,
                   const std::vector<std::string>& words) {
    const absl::Status status = Open(images, labels).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(word));
    }
  }

  TempFolder folder_;
  NormalizationConfig normalization_;
};

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

template <typename T>
void ExpectSamples(const Dataset& dataset, const std::string& pixels, const std::string& labels,
                   double mean, double std) {
  const auto size = static_cast<size_t>(dataset.sample_shape().elements());
  std::vector<T> image(size + 1);
  for (int64_t index = dataset.size() - 1; index >= 0; --index) {
    image[size] = 77;  // the element after the image is not the data set's
    int32_t label = -1;
    ASSERT_TRUE(
        dataset.Read(index, {image.data(), dataset.sample_shape(), kDTypeOf<T>}, &label).ok());
    for (size_t i = 0; i < size; ++i) {
      const double pixel = static_cast<uint8_t>(pixels[static_cast<size_t>(index) * size + i]);
      const double value = (pixel / 255 - mean) / std;
      ASSERT_EQ(image[i], static_cast<T>(kDTypeOf<T> == DType::kU8 ? pixel : value));
      ASSERT_EQ(dataset.pixel_values()[static_cast<size_t>(pixel)], value);
    }
    ASSERT_EQ(image[size], 77);
    ASSERT_EQ(label, static_cast<uint8_t>(labels[static_cast<size_t>(index)]));
  }
}

TEST_F(DatasetTest, ReadsImagesOfAnySizePlainAndPacked) {
  normalization_.set_mean(0.2860f);
  normalization_.set_std(0.3530f);
  for (const std::vector<uint32_t>& dims :
       {std::vector<uint32_t>{1, 1, 1}, {3, 2, 5}, {257, 28, 28}, {5, 3, 7, 3}, {2, 1, 1, 1}}) {
    size_t elements = 1;
    for (uint32_t extent : dims) elements *= extent;
    const std::string pixels = RandomBytes(elements, elements);
    const std::string labels = RandomBytes(dims[0], 7);
    for (bool gzip : {false, true}) {
      const std::string images_file = Idx(dims, pixels), labels_file = Idx({dims[0]}, labels);
      const auto dataset =
          Open(gzip ? Gzip(images_file) : images_file, gzip ? Gzip(labels_file) : labels_file);
      ASSERT_TRUE(dataset.ok()) << dataset.status();
      EXPECT_EQ((*dataset)->size(), dims[0]);
      EXPECT_EQ((*dataset)->sample_shape(),
                (Shape{dims[1], dims[2], dims.size() == 4 ? dims[3] : 1}));
      ExpectSamples<float>(**dataset, pixels, labels, 0.2860f, 0.3530f);
      ExpectSamples<double>(**dataset, pixels, labels, 0.2860f, 0.3530f);
      ExpectSamples<uint8_t>(**dataset, pixels, labels, 0.2860f, 0.3530f);
    }
  }
}

TEST_F(DatasetTest, NormalisesByHand) {
  normalization_.set_mean(0.5f);
  normalization_.set_std(0.25f);
  const auto dataset = Open(Idx({1, 1, 3}, std::string("\x00\xff\x33", 3)), Idx({1}, "\x09"));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::array<double, 3> image;
  int32_t label = 0;
  ASSERT_TRUE((*dataset)->Read(0, {image.data(), Shape{1, 3, 1}, DType::kF64}, &label).ok());
  EXPECT_EQ(image[0], -2);
  EXPECT_EQ(image[1], 2);
  EXPECT_DOUBLE_EQ(image[2], -1.2);  // 51 / 255 = 0.2
  EXPECT_EQ(label, 9);
}

TEST_F(DatasetTest, SamplesOutsideAreErrors) {
  const auto dataset = Open(Idx({2, 1, 1}, "ab"), Idx({2}, "cd"));
  ASSERT_TRUE(dataset.ok());
  float pixel;
  int32_t label;
  for (int64_t index : {int64_t{-1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    const absl::Status status =
        (*dataset)->Read(index, {&pixel, Shape{1, 1, 1}, DType::kF32}, &label);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ / "images"));
  }
}

TEST_F(DatasetTest, AFileMayHaveSeveralGzipMembers) {
  const std::string images = Idx({3, 2, 2}, "abcdefghijkl"), labels = Idx({3}, "xyz");
  const auto dataset =
      Open(Gzip(images.substr(0, 5)) + Gzip("") + Gzip(images.substr(5)), Gzip(labels));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  normalization_.Clear();
  ExpectSamples<double>(**dataset, "abcdefghijkl", "xyz", 0, 1);
}

TEST_F(DatasetTest, EveryTruncationIsFound) {
  const std::string images = Idx({3, 2, 2}, "abcdefghijkl"), labels = Idx({3}, "xyz");
  const std::string packed = Gzip(images);
  for (size_t size = 0; size < images.size(); ++size) {
    ExpectError(images.substr(0, size), labels, kDataLoss, {folder_ / "images", " ", "bytes"});
  }
  for (size_t size = 2; size < packed.size(); ++size) {
    ExpectError(packed.substr(0, size), labels, kDataLoss, {folder_ / "images", "truncated"});
  }
  for (size_t size = 0; size < labels.size(); ++size) {
    ExpectError(images, labels.substr(0, size), kDataLoss, {folder_ / "labels"});
  }
}

TEST_F(DatasetTest, DamagedGzipIsFound) {
  const std::string images = Idx({50, 4, 4}, RandomBytes(800, 1)),
                    labels = Idx({50}, RandomBytes(50, 2));
  const std::string packed = Gzip(images);
  ExpectError(packed + "x", labels, kDataLoss, {folder_ / "images", "gzip"});
  ExpectError(packed + Gzip("x"), labels, kDataLoss, {folder_ / "images", "but more follow"});
  // Bytes 4 to 9 say nothing of the content; neither do a block's padding bits, which are high.
  for (size_t at = 10; at < packed.size(); at += 7) {
    std::string damaged = packed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x01);
    EXPECT_FALSE(Open(damaged, labels).ok()) << at;
  }
}

// Memory is made for what the header says and the file holds, whatever either claims alone.
TEST_F(DatasetTest, NoFileIsAMemoryBomb) {
  const auto most_bytes_so_far = [] {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss << 10;
  };
  const std::string labels = Idx({3}, "xyz");
  const std::string mebibyte = Gzip(std::string(1 << 20, '\0'));
  std::string bomb = Gzip(Idx({3, 2, 2}, ""));
  for (int i = 0; i < 512; ++i) bomb += mebibyte;
  const auto before = most_bytes_so_far();
  ExpectError(bomb, labels, kDataLoss, {"[3, 2, 2] make 28 bytes, but more follow"});
  ExpectError(Gzip(Idx({1u << 30}, "xyz")), labels, kInvalid, {"0x00000803"});
  ExpectError(Gzip(Idx({1u << 30, 1, 1}, "abc")), labels, kDataLoss, {"ends after 19"});
  EXPECT_LT(most_bytes_so_far() - before, 64 << 20);

  const std::string sparse = Idx({1u << 30, 1u << 6, 1u << 6}, "");
  WriteBytes(folder_ / "images", sparse);
  std::filesystem::resize_file(folder_ / "images", sparse.size() + (uint64_t{1} << 42));
  EXPECT_THAT(std::string(Open().status().message()),
              HasSubstr(absl::StrCat("may use ", MemoryBytes(), " of memory")));
}

TEST_F(DatasetTest, APipeOrADeviceIsRefused) {
  const std::string end = ": it is a pipe or a device, expected a file";
  ASSERT_EQ(mkfifo((folder_ / "images").c_str(), 0600), 0);
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("images" + end));
  std::filesystem::remove(folder_ / "images");
  std::filesystem::create_symlink("/dev/zero", folder_ / "images");
  EXPECT_THAT(std::string(Open().status().message()), HasSubstr("images" + end));
}

TEST_F(DatasetTest, SaysWhatIsWrong) {
  const std::string images = Idx({3, 2, 2}, "abcdefghijkl"), labels = Idx({3}, "xyz");
  ExpectError(images + "mn", labels, kDataLoss,
              {folder_ / "images", "[3, 2, 2] make 28 bytes", "2 more follow"});
  ExpectError(images, labels + "m", kDataLoss, {folder_ / "labels", "1 more follow"});
  ExpectError(images, Idx({2}, "xy"), kInvalid,
              {folder_ / "images", "3 images", folder_ / "labels", "2 labels"});
  ExpectError(labels, labels, kInvalid,
              {folder_ / "images", "expected IDX magic 0x00000803 or 0x00000804", "0x00000801"});
  ExpectError(images, images, kInvalid, {folder_ / "labels", "0x00000801", "got 0x00000803"});
  ExpectError("GIF89a..", labels, kInvalid, {folder_ / "images", "got 0x47494638"});
  std::string floats = images;
  floats[2] = 0x0d;
  ExpectError(floats, labels, kInvalid, {folder_ / "images", "got 0x00000d03"});
  ExpectError(Idx({0, 2, 2}, ""), Idx({0}, ""), kInvalid, {folder_ / "images", "no samples"});
  ExpectError(Idx({3, 0, 2}, ""), labels, kInvalid, {folder_ / "images", "without pixels"});
  ExpectError(Idx({~0u, ~0u, ~0u, ~0u}, "x"), labels, kDataLoss,
              {folder_ / "images", "more than 2^64"});
  ExpectError(Idx({~0u, ~0u, 1}, "x"), labels, kDataLoss, {"[4294967295, 4294967295, 1]"});
}

TEST_F(DatasetTest, NamesTheFileThatIsMissing) {
  WriteBytes(folder_ / "images", Idx({1, 1, 1}, "a"));
  const absl::Status status = Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ / "labels"));
  EXPECT_THAT(std::string(status.message()), testing::Not(HasSubstr("apt-get")));

  DatasetConfig config;
  config.mutable_idx()->set_images("/usr/share/datasets/fashion-mnist/none.gz");
  config.mutable_idx()->set_labels("labels");
  const absl::Status package =
      OpenDataset(config, normalization_, folder_ / "trainer.textproto").status();
  EXPECT_EQ(package.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(package.message()), HasSubstr("apt-get install dataset-fashion-mnist"));
}

TEST_F(DatasetTest, ChecksItsConfiguration) {
  const auto message = [&](const DatasetConfig& config) {
    const absl::Status status = OpenDataset(config, normalization_, "a/b.textproto").status();
    EXPECT_EQ(status.code(), kInvalid) << status;
    return std::string(status.message());
  };
  DatasetConfig config;
  EXPECT_THAT(message(config), HasSubstr("a/b.textproto: a data set wants a source"));
  config.mutable_idx()->set_labels("x");
  EXPECT_THAT(message(config), HasSubstr("`images` is not set"));
  config.mutable_idx()->set_images("x");
  config.mutable_idx()->clear_labels();
  EXPECT_THAT(message(config), HasSubstr("`labels` is not set"));
  config.mutable_idx()->set_labels("x");
  for (float std : {0.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    normalization_.set_std(std);
    EXPECT_THAT(message(config), HasSubstr("std"));
  }
  normalization_.set_std(1);
  normalization_.set_mean(std::nanf(""));
  EXPECT_THAT(message(config), HasSubstr("mean"));
}

// Debian's package, as the models read it: all classes equally often.
TEST_F(DatasetTest, ReadsFashionMnist) {
  for (const auto& [name, size] : {std::pair<std::string, int>{"train", 60000}, {"t10k", 10000}}) {
    DatasetConfig config;
    const std::string stem = "/usr/share/datasets/fashion-mnist/" + name;
    config.mutable_idx()->set_images(stem + "-images-idx3-ubyte.gz");
    config.mutable_idx()->set_labels(stem + "-labels-idx1-ubyte.gz");
    const auto dataset = OpenDataset(config, normalization_, "");
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ((*dataset)->size(), size);
    EXPECT_EQ((*dataset)->sample_shape(), (Shape{28, 28, 1}));
    std::array<int, 10> counts{};
    std::vector<float> image(28 * 28);
    double sum = 0;
    for (int i = 0; i < size; ++i) {
      int32_t label = -1;
      ASSERT_TRUE((*dataset)->Read(i, {image.data(), Shape{28, 28, 1}, DType::kF32}, &label).ok());
      ASSERT_GE(label, 0);
      ASSERT_LT(label, 10);
      ++counts[static_cast<size_t>(label)];
      for (float pixel : image) sum += pixel;
    }
    EXPECT_THAT(counts, testing::Each(size / 10));
    EXPECT_NEAR(sum / (size * 784.0), 0.2863, 0.001);  // the published mean of its pixels
  }
}

}  // namespace
}  // namespace gyre
