// Weights of samples, the last input of each loss and of accuracy.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Kind {
  std::string config;
  TestInput scores, labels;
  bool differentiable = true;
};

// Five samples of three positions, along each axis, and of one position.
std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  const std::vector<int32_t> binary = {0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0, 0, 1, 0, 1};
  const std::vector<int32_t> classes = {0, 3, 1, 2, 2, 0, 3, 1, 0, 0, 1, 3, 2, 3, 1};
  const auto add = [&kinds](const std::string& config, int64_t columns, bool shares,
                            const std::vector<int32_t>& labels, bool differentiable = true) {
    for (const int axis : {0, 1}) {
      const Shape rows = axis == 0 ? Shape{5, 3} : Shape{3, 5};
      const Shape scores{rows[0], rows[1], columns};
      TestInput targets = shares ? Positive(scores, 2) : Labels(rows, labels);
      kinds.push_back({config, Along(axis, Distinct(scores, 1)), Along(axis, std::move(targets)),
                       differentiable});
    }
  };
  add("softmax_cross_entropy {}", 4, false, classes);
  add("softmax_cross_entropy { label_smoothing: 0.2 ignore_label: 1 }", 4, false, classes);
  add("softmax_cross_entropy { class_weight: [0.5, 2, 1, 0] }", 4, false, classes);
  add("softmax_cross_entropy { label_smoothing: 0.2 class_weight: [0.5, 2, 1, 0] }", 4, false,
      classes);
  add("softmax_cross_entropy {}", 4, true, {});
  add("softmax_cross_entropy { label_smoothing: 0.2 class_weight: [0.5, 2, 1, 0] }", 4, true, {});
  add("hinge { norm: L2 }", 4, false, classes);
  add("binary_cross_entropy { positive_weight: 2.5 }", 1, false, binary);
  add("binary_hinge { ignore_label: 0 }", 1, false, binary);
  add("max_hinge {}", 1, false, binary);
  add("mean_squared_error {}", 2, true, {});
  add("sigmoid_cross_entropy {}", 2, true, {});
  add("time_to_event { horizon: 1.031 offset: 0.25 }", 2, true, {});
  add("accuracy {}", 4, false, classes, /*differentiable=*/false);
  add("accuracy { top_k: 2 }", 4, true, {}, /*differentiable=*/false);
  return kinds;
}

LayerCase Weighed(const Kind& kind, Doubles weights) {
  LayerCase layer{kind.config, {kind.scores, kind.labels, SampleWeightsOf(std::move(weights))}};
  layer.output_gradient = {4};
  return layer;
}

LayerCase Plain(const Kind& kind) {
  return {.config = kind.config, .inputs = {kind.scores, kind.labels}, .output_gradient = {4}};
}

RunResult Outcome(const Kind& kind, const LayerCase& layer, RunOptions options = {}) {
  options.backward = kind.differentiable;
  return Ran(layer, options);
}

// Calls f(index) for each element of a sample.
template <typename F>
void OfSample(const TestInput& input, int64_t sample, const F& f) {
  const Shape& shape = input.shape;
  const int64_t inner = shape.elements(input.batch_axis + 1, shape.rank());
  for (int64_t i = 0; i < shape.elements(); ++i) {
    if (i / inner % input.samples() == sample) f(i);
  }
}

Doubles ValuesOf(const TestInput& input, const Doubles& values, int64_t sample) {
  Doubles of_sample;
  OfSample(input, sample, [&](int64_t i) { of_sample.push_back(values[i]); });
  return of_sample;
}

TEST(SampleWeights, OnesGiveTheBitsOfNone) {
  for (const Kind& kind : Kinds()) {
    for (const DType compute : kRealTypes) {
      SCOPED_TRACE(kind.config + std::string(DTypeName(compute)));
      const RunResult plain = Outcome(kind, Plain(kind), {.compute = compute});
      const RunResult ones = Outcome(kind, Weighed(kind, Doubles(5, 1)), {.compute = compute});
      EXPECT_EQ(ones.output, plain.output);
      EXPECT_EQ(ones.metric, plain.metric);
      for (const size_t i : {0, 1}) EXPECT_EQ(ones.input_gradients[i], plain.input_gradients[i]);
      EXPECT_EQ(ones.fault.word, Fault::kNone);
    }
  }
}

// A sample that weighs three counts as three of its kind.
TEST(SampleWeights, AreRepetitions) {
  const Doubles weights = {2, 1, 0, 3, 0};
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.config);
    std::vector<int64_t> samples;  // repeated, in order
    for (int64_t n = 0; n < 5; ++n) samples.insert(samples.end(), weights[n], n);
    const auto repeat = [&](const TestInput& input) {
      TestInput repeated = input;
      repeated.shape = input.shape.With(input.batch_axis, std::ssize(samples));
      repeated.values.resize(repeated.shape.elements());
      for (int64_t k = 0; k < std::ssize(samples); ++k) {
        const Doubles values = ValuesOf(input, input.values, samples[k]);
        size_t at = 0;
        OfSample(repeated, k, [&](int64_t i) { repeated.values[i] = values[at++]; });
      }
      return repeated;
    };
    Kind other = kind;
    other.scores = repeat(kind.scores);
    other.labels = repeat(kind.labels);
    const RunResult expected = Outcome(other, Plain(other));
    for (const int ranks : {1, 3, 7}) {
      const RunResult result = Outcome(kind, Weighed(kind, weights), {.ranks = ranks});
      CompareNear("output", expected.output, result.output, 1e-14);
      CompareNear("metric", expected.metric, result.metric, 1e-14);
      if (!kind.differentiable) continue;
      Doubles sums(kind.scores.values.size());
      for (int64_t k = 0; k < std::ssize(samples); ++k) {
        const Doubles gradient = ValuesOf(other.scores, expected.input_gradients[0], k);
        size_t at = 0;
        OfSample(kind.scores, samples[k], [&](int64_t i) { sums[i] += gradient[at++]; });
      }
      CompareNear("gradient", sums, result.input_gradients[0], 1e-14);
    }
  }
}

// Neither its scores, nor its labels, are looked at.
TEST(SampleWeights, ZeroHidesNaNAndBadLabels) {
  const Doubles weights = {0.5, 0, 3, 0, 1.25};
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.config);
    const RunResult expected = Outcome(kind, Weighed(kind, weights));
    Kind hidden = kind;
    OfSample(hidden.scores, 1, [&](int64_t i) { hidden.scores.values[i] = std::nan(""); });
    OfSample(hidden.labels, 1, [&](int64_t i) {
      hidden.labels.values[i] = hidden.labels.is_label ? 99 : std::nan("");
    });
    OfSample(hidden.labels, 3, [&](int64_t i) {
      hidden.labels.values[i] = hidden.labels.is_label ? -5 : -kInfinity;
    });
    for (const DType compute : kRealTypes) {
      const RunResult result = Outcome(hidden, Weighed(hidden, weights), {.compute = compute});
      EXPECT_EQ(result.fault.word, Fault::kNone);
      EXPECT_EQ(result.metric[1], expected.metric[1]);
      CompareNear("output", expected.output, result.output, 2e-2);
      if (!kind.differentiable) continue;
      for (const int64_t n : {1, 3}) {
        const Doubles dx = ValuesOf(kind.scores, result.input_gradients[0], n);
        EXPECT_EQ(dx, Doubles(dx.size(), 0));
        if (kind.labels.is_label) continue;
        const Doubles dt = ValuesOf(kind.labels, result.input_gradients[1], n);
        EXPECT_EQ(dt, Doubles(dt.size(), 0));
      }
    }
    const RunResult same = Outcome(hidden, Weighed(hidden, weights));
    EXPECT_EQ(same.output, expected.output);
    EXPECT_EQ(same.metric, expected.metric);
  }
}

TEST(SampleWeights, NothingWeighsAnything) {
  for (const Kind& kind : Kinds()) {
    for (const int ranks : {1, 2}) {
      const RunResult result = Outcome(kind, Weighed(kind, Doubles(5, 0)), {.ranks = ranks});
      EXPECT_EQ(result.output, Doubles{0}) << kind.config;
      EXPECT_EQ(result.metric, (Doubles{0, 0})) << kind.config;
      for (const Doubles& gradient : result.input_gradients) {
        EXPECT_EQ(gradient, Doubles(gradient.size(), 0)) << kind.config;
      }
    }
  }
}

// The other samples count as ever; the smallest bad sample is reported.
TEST(SampleWeights, BadOnesAreFaults) {
  for (const Kind& kind : Kinds()) {
    for (const double bad : {-1.0, -1e-30, std::nan(""), kInfinity, -kInfinity}) {
      const RunResult expected = Outcome(kind, Weighed(kind, {2, 0, 1, 0.5, 0}));
      const RunResult result = Outcome(kind, Weighed(kind, {2, bad, 1, 0.5, bad}));
      EXPECT_EQ(result.fault.layer(), 7) << kind.config;
      EXPECT_EQ(result.fault.index(), 1) << kind.config;
      EXPECT_EQ(result.output, expected.output) << kind.config;
      EXPECT_EQ(result.metric, expected.metric) << kind.config;
    }
  }
}

TEST(SampleWeights, AreCountedOverRanks) {
  const auto counted = [](const std::string& config) {
    const TestInput scores = Distinct({2, 3}, 1), weights = SampleWeightsOf({1, 2});
    const RunResult result = Ran({config, {scores, Labels({0, 1}), weights}});
    EXPECT_EQ(result.spec.forward_phases, 2);
    EXPECT_EQ(result.spec.states[result.spec.count].summed_after, 0);
    EXPECT_TRUE(result.spec.states[2].not_negative);
    return std::pair(result.spec.counted, result.spec.counted_from);
  };
  using Counted = std::pair<std::string, std::vector<int>>;
  EXPECT_EQ(counted("softmax_cross_entropy {}"), Counted("by weight", {2}));
  EXPECT_EQ(counted("hinge { ignore_label: 7 }"), Counted("labels but 7, by weight", {1, 2}));
  EXPECT_EQ(counted("softmax_cross_entropy { ignore_label: 7 class_weight: [1, 0.5, 2] }"),
            Counted("labels but 7, class_weight 1 0.5 2, by weight", {1, 2}));
}

TEST(SampleWeights, Errors) {
  for (const Kind& kind : Kinds()) {
    const auto refusal = [&](const std::vector<TestInput>& more) {
      LayerCase layer = Plain(kind);
      layer.inputs.insert(layer.inputs.end(), more.begin(), more.end());
      return Refusal(layer);
    };
    const std::string expects = "expects weights [5] of type F64, one for each sample, got ";
    EXPECT_EQ(refusal({SampleWeightsOf(Doubles(4, 1))}), expects + "[4] of type F64");
    EXPECT_EQ(refusal({Real({5, 1}, Doubles(5, 1))}), expects + "[5, 1] of type F64");
    EXPECT_EQ(refusal({Labels({1, 1, 1, 1, 1})}), expects + "[5] of type I32");
    EXPECT_EQ(refusal({Real({5}, Doubles(5, 1))}),
              "expects weights from the data, got an output that depends on trained parameters");
    EXPECT_EQ(refusal({SampleWeightsOf(Doubles(5, 1)), SampleWeightsOf(Doubles(5, 1))}),
              "expects 2 inputs, or 3 with weights of the samples, got 4");
  }
}

}  // namespace
}  // namespace gyre
