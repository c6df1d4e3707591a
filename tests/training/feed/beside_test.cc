// Sources side by side, matched to the inputs of a net.
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/training/feed/data_feed.h"
#include "tests/data/array_bytes.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

constexpr char kNet[] =
    "input { name: 'image' dims: [3, 5, 1] } input { name: 'right' dims: [3, 5, 1] }"
    "input { name: 'age' } input { name: 'label' type: LABEL }"
    "layer { name: 'fc' input: 'image' dense { outputs: 2 } }";

class Beside : public testing::Test {
 protected:
  Parsed<TrainerConfig> Trainer(const std::string& data) const {
    return *ParseTrainerText(
        absl::StrCat("net: 'n' batch: 2 steps: 1 optimizer { sgd {} } learning_rate { base: 1 }\n",
                     "data { ", data, " }"),
        folder_ / "t");
  }
  TempFolder folder_;
  const Parsed<NetConfig> net_ = *ParseNetText(kNet, "n");
};

TEST_F(Beside, ArraysOfAllSourcesFeedTheNet) {
  WriteBytes(folder_ / "i", Idx({4, 3, 5}, RandomBytes(60, 1)));
  WriteBytes(folder_ / "l", Idx({4}, std::string(4, '\1')));
  WriteBytes(folder_ / "r.npy", Npy("|u1", "(4, 3, 5, 1)", RandomBytes(60, 2)));
  WriteBytes(folder_ / "a.npy", Npy("<f4", "(4,)", std::string(16, '\0')));
  const std::string data =
      "train { idx { images: 'i' labels: 'l' } beside { arrays { array { input: 'right' file: "
      "'r.npy' } } } beside { arrays { array { input: 'age' file: 'a.npy' } MORE } } } "
      "split { test: 0.5 } augmentation { flip: true input: ['image', 'right'] }";
  const auto run =
      *OpenData(Trainer(absl::StrReplaceAll(data, {{"MORE", ""}})), net_, /*train=*/true);
  EXPECT_EQ(run.train->size() + run.test->size(), 4);
  EXPECT_TRUE(run.feed.inputs[0].augmented && run.feed.inputs[1].augmented);
  EXPECT_FALSE(run.feed.inputs[2].augmented);
  const std::string more = "array { input: 'x' file: 'a.npy' }";
  const auto left =
      OpenData(Trainer(absl::StrReplaceAll(data, {{"MORE", more}})), net_, /*train=*/true);
  EXPECT_EQ(absl::StrReplaceAll(std::string(left.status().message()), {{folder_.path(), "@"}}),
            "@/t:2:172: data.train: the net has no input \"x\"; it has \"image\", \"right\", "
            "\"age\", \"label\"");
}

// Pictures are bytes, whatever lies beside them.
TEST_F(Beside, APlanNeedsNoFiles) {
  const auto run = *AssumeData(
      Trainer(
          "train { images { folder: 'none' } beside { images { list: 'none' input: 'right' } } "
          "beside { arrays { array { input: 'age' file: 'none.npy' } } } } split { test: 0.5 }"),
      net_);
  for (const Dataset* data : {run.train.get(), run.test.get()}) {
    for (const DataArray& array : data->arrays()) {
      EXPECT_EQ(array.dtype, array.input == "label" ? DType::kI32
                             : array.input == "age" ? DType::kF32
                                                    : DType::kU8)
          << array.input;
    }
  }
}

}  // namespace
}  // namespace gyre
