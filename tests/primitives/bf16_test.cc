// How BF16 is multiplied on a CPU: the table of ways, each way against the reference, and what is
// recorded.
#include "engine/runtime/primitives/onednn/bf16.h"

#include <gtest/gtest.h>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "engine/runtime/primitives/onednn/pointwise.h"
#include "tests/primitives/oracle.h"

namespace gyre {
namespace {

Conv2dSpec Of(int64_t c, int64_t filters, Window2d window = {}) {
  return {
      .dtype = DType::kBF16, .n = 3, .h = 9, .w = 7, .c = c, .filters = filters, .window = window};
}

constexpr Window2d k3x3 = Square(3, /*stride=*/1, /*padding=*/1);

// On each side of where the table switches.
std::vector<Conv2dSpec> Specs() {
  std::vector<Conv2dSpec> specs;
  for (const int64_t c : {3, 31, 32, 33, 64}) {
    for (const int64_t filters : {31, 32, 96}) {
      specs.push_back(Of(c, filters, k3x3));
      specs.push_back(Of(c, filters));
      specs.push_back(Of(c, filters, {.stride_h = 2, .stride_w = 3}));
    }
  }
  specs.push_back(Of(32, 32, {.kernel_h = 9, .kernel_w = 7}));  // one window an image
  specs.push_back(Of(64, 64, k3x3));
  specs.back().groups = 2;
  specs.push_back(Of(32, 32, k3x3));
  specs.back().groups = 32;
  specs.push_back(Of(32, 64));
  specs.back().bias = true;
  return specs;
}

TEST(Bf16WayTest, FollowsFromShapeAndUnit) {
  const auto amx = [](const Conv2dSpec& spec) { return Bf16WayOf(spec, Bf16Unit::kAmx); };
  EXPECT_EQ(amx(Of(32, 64, k3x3)), Bf16Way::kConvolution);
  EXPECT_EQ(amx(Of(32, 63, k3x3)), Bf16Way::kF32);
  EXPECT_EQ(amx(Of(3, 64, k3x3)), Bf16Way::kF32);
  EXPECT_EQ(amx(Of(64, 32)), Bf16Way::kProducts);
  EXPECT_EQ(amx(Of(64, 32, {.stride_h = 2})), Bf16Way::kProducts);
  EXPECT_EQ(amx(Of(33, 32)), Bf16Way::kF32);
  Conv2dSpec spec = Of(32, 64);
  spec.bias = true;
  EXPECT_EQ(amx(spec), Bf16Way::kConvolution);
  spec.groups = 2;
  EXPECT_EQ(amx(spec), Bf16Way::kF32);
  spec.groups = 32;
  EXPECT_EQ(amx(spec), Bf16Way::kConvolution);
  for (const Conv2dSpec& any : Specs()) {
    EXPECT_EQ(Bf16WayOf(any, Bf16Unit::kNone), Bf16Way::kF32) << ToString(any);
    EXPECT_EQ(Bf16WayOf(any, Bf16Unit::kAvx512), Bf16Way::kConvolution) << ToString(any);
  }
}

// Shapes of one layer share its weights, and so their layout.
TEST(Bf16WayTest, NoShapeOfALayerHasAnotherWay) {
  for (const Bf16Unit unit : {Bf16Unit::kNone, Bf16Unit::kAvx512, Bf16Unit::kAmx}) {
    for (const Conv2dSpec& spec : Specs()) {
      Conv2dSpec other = spec;
      other.n = 0;
      other.h += 4;
      other.train = other.data_gradient = false;
      other.activation = Activation::kRelu;
      EXPECT_EQ(Bf16WayOf(other, unit), Bf16WayOf(spec, unit)) << ToString(spec);
    }
  }
}

TEST(Bf16WayTest, AmxLeavesProductsThatItsKernelsFailAt) {
  const GemmSpec even{.dtype = DType::kBF16, .m = 5, .n = 80, .k = 2048};
  GemmSpec odd = even, wide = even;
  odd.k = 63;
  wide.dtype = DType::kF32;
  EXPECT_TRUE(AmxTakes(even, 15));
  EXPECT_FALSE(AmxTakes(even, 16)) << "k is shared out";
  EXPECT_FALSE(AmxTakes(odd, 2));
  EXPECT_FALSE(AmxTakes(wide, 2));
}

class Bf16Test : public testing::Test {
 protected:
  double tolerance() const { return Tolerance(DType::kBF16) + Tolerance(DType::kF32); }
  int CheckAll(const PrimitiveLibrary& library) {
    int taken = 0;
    for (const Conv2dSpec& spec : Specs()) {
      if (absl::IsUnimplemented(library.Prepare(spec).status())) continue;
      ++taken;
      Oracle(rig_, library).CheckConv<BFloat16>(random_, spec, tolerance());
    }
    return taken;
  }

  Rig rig_{kManyThreads};
  Random random_{20261126};
};

TEST_F(Bf16Test, TheChosenWayAsReference) {
  const Primitives primitives(DeviceKind::kCpu, kManyThreads);
  EXPECT_EQ(CheckAll(Chosen(primitives)), static_cast<int>(Specs().size()));
}

TEST_F(Bf16Test, EachWayAsReference) {
  const bool native = CurrentBf16Unit() != Bf16Unit::kNone;
  for (const Bf16Way way : {Bf16Way::kConvolution, Bf16Way::kProducts}) {
    EXPECT_EQ(CheckAll(*NewBf16WayLibrary(kManyThreads, way)) > 0, native);
  }
  EXPECT_EQ(CheckAll(*NewBf16WayLibrary(kManyThreads, Bf16Way::kF32)), 0) << "left to others";
}

// By whatever multiplies here.
TEST_F(Bf16Test, ThreeProductsAsReference) {
  class Pointwise : public PrimitiveLibrary {
   public:
    std::string_view name() const override { return "pointwise"; }
    absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
      if (!IsPointwise(spec)) return LeaveToOthers(spec);
      return PreparePointwise(spec, kManyThreads, *converting_);
    }

   private:
    const std::unique_ptr<PrimitiveLibrary> blocked_ = NewBlockedLibrary();
    const std::unique_ptr<PrimitiveLibrary> converting_ = NewConvertingLibrary({blocked_.get()});
  };
  const Pointwise library;
  EXPECT_EQ(CheckAll(library), 30);
  for (const int64_t n : {0, 1}) {
    Conv2dSpec spec = Of(5, 7, {.stride_w = 2});
    spec.n = n;
    spec.activation = Activation::kRelu;
    Oracle(rig_, library).CheckConv<BFloat16>(random_, spec, tolerance());
  }
}

#if defined(__x86_64__) && defined(__linux__)
// Where processor and system have AMX it is used, unless the environment says otherwise.
TEST_F(Bf16Test, AmxIsAskedFor) {
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr) GTEST_SKIP();
  const std::string choices = Primitives(DeviceKind::kCpu, 1).choices();
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl
  const bool has = __builtin_cpu_supports("amx-bf16") != 0 &&
                   __builtin_cpu_supports("amx-int8") != 0 &&
                   syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  EXPECT_EQ(CurrentBf16Unit() == Bf16Unit::kAmx, has);
  EXPECT_EQ(choices.find("instruction set 0x3e7,") != std::string::npos, has) << choices;
}
#endif

}  // namespace
}  // namespace gyre
