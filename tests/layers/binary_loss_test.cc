#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

TEST(BinaryLoss, HandComputed) {
  // Margins s x: 2, -0.5 (of label 0), -1, 0.25.
  const TestInput scores = Real({4, 1}, {2, 0.5, -1, 0.25}), labels = Labels({1, 0, 1, 1});
  const struct {
    const char* layer;
    double sum;
    Doubles gradient;  // with dy = 4, the count
  } cases[] = {
      {"binary_hinge {}", 1.5 + 2 + 0.75, {0, 1, -1, -1}},
      {"binary_hinge { positive_weight: 3 }", 1.5 + 6 + 2.25, {0, 1, -3, -3}},
      {"binary_hinge { margin: 0 }", 0.5 + 1, {0, 1, -1, 0}},
      {"binary_hinge { margin: 4 }", 2 + 4.5 + 5 + 3.75, {-1, 1, -1, -1}},
      // Of all four places as one sample's it would be the first; a sample each, all are.
      {"max_hinge { positive_weight: 3 }", 1.5 + 6 + 2.25, {0, 1, -3, -3}},
  };
  for (const auto& c : cases) {
    for (const DType compute : kRealTypes) {
      LayerCase layer{.config = c.layer, .inputs = {scores, labels}, .output_gradient = {4}};
      const RunResult result = Ran(layer, {.compute = compute});
      EXPECT_EQ(result.output_shape, Shape{});
      EXPECT_EQ(result.output, RoundedTo(compute, {c.sum / 4})) << c.layer;
      EXPECT_EQ(result.metric, (Doubles{c.sum, 4})) << c.layer;
      EXPECT_EQ(result.input_gradients[0], c.gradient) << c.layer;
    }
  }
}

// -w [t = 1] log s(x) - [t = 0] log(1 - s(x)), as it is written down.
TEST(BinaryLoss, CrossEntropyIsTheLikelihoods) {
  const Doubles x = {-3, -0.5, 0, 0.7, 40, -800, 800};
  const std::vector<int32_t> t = {1, 0, 1, 0, 1, 1, 0};
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double s = 1 / (1 + std::exp(-x[i]));
    const bool far = std::abs(x[i]) > 100;
    sum += t[i] == 1 ? 2.5 * (far ? 800 : -std::log(s)) : far ? 800 : -std::log1p(-s);
  }
  const RunResult result =
      Ran({"binary_cross_entropy { positive_weight: 2.5 }", {Real({7, 1}, x), Labels(t)}});
  EXPECT_NEAR(result.metric[0], sum, 1e-12 * sum);
}

// Rows are samples, columns steps; and the same with steps first.
TEST(MaxHinge, TakesTheHighestScoreThatCounts) {
  const int32_t skip = 9;
  // Highest: 3 with label 1; -1, the first of two, with label 0; 0.5 with label 0, since 7 is
  // ignored; none.
  const Doubles x = {1, 3, 2, -1, -2, -1, 7, 0.5, 0, 5, 6, 7};
  const std::vector<int32_t> t = {0, 1, 0, 0, 1, 1, skip, 0, 1, skip, skip, skip};
  const double sum = 0 + 0 + 1.5;
  const Doubles gradient = {0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0};
  for (const bool steps_first : {false, true}) {
    Doubles scores(12), expected(12);
    std::vector<int32_t> labels(12);
    for (int n = 0; n < 4; ++n) {
      for (int k = 0; k < 3; ++k) {
        const int to = steps_first ? k * 4 + n : n * 3 + k;
        scores[to] = x[n * 3 + k];
        labels[to] = t[n * 3 + k];
        expected[to] = gradient[n * 3 + k];
      }
    }
    const Shape shape = steps_first ? Shape{3, 4} : Shape{4, 3};
    LayerCase layer{
        absl::StrCat("max_hinge { ignore_label: ", skip, " }"),
        {Real(steps_first ? Shape{3, 4, 1} : Shape{4, 3, 1}, scores), Labels(shape, labels)}};
    if (steps_first) {
      for (TestInput& input : layer.inputs) input = Along(1, input);
    }
    layer.output_gradient = {3};
    for (const int ranks : {1, 2, 4}) {
      const RunResult result = Ran(layer, {.ranks = ranks});
      EXPECT_DOUBLE_EQ(result.output[0], sum / 3) << ranks;
      EXPECT_EQ(result.metric, (Doubles{sum, 3})) << ranks;
      EXPECT_EQ(result.input_gradients[0], expected) << ranks;
    }
  }
}

// Of all, whatever their steps, where no label is ignored.
TEST(MaxHinge, IsAMeanOverSamples) {
  const RunResult result =
      Ran({"max_hinge {}", {Real({2, 2, 1}, {3, 1, 0, 0.5}), Labels({2, 2}, {0, 1, 0, 1})}});
  EXPECT_EQ(result.output, Doubles{(4 + 0.5) / 2});
  EXPECT_EQ(result.metric, (Doubles{4.5, 2}));
}

TEST(BinaryLoss, NaNPasses) {
  for (const char* layer : {"binary_cross_entropy {}", "binary_hinge {}", "max_hinge {}"}) {
    for (const int nan : {0, 1, 2}) {
      Doubles x = {3, 1, 2};
      x[nan] = std::nan("");
      const RunResult result = Ran({layer, {Real({1, 3, 1}, x), Labels({1, 3}, {0, 1, 0})}});
      EXPECT_TRUE(std::isnan(result.output[0])) << layer << nan;
    }
  }
}

TEST(BinaryLoss, BadAndIgnoredLabels) {
  const TestInput x = Real({2, 2, 1}, {1, 2, 3, 4});
  for (const char* layer : {"binary_cross_entropy", "binary_hinge", "max_hinge"}) {
    const RunResult bad = Ran({absl::StrCat(layer, " {}"), {x, Labels({2, 2}, {0, 1, 0, 2})}});
    EXPECT_EQ(bad.fault.index(), 1) << layer;
    EXPECT_EQ(bad.spec.states[1].largest, 1);
    const RunResult nothing =
        Ran({absl::StrCat(layer, " { ignore_label: 2 }"), {x, Labels({2, 2}, {2, 2, 2, 2})}});
    EXPECT_EQ(nothing.output, Doubles{0}) << layer;
    EXPECT_EQ(nothing.input_gradients[0], Doubles(4, 0)) << layer;
    EXPECT_EQ(nothing.fault.word, Fault::kNone);
  }
}

TEST(BinaryLoss, Contract) {
  for (const char* layer :
       {"binary_cross_entropy { positive_weight: 2.5 }", "binary_cross_entropy { ignore_label: 2 }",
        "binary_hinge { margin: 0.7 }", "binary_hinge { ignore_label: 0 positive_weight: 0.5 }",
        "max_hinge {}", "max_hinge { ignore_label: 2 positive_weight: 3 margin: 0.3 }"}) {
    const bool ignores = absl::string_view(layer).find("2 }") != absl::string_view::npos ||
                         absl::string_view(layer).find(": 2 ") != absl::string_view::npos;
    const int32_t other = ignores ? 2 : 0;
    CheckContract({layer, {Distinct({5, 1}, 1), Labels({0, 1, 1, other, 0})}});
    CheckContract({layer,
                   {Along(1, Distinct({4, 3, 1}, 2)),
                    Along(1, Labels({4, 3}, {0, 1, 0, other, 1, 1, 0, 0, other, 1, 1, 0}))}});
  }
}

TEST(BinaryLoss, ContractOfWeights) {
  for (const char* layer : {"binary_cross_entropy { positive_weight: 2.5 }", "binary_hinge {}",
                            "max_hinge { ignore_label: 2 }"}) {
    CheckContract({layer,
                   {Along(1, Distinct({4, 3, 1}, 2)),
                    Along(1, Labels({4, 3}, {0, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 0})),
                    SampleWeightsOf({0.75, 0, 1.5})}});
  }
}

TEST(BinaryLoss, Errors) {
  const TestInput scores = Distinct({2, 1}, 1), labels = Labels({0, 1});
  for (const char* layer : {"binary_cross_entropy", "binary_hinge", "max_hinge"}) {
    EXPECT_EQ(Refusal({absl::StrCat(layer, " {}"), {Distinct({2, 3}, 1), labels}}),
              "expects scores [..., 1], one for each label, got [2, 3]");
    EXPECT_EQ(Refusal({absl::StrCat(layer, " { positive_weight: -1 }"), {scores, labels}}),
              "positive_weight: expected 0 or more, got -1");
    EXPECT_EQ(Refusal({absl::StrCat(layer, " { loss_weight: -1 }"), {scores, labels}}),
              "loss_weight: expected 0 or more, got -1");
  }
  for (const char* layer : {"binary_hinge", "max_hinge"}) {
    EXPECT_EQ(Refusal({absl::StrCat(layer, " { margin: nan }"), {scores, labels}}),
              "margin: expected 0 or more, got nan");
  }
}

}  // namespace
}  // namespace gyre
