// The net's elementwise steps, in every real type.

#include "engine/training/net_kernels.h"

#include <gtest/gtest.h>

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

TYPED_TEST(NetKernels, FillRounds) {
  std::vector<TypeParam> to(3);
  ASSERT_TRUE(Fill(*this->stream_, 1.0 / 3, View(to)).ok());
  ASSERT_TRUE(this->stream_->Synchronize().ok());
  for (const TypeParam x : to) EXPECT_EQ(x, static_cast<TypeParam>(1.0 / 3));
}

// 1 + 2^-8 + 2^-11 fits none of the 16-bit types: the sum is rounded, its terms are not.
TYPED_TEST(NetKernels, AddIntoRoundsTheSum) {
  auto from = Stored<TypeParam>({2, 0x1.2p-8, 0.5});
  auto to = Stored<TypeParam>({3, 1, -0.5});
  ASSERT_TRUE(AddInto(*this->stream_, View(from), View(to)).ok());
  ASSERT_TRUE(this->stream_->Synchronize().ok());
  const auto expected = Stored<TypeParam>({5, 1 + 0x1.2p-8f, 0});
  for (size_t i = 0; i < to.size(); ++i) EXPECT_EQ(to[i], expected[i]) << i;
}

TYPED_TEST(NetKernels, NoElements) {
  std::vector<TypeParam> none;
  EXPECT_TRUE(Fill(*this->stream_, 1, View(none)).ok());
  EXPECT_TRUE(AddInto(*this->stream_, View(none), View(none)).ok());
  EXPECT_TRUE(this->stream_->Synchronize().ok());
}

}  // namespace
}  // namespace gyre
