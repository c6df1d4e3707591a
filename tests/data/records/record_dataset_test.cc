// Records as a data set: they feed what the packed source fed.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/data/batches/split_dataset.h"
#include "engine/data/records/shard_writer.h"
#include "engine/runtime/check.h"
#include "tests/data/array_bytes.h"
#include "tests/data/images/image_fixture.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kImages[] = "train { images { list: 'list' } }";
constexpr char kRecords[] = "train { records { file: 'train-*.rec' } }";

// A set of the data set's arrays, their files as they are, in its order.
RecordSet SetOf(const Dataset& dataset, const std::string& name, int64_t shards) {
  RecordSet set;
  set.set_name(name);
  set.set_samples(dataset.size());
  set.set_shards(shards);
  set.set_lengths(!dataset.lengths().empty());
  for (const DataArray& array : dataset.arrays()) {
    RecordSet::Array& added = *set.add_array();
    added.set_input(array.input);
    added.set_digest(array.digest);
    added.set_reset(array.reset);
    if (array.stored != StoredAs::kValues) {
      added.set_content(array.stored == StoredAs::kMask ? RecordSet::Array::MASK
                                                        : RecordSet::Array::PICTURE);
      continue;
    }
    added.set_dtype(std::string(DTypeName(array.dtype)));
    for (const int64_t extent : array.shape.dims()) added.add_dims(extent);
    if (array.shape.elements() == 1 && SizeOf(array.dtype) <= 4) {
      set.set_indexed(set.array_size() - 1);
    }
  }
  for (const auto& [file, text] : dataset.fit()) {
    RecordSet::Text& added = *set.add_fit();
    added.set_name(file);
    added.set_text(text);
  }
  return set;
}

// Writes shard `number` to FOLDER/ShardName.
void WriteShard(const Dataset& dataset, const RecordSet& set, int64_t number,
                const std::string& folder) {
  ShardHeader header;
  *header.mutable_set() = set;
  header.set_shard(number);
  const auto fill = [&](ShardWriter& writer) -> absl::Status {
    const int64_t end = (number + 1) * set.samples() / set.shards();
    for (int64_t i = number * set.samples() / set.shards(); i < end; ++i) {
      std::vector<std::string> arrays;
      for (size_t a = 0; a < dataset.arrays().size(); ++a) {
        SampleMemory memory;
        if (dataset.arrays()[a].stored != StoredAs::kValues) {
          ASSIGN_OR_RETURN(const std::string_view file, dataset.ReadStored(i, a, memory));
          arrays.emplace_back(file);
          continue;
        }
        ASSIGN_OR_RETURN(const Tensor values, dataset.Read(i, a, memory, {}));
        arrays.emplace_back(static_cast<const char*>(values.data), values.bytes());
      }
      const std::vector<std::string_view> views(arrays.begin(), arrays.end());
      RETURN_IF_ERROR(
          writer.Add(views, set.lengths() ? dataset.lengths()[static_cast<size_t>(i)] : 0));
    }
    return absl::OkStatus();
  };
  const absl::Status status =
      ShardWriter::Write(folder + "/" + ShardName(set, number), header, fill);
  GYRE_CHECK(status.ok());
}

void WriteShards(const Dataset& dataset, const RecordSet& set, const std::string& folder) {
  for (int64_t i = 0; i < set.shards(); ++i) WriteShard(dataset, set, i, folder);
}

class RecordDatasetTest : public Images {
 protected:
  // Pictures of other sizes, and a list of them with classes a and b, or with masks.
  void Pictures(int count, bool masks = false) {
    std::string list;
    for (int i = 0; i < count; ++i) {
      const int64_t height = 5 + 3 * i, width = 9 + 2 * i;
      Picture(absl::StrCat(i, ".png"), height, width, 3);
      if (masks) Picture(absl::StrCat(i, "m.png"), height, width, 1);
      absl::StrAppend(&list, i, ".png\t",
                      masks        ? absl::StrCat(i, "m.png")
                      : i % 3 == 0 ? "b"
                                   : "a",
                      "\n");
    }
    WriteBytes(folder_ / "list", list);
  }
  // The pictures in so many shards, by the data set that packs them.
  std::unique_ptr<Dataset> Packed(int64_t shards, const std::string& text = kImages) {
    auto dataset = *Open(text);
    WriteShards(*dataset, SetOf(*dataset, "train", shards), folder_.path());
    return dataset;
  }
};

std::string Sample(const Dataset& dataset, int64_t index, size_t array,
                   const std::optional<SampleDraw>& draw = {}) {
  SampleMemory memory;
  const auto sample = dataset.Read(index, array, memory, draw);
  if (!sample.ok()) return std::string(sample.status().message());
  return {static_cast<const char*>(sample->data), sample->bytes()};
}

void ExpectAlike(const Dataset& records, const Dataset& source) {
  ASSERT_EQ(records.size(), source.size());
  ASSERT_EQ(records.arrays().size(), source.arrays().size());
  EXPECT_EQ(records.fit(), source.fit());
  for (size_t a = 0; a < source.arrays().size(); ++a) {
    EXPECT_EQ(records.arrays()[a].input, source.arrays()[a].input);
    EXPECT_EQ(records.arrays()[a].shape, source.arrays()[a].shape);
    EXPECT_EQ(records.arrays()[a].dtype, source.arrays()[a].dtype);
    EXPECT_EQ(records.arrays()[a].digest, source.arrays()[a].digest);
    for (int64_t i = 0; i < source.size(); ++i) {
      EXPECT_EQ(Sample(records, i, a), Sample(source, i, a)) << i << " " << a;
      const SampleDraw draw{.seed = 3, .position = 17 * i};
      EXPECT_EQ(Sample(records, i, a, draw), Sample(source, i, a, draw)) << i << " " << a;
    }
  }
}

TEST_F(RecordDatasetTest, FeedsThePicturesOfItsSource) {
  Pictures(11);
  for (const int64_t shards : {1, 3, 11}) {
    for (const std::string more : {"", " augmentation { random_crop {} }"}) {
      for (const std::string& name : folder_.List()) {
        if (name.ends_with(".rec")) std::filesystem::remove(folder_ / name);
      }
      const auto source = Packed(shards, kImages + more);
      ExpectAlike(**Open(kRecords + more), *source);
    }
  }
  // By the images of the records, not of the source.
  const auto fit = *Open("train { records { file: 'train-*.rec' images { fit: STRETCH } } }");
  ExpectAlike(*fit, **Open("train { images { list: 'list' fit: STRETCH } }"));
  EXPECT_EQ(fit->Describe(4), folder_ / "train-00004-of-00011.rec: sample 0");
  EXPECT_EQ(*fit->PictureFile(4, *std::make_unique<SampleMemory>()), ReadBytes(folder_ / "4.png"));
}

TEST_F(RecordDatasetTest, MasksFollowTheirPictures) {
  Pictures(5, /*masks=*/true);
  inputs_[1] = {.name = "label", .dims = {4, 6}, .label = true};
  const std::string more = " augmentation { random_crop {} }";
  const auto source = Packed(2, kImages + more);
  ExpectAlike(**Open(kRecords + more), *source);
}

// The same memory for several samples and data sets.
TEST_F(RecordDatasetTest, AnArraysSampleLivesUntilItsNext) {
  Pictures(6, /*masks=*/true);
  inputs_[1] = {.name = "label", .dims = {4, 6}, .label = true};
  const auto source = Packed(2);
  const auto one = *Open(kRecords), other = *Open(kRecords);
  SampleMemory memory;
  const Tensor picture = *one->Read(4, 0, memory, {});
  const std::string before(static_cast<const char*>(picture.data), picture.bytes());
  ASSERT_TRUE(other->Read(2, 1, memory, {}).ok());
  EXPECT_EQ(std::string(static_cast<const char*>(picture.data), picture.bytes()), before);
  const Tensor mask = *one->Read(2, 1, memory, {});
  EXPECT_EQ(std::string(static_cast<const char*>(mask.data), mask.bytes()), Sample(*source, 2, 1));
  const Tensor next = *one->Read(3, 1, memory, {});
  EXPECT_EQ(std::string(static_cast<const char*>(next.data), next.bytes()), Sample(*source, 3, 1));
}

TEST_F(RecordDatasetTest, FeedsTextsWithTheirLengthsAndFit) {
  WriteBytes(folder_ / "reviews",
             "good\ta fine film\nbad\tno\ngood\tso so\nbad\tbad bad film it is\n");
  inputs_ = {{.name = "text", .dims = {3}, .label = true},
             {.name = "length", .label = true},
             {.name = "label", .label = true}};
  const auto source = Packed(3, "train { reviews { file: 'reviews' length: 3 } }");
  const auto records = *Open(kRecords);
  ExpectAlike(*records, *source);
  EXPECT_THAT(records->lengths(), ElementsAre(3, 1, 2, 3));
  EXPECT_TRUE(Open(kRecords, true, source->fit()).ok());
  Fit other = source->fit();
  absl::StrReplaceAll({{"film", "firm"}}, &other.begin()->second);
  EXPECT_THAT(Error(kRecords, true, other),
              HasSubstr("@train-*.rec was packed with another fit than the weights': line "));
}

TEST_F(RecordDatasetTest, ASplitKeepsWindows) {
  Pictures(12);
  Packed(3);
  const std::shared_ptr<const Dataset> all =
      *Open("train { records { file: 'train-*.rec' window: 5 } }");
  EXPECT_EQ(all->window().samples, 5);
  EXPECT_THAT(all->window().files, ElementsAre(4, 4, 4));
  HoldOutConfig config;
  config.set_test(0.25);
  config.set_by(HoldOutConfig::CLASS);
  const SplitDatasets split = *Split(all, config, "label");
  EXPECT_EQ(split.train->window().samples, 5);
  std::vector<int64_t> both;
  for (size_t i = 0; i < 3; ++i) {
    both.push_back(split.train->window().files[i] + split.test->window().files[i]);
  }
  EXPECT_THAT(both, ElementsAre(4, 4, 4));
  std::vector<int64_t> samples(static_cast<size_t>(split.train->size()));
  for (size_t i = 0; i < samples.size(); ++i) samples[i] = static_cast<int64_t>(i);
  split.train->ReadSoon(samples);
  split.train->ReadSoon({});
}

TEST_F(RecordDatasetTest, NeedsAllShardsOfOneSet) {
  Pictures(8);
  const auto source = Packed(4);
  std::filesystem::rename(folder_ / "train-00002-of-00004.rec", folder_ / "x");
  EXPECT_EQ(Error(kRecords),
            "@train-*.rec: 3 of 4 shards are there, train-00002-of-00004.rec is not");
  EXPECT_EQ(Error("train { records { file: 'nothing-*.rec' } }"),
            "@nothing-*.rec: no file has such a name");
  WriteBytes(folder_ / "train-00002-of-00004.rec", ReadBytes(folder_ / "train-00001-of-00004.rec"));
  EXPECT_EQ(Error(kRecords),
            "@train-00001-of-00004.rec and @train-00002-of-00004.rec are both shard 1");
  std::filesystem::rename(folder_ / "x", folder_ / "train-00002-of-00004.rec");
  RecordSet other = SetOf(*source, "train", 4);
  other.set_digest("other");
  WriteShard(*source, other, 3, folder_.path());
  EXPECT_EQ(Error(kRecords),
            "@train-00003-of-00004.rec is of another set than @train-00000-of-00004.rec (packed "
            "from other samples, or otherwise); name one set's shards, as in \"train-*.rec\"");
  WriteShards(*source, SetOf(*source, "test", 1), folder_.path());
  EXPECT_THAT(Error("train { records { file: ['train-00000*.rec', 'test-*.rec'] } }"),
              HasSubstr("(\"test\", not \"train\")"));
}

TEST_F(RecordDatasetTest, NamesTheSampleThatIsDamaged) {
  Pictures(6);
  Packed(2);
  const std::string path = folder_ / "train-00001-of-00002.rec";
  std::string bytes = ReadBytes(path);
  const size_t at = bytes.find(ReadBytes(folder_ / "4.png"));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 30] ^= 1;
  WriteBytes(path, bytes);
  const auto records = *Open(kRecords);
  EXPECT_THAT(Error(absl::DataLossError(Sample(*records, 4, 0))),
              HasSubstr("@train-00001-of-00002.rec: sample 1 (the first is 0): damaged"));
  EXPECT_EQ(Sample(*records, 4, 1).size(), 4);  // the label is in the index
  EXPECT_FALSE(records->Read(6, 0, *std::make_unique<SampleMemory>(), {}).ok());
  const auto few = *Open("train { records { file: 'train-*.rec' images { most_pixels: 50 } } }");
  EXPECT_THAT(Error(absl::DataLossError(Sample(*few, 2, 0))),
              HasSubstr("@train-00000-of-00002.rec: sample 2 (the first is 0): "));
}

TEST_F(RecordDatasetTest, RefusesWhatTheNetDoesNotTake) {
  Pictures(4);
  Packed(2);
  EXPECT_EQ(Error(kRecords, true, {{"classes.txt", "a\nc\n"}}),
            "@train-*.rec was packed with another fit than the weights': line 2 of classes.txt is "
            "\"c\", but \"b\" here");
  inputs_[0].name = "photo";
  EXPECT_EQ(Error(kRecords),
            "@train-*.rec: its pictures feed the net's input \"image\", but its inputs are "
            "\"photo\", \"label\"");
  WriteBytes(folder_ / "numbers",
             Npy("<f4", "(3, 2)", RandomBytes(24, 1).replace(0, 24, 24, '\0')));
  inputs_ = {{.name = "x", .dims = {2}}};
  const auto values = *Open("train { arrays { array { input: 'x' file: 'numbers' } } }");
  WriteShards(*values, SetOf(*values, "values", 2), folder_.path());
  const std::string records = "train { records { file: 'values-*.rec'";
  ExpectAlike(**Open(records + " } }"), *values);
  EXPECT_EQ(Error(records + " images {} } }"),
            "@values-*.rec: the samples are values, which records.images does not change; leave it "
            "out, or pack files of pictures without make_records --raw");
  EXPECT_THAT(Error(records + " } } augmentation { random_crop {} }"),
              HasSubstr("values, which augmentation.random_crop does not change"));
}

}  // namespace
}  // namespace gyre
