// Which arrays feed which inputs, and everything that may be wrong between a net's text, a
// trainer's, and files of arrays.
#include "engine/training/feed/data_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/data/array_bytes.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

class DataFeed : public testing::Test {
 protected:
  DataFeed() {
    WriteBytes(folder_ / "bytes.npy", Npy("|u1", "(4, 3, 5, 2)", RandomBytes(120, 1)));
    WriteBytes(folder_ / "reals.npy", Npy("<f4", "(4, 3, 5, 2)", std::string(480, '\0')));
    WriteBytes(folder_ / "flat.npy", Npy("<f8", "(4, 7)", std::string(224, '\0')));
    WriteBytes(folder_ / "labels.npy", Npy("<i4", "(4,)", std::string(16, '\0')));
    WriteBytes(folder_ / "ids.npy", Npy("<i8", "(4, 6)", std::string(192, '\0')));
  }

  // Of a net "n" with these inputs, a line each, and a trainer "t" with this data on its second.
  absl::StatusOr<RunData> Open(const std::string& inputs, const std::string& data) {
    const auto net = *ParseNetText(inputs + "\nlayer { name: \"fc\" dense { outputs: 2 } }", "n");
    const auto trainer =
        *ParseTrainerText(absl::StrCat("net: 'n' batch: ", batch_,
                                       " steps: 1 optimizer { sgd {} } learning_rate { base: 1 }\n",
                                       "data { ", data, " }"),
                          folder_ / "t");
    return OpenData(trainer, net, /*train=*/true);
  }
  std::string Error(const std::string& inputs, const std::string& data) {
    return absl::StrReplaceAll(std::string(Open(inputs, data).status().message()),
                               {{folder_.path(), "@"}});
  }

  TempFolder folder_;
  int batch_ = 1;
};

constexpr char kInputs[] =
    "input { name: \"image\" dims: [3, 5, 2] }\n"
    "input { name: \"label\" type: LABEL }";

// Data that trains on these files, one an input, then says `more`.
std::string Data(const std::string& image, const std::string& label, const std::string& more = "") {
  return absl::StrCat("train { arrays { array { input: 'image' file: '", image,
                      "' } array { input: 'label' file: '", label, "' } } } ", more);
}

TEST_F(DataFeed, AnyNumberOfInputsOfAnyType) {
  const auto data = *Open(
      "input { name: \"a\" dims: [7] }\ninput { name: \"b\" dims: [6] type: LABEL }\n"
      "input { name: \"c\" type: LABEL }\ninput { name: \"d\" dims: [3, 5, 2] }\n"
      "input { name: \"e\" dims: [3, 5, 2] }\ninput { name: \"f\" dims: [3, 5, 2] type: LABEL }",
      "train { arrays { array { input: 'f' file: 'bytes.npy' } array { input: 'e' file: "
      "'reals.npy' } array { input: 'd' file: 'bytes.npy' } array { input: 'c' file: 'labels.npy' "
      "} array { input: 'b' file: 'ids.npy' } array { input: 'a' file: 'flat.npy' } } } "
      "normalization { input: 'd' mean: [1, 2] } normalization { input: 'e' std: 3 } "
      "augmentation { input: ['d', 'e'] flip: true shift: 2 }");
  const std::vector<FedInput>& inputs = data.feed.inputs;
  ASSERT_EQ(inputs.size(), 6u);
  const DType expected[] = {DType::kF64, DType::kI32, DType::kI32,
                            DType::kU8,  DType::kF64, DType::kI32};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(inputs[i].name, std::string(1, static_cast<char>('a' + i)));
    EXPECT_EQ(FeedOn(DeviceKind::kSim, data.feed).type(i, DType::kF64), expected[i]) << i;
    EXPECT_EQ(inputs[i].augmented, i == 3 || i == 4);
  }
  EXPECT_EQ(inputs[3].normalization.mean, (std::vector<double>{1, 2}));
  EXPECT_EQ(inputs[3].normalization.std, (std::vector<double>{1, 1}));
  EXPECT_EQ(inputs[3].pixel_values.size(), 512u);
  EXPECT_EQ(inputs[4].normalization.mean, (std::vector<double>{0}));
  EXPECT_EQ(inputs[4].normalization.std, (std::vector<double>{3}));
  EXPECT_EQ(data.feed.augmentation.shift, 2);

  const auto device = NewCpuDevice({});
  const auto loader =
      *NewLoader(*data.train, /*train=*/true, {.global = 3}, data.feed, 0, 2, *device);
  const Batch batch = loader->Next();
  ASSERT_EQ(batch.arrays.size(), 6u);
  EXPECT_EQ(batch.arrays[0].shape, (Shape{3, 7}));
  EXPECT_EQ(batch.arrays[1].shape, (Shape{3, 6}));
  EXPECT_EQ(batch.arrays[2].shape, Shape{3});
  EXPECT_EQ(batch.arrays[5].shape, (Shape{3, 3, 5, 2}));
  EXPECT_EQ(batch.arrays[5].dtype, DType::kI32);
}

// A label as high and wide as the image is its mask.
TEST_F(DataFeed, MasksVaryWithTheImage) {
  WriteBytes(folder_ / "masks.npy", Npy("|u1", "(4, 3, 5)", RandomBytes(60, 2)));
  WriteBytes(folder_ / "wide.npy", Npy("<i4", "(4, 3, 5)", std::string(240, '\0')));
  WriteBytes(folder_ / "other.npy", Npy("|u1", "(4, 5, 3)", RandomBytes(60, 2)));
  const std::string inputs =
      "input { name: \"image\" dims: [3, 5, 2] }\ninput { name: \"label\" dims: [3, 5] type: LABEL "
      "}";
  const std::string turn = "augmentation { flip: true rotate: 5 }";
  const auto augmented = [&](const absl::StatusOr<RunData>& data) {
    return data.value().feed.inputs[0].augmented && data->feed.inputs[1].augmented;
  };
  EXPECT_FALSE(augmented(Open(inputs, Data("bytes.npy", "masks.npy"))));
  WriteBytes(folder_ / "bytes.npy", Npy("|u1", "(4, 3, 5, 1)", RandomBytes(60, 1)));
  const std::string grey = absl::StrReplaceAll(inputs, {{"5, 2", "5, 1"}});
  EXPECT_TRUE(augmented(Open(grey, Data("bytes.npy", "masks.npy", turn))));
  EXPECT_TRUE(augmented(Open(grey, Data("bytes.npy", "wide.npy", "augmentation { shift: 1 }"))));
  EXPECT_EQ(
      Error(grey, Data("bytes.npy", "wide.npy", turn)),
      "@/t:2:140: data.augmentation.rotate turns masks of bytes, but those of input \"label\" "
      "are no bytes; store them as uint8");
  const std::string unlike = absl::StrReplaceAll(grey, {{"[3, 5] ", "[5, 3] "}});
  EXPECT_FALSE(augmented(Open(unlike, Data("bytes.npy", "other.npy", turn))));
}

// Classes feed reals, and weights are 1 where no array has them.
TEST_F(DataFeed, ClassesAndWeights) {
  WriteBytes(folder_ / "classes.npy",
             Npy("<i4", "(4,)", std::string("\2\0\0\0\0\0\0\0\2\0\0\0\2\0\0\0", 16)));
  WriteBytes(folder_ / "weights.npy",
             Npy("<f4", "(4,)", std::string("\0\0\0\x40", 4) + std::string(12, '\0')));
  const std::string inputs =
      "input { name: \"image\" dims: [3, 5, 2] }\ninput { name: \"label\" dims: 3 }\n"
      "input { name: \"weight\" }";
  const std::string train = Data("bytes.npy", "classes.npy");
  const std::string weighed = absl::StrReplaceAll(
      train, {{"} } }", "} array { input: 'weight' file: 'weights.npy' } } }"}});
  const auto device = NewCpuDevice({});
  const auto weights = [&](const std::string& text, bool training) {
    const auto data = Open(inputs, text).value();
    EXPECT_EQ(data.feed.inputs[1].classes, 3);
    EXPECT_TRUE(data.feed.inputs[2].weight);
    const auto loader = *NewLoader(*data.train, training, {.global = 4}, data.feed, 0, 2, *device);
    const Batch batch = loader->Next();
    std::vector<float> of(4);  // by sample
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t sample = batch.samples[i];
      of[static_cast<size_t>(sample)] = batch.arrays[2].as<float>()[i];
      const int64_t label = sample == 1 ? 0 : 2;
      for (int64_t c = 0; c < 3; ++c) {
        EXPECT_EQ(batch.arrays[1].as<float>()[i * 3 + c], label == c ? 1 : 0);
      }
    }
    return of;
  };
  constexpr float kThird = 2.F / 3;
  const std::string automatic = " class_weight: AUTO";
  EXPECT_EQ(weights(train, true), std::vector<float>({1, 1, 1, 1}));
  EXPECT_EQ(weights(weighed, true), std::vector<float>({2, 0, 0, 0}));
  EXPECT_EQ(weights(train + automatic, true), std::vector<float>({kThird, 2, kThird, kThird}));
  EXPECT_EQ(weights(train + automatic, false), std::vector<float>({1, 1, 1, 1}));
  EXPECT_EQ(weights(weighed + automatic, true), std::vector<float>({2 * kThird, 0, 0, 0}));

  const auto balanced = *Open(inputs, train + " order: BALANCED augmentation { repeated: 2 }");
  TrainerConfig config;
  config.set_batch(1);
  config.mutable_data()->mutable_augmentation()->set_repeated(2);
  EXPECT_EQ(TrainSamplesOf(config, *balanced.train), 8);
  EXPECT_TRUE(LeftOut(config, balanced).empty());
  const auto loader =
      *NewLoader(*balanced.train, true, {.global = 8}, balanced.feed, 0, 2, *device);
  const Batch batch = loader->Next();
  EXPECT_EQ(std::ranges::count(batch.samples, 1), 4);
  for (size_t i = 0; i < 8; i += 2) EXPECT_EQ(batch.samples[i], batch.samples[i + 1]);
}

TEST_F(DataFeed, SaysWhatClassesWeightsAndMixesLack) {
  const std::string reals =
      "input { name: \"image\" dims: [3, 5, 2] }\ninput { name: \"label\" dims: 3 }\n";
  const std::string mask = "\ninput { name: \"mask\" dims: [3, 5] type: LABEL }";
  WriteBytes(folder_ / "masks.npy", Npy("|u1", "(4, 3, 5)", RandomBytes(60, 2)));
  const std::string loss =
      "layer { name: \"loss\" input: [\"fc\", \"label\"] softmax_cross_entropy {} }";
  const struct {
    std::string inputs, more, error;
  } cases[] = {
      {kInputs, "augmentation { mixup {} }",
       "data.augmentation.mixup mixes labels, so the net's input \"label\" has to be REAL with a "
       "value for each class; write input { name: \"label\" dims: CLASSES } in the net, for "
       "softmax_cross_entropy"},
      {kInputs, "class_weight: AUTO",
       "data.class_weight weighs samples, but the net has no input \"weight\"; write input { name: "
       "\"weight\" } in the net, and \"weight\" as last input of its losses and accuracies"},
      {kInputs, "max_bad_samples: 1 weight_input: 'label'",
       "data.max_bad_samples weighs samples, but the net's input \"label\" is not REAL without "
       "dims; write input { name: \"label\" } in the net, and \"label\" as last input of its "
       "losses and accuracies"},
      {reals + "input { name: \"weight\" }" + loss, "max_bad_samples: 1",
       "n:3:25: layer \"loss\": data.max_bad_samples weighs samples, which this loss does not "
       "take; write \"weight\" as its last input"},
      {reals + "input { name: \"weight\" }" +
           absl::StrReplaceAll(loss, {{"softmax_cross_entropy", "binary_cross_entropy"}}),
       "max_bad_samples: 1",
       "layer \"loss\": data.max_bad_samples weighs samples, which this loss does not take; write "
       "\"weight\" as its last input"},
      {reals, "normalization { input: 'label' std: 2 }",
       "data.normalization: input \"label\" takes classes"},
      {reals + "input { name: \"weight\" }", "normalization { input: 'weight' std: 2 }",
       "data.normalization: input \"weight\" takes weights"},
  };
  for (const auto& c : cases) {
    const std::string error = Error(c.inputs, Data("bytes.npy", "labels.npy", c.more));
    EXPECT_THAT(error, testing::EndsWith(c.error));
  }
  const std::string error = Error(
      reals + mask,
      absl::StrReplaceAll(
          Data("bytes.npy", "labels.npy", "augmentation { input: ['image', 'mask'] cutmix {} }"),
          {{"} } }", "} array { input: 'mask' file: 'masks.npy' } } }"}}));
  EXPECT_THAT(error, testing::EndsWith("mix pictures, but input \"mask\" is a mask; leave it out"));
}

// Each row of a step goes on in a piece of its own, whatever the ranks; a test is as a step is.
TEST_F(DataFeed, ContiguousRows) {
  std::string ids;
  for (char i = 0; i < 11; ++i) ids += std::string{i, 0, 0, 0};
  WriteBytes(folder_ / "eleven.npy", Npy("<i4", "(11,)", ids));
  const std::string array = "{ arrays { array { input: 'i' file: 'eleven.npy' } } }";
  const auto data = *Open("input { name: \"i\" type: LABEL }",
                          absl::StrCat("train ", array, " test ", array, " order: CONTIGUOUS"));
  const auto device = NewCpuDevice({});
  const auto samples = [&](bool train, int rank, int64_t position) {
    const RunShape shape = {.global = 2, .rank = rank, .ranks = 2, .accumulate = 2};
    const auto loader = *NewLoader(train ? *data.train : *data.test, train, shape, data.feed,
                                   position, /*depth=*/2, *device);
    std::vector<int64_t> all;
    for (int b = 0; b < 6; ++b) {
      const Batch batch = loader->Next();
      EXPECT_EQ(*batch.arrays[0].as<int32_t>(), batch.samples[0]);
      all.push_back(batch.samples[0]);
      loader->Release(batch);
    }
    return all;
  };
  using Samples = std::vector<int64_t>;
  // Pieces of two: of each step two batches, of which each rank has a sample.
  EXPECT_EQ(samples(true, 0, 0), (Samples{0, 4, 1, 5, 0, 4}));
  EXPECT_EQ(samples(true, 1, 0), (Samples{2, 6, 3, 7, 2, 6}));
  EXPECT_EQ(samples(true, 1, 12), (Samples{3, 7, 2, 6, 3, 7}));
  EXPECT_EQ(samples(false, 0, 0), (Samples{0, 1, 2, 3, 4, 0}));
  EXPECT_EQ(samples(false, 1, 0), (Samples{5, 6, 7, 8, 9, 5}));
  TrainerConfig config;
  config.set_batch(2);
  config.set_accumulate(2);
  EXPECT_EQ(TrainSamplesOf(config, *data.train), 11);
  EXPECT_EQ(TestSamplesOf(config, *data.test), 11);
  config.mutable_data()->set_order(DataConfig::CONTIGUOUS);
  EXPECT_EQ(TrainSamplesOf(config, *data.train), 8);
  EXPECT_EQ(TestSamplesOf(config, *data.test), 10);
  config.set_batch(12);
  EXPECT_EQ(TestSamplesOf(config, *data.test), 11);  // fewer than a batch
}

// Text marks where a row begins anew; each rank has its rows of all steps.
TEST_F(DataFeed, TextInContiguousRows) {
  WriteBytes(folder_ / "text", "abcdefghijkl");
  const auto data = *Open(
      "input { name: \"text\" dims: 2 type: LABEL }\ninput { name: \"reset\" dims: 2 type: LABEL }",
      "train { text { file: 'text' length: 2 } } order: CONTIGUOUS");
  const auto device = NewCpuDevice({});
  for (const int ranks : {1, 2}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const RunShape shape = {.global = 2, .rank = rank, .ranks = ranks};
      const auto loader = *NewLoader(*data.train, true, shape, data.feed, 0, 2, *device);
      for (int step = 0; step < 7; ++step) {
        const Batch batch = loader->Next();
        for (int64_t i = 0; i < batch.arrays[0].shape[0]; ++i) {
          const int row = rank + static_cast<int>(i);
          EXPECT_EQ(batch.arrays[0].as<int32_t>()[2 * i], 6 * row + 2 * (step % 3) + 1);
          EXPECT_EQ(batch.arrays[1].as<int32_t>()[2 * i], step % 3 == 0);
          EXPECT_EQ(batch.arrays[1].as<int32_t>()[2 * i + 1], 0);
        }
        loader->Release(batch);
      }
    }
  }
}

// Shots go on in rows of their own, and the ranks' rows are the epoch.
TEST_F(DataFeed, ShotsInRows) {
  std::filesystem::create_directory(folder_ / "shots");
  for (const int shot : {1, 2, 3}) {
    std::string csv = "# event 9\ntime,x\n";
    for (int t = 0; t < 2 * shot; ++t) absl::StrAppend(&csv, t, ",", 10 * shot + t, "\n");
    WriteBytes(folder_ / absl::StrCat("shots/", shot, ".csv"), csv);
  }
  WriteBytes(folder_ / "shots/scales", "x\t1\n");
  const std::string inputs =
      "input { name: \"signals\" dims: [2, 1] }\ninput { name: \"reset\" dims: 2 type: LABEL }";
  const std::string shots =
      "train { shots { folder: 'shots' signal: 'x' length: 2 warning: 1 scales: 'shots/scales' } } "
      "test { shots { folder: 'shots' } } order: CONTIGUOUS";
  const auto data = Open(inputs, shots).value();
  TrainerConfig config;
  config.set_batch(2);
  config.mutable_data()->set_order(DataConfig::CONTIGUOUS);
  EXPECT_EQ(TrainSamplesOf(config, *data.train), 6);
  config.set_batch(3);
  EXPECT_EQ(TrainSamplesOf(config, *data.train), 9);
  const auto left_out = [&](const char* name) {
    return std::vector<std::string>{
        absl::StrCat("data.", name, ": 3 samples of padding behind shorter sequences, beside 6"),
        absl::StrCat("data.", name, ": of ", folder_.path(),
                     "/shots 1 are left out (scales): expected .npz or .csv files")};
  };
  std::vector<std::string> notes = left_out("train");
  for (const std::string& note : left_out("test")) notes.push_back(note);
  EXPECT_EQ(LeftOut(config, data), notes);
  config.set_batch(5);
  EXPECT_EQ(TestBatchOf(config, *data.test), 3);
  const auto device = NewCpuDevice({});
  for (const int ranks : {1, 2, 3}) {
    for (const bool train : {true, false}) {
      std::vector<float> first;  // values of chunks, of two epochs
      for (int rank = 0; rank < ranks; ++rank) {
        const RunShape shape = {.global = 3, .rank = rank, .ranks = ranks};
        const auto loader = *NewLoader(*data.train, train, shape, data.feed, 0, 2, *device);
        for (int step = 0; step < 6; ++step) {
          const Batch batch = loader->Next();
          for (int64_t i = 0; i < batch.arrays[0].shape[0]; ++i) {
            const float value = batch.arrays[0].as<float>()[2 * i];
            EXPECT_EQ(batch.arrays[1].as<int32_t>()[2 * i], value > 0 && std::fmod(value, 10) == 0);
            if (value > 0) first.push_back(value);
          }
          loader->Release(batch);
        }
      }
      std::ranges::sort(first);
      EXPECT_EQ(first, (std::vector<float>{10, 10, 20, 20, 22, 22, 30, 30, 32, 32, 34, 34}));
    }
  }
  batch_ = 4;
  EXPECT_EQ(Error(inputs, shots),
            "@/t:1:10: 4 contiguous rows are more than the 3 sequences of data.train; lower batch "
            "or accumulate");
}

// CheckData's digest changes with a value of any array, and with what it stands for.  Not with
// augmentation.
TEST_F(DataFeed, TheDigestSeesAllArrays) {
  const auto digest = [&](const std::string& more) {
    const RunData data = Open(kInputs, Data("reals.npy", "labels.npy", more)).value();
    NetPlan net;  // of inputs alone
    net.feed = data.feed;
    net.spec.inputs = 2;
    return CheckData(*data.train, net, "data.train").value().digest;
  };
  const std::string first = digest("");
  EXPECT_EQ(digest("augmentation { flip: true }"), first);
  EXPECT_NE(digest("normalization { mean: 1 }"), first);
  WriteBytes(folder_ / "labels.npy",
             Npy("<i4", "(4,)", std::string(12, '\0') + '\1' + std::string(3, '\0')));
  const std::string second = digest("");
  EXPECT_NE(second, first);
  WriteBytes(folder_ / "reals.npy",
             Npy("<f4", "(4, 3, 5, 2)", std::string(478, '\0') + '\1' + '\0'));
  EXPECT_NE(digest(""), second);
}

// Others are warned of: sequence_check_test.
TEST_F(DataFeed, LayersOfSequencesReadTextsOfUnequalLengthsByTheirLengths) {
  WriteBytes(folder_ / "lines", "pos\tgood film\nneg\tbad\n");
  const std::string data = "train { reviews { file: 'lines' length: 3 } }";
  const std::string text = "input { name: \"text\" dims: 3 type: LABEL }";
  const std::string length = "\ninput { name: \"length\" type: LABEL }";
  EXPECT_EQ(Error(text, data), "");
  for (const std::string cell :
       {"lstm { hidden: 2 }", "gru { hidden: 2 }", "rnn { hidden: 2 }", "attention {}"}) {
    const std::string layer = "\nlayer { name: \"r\" " + cell + " ";
    EXPECT_EQ(Error(text + length + layer + "input: ['text', 'length'] }", data), "");
    for (const std::string& untold : {text + "\n" + layer, text + length + layer}) {
      EXPECT_EQ(
          Error(untold + "}", data),
          "n:3:1: layer \"r\": the texts of data.train have lengths of their own, which it is "
          "not given; add input { name: \"length\" type: LABEL } to the net, and \"length\" "
          "to the layer's inputs, after the text");
    }
    // Nothing is filled up.
    WriteBytes(folder_ / "equal", "pos\tgood film now\nneg\ta bad film\n");
    const std::string equal = "train { reviews { file: 'equal' length: 3 } }";
    EXPECT_EQ(Error(text + layer + "}", equal), "");
    // A test's text is.
    const std::string of_test =
        Error(text + "\n" + layer + "}", equal + " test { reviews { file: 'lines' } }");
    EXPECT_THAT(of_test, testing::StartsWith("n:3:1: layer \"r\": the texts of data.test have "));
  }
}

TEST_F(DataFeed, SaysWhatIsWrong) {
  const std::string good = Data("bytes.npy", "labels.npy");
  ASSERT_EQ(Error(kInputs, good), "");
  const struct {
    std::string inputs, data, error;
  } cases[] = {
      {absl::StrCat(kInputs, "\ninput { name: \"mask\" dims: 2 }"), good,
       "n:3:1: input \"mask\": nothing feeds it; data.train feeds \"image\", \"label\""},
      {"input { name: \"image\" dims: [3, 5, 2] }", good,
       "@/t:2:76: data.train: the net has no input \"label\"; it has \"image\""},
      {kInputs, Data("flat.npy", "labels.npy"),
       "n:1:1: input \"image\": has dims [3, 5, 2], but the samples of @/flat.npy are [7]"},
      {kInputs, Data("bytes.npy", "ids.npy"),
       "n:2:1: input \"label\": has dims [], but the samples of @/ids.npy are [6]"},
      {"input { name: \"image\" }\ninput { name: \"label\" type: LABEL }",
       Data("labels.npy", "labels.npy"),
       "n:1:1: input \"image\": is of type REAL, which takes bytes and reals, but @/labels.npy "
       "holds I32"},
      {"input { name: \"image\" dims: [3, 5, 2] type: LABEL }\ninput { name: \"label\" type: LABEL "
       "}",
       Data("reals.npy", "labels.npy"),
       "n:1:1: input \"image\": is of type LABEL, which takes integers, but @/reals.npy holds F32"},
      {kInputs, Data("none.npy", "labels.npy"),
       "@/t:2:8: data.train: cannot open @/none.npy: No such file or directory"},
      {kInputs,
       absl::StrCat(good, "test { arrays { array { input: 'image' file: 'reals.npy' } } }"),
       "n:2:1: input \"label\": nothing feeds it; data.test feeds \"image\""},
      {kInputs, Data("bytes.npy", "labels.npy", "normalization { mean: [1, 2, 3] }"),
       "@/t:2:132: data.normalization.mean of input \"image\": expected 1 value or 2, one a "
       "channel, got 3"},
      {kInputs, Data("bytes.npy", "labels.npy", "normalization { input: 'label' mean: 1 }"),
       "@/t:2:132: data.normalization: input \"label\" takes labels"},
      {kInputs, Data("bytes.npy", "labels.npy", "normalization { input: 'x' mean: 1 }"),
       "@/t:2:132: data.normalization: the net has no input \"x\"; it has \"image\", \"label\""},
      {kInputs, Data("bytes.npy", "labels.npy", "normalization { std: [1, 1e-320] }"),
       "@/t:2:132: data.normalization of input \"image\": (1 - 0) / 9.99989e-321 is beyond F32; "
       "raise std"},
      {kInputs, Data("reals.npy", "labels.npy", "normalization { mean: 1e39 }"),
       "@/t:2:116: data.normalization of input \"image\": (0 - 1e+39) / 1 is beyond F32; raise "
       "std"},
      {kInputs, Data("bytes.npy", "labels.npy", "augmentation { shift: 3 }"),
       "@/t:2:131: data.augmentation.shift must be less than the height and width of input "
       "\"image\", 3 and 5, got 3"},
      {kInputs, Data("bytes.npy", "labels.npy", "augmentation { flip: true input: 'label' }"),
       "@/t:2:142: data.augmentation: expected an input of dims [height, width, channels], or a "
       "LABEL of [height, width], but \"label\" has []"},
      {kInputs, Data("bytes.npy", "labels.npy", "augmentation { flip: true input: 'x' }"),
       "@/t:2:142: data.augmentation: the net has no input \"x\"; it has \"image\", \"label\""},
      {kInputs, Data("bytes.npy", "labels.npy", "augmentation { shift: 0 input: 'x' }"),
       "@/t:2:140: data.augmentation: the net has no input \"x\"; it has \"image\", \"label\""},
      {kInputs, Data("bytes.npy", "labels.npy", "image_input: 'x'"),
       "@/t:2:116: data.image_input: the net has no input \"x\"; it has \"image\", \"label\""},
  };
  for (const auto& c : cases) EXPECT_EQ(Error(c.inputs, c.data), c.error);
}

}  // namespace
}  // namespace gyre
