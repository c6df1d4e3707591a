// Where a net's values and gradients lie: views, layers that work in place, gradients that several
// layers have as theirs, and what is made again for backward rather than kept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/str_replace.h"
#include "tests/training/net/net_rank.h"

namespace gyre {
namespace {

TEST(NetMemoryTest, WorksInPlaceOnlyWhereNobodyReadsTheInputAgain) {
  const struct {
    const char *layers, *output, *input;
    bool in_place;
  } kCases[] = {
      {kConvNet, "relu", "conv", true},
      // relu's backward reads its output, so the dropout after it needs memory of its own.
      {kConvNet, "drop", "relu", false},
      {kConvNet, "flat", "pool", true},
      // "c" reads the trunk's output after relu has run.
      {kForkedNet, "relu", "trunk", false},
      // Nobody writes into an input of the net.
      {R"(layer { name: "relu" input: "image" relu {} }
          layer { name: "flat" flatten {} }
          layer { name: "fc" dense { outputs: 4 } }
          layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })",
       "relu", "image", false},
  };
  for (const auto& c : kCases) {
    NetRank rank(c.layers, DType::kF32, 2);
    EXPECT_EQ(ValueNamed(rank.spec(), c.output).memory == ValueNamed(rank.spec(), c.input).memory,
              c.in_place)
        << c.output << " on " << c.input;
  }
}

// Where values of a plan and their gradients lie, in bytes.
class Placed {
 public:
  explicit Placed(const NetPlan& plan) : plan_(plan) {}
  size_t Value(const std::string& name) const { return Of(plan_.trace.values, name); }
  size_t Gradient(const std::string& name) const { return Of(plan_.trace.gradients.values, name); }
  bool HasGradient(const std::string& name) const {
    return plan_.trace.gradients.values[Index(name)] >= 0;
  }

 private:
  size_t Index(const std::string& name) const {
    return &ValueNamed(plan_.spec, name) - plan_.spec.values.data();
  }
  size_t Of(const std::vector<int>& states, const std::string& name) const {
    return plan_.memory.placements[states[Index(name)]].offset;
  }
  const NetPlan& plan_;
};

TEST(NetMemoryTest, PartsAreViewsAndSoAreTheirGradients) {
  NetRank rank(kPartedNet);
  const Placed placed(rank.net().plan());
  const struct {
    const char *part, *whole;
    size_t offset;  // in rows of 5 samples of 4 doubles
  } cases[] = {{"parts", "sequence", 0}, {"parts:2", "sequence", 6}, {"inner", "sequence", 8}};
  for (const auto& c : cases) {
    const size_t bytes = c.offset * 5 * 4 * sizeof(double);
    EXPECT_EQ(placed.Value(c.part) - placed.Value(c.whole), bytes) << c.part;
  }
  EXPECT_EQ(placed.Gradient("parts:2") - placed.Gradient("sequence"), 6 * 5 * 4 * sizeof(double));
  EXPECT_EQ(placed.Gradient("parts"), placed.Gradient("both"));  // where it comes from
  EXPECT_FALSE(placed.HasGradient("parts:1"));
}

// Those of a concatenation, where they have no other place: a net input, another concatenation.
TEST(NetMemoryTest, PartsLieWhereTheyAreToBe) {
  NetRank rank(kJoinedNet);
  const Placed placed(rank.net().plan());
  constexpr size_t kRow = 5 * 8 * sizeof(double);
  EXPECT_EQ(placed.Value("a"), placed.Value("joined"));
  EXPECT_EQ(placed.Value("relu"), placed.Value("joined"));
  EXPECT_EQ(placed.Value("b") - placed.Value("joined"), 3 * kRow);
  EXPECT_EQ(placed.Value("low"), placed.Value("all"));
  EXPECT_EQ(placed.Value("high") - placed.Value("all"), 9 * kRow);
  EXPECT_EQ(placed.Gradient("high") - placed.Gradient("all"), 9 * kRow);
  EXPECT_EQ(placed.Gradient("parts:1"), placed.Gradient("swapped"));
  EXPECT_EQ(placed.Gradient("parts") - placed.Gradient("swapped"), 5 * kRow);
}

// An output put over one input must not spoil another that overlaps it.
TEST(NetMemoryTest, OverlappingPartsAreNotWorkedOnInPlace) {
  for (const char* order :
       {"input: \"late\" input: \"early\"", "input: \"early\" input: \"late\""}) {
    NetRank rank(std::string(R"(
      layer { name: "flat" flatten {} }
      layer { name: "fc" dense { outputs: 60 } }
      layer { name: "rows" reshape { dims: [15, 4] } }
      layer { name: "sequence" transpose { axes: [1, 0, 2] } }
      layer { name: "late" input: "sequence" slice { axis: 0 begin: 2 } }
      layer { name: "early" input: "sequence" slice { axis: 0 end: -2 } }
      layer { name: "sum" )") +
                 order + R"( add {} }
      layer { name: "back" transpose { axes: [1, 0, 2] } }
      layer { name: "flat2" flatten {} }
      layer { name: "out" dense { outputs: 4 } }
      layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })");
    const NetValue& sum = ValueNamed(rank.spec(), "sum");
    EXPECT_NE(sum.memory, ValueNamed(rank.spec(), "late").memory) << order;
    EXPECT_EQ(ValueNamed(rank.spec(), "late").memory, ValueNamed(rank.spec(), "early").memory);
  }
}

// A rank without samples, where every part is as large as the whole.
TEST(NetMemoryTest, PartsOfNoSamples) {
  NetRank rank(kPartedNet, DType::kF64, /*batch=*/1, NewCpuDevice({}), /*rank=*/1, /*ranks=*/2);
  rank.Forward();
  rank.Backward();
  for (const double g : rank.Gradient(0)) EXPECT_EQ(g, 0);
}

// Residual blocks; SLOPE is 0, or nearly so, where a ReLU does its own work.
std::string Residual(const std::string& slope) {
  return absl::StrReplaceAll(R"(
    layer { name: "conv0" conv2d { filters: 40 kernel: 3 padding: 1 } }
    layer { name: "norm0" batch_norm { synchronised: true } }
    layer { name: "relu0" relu { negative_slope: SLOPE } }
    layer { name: "conv1" conv2d { filters: 40 kernel: 3 padding: 1 } }
    layer { name: "norm1" batch_norm {} }
    layer { name: "sum1" input: "norm1" input: "relu0" add {} }
    layer { name: "relu1" relu { negative_slope: SLOPE } }
    layer { name: "conv2" conv2d { filters: 40 kernel: 3 padding: 1 } }
    layer { name: "norm2" batch_norm {} }
    layer { name: "sum2" input: "norm2" input: "relu1" add {} }
    layer { name: "relu2" relu { negative_slope: SLOPE } }
    layer { name: "conv3" conv2d { filters: 40 kernel: 3 padding: 1 } }
    layer { name: "norm3" batch_norm {} }
    layer { name: "relu3" relu { negative_slope: SLOPE } }
    layer { name: "conv4" conv2d { filters: 2 kernel: 1 } }
    layer { name: "flat" flatten {} }
    layer { name: "out" dense { outputs: 4 } }
    layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })",
                             {{"SLOPE", slope}});
}

std::vector<std::string> Recomputed(const NetSpec& net) {
  std::vector<std::string> names;
  for (const NetNode& node : net.nodes) {
    if (node.recomputed) names.push_back(node.config->name());
  }
  return names;
}

// What is cheap to make again is not kept for backward, where much work awaits it there and another
// keeps what it is made of.
TEST(NetMemoryTest, CheapOutputsAreRecomputed) {
  NetRank dense(R"(
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 60 } }
    layer { name: "norm" layer_norm {} }
    layer { name: "fc2" dense { outputs: 200 } }
    layer { name: "gelu" gelu {} }
    layer { name: "fc3" dense { outputs: 300 } }
    layer { name: "gelu2" gelu {} }
    layer { name: "relu" relu {} }
    layer { name: "tanh" tanh {} }
    layer { name: "out" dense { outputs: 200 } }
    layer { name: "gelu3" gelu {} }
    layer { name: "few" dense { outputs: 4 } }
    layer { name: "gelu4" gelu {} }
    layer { name: "loss" input: "gelu4" input: "label" softmax_cross_entropy {} })");
  // relu is not cheap and works on gelu2's; nobody keeps what tanh is made of; few is little work;
  // nobody reads gelu4's.
  EXPECT_EQ(Recomputed(dense.spec()), (std::vector<std::string>{"norm", "gelu"}));

  NetRank residual(Residual("0"));
  // Of sum1 a part is not kept; conv4 is little work.
  EXPECT_EQ(Recomputed(residual.spec()), (std::vector<std::string>{"norm0", "norm2", "sum2"}));
  const NetPlan& plan = residual.net().plan();
  for (const char* name : {"relu0", "relu2"}) {
    const auto value = &ValueNamed(plan.spec, name) - plan.spec.values.data();
    const Placement& forward = plan.memory.placements[plan.trace.values[value]];
    EXPECT_LT(forward.last_step, plan.memory.placements[plan.trace.recomputed[value]].first_step);
  }
}

// To the same numbers; running statistics move once, and ranks sum a statistic once.
TEST(NetMemoryTest, RecomputedStepsAreTheSame) {
  std::map<std::string, int> sums;
  const auto count = [&](Stream&, absl::string_view label, Tensor) {
    ++sums[std::string(label)];
    return absl::OkStatus();
  };
  NetRank again(Residual("0")), kept(Residual("1e-30"));
  EXPECT_TRUE(Recomputed(kept.spec()).empty());
  EXPECT_NEAR(TotalLoss(again.Forward(count)), kept.Loss(), 1e-13);
  again.Backward(count);
  kept.Backward();
  EXPECT_EQ(sums, (std::map<std::string, int>{{"norm0.sums", 1}, {"norm0.gradient_sums", 1}}));
  for (size_t p = 0; p < kept.parameters().size(); ++p) {
    const bool trained = kept.parameters()[p].trained();
    const auto values = [&](NetRank& rank) {
      const Tensor at = rank.parameter(p);
      return trained ? rank.Gradient(p)
                     : std::vector<double>(at.as<double>(), at.as<double>() + at.elements());
    };
    EXPECT_THAT(values(again), testing::Pointwise(testing::DoubleNear(1e-12), values(kept)))
        << kept.parameters()[p].name();
  }
}

// A layer's gradient lies where the one it is made of did, but where others still read that.
TEST(NetMemoryTest, GradientsAreMadeInPlace) {
  NetRank rank(Residual("0"));
  const NetPlan& plan = rank.net().plan();
  const Placed placed(plan);
  EXPECT_EQ(placed.Gradient("conv0"), placed.Gradient("norm0"));
  EXPECT_EQ(placed.Gradient("norm2"), placed.Gradient("relu2"));  // sum2 passes it on, to relu1 too
  EXPECT_NE(placed.Gradient("conv2"), placed.Gradient("norm2"));
  const auto of_input = [&](const char* layer, size_t input) {
    const auto node = &NodeNamed(plan.spec, layer) - plan.spec.nodes.data();
    return plan.memory.placements[plan.trace.gradients.nodes[node][input]].offset;
  };
  EXPECT_EQ(of_input("sum2", 1), placed.Gradient("relu2"));
  // The sum over relu1's readers, in the place of the first.
  EXPECT_EQ(of_input("conv2", 0), placed.Gradient("relu1"));
}

}  // namespace
}  // namespace gyre
