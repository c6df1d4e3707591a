// Convolutions with layouts of weights that only nets that are not trained take.  Winograd's is
// held to the reference in double, at the edges of tiles, strips and blocks.  The narrow one gives
// the bits of training.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/runtime/parallel/instruction_set.h"
#include "tests/primitives/oracle.h"

namespace gyre {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

Conv2dSpec Spec(int64_t n, int64_t h, int64_t w, int64_t c, int64_t filters) {
  Conv2dSpec spec{.n = n, .h = h, .w = w, .c = c, .filters = filters};
  spec.window = Square(3, /*stride=*/1, /*padding=*/1);
  spec.bias = true;
  spec.train = false;
  return spec;
}

struct UntrainedConvTest : testing::Test {
  void SetUp() override {
    if (CurrentInstructionSet() != InstructionSet::kAvx512) GTEST_SKIP() << "another library's";
  }

  std::vector<float> Run(const Conv2dSpec& spec, const ConvInputs<float>& in) {
    return RunConv(sim_, *library_, spec, in).y;
  }

  // An output's error comes of all of its tile, so it is relative to the largest sum.
  void CheckAgainstReference(const Conv2dSpec& spec) {
    const auto in = RandomConvInputs<float>(random_, spec);
    const auto precise = Convert<double>(in);
    Conv2dSpec precise_spec = spec;
    precise_spec.dtype = DType::kF64;
    precise_spec.weight_layout.clear();
    const auto got = Run(spec, in);
    const auto want = RunConv(one_, *reference_, precise_spec, precise).y;
    auto sums = RunConv(one_, *reference_, precise_spec, Absolute(precise)).y;
    if (!sums.empty()) std::fill(sums.begin(), sums.end(), *std::ranges::max_element(sums));
    ExpectClose(got, want, sums, Tolerance(DType::kF32) / 4, ToString(spec));
  }

  bool Takes(const Conv2dSpec& spec) { return library_->Prepare(spec).ok(); }
  std::string Layout(const Conv2dSpec& spec) {
    return Get(library_->Prepare(spec))->weight_layout().tag;
  }

  const std::unique_ptr<PrimitiveLibrary> library_ = NewAvx512Library();
  const std::unique_ptr<PrimitiveLibrary> reference_ = NewReferenceLibrary();
  Rig one_{1}, sim_{kManyThreads, DeviceKind::kSim};
  Random random_{71};
};

TEST_F(UntrainedConvTest, WinogradAgreesWithTheReference) {
  for (const auto& [h, w] : {std::pair<int64_t, int64_t>(9, 9), {12, 12}, {13, 10}, {2, 35}}) {
    for (const auto& [c, filters] : {std::pair<int64_t, int64_t>(32, 32), {48, 80}, {80, 48}}) {
      for (const int64_t n : {0, 1, 3}) {
        Conv2dSpec spec = Spec(n, h, w, c, filters);
        spec.weight_layout = Layout(Spec(1, 12, 12, c, filters));
        spec.activation = n == 1 ? Activation::kRelu : Activation::kNone;
        spec.bias = n != 3;
        CheckAgainstReference(spec);
        if (h < 3) continue;
        spec.window = Square(3);
        CheckAgainstReference(spec);
        spec.window.padding_top = 2, spec.window.padding_right = 7;
        CheckAgainstReference(spec);
      }
    }
  }
}

TEST_F(UntrainedConvTest, WinogradTakesManyBlocks) {
  CheckAgainstReference(Spec(5, 12, 15, 32, 32));
}

TEST_F(UntrainedConvTest, WinogradsBitsDependOnNeitherBatchNorThreads) {
  const Conv2dSpec spec = Spec(5, 13, 14, 64, 48);
  const auto in = RandomConvInputs<float>(random_, spec);
  const auto y = Run(spec, in);
  EXPECT_EQ(RunConv(one_, *library_, spec, in).y, y);
  const auto alone = [](const std::vector<float>& all, int64_t n) {
    const auto size = static_cast<int64_t>(all.size()) / 5;
    return std::vector<float>(all.begin() + n * size, all.begin() + (n + 1) * size);
  };
  for (int64_t n = 0; n < spec.n; ++n) {
    Conv2dSpec one = spec;
    one.n = 1;
    EXPECT_EQ(Layout(one), Layout(spec));
    EXPECT_EQ(
        Run(one,
            {.x = alone(in.x, n), .weights = in.weights, .bias = in.bias, .dy = alone(in.dy, n)}),
        alone(y, n));
  }
}

// A NaN is one in all that it enters, and else at most in the tiles of these outputs.
TEST_F(UntrainedConvTest, WinogradHandsNaNOn) {
  Conv2dSpec spec = Spec(2, 12, 12, 32, 32);
  spec.activation = Activation::kRelu;
  auto in = RandomConvInputs<float>(random_, spec);
  constexpr int64_t kRow = 5, kColumn = 6;
  in.x[(kRow * spec.w + kColumn) * spec.c + 7] = kNaN;
  const auto y = Run(spec, in);
  for (int64_t i = 0; i < static_cast<int64_t>(y.size()); ++i) {
    const int64_t pixel = i / spec.filters, row = pixel / spec.w, column = pixel % spec.w;
    const bool enters = std::abs(row - kRow) <= 1 && std::abs(column - kColumn) <= 1;
    const bool of_tile = row / 2 >= 2 && row / 2 <= 3 && column / 2 >= 2 && column / 2 <= 3;
    if (of_tile && !enters) continue;
    EXPECT_EQ(std::isnan(y[i]), enters) << row << ", " << column;
  }
  for (float& bias : in.bias) bias = -1000;
  for (const float v : Run(spec, in)) EXPECT_TRUE(std::isnan(v) || !std::signbit(v));
}

TEST_F(UntrainedConvTest, WinogradLeavesOthers) {
  const Conv2dSpec spec = Spec(1, 12, 12, 32, 48);
  EXPECT_EQ(Layout(spec), "winograd 2x2");
  const auto leaves = [&](auto change) {
    Conv2dSpec other = spec;
    change(other);
    return !Takes(other);
  };
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.train = true; }));
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.weight_layout = "onednn:Acdb16a"; }));
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.window.stride_w = 2; }));
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.window.dilation_h = 2; }));
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.window.kernel_w = 1; }));
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.groups = 2; }));
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.dtype = DType::kBF16; }));
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.c = 40; }));
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.filters = 16; }));
  // Four tiles.  Another shape of the net may have chosen all the same.
  EXPECT_TRUE(leaves([](Conv2dSpec& s) { s.h = s.w = 4; }));
  EXPECT_FALSE(leaves([](Conv2dSpec& s) {
    s.h = s.w = 4;
    s.weight_layout = "winograd 2x2";
  }));
}

TEST_F(UntrainedConvTest, NarrowGivesTheBitsOfTraining) {
  for (const int64_t c : {1, 3, 20}) {
    for (const int64_t filters : {1, 20, 50}) {
      Conv2dSpec spec{.n = 2, .h = 7, .w = 13, .c = c, .filters = filters, .bias = true};
      spec.window = {.kernel_h = 3, .kernel_w = 5};
      const auto in = RandomConvInputs<float>(random_, spec);
      const std::vector<float> want = Run(spec, in);
      const std::string trained = Layout(spec);
      spec.train = false;
      EXPECT_NE(Layout(spec), trained);
      EXPECT_EQ(Run(spec, in), want) << ToString(spec);
      EXPECT_EQ(Get(library_->Prepare(spec))->scratch_bytes(), 0);
      // The layout of another shape binds.
      spec.n = 1, spec.weight_layout = Layout(spec);
      EXPECT_EQ(Layout(spec), spec.weight_layout);
      spec.weight_layout = trained;
      EXPECT_EQ(Layout(spec), trained);
    }
  }
}

}  // namespace
}  // namespace gyre
