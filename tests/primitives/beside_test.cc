// Products of one row, and rows of other products beside them: both have the bits that they have
// alone, whoever's threads make them, for any lengths of the two sums.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "engine/runtime/parallel/instruction_set.h"
#include "tests/primitives/oracle.h"

namespace gyre {
namespace {

using Floats = std::vector<float>;

bool Same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct BesideTest : testing::Test {
  static GemmSpec Spec(int64_t m, int64_t n, int64_t k, bool transpose_b) {
    GemmSpec spec{.m = m, .n = n, .k = k};
    spec.transpose_b = transpose_b;
    spec.packs_b = true;
    return spec;
  }

  const Primitives primitives_{DeviceKind::kCpu, 1};
  Rig one_{1}, many_{kManyThreads}, three_{kManyThreads == 1 ? 1 : 3, DeviceKind::kSim};
  Random random_{12};
};

TEST_F(BesideTest, BothHaveTheirOwnBits) {
  if (CurrentInstructionSet() != InstructionSet::kAvx512) GTEST_SKIP() << "another library's";
  const Chosen chosen(primitives_);
  for (const int64_t n : {1, 16, 47, 49, 193, 800, 1003}) {
    for (const auto& [k, other_k] :
         {std::pair{1, 1}, {0, 3}, {3, 0}, {200, 200}, {33, 50}, {50, 7}}) {
      for (const bool transposes : {false, true}) {
        const GemmSpec step = Spec(1, n, k, transposes);
        const auto gemm = Get(primitives_.Prepare(step));
        GemmSpec other = Spec(100, n, other_k, transposes);
        const auto beside = Get(primitives_.Prepare(other));
        other.m = gemm->rows_beside(*beside);
        ASSERT_GT(other.m, 1);
        const auto a = RandomValues<float>(random_, k), b = RandomValues<float>(random_, n * k);
        const auto other_a = RandomValues<float>(random_, other.m * other_k);
        const auto other_b = RandomValues<float>(random_, n * other_k);
        const Floats want = RunGemm<float>(one_, chosen, step, a, b, {});
        const Floats other_want = RunGemm<float>(one_, chosen, other, other_a, other_b, {});
        for (Rig* const rig : {&one_, &many_, &three_}) {
          const Rig::Bytes device_a(*rig, a), device_b(*rig, b), packed(*rig, gemm->packed_bytes());
          const Rig::Bytes rows_a(*rig, other_a), rows_b(*rig, other_b);
          const Rig::Bytes rows_packed(*rig, beside->packed_bytes());
          Check(gemm->Pack(rig->stream(), device_b.data(), packed.data()));
          Check(beside->Pack(rig->stream(), rows_b.data(), rows_packed.data()));
          const Rig::Bytes rows_c(*rig, Floats(other_want.size(), NAN));
          for (int64_t part = 0; part < other.m; ++part) {
            const Rig::Bytes c(*rig, Floats(want.size(), NAN));
            Check(gemm->RunBeside(rig->stream(), device_a.data(), packed.data(), c.data(),
                                  {.k = other_k,
                                   .a = rows_a.data(),
                                   .b = rows_packed.data(),
                                   .c = rows_c.data(),
                                   .part = part}));
            ASSERT_TRUE(Same(c.Read<float>(), want)) << ToString(step) << " part " << part;
          }
          ASSERT_TRUE(Same(rows_c.Read<float>(), other_want)) << ToString(other);
        }
      }
    }
  }
}

// Of other columns, several rows, sums that are added, other types, and of whoever does not pack.
TEST_F(BesideTest, Refuses) {
  const auto prepare = [&](const GemmSpec& spec) { return Get(primitives_.Prepare(spec)); };
  const auto step = prepare(Spec(1, 64, 8, true)), rows = prepare(Spec(100, 64, 8, true));
  GemmSpec adds = Spec(100, 64, 8, true), wide = Spec(1, 64, 8, true), plain = wide;
  adds.accumulate = true;
  wide.dtype = DType::kF64;
  plain.packs_b = false;
  EXPECT_EQ(step->rows_beside(*prepare(Spec(100, 65, 8, true))), 0);
  EXPECT_EQ(rows->rows_beside(*rows), 0);
  EXPECT_EQ(step->rows_beside(*prepare(adds)), 0);
  EXPECT_EQ(step->rows_beside(*prepare(plain)), 0);
  EXPECT_EQ(prepare(plain)->rows_beside(*rows), 0);
  EXPECT_EQ(prepare(wide)->rows_beside(*prepare(wide)), 0);
}

}  // namespace
}  // namespace gyre
