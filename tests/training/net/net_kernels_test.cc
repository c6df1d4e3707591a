// The net's elementwise steps, in every real type.

#include "engine/training/net/infer/net_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <vector>

namespace gyre {
namespace {

template <typename T>
std::vector<T> Stored(std::initializer_list<float> values) {
  std::vector<T> stored;
  for (const float x : values) stored.push_back(static_cast<T>(x));
  return stored;
}

template <typename T>
Tensor View(std::vector<T>& values) {
  return {values.data(), Shape{static_cast<int64_t>(values.size())}, kDTypeOf<T>};
}

template <typename T>
class NetKernels : public testing::Test {
 protected:
  const std::unique_ptr<Device> device_ = NewCpuDevice({.threads = 1});
  const std::unique_ptr<Stream> stream_ = *device_->NewStream();
};
using RealTypes = testing::Types<double, float, Half, BFloat16>;
TYPED_TEST_SUITE(NetKernels, RealTypes);

TYPED_TEST(NetKernels, LookUpReadsPixels) {
  std::vector<uint8_t> pixels = {255, 0, 128, 255};
  std::vector<TypeParam> values(256), to(4);
  for (size_t p = 0; p < values.size(); ++p) values[p] = static_cast<TypeParam>(2.0F * p);
  ASSERT_TRUE(LookUp(*this->stream_, View(pixels), View(values), View(to)).ok());
  ASSERT_TRUE(this->stream_->Synchronize().ok());
  EXPECT_EQ(to, Stored<TypeParam>({510, 0, 256, 510}));
}

// A table for each of three channels.
TYPED_TEST(NetKernels, LookUpKnowsChannels) {
  std::vector<uint8_t> pixels = {1, 1, 1, 0, 255, 2};
  std::vector<TypeParam> values(3 * 256, TypeParam{}), to(6);
  for (size_t c = 0; c < 3; ++c) {
    for (size_t p = 0; p < 3; ++p) {
      values[c * 256 + p] = static_cast<TypeParam>(static_cast<float>(10 * c + p));
    }
  }
  values[256 + 255] = static_cast<TypeParam>(7.0F);
  ASSERT_TRUE(LookUp(*this->stream_, View(pixels), View(values), View(to)).ok());
  ASSERT_TRUE(this->stream_->Synchronize().ok());
  EXPECT_EQ(to, Stored<TypeParam>({1, 11, 21, 0, 7, 22}));
}

TYPED_TEST(NetKernels, FillRounds) {
  std::vector<TypeParam> to(3);
  ASSERT_TRUE(Fill(*this->stream_, 1.0 / 3, View(to)).ok());
  ASSERT_TRUE(this->stream_->Synchronize().ok());
  for (const TypeParam x : to) EXPECT_EQ(x, static_cast<TypeParam>(1.0 / 3));
}

// Terms of a quarter of a rounding each count: the sum is rounded, not what it is made of.  The
// first term may be the result's memory.
TYPED_TEST(NetKernels, SumIsRoundedOnce) {
  constexpr float kEpsilon = std::is_same_v<TypeParam, Half> ? 0x1p-10f : 0x1p-7f;
  auto first = Stored<TypeParam>({1, -3}), small = Stored<TypeParam>({kEpsilon / 4, kEpsilon / 2});
  const Tensor to = View(first);
  const std::array terms{to, View(small), View(small), View(small), View(small)};
  ASSERT_TRUE(SumOf(*this->stream_, terms, to).ok());
  ASSERT_TRUE(this->stream_->Synchronize().ok());
  EXPECT_EQ(first, Stored<TypeParam>({1 + kEpsilon, -3 + 2 * kEpsilon}));
}

TYPED_TEST(NetKernels, SumOfManyTerms) {
  for (const size_t count : {1, 2, 3, 4, 31, 32, 33, 63, 64, 100}) {
    auto one = Stored<TypeParam>({1, 2}), sum = Stored<TypeParam>({7, 7});
    const std::vector<Tensor> terms(count, View(one));
    ASSERT_TRUE(SumOf(*this->stream_, terms, View(sum)).ok());
    ASSERT_TRUE(this->stream_->Synchronize().ok());
    const auto n = static_cast<float>(count);
    EXPECT_EQ(sum, Stored<TypeParam>({n, 2 * n})) << count;
  }
}

TYPED_TEST(NetKernels, NoElements) {
  std::vector<TypeParam> none;
  EXPECT_TRUE(Fill(*this->stream_, 1, View(none)).ok());
  EXPECT_TRUE(SumOf(*this->stream_, std::array{View(none), View(none)}, View(none)).ok());
  EXPECT_TRUE(this->stream_->Synchronize().ok());
}

}  // namespace
}  // namespace gyre
