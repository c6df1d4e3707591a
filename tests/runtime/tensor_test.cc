// Shape, DType and Tensor: the values everything else is described with.
#include "engine/runtime/tensor.h"

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace gyre {
namespace {

TEST(ShapeTest, AScalarHasOneElement) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.elements(), 1);
  EXPECT_EQ(scalar.ToString(), "[]");
  EXPECT_EQ(scalar, Shape({}));
}

TEST(ShapeTest, KnowsItsExtents) {
  const Shape shape = {64, 28, 28, 1};
  EXPECT_EQ(shape.rank(), 4);
  EXPECT_EQ(shape[0], 64);
  EXPECT_EQ(shape[3], 1);
  EXPECT_EQ(shape.elements(), 64 * 28 * 28);
  EXPECT_EQ(shape.elements(1, 3), 28 * 28);
  EXPECT_EQ(shape.elements(2, 2), 1);
  EXPECT_EQ(shape.elements(4, 4), 1);
  EXPECT_EQ(shape.ToString(), "[64, 28, 28, 1]");
  EXPECT_EQ(Shape(shape.dims()), shape);
}

TEST(ShapeTest, AZeroExtentMakesZeroElements) {
  EXPECT_EQ(Shape({0}).elements(), 0);
  EXPECT_EQ(Shape({3, 0, 5}).elements(), 0);
  EXPECT_EQ(Shape({int64_t{1} << 40, int64_t{1} << 40, 0}).elements(), 0);
  EXPECT_EQ(Shape({3, 0, 5}).elements(0, 1), 3);
}

TEST(ShapeTest, CountableUpTo2To56Elements) {
  constexpr int64_t kLarge = int64_t{1} << 28;
  EXPECT_TRUE(Shape().IsCountable());
  EXPECT_TRUE(Shape({kLarge, kLarge}).IsCountable());
  EXPECT_FALSE(Shape({kLarge, kLarge, 2}).IsCountable());
  EXPECT_FALSE(Shape({kLarge, kLarge, kLarge, kLarge, kLarge, kLarge}).IsCountable());
  EXPECT_TRUE(Shape({kLarge, kLarge, kLarge, 0}).IsCountable());
}

TEST(ShapeTest, EqualityComparesRankAndExtents) {
  EXPECT_EQ(Shape({2, 3}), Shape({2, 3}));
  EXPECT_NE(Shape({2, 3}), Shape({3, 2}));
  EXPECT_NE(Shape({2}), Shape({2, 1}));
  EXPECT_NE(Shape({0}), Shape());
  // What `With` leaves behind an axis does not count.
  EXPECT_EQ(Shape({2, 3}).With(1, 7).With(1, 3), Shape({2, 3}));
}

TEST(ShapeTest, WithReplacesOneExtent) {
  const Shape shape = {2, 3, 4};
  EXPECT_EQ(shape.With(0, 9), Shape({9, 3, 4}));
  EXPECT_EQ(shape.With(2, 0), Shape({2, 3, 0}));
  EXPECT_EQ(shape, Shape({2, 3, 4}));
}

TEST(ShapeDeathTest, BrokenInvariantsAbort) {
  EXPECT_DEATH(Shape({1, 1, 1, 1, 1, 1, 1}), "kMaxRank");
  EXPECT_DEATH(Shape({2, -1}), "extent >= 0");
  EXPECT_DEATH(Shape({2}).With(1, 3), "axis < rank_");
  EXPECT_DEATH(Shape({2}).With(0, -3), "extent >= 0");
  EXPECT_DEATH(Shape({2}).elements(0, 2), "end <= rank_");
  EXPECT_DEATH(Shape({int64_t{1} << 40, int64_t{1} << 40}).elements(), "overflow");
}

TEST(DTypeTest, SizesNamesAndTypesAgree) {
  EXPECT_EQ(SizeOf(kDTypeOf<double>), sizeof(double));
  EXPECT_EQ(SizeOf(kDTypeOf<float>), sizeof(float));
  EXPECT_EQ(SizeOf(kDTypeOf<int32_t>), sizeof(int32_t));
  EXPECT_EQ(SizeOf(kDTypeOf<int64_t>), sizeof(int64_t));
  EXPECT_EQ(SizeOf(kDTypeOf<uint8_t>), sizeof(uint8_t));
  EXPECT_EQ(SizeOf(kDTypeOf<Half>), sizeof(Half));
  EXPECT_EQ(SizeOf(kDTypeOf<BFloat16>), sizeof(BFloat16));
  std::string names;
  for (int i = 0; i <= 6; ++i) names += std::string(DTypeName(static_cast<DType>(i))) + " ";
  EXPECT_EQ(names, "F64 F32 F16 BF16 I32 I64 U8 ");
}

TEST(DTypeTest, VisitComputeTypeCallsWithTheType) {
  const auto size = []<typename T>() {
    static_assert(std::is_floating_point_v<T>);
    return sizeof(T);
  };
  EXPECT_EQ(VisitComputeType(DType::kF64, size), sizeof(double));
  EXPECT_EQ(VisitComputeType(DType::kF32, size), sizeof(float));
  EXPECT_FALSE(IsComputeType(DType::kI32));
}

TEST(DTypeTest, VisitRealCallsWithTheType) {
  const auto type = []<typename T>() {
    static_assert(std::is_floating_point_v<AccumulateType<T>>);
    return std::pair(kDTypeOf<T>, kDTypeOf<AccumulateType<T>>);
  };
  EXPECT_EQ(VisitReal(DType::kF64, type), std::pair(DType::kF64, DType::kF64));
  EXPECT_EQ(VisitReal(DType::kF32, type), std::pair(DType::kF32, DType::kF32));
  EXPECT_EQ(VisitReal(DType::kF16, type), std::pair(DType::kF16, DType::kF32));
  EXPECT_EQ(VisitReal(DType::kBF16, type), std::pair(DType::kBF16, DType::kF32));
  for (int i = 0; i <= 6; ++i) EXPECT_EQ(IsReal(static_cast<DType>(i)), i <= 3);
}

TEST(TensorTest, IsAViewOfTypedElements) {
  std::vector<double> data(6, 1.5);
  const Tensor tensor{.data = data.data(), .shape = {2, 3}, .dtype = DType::kF64};
  EXPECT_TRUE(tensor);
  EXPECT_EQ(tensor.elements(), 6);
  EXPECT_EQ(tensor.bytes(), 48u);
  Tensor copy = tensor;
  copy.as<double>()[5] = 2.5;
  EXPECT_EQ(data[5], 2.5);
}

TEST(TensorTest, UnboundIsFalse) { EXPECT_FALSE(Tensor()); }

TEST(TensorDeathTest, TheWrongElementTypeAborts) {
  float value = 0;
  const Tensor tensor{.data = &value, .shape = {1}, .dtype = DType::kF32};
  EXPECT_DEATH(tensor.as<double>(), "kDTypeOf<T> == dtype");
}

}  // namespace
}  // namespace gyre
