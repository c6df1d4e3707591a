// Each format, of shares, values and several places.
#include "engine/training/predict/prediction_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "engine/data/files/atomic_file.h"
#include "engine/data/tensors/array_file.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;

const std::vector<Prediction> kBoth = {{"fc", "r0", "", Prediction::OutputKind::kClassShares},
                                       {"age", "r1", "", Prediction::OutputKind::kValues}};

class Writer : public testing::Test {
 protected:
  // What the writer makes of two samples.
  std::string Wrote(PredictionFormat format, std::span<const Prediction> predictions,
                    DType dtype = DType::kF32) {
    const std::string path = folder_ / "out";
    auto writer = PredictionWriter::Open(
        path, {.format = format, .top = 2, .classes = {"cat", "a \"dog\""}, .dtype = dtype},
        predictions);
    EXPECT_TRUE(writer.ok()) << writer.status();
    std::vector<double> shares = {0.1F, 0.6F, 0.3F};
    double age = 0.1F;
    const std::vector<Tensor> values = {{shares.data(), Shape({1, 3}), DType::kF64},
                                        {&age, Shape({1, 1}), DType::kF64}};
    const std::span<const Tensor> used = std::span(values).first(predictions.size());
    EXPECT_TRUE((*writer)->Write("x,y.png", used).ok());
    age = std::numeric_limits<double>::infinity();
    EXPECT_TRUE((*writer)->Write("z", used).ok());
    EXPECT_TRUE((*writer)->Finish().ok());
    return *ReadFile(path);
  }

  TempFolder folder_;
};

TEST_F(Writer, Table) {
  EXPECT_EQ(Wrote(PredictionFormat::kTable, kBoth),
            "x,y.png  fc:  a \"dog\" 0.6000  2 0.3000  age:  0.1\n"
            "z  fc:  a \"dog\" 0.6000  2 0.3000  age:  inf\n");
}

TEST_F(Writer, JsonLines) {
  EXPECT_EQ(Wrote(PredictionFormat::kJson, kBoth),
            "{\"sample\":\"x,y.png\",\"fc\":[{\"class\":\"a \\\"dog\\\"\",\"share\":0.6},"
            "{\"class\":\"2\",\"share\":0.3}],\"age\":[0.1]}\n"
            "{\"sample\":\"z\",\"fc\":[{\"class\":\"a \\\"dog\\\"\",\"share\":0.6},"
            "{\"class\":\"2\",\"share\":0.3}],\"age\":[null]}\n");
}

TEST_F(Writer, Csv) {
  EXPECT_EQ(Wrote(PredictionFormat::kCsv, kBoth),
            "sample,cat,\"a \"\"dog\"\"\",2,age\n\"x,y.png\",0.1,0.6,0.3,0.1\nz,0.1,0.6,0.3,inf\n");
}

TEST_F(Writer, Npy) {
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    Wrote(PredictionFormat::kNpy, std::span(kBoth).first(1), dtype);
    const auto array = ReadArray({.path = folder_ / "out"});
    ASSERT_TRUE(array.ok()) << array.status();
    EXPECT_EQ(array->dtype, dtype);
    EXPECT_THAT(array->dims, testing::ElementsAre(2, 3));
  }
}

TEST_F(Writer, Errors) {
  const auto refusal = [&](const std::string& path, std::span<const Prediction> predictions) {
    return std::string(PredictionWriter::Open(path, {.format = PredictionFormat::kNpy}, predictions)
                           .status()
                           .message());
  };
  EXPECT_THAT(refusal("", std::span(kBoth).first(1)), HasSubstr("give --out"));
  EXPECT_THAT(refusal("a.npy", kBoth), HasSubstr("holds one output, but there are 2: fc, age"));
}

}  // namespace
}  // namespace gyre
