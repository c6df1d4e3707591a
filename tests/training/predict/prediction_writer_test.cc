// Each format, of shares, values and several places.
#include "engine/training/predict/prediction_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
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
  // What the writer makes of two samples, with one between that could not be read.
  std::string Wrote(PredictionFormat format, std::span<const Prediction> predictions,
                    DType dtype = DType::kF32) {
    std::string bytes;
    const FileSink sink = [&](std::string_view more) {
      bytes.append(more);
      return absl::OkStatus();
    };
    auto writer = *PredictionWriter::Create(
        sink, {.format = format, .top = 2, .classes = {"cat", "a \"dog\""}, .dtype = dtype},
        predictions);
    std::vector<double> shares = {0.1F, 0.6F, 0.3F};
    double age = 0.1F;
    const std::vector<Tensor> values = {{shares.data(), Shape({1, 3}), DType::kF64},
                                        {&age, Shape({1, 1}), DType::kF64}};
    const std::span<const Tensor> used = std::span(values).first(predictions.size());
    EXPECT_TRUE(writer->Write("x,y.png", used).ok());
    EXPECT_TRUE(writer->Skip().ok());
    age = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(writer->Write("z", used).ok());
    const std::string begin = writer->Finish().value();
    return bytes.replace(0, begin.size(), begin);
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
    WriteBytes(folder_ / "out", Wrote(PredictionFormat::kNpy, std::span(kBoth).first(1), dtype));
    const auto array = ReadArray({.path = folder_ / "out"}).value();
    EXPECT_EQ(array.dtype, dtype);
    EXPECT_THAT(array.dims, testing::ElementsAre(3, 3));
    const auto at = [&](size_t i) {
      return dtype == DType::kF64 ? reinterpret_cast<const double*>(array.data())[i]
                                  : reinterpret_cast<const float*>(array.data())[i];
    };
    EXPECT_EQ(at(1), 0.6F);
    EXPECT_TRUE(std::isnan(at(3)) && std::isnan(at(5)));
    EXPECT_EQ(at(7), 0.6F);
  }
}

// None is read but the last.
TEST_F(Writer, NpyBeginsWithTheFirstShape) {
  std::string bytes;
  const FileSink sink = [&](std::string_view more) {
    bytes.append(more);
    return absl::OkStatus();
  };
  auto writer = *PredictionWriter::Create(sink, {.format = PredictionFormat::kNpy},
                                          std::span(kBoth).subspan(1));
  for (int i = 0; i < 12; ++i) EXPECT_TRUE(writer->Skip().ok());
  double age = 7;
  const Tensor value{&age, Shape({1, 1}), DType::kF64};
  EXPECT_TRUE(writer->Write("z", {&value, 1}).ok());
  const std::string begin = *writer->Finish();
  WriteBytes(folder_ / "out", bytes.replace(0, begin.size(), begin));
  const auto array = ReadArray({.path = folder_ / "out"}).value();
  EXPECT_THAT(array.dims, testing::ElementsAre(13, 1));
  EXPECT_TRUE(std::isnan(reinterpret_cast<const float*>(array.data())[11]));
  EXPECT_EQ(reinterpret_cast<const float*>(array.data())[12], 7);
}

TEST_F(Writer, Errors) {
  const absl::Status status =
      PredictionWriter::Create(nullptr, {.format = PredictionFormat::kNpy}, kBoth).status();
  EXPECT_THAT(status.message(), HasSubstr("holds one output, but there are 2: fc, age"));
}

}  // namespace
}  // namespace gyre
