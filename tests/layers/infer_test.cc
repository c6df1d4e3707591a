#include "layers/interface/infer.h"

#include <gtest/gtest.h>

#include <vector>

namespace gyre {
namespace {

// The shape and layout that the first shape's inference chose bind.
TEST(Infer, ParametersKeepTheFirstShape) {
  InferInput input;
  const auto first = MakeParameter("weight", Shape{2, 3}, {}, {}, input, kRead).value();
  LayerSpec spec;
  spec.states = {first};
  input.same_parameters_as = &spec;
  EXPECT_TRUE(MakeParameter("weight", Shape{2, 3}, {}, {}, input, kRead).ok());
  EXPECT_EQ(MakeParameter("weight", Shape{2, 4}, {}, {}, input, kRead).status(),
            absl::InvalidArgumentError("weight: expected the shape [2, 3], got [2, 4]"));
  EXPECT_TRUE(MakeParameter("bias", Shape{4}, {}, {}, input, kNone).ok());
}

TEST(Infer, ExtentsEndWhereVendorLibrariesDo) {
  EXPECT_TRUE(CheckExtent("x", 1).ok());
  EXPECT_TRUE(CheckExtent("x", kMaxExtent).ok());
  EXPECT_FALSE(CheckExtent("x", kMaxExtent + 1).ok());
  EXPECT_FALSE(CheckExtent("x", 0).ok());
  EXPECT_TRUE(CheckExtent("x", 0, /*least=*/0).ok());
}

TEST(Infer, ShapesEndWhereBytesCannotBeCounted) {
  EXPECT_TRUE(CheckCountable("output", Shape{4, 1 << 20, 1 << 20}).ok());
  EXPECT_EQ(CheckCountable("output", Shape{kMaxExtent, kMaxExtent, 4}),
            absl::InvalidArgumentError("output [2147483647, 2147483647, 4] has more than 2^56 "
                                       "elements; make it smaller"));
  EXPECT_FALSE(MakeParameter("weight", Shape{kMaxExtent, kMaxExtent}, {}, {}, {}, kRead).ok());
}

TEST(Infer, SamplesOfAllInputsAreAlongOneAxis) {
  const Shape shapes[] = {{3, 4}, {3, 4}};
  const int same[] = {1, 1}, other[] = {0, 1};
  InferInput input;
  input.inputs = shapes;
  EXPECT_EQ(CommonBatchAxis(input).value(), 0);
  input.batch_axes = same;
  EXPECT_EQ(CommonBatchAxis(input).value(), 1);
  EXPECT_EQ(SampleElements(input).value(), 3);
  EXPECT_EQ(MakeOutput(input, shapes[0], kNone).batch_axis, 1);
  EXPECT_EQ(CheckBatchFirst(input),
            absl::InvalidArgumentError("expects samples along axis 0, but those of input 0, [3, "
                                       "4], are along axis 1; transpose it"));
  input.batch_axes = other;
  EXPECT_EQ(CommonBatchAxis(input).status(),
            absl::InvalidArgumentError(
                "expects samples along one axis, but those of input 0, [3, 4], are along axis 0 "
                "and those of input 1, [3, 4], along axis 1; transpose one"));
}

// Three phases of two ranks: the mean of all, then the mean square from it.  A statistic that were
// summed again after a later phase would be multiplied by the ranks.
TEST(Layer, AStatisticIsSummedOnceAfterItsPhase) {
  LayerSpec spec;
  spec.forward_phases = 3;
  spec.states.resize(4);
  for (StateSpec& state : spec.states) state.kind = StateKind::kStatistic;
  spec.states[1].summed_after = 0;
  spec.states[2].summed_after = 1;
  std::vector<std::vector<double>> of_rank = {{0, 0, 0, 0}, {0, 0, 0, 0}};  // [rank][state]
  const auto run = [&](int phase) {
    for (size_t r = 0; r < 2; ++r) {
      std::vector<double>& state = of_rank[r];
      if (phase == 0) state = {1, 10.0 * (r + 1), 0, 1};
      if (phase == 1) state[2] = state[1] + r;
      if (phase == 2) state[0] = state[1] + state[2];
    }
    return absl::OkStatus();
  };
  const auto sum = [&](size_t state) {
    of_rank[0][state] = of_rank[1][state] = of_rank[0][state] + of_rank[1][state];
    return absl::OkStatus();
  };
  ASSERT_TRUE(RunPhases(spec, spec.forward_phases, &StateSpec::summed_after, run, sum).ok());
  EXPECT_EQ(of_rank[0], (std::vector<double>{30 + 61, 30, 61, 1}));
  EXPECT_EQ(of_rank[1], of_rank[0]);
}

}  // namespace
}  // namespace gyre
