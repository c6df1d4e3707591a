// Averages take the places of the values that files have, those of slices in the slices' order.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/training/model/weights.h"

namespace gyre {
namespace {

class TakeAveragesTest : public testing::Test {
 protected:
  using Floats = std::vector<float>;

  absl::Status Take() {
    const auto named = [](const std::string& name, Floats& of) {
      return NamedTensor{name, {of.data(), {static_cast<int64_t>(of.size())}, DType::kF32}};
    };
    std::vector<NamedTensor> all, slots;
    for (auto& [name, of] : values_) all.push_back(named(name, of));
    for (auto& [name, of] : slots_) slots.push_back(named(name, of));
    return TakeAverages(all, [&](const std::string& name) -> absl::StatusOr<const Tensor*> {
      const auto slot = std::ranges::find(slots, name, &NamedTensor::name);
      return slot == slots.end() ? nullptr : &slot->tensor;
    });
  }

  std::map<std::string, Floats> values_, slots_;
};

TEST_F(TakeAveragesTest, OfParametersAndOfTheirSlices) {
  values_ = {{"fc.bias", {1, 2}}, {"fc.weight", Floats(24)}, {"norm.mean", {3}}, {"empty", {}}};
  slots_ = {{"fc.bias.average", {5, 6}}, {"fc.bias.momentum", {7, 8}}, {"empty.average", {}}};
  for (int slice = 0; slice < 12; ++slice) {
    const auto at = static_cast<float>(2 * slice);
    slots_[absl::StrCat("fc.weight/", slice, ".average")] = {at, at + 1};
  }
  ASSERT_TRUE(Take().ok());
  Floats counted(24);
  std::iota(counted.begin(), counted.end(), 0.0f);
  EXPECT_EQ(values_["fc.weight"], counted);
  EXPECT_EQ(values_["fc.bias"], (Floats{5, 6}));
  EXPECT_EQ(values_["norm.mean"], Floats{3});
}

TEST_F(TakeAveragesTest, OthersAreNamed) {
  for (const Floats& average : {Floats{1}, Floats{1, 2, 3}, Floats{}}) {
    for (const char* slice : {"", "/0"}) {
      values_ = {{"fc.bias", {1, 2}}};
      slots_ = {{absl::StrCat("fc.bias", slice, ".average"), average}};
      EXPECT_EQ(Take().message(),
                "expected averages of the 8 bytes of \"fc.bias\", got other tensors");
    }
  }
}

}  // namespace
}  // namespace gyre
