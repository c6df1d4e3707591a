// Rows that several ranks have written, read by ranks that need others.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/training/model/model.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;

// Rows of a step of 7, each of 2 values in each of 3 blocks; value 100 r + 10 b + i.
constexpr int64_t kRows = 7;

struct Part {
  explicit Part(int64_t first, int64_t count, int64_t all = kRows) {
    for (int64_t b = 0; b < 3; ++b) {
      for (int64_t r = first; r < first + count; ++r) {
        for (int64_t i = 0; i < 2; ++i) values.push_back(static_cast<double>(100 * r + 10 * b + i));
      }
    }
    carried = {"a/lstm.h", {values.data(), Shape({3, count, 2}), DType::kF64}, 1, first, all};
  }
  std::vector<double> values;
  Net::Carried carried;
};

class CarriedRowsTest : public testing::Test {
 protected:
  // A file with parts, and others that are like them in name.
  TensorFiles Write(const std::vector<Part>& parts, const std::string& file = "x") {
    double other = 0;
    std::vector<NamedTensor> tensors = {{"a/lstm.h", {&other, Shape(), DType::kF64}},
                                        {"a/lstm.h[:]", {&other, Shape(), DType::kF64}},
                                        {"a/lstm.hh[0:9]", {&other, Shape(), DType::kF64}}};
    for (const Part& part : parts) {
      Tensor tensor = part.carried.rows;
      tensor.data = const_cast<double*>(part.values.data());
      tensors.push_back({NameInFile(part.carried), tensor});
    }
    EXPECT_TRUE(WriteSafetensors(folder_ / file, tensors).ok());
    return *TensorFiles::Open({folder_ / file});
  }
  absl::Status Error(const std::vector<Part>& parts) {
    return ReadRows(Write(parts), Part(2, 3).carried).status();
  }
  TempFolder folder_;
};

TEST_F(CarriedRowsTest, AnyRowsOfAnyParts) {
  EXPECT_EQ(NameInFile(Part(2, 3).carried), "a/lstm.h[2:5]");
  const std::vector<std::vector<Part>> written = {
      {Part(0, 7)}, {Part(0, 4), Part(4, 3)}, {Part(0, 1), Part(1, 0), Part(1, 5), Part(6, 1)}};
  for (const auto& parts : written) {
    const TensorFiles files = Write(parts);
    for (int64_t first = 0; first < kRows; ++first) {
      for (int64_t count = 0; first + count <= kRows; ++count) {
        const Part wanted(first, count);
        const auto bytes = ReadRows(files, wanted.carried).value();
        ASSERT_EQ(bytes.size(), wanted.values.size() * sizeof(double));
        EXPECT_TRUE(std::equal(wanted.values.begin(), wanted.values.end(),
                               reinterpret_cast<const double*>(bytes.data())));
      }
    }
  }
  // Ten parts and more are ordered as numbers.
  std::vector<Part> many;
  for (int64_t row = 0; row < 12; ++row) many.emplace_back(row, 1, 12);
  EXPECT_TRUE(ReadRows(Write(many), Part(9, 3, 12).carried).ok());
}

TEST_F(CarriedRowsTest, WhatDoesNotFitIsSaid) {
  EXPECT_THAT(Error({}).message(), HasSubstr("no rows of \"a/lstm.h\", so it belongs"));
  EXPECT_EQ(Error({Part(0, 3), Part(4, 3)}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Error({Part(0, 3), Part(2, 5)}).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Error({Part(1, 6)}).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Error({Part(0, 6)}).message(),
              HasSubstr("it holds 6 rows of \"a/lstm.h\", and a step of this run has 7 (batch x"));
  Part other(0, 7);
  other.carried.rows.shape = Shape({2, 7, 3});
  EXPECT_THAT(Error({std::move(other)}).message(),
              HasSubstr("\"a/lstm.h[0:7]\" are F64 [2, 7, 3], the net expects F64 [3, 7, 2]"));
  Part narrow(0, 7);
  narrow.carried.rows.dtype = DType::kF32;
  EXPECT_THAT(Error({std::move(narrow)}).message(),
              HasSubstr("are F32 [3, 7, 2], the net expects"));
}

}  // namespace
}  // namespace gyre
