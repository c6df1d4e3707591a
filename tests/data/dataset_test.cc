#include "engine/data/sets/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "tests/data/array_bytes.h"
#include "tests/data/series_fixture.h"

namespace gyre {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr char kFiles[] = "train { idx { images: 'images' labels: 'labels' } }";

class DatasetTest : public Series {
 protected:
  // Opens two files of these contents, by paths relative to the configuration's folder.
  absl::StatusOr<std::unique_ptr<Dataset>> OpenFiles(const std::string& images,
                                                     const std::string& labels) {
    Write("images", images);
    Write("labels", labels);
    return Open(kFiles);
  }
  void ExpectError(const std::string& images, const std::string& labels, absl::StatusCode code,
                   const std::vector<std::string>& words) {
    const absl::Status status = OpenFiles(images, labels).status();
    EXPECT_EQ(status.code(), code) << status;
    for (const std::string& word : words) {
      EXPECT_THAT(status.message(), HasSubstr(word));
    }
  }
};

constexpr absl::StatusCode kDataLoss = absl::StatusCode::kDataLoss;
constexpr absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

void ExpectSamples(const Dataset& dataset, const std::string& pixels, const std::string& labels) {
  const auto size = static_cast<size_t>(dataset.arrays()[0].shape.elements());
  for (int64_t index = dataset.size() - 1; index >= 0; --index) {
    const absl::StatusOr<Tensor> image = ReadSample(dataset, index, 0),
                                 label = ReadSample(dataset, index, 1);
    ASSERT_TRUE(image.ok() && label.ok());
    ASSERT_EQ(std::string(static_cast<const char*>(image->data), size),
              pixels.substr(static_cast<size_t>(index) * size, size));
    ASSERT_EQ(*label->as<uint8_t>(), static_cast<uint8_t>(labels[static_cast<size_t>(index)]));
  }
}

TEST_F(DatasetTest, ReadsImagesOfAnySizePlainAndPacked) {
  for (const std::vector<uint32_t>& dims :
       {std::vector<uint32_t>{1, 1, 1}, {3, 2, 5}, {257, 28, 28}, {5, 3, 7, 3}, {2, 1, 1, 1}}) {
    size_t elements = 1;
    for (uint32_t extent : dims) elements *= extent;
    const std::string pixels = RandomBytes(elements, elements);
    const std::string labels = RandomBytes(dims[0], 7);
    for (bool gzip : {false, true}) {
      const std::string images_file = Idx(dims, pixels), labels_file = Idx({dims[0]}, labels);
      const auto dataset = *OpenFiles(gzip ? Gzip(images_file) : images_file,
                                      gzip ? Gzip(labels_file) : labels_file);
      EXPECT_EQ(dataset->size(), dims[0]);
      ASSERT_EQ(dataset->arrays().size(), 2u);
      const DataArray &image = dataset->arrays()[0], &label = dataset->arrays()[1];
      EXPECT_EQ(image.input, "image");
      EXPECT_EQ(image.shape, (Shape{dims[1], dims[2], dims.size() == 4 ? dims[3] : 1}));
      EXPECT_EQ(label.input, "label");
      EXPECT_EQ(label.shape, Shape{});
      ExpectSamples(*dataset, pixels, labels);
    }
  }
}

TEST_F(DatasetTest, SamplesOutsideAreErrors) {
  const auto dataset = OpenFiles(Idx({2, 1, 1}, "ab"), Idx({2}, "cd")).value();
  for (int64_t index : {int64_t{-1}, int64_t{2}, std::numeric_limits<int64_t>::max()}) {
    EXPECT_THAT(ReadSample(*dataset, index, 0).status().ToString(),
                StartsWith("OUT_OF_RANGE: " + (folder_ / "images")));
  }
}

TEST_F(DatasetTest, AFileMayHaveSeveralGzipMembers) {
  const std::string images = Idx({3, 2, 2}, "abcdefghijkl"), labels = Idx({3}, "xyz");
  const auto dataset =
      *OpenFiles(Gzip(images.substr(0, 5)) + Gzip("") + Gzip(images.substr(5)), Gzip(labels));
  ExpectSamples(*dataset, "abcdefghijkl", "xyz");
}

TEST_F(DatasetTest, DamagedGzipIsFound) {
  const std::string images = Idx({50, 4, 4}, RandomBytes(800, 1)),
                    labels = Idx({50}, RandomBytes(50, 2));
  const std::string packed = Gzip(images);
  ExpectError(Gzip(images.substr(0, 20)) + Gzip(images.substr(20)).substr(0, 10), labels, kDataLoss,
              {folder_ / "images", "truncated: it ends after 20 unpacked bytes"});
  ExpectError(packed + "x", labels, kDataLoss, {folder_ / "images", "gzip"});
  ExpectError(packed + Gzip("x"), labels, kDataLoss, {folder_ / "images", "but more follow"});
  // Bytes 4 to 9 say nothing of the content; neither do a block's padding bits, which are high.
  for (size_t at = 10; at < packed.size(); at += 7) {
    std::string damaged = packed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x01);
    EXPECT_FALSE(OpenFiles(damaged, labels).ok()) << at;
  }
}

TEST_F(DatasetTest, SaysWhatIsWrong) {
  const std::string images = Idx({3, 2, 2}, "abcdefghijkl"), labels = Idx({3}, "xyz");
  ExpectError(images + "mn", labels, kDataLoss,
              {folder_ / "images", "[3, 2, 2] make 28 bytes", "2 more follow"});
  ExpectError(images, labels + "m", kDataLoss, {folder_ / "labels", "1 more follow"});
  ExpectError(images, Idx({2}, "xy"), kInvalid,
              {folder_ / "images", "3 samples", folder_ / "labels", "holds 2"});
  ExpectError(
      labels, labels, kInvalid,
      {folder_ / "images", "holds labels (IDX magic 0x00000801)", "0x00000803 or 0x00000804"});
  ExpectError(images, images, kInvalid,
              {folder_ / "labels", "holds images (IDX magic 0x00000803)", "(0x00000801)"});
  ExpectError("GIF89a..", labels, kInvalid, {folder_ / "images", "got 0x47494638"});
  std::string floats = images;
  floats[2] = 0x0d;
  ExpectError(floats, labels, kInvalid, {folder_ / "images", "got 0x00000d03"});
  ExpectError(Idx({0, 2, 2}, ""), Idx({0}, ""), kInvalid, {folder_ / "images", "no samples"});
  ExpectError(Idx({3, 0, 2}, ""), labels, kInvalid, {folder_ / "images", "without elements"});
  ExpectError(Idx({~0u, ~0u, ~0u, ~0u}, "x"), labels, kDataLoss,
              {folder_ / "images", "more than 2^64"});
  ExpectError(Idx({~0u, ~0u, 1}, "x"), labels, kDataLoss, {"[4294967295, 4294967295, 1]"});
}

TEST_F(DatasetTest, NamesTheFileThatIsMissing) {
  Write("images", Idx({1, 1, 1}, "a"));
  EXPECT_THAT(Open(kFiles).status().ToString(),
              AllOf(StartsWith("NOT_FOUND: cannot open " + (folder_ / "labels")),
                    Not(HasSubstr("apt-get"))));

  // A README's command makes some; what else is named may be mistyped.
  std::filesystem::remove(folder_ / "images");  // which would be suggested
  const auto missing = [&](const char* images) {
    return Error(absl::StrCat("train { idx { images: '", images, "' labels: 'labels' } }"));
  };
  const std::string none = ": No such file or directory", advice = " says what makes it";
  EXPECT_TRUE(missing("runs/data/images_224.npy").ends_with(none));
  Write("README.md", "# data");
  EXPECT_TRUE(missing("runs/data/images_224.npy").ends_with(none + "; @README.md" + advice));
  EXPECT_TRUE(missing("runs/data/images_223.npy").ends_with(none));
  EXPECT_TRUE(missing("images_224.npy").ends_with(none));

  const std::string package = missing("/usr/share/datasets/fashion-mnist/none.gz");
  EXPECT_THAT(package, HasSubstr("none.gz" + none));
  EXPECT_EQ(package.ends_with("; apt-get install dataset-fashion-mnist brings it"),
            !std::filesystem::exists("/usr/share/datasets/fashion-mnist"));
}

// Arrays of any number and type, each to the input that it names.
TEST_F(DatasetTest, OpensNamedArrays) {
  const std::string bytes = RandomBytes(2 * 3 * 2, 1);
  Write("bytes.npy", Npy("|u1", "(2, 3, 2)", bytes));
  WriteBytes(
      folder_ / "ids.npy",
      Npy("<i8", "(2,)", std::string("\7\0\0\0\0\0\0\0\376\377\377\377\377\377\377\377", 16)));
  Write("idx.gz", Gzip(Idx({2, 4}, "abcdefgh")));
  const std::string config =
      "test { arrays { array { input: 'a' file: 'idx.gz' } array { input: 'b' file: 'ids.npy' } "
      "array { input: 'c' file: 'bytes.npy' } } }";
  const auto dataset = *Open(config, /*train=*/false);
  EXPECT_EQ(dataset->size(), 2);
  const std::vector<DataArray>& arrays = dataset->arrays();
  ASSERT_EQ(arrays.size(), 3u);
  EXPECT_EQ(arrays[0].shape, Shape{4});
  EXPECT_EQ(arrays[0].dtype, DType::kU8);
  EXPECT_EQ(arrays[1].shape, Shape{});
  EXPECT_EQ(*ReadSample(*dataset, 0, 1)->as<int32_t>(), 7);
  EXPECT_EQ(*ReadSample(*dataset, 1, 1)->as<int32_t>(), -2);
  EXPECT_EQ(arrays[2].input, "c");
  EXPECT_EQ(arrays[2].shape, (Shape{3, 2}));
  EXPECT_EQ(std::string(static_cast<char*>(ReadSample(*dataset, 1, 2)->data), 6), bytes.substr(6));
  Write("bytes.npy", Npy("|u1", "(3, 2, 2)", bytes));
  EXPECT_EQ(Error(config, false), "@idx.gz holds 2 samples, but @bytes.npy holds 3");
}

// Debian's package, as the models read it: all classes equally often.
TEST_F(DatasetTest, ReadsFashionMnist) {
  for (const auto& [name, size] : {std::pair<std::string, int>{"train", 60000}, {"t10k", 10000}}) {
    const std::string stem = "'/usr/share/datasets/fashion-mnist/" + name;
    const auto dataset =
        *Open(absl::StrCat("test { idx { images: ", stem, "-images-idx3-ubyte.gz' labels: ", stem,
                           "-labels-idx1-ubyte.gz' } }"),
              /*train=*/false);
    EXPECT_EQ(dataset->size(), size);
    EXPECT_EQ(dataset->arrays()[0].shape, (Shape{28, 28, 1}));
    std::array<int, 10> counts{};
    double sum = 0;
    for (int i = 0; i < size; ++i) {
      const uint8_t label = *ReadSample(*dataset, i, 1)->as<uint8_t>();
      ASSERT_LT(label, 10);
      ++counts[label];
      const auto* image = ReadSample(*dataset, i, 0)->as<uint8_t>();
      sum += std::accumulate(image, image + 784, 0);
    }
    EXPECT_THAT(counts, testing::Each(size / 10));
    EXPECT_NEAR(sum / (size * 784.0 * 255), 0.2863, 0.001);  // the published mean of its pixels
  }
}

}  // namespace
}  // namespace gyre
