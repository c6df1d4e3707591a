// Products of few terms that are larger than the caches: where the processor has AVX-512 they are
// chains of fused multiply-adds, to the bit, wherever c lies and whoever's threads make them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "engine/runtime/parallel/instruction_set.h"
#include "tests/primitives/oracle.h"

namespace gyre {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

bool HasAvx512() { return CurrentInstructionSet() == InstructionSet::kAvx512; }

GemmSpec Spec(int64_t m, int64_t n, int64_t k) {
  GemmSpec spec{.m = m, .n = n, .k = k};
  spec.transpose_a = true;
  return spec;
}

struct FewTermsTest : testing::Test {
  // c begins so many elements behind a line.
  std::vector<float> Run(Rig& rig, const GemmSpec& spec, const std::vector<float>& a,
                         const std::vector<float>& b, int64_t behind = 0) {
    const auto gemm = Get(primitives_.Prepare(spec));
    const Rig::Bytes device_a(rig, a), device_b(rig, b), scratch(rig, gemm->scratch_bytes());
    const Rig::Bytes c(rig, std::vector<float>(behind + spec.m * spec.n, kNaN));
    float* const begin = static_cast<float*>(c.data()) + behind;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(c.data()) % 64, 0);
    Check(
        gemm->Run(rig.stream(), device_a.data(), device_b.data(), nullptr, begin, scratch.data()));
    std::vector<float> all = c.Read<float>();
    for (int64_t i = 0; i < behind; ++i) EXPECT_TRUE(std::isnan(all[i])) << "written before c";
    all.erase(all.begin(), all.begin() + behind);
    return all;
  }

  const Primitives primitives_{DeviceKind::kCpu, 1};
  Rig one_{1}, many_{kManyThreads}, three_{kManyThreads == 1 ? 1 : 3, DeviceKind::kSim};
  Random random_{11};
};

bool Same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Rows and columns that fill their last tiles, and that do not; whole lines, and not; more terms
// than a block of columns has room for in one piece.
TEST_F(FewTermsTest, IsAChainOfFusedMultiplyAdds) {
  if (!HasAvx512()) GTEST_SKIP() << "another library's";
  for (const GemmSpec& spec : {Spec(2048, 2064, 3), Spec(2051, 2063, 2), Spec(129, 32768, 1),
                               Spec(4097, 1024, 5), Spec(131, 32777, 64)}) {
    const auto a = RandomValues<float>(random_, spec.k * spec.m);
    const auto b = RandomValues<float>(random_, spec.k * spec.n);
    const std::vector<float> got = Run(one_, spec, a, b);
    for (int64_t i = 0; i<spec.m; i += spec.k> 8 ? 13 : 1) {
      for (int64_t j = 0; j < spec.n; ++j) {
        float sum = 0;
        for (int64_t k = 0; k < spec.k; ++k) {
          sum = std::fma(a[k * spec.m + i], b[k * spec.n + j], sum);
        }
        ASSERT_EQ(got[i * spec.n + j], sum) << ToString(spec) << " at " << i << ", " << j;
      }
    }
    EXPECT_TRUE(Same(Run(many_, spec, a, b), got)) << ToString(spec);
    EXPECT_TRUE(Same(Run(three_, spec, a, b), got)) << ToString(spec);
    EXPECT_TRUE(Same(Run(many_, spec, a, b, /*behind=*/1), got)) << ToString(spec);
  }
}

// Also where it is as large as may be, one larger, and of fewer rows than it is prepared for.
TEST_F(FewTermsTest, IsTheReference) {
  const Chosen chosen(primitives_);
  Oracle oracle(many_, chosen);
  for (const int64_t k : {0, 1, 16, 64, 65}) {
    oracle.CheckGemm<float>(random_, Spec(1030, 4100, k), Tolerance(DType::kF32));
  }
  for (const int64_t left_out : {1, 47, 64}) {
    oracle.CheckGemm<float>(random_, Spec(1030, 4100, 64 - left_out), Tolerance(DType::kF32),
                            left_out);
  }
}

TEST_F(FewTermsTest, HandsNaNOn) {
  const GemmSpec spec = Spec(1030, 4100, 7);
  auto a = RandomValues<float>(random_, spec.k * spec.m);
  auto b = RandomValues<float>(random_, spec.k * spec.n);
  a[3 * spec.m + 1029] = kNaN;
  b[6 * spec.n + 4098] = kNaN;
  const std::vector<float> got = Run(many_, spec, a, b);
  for (int64_t i = 0; i < spec.m; ++i) {
    for (int64_t j = 0; j < spec.n; ++j) {
      ASSERT_EQ(std::isnan(got[i * spec.n + j]), i == 1029 || j == 4098) << i << ", " << j;
    }
  }
}

}  // namespace
}  // namespace gyre
