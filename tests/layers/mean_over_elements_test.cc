#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

const std::string kLayers[] = {"mean_squared_error", "sigmoid_cross_entropy"};

const double kInfinity = std::numeric_limits<double>::infinity();

TEST(MeanOverElements, HandComputed) {
  const double log3 = std::log(3), log2 = std::log(2), log4_3 = std::log(4.0 / 3);
  const struct {
    std::string layer;
    Doubles x, t, losses;
    std::vector<Doubles> gradients;  // with dy = 4: the slopes
  } cases[] = {
      {"mean_squared_error {}",
       {1, 2, 3, 5},
       {1, 4, 3, 2},
       {0, 4, 0, 9},
       {{0, -4, 0, 6}, {0, 4, 0, -6}}},
      // sigmoid(log 3) = 3/4, sigmoid(-log 3) = 1/4.
      {"sigmoid_cross_entropy {}",
       {0, log3, -log3, 0},
       {1, 1, 0, 0.25},
       {log2, log4_3, log4_3, log2},
       {{-0.5, -0.25, 0.25, 0.25}, {0, -log3, log3, 0}}},
  };
  for (const auto& c : cases) {
    for (const DType compute : kRealTypes) {
      const double tolerance = compute == DType::kF64   ? 1e-15
                               : compute == DType::kF32 ? 1e-6
                                                        : 1e-2;
      LayerCase layer{c.layer, {Real({2, 2}, c.x), Real({2, 2}, c.t)}};
      layer.output_gradient = {4};
      const RunResult result = Ran(layer, {.compute = compute});
      double sum = 0;
      for (const double loss : c.losses) sum += loss;
      EXPECT_EQ(result.output_shape, Shape{});
      EXPECT_NEAR(result.output[0], sum / 4, tolerance) << c.layer;
      EXPECT_NEAR(result.metric[0], sum, 4 * tolerance) << c.layer;
      EXPECT_EQ(result.metric[1], 4);
      for (size_t k = 0; k < 2; ++k) {
        EXPECT_THAT(result.input_gradients[k], IsNear(c.gradients[k], 4 * tolerance)) << c.layer;
      }
    }
  }
}

// log10 of 0.1 + 0.9, of 0 + 0.1 and of the horizon's 9.9 + 0.1; a time below 0 does not count.
TEST(TimeToEvent, HandComputed) {
  const Doubles x = {-2, -0.5, -1, 7, 1}, t = {0.9, 0, 9.9, -0.5, kInfinity};
  for (const DType compute : {DType::kF64, DType::kF32}) {
    const double tolerance = compute == DType::kF64 ? 1e-14 : 1e-6;
    for (const int ranks : {1, 2, 7}) {
      LayerCase layer{"time_to_event { horizon: 9.9 offset: 0.1 }", {Real({5}, x), Real({5}, t)}};
      layer.output_gradient = {2};
      const RunResult result = Ran(layer, {.compute = compute, .ranks = ranks});
      const double sum = 4 + 1.5 * 1.5 + 0 + 4;
      EXPECT_NEAR(result.output[0], sum / 4, tolerance);
      EXPECT_NEAR(result.metric[0], sum, 4 * tolerance);
      EXPECT_EQ(result.metric[1], 4);
      // dy 2 / 4
      EXPECT_THAT(result.input_gradients[0], IsNear({-2, -1.5, 0, 0, 2}, 4 * tolerance));
      // Beyond the horizon, and where it does not count, the time does not matter.
      EXPECT_NEAR(result.input_gradients[1][0], -2 / std::log(10), 4 * tolerance);
      EXPECT_EQ(result.input_gradients[1][3], 0);
      EXPECT_EQ(result.input_gradients[1][4], 0);
    }
  }
}

TEST(TimeToEvent, NothingCountsAndNaN) {
  const RunResult nothing = Ran({"time_to_event { horizon: 1 }",
                                 {Real({2}, {std::nan(""), 1}), Real({2}, {-1, -kInfinity})}});
  EXPECT_EQ(nothing.output[0], 0);
  EXPECT_EQ(nothing.input_gradients[0], Doubles(2, 0));
  for (const bool of_time : {false, true}) {
    const TestInput nan = Real({1}, {std::nan("")}), one = Real({1}, {1});
    const RunResult result =
        Ran({"time_to_event { horizon: 1 }", {of_time ? one : nan, of_time ? nan : one}});
    EXPECT_TRUE(std::isnan(result.output[0])) << of_time;
  }
}

TEST(TimeToEvent, Contract) {
  const char* const layer = "time_to_event { horizon: 1.031 offset: 0.25 }";
  CheckContract({layer, {Distinct({5, 7}, 1), Distinct({5, 7}, 2)}});
  CheckContract({layer, {Distinct({3, 1}, 3), Distinct({3, 1}, 4)}});
  CheckContract({layer, {Along(1, Distinct({2, 3, 4}, 5)), Along(1, Distinct({2, 3, 4}, 6))}});
}

TEST(TimeToEvent, Errors) {
  const TestInput x = Distinct({2, 3}, 1);
  EXPECT_EQ(Refusal({"time_to_event {}", {x, x}}), "horizon: expected a time above 0, got 0");
  EXPECT_EQ(Refusal({"time_to_event { horizon: 1 offset: -1 }", {x, x}}),
            "offset: expected a time above 0, got -1");
  EXPECT_EQ(Refusal({"time_to_event { horizon: 1 }", {x, Distinct({2}, 1)}}),
            "expects a target of the prediction's shape [2, 3], got [2]");
}

// e^x would overflow.
TEST(MeanOverElements, LargeScores) {
  for (const DType compute : kRealTypes) {
    const RunResult result = Ran({"sigmoid_cross_entropy {}",
                                  {Real({4}, {8192, 8192, -8192, -8192}), Real({4}, {0, 1, 0, 1})}},
                                 {.compute = compute});
    EXPECT_EQ(result.output[0], 4096);
    for (const double dx : result.input_gradients[0]) EXPECT_TRUE(std::isfinite(dx));
  }
}

TEST(MeanOverElements, NaNPasses) {
  for (const std::string& layer : kLayers) {
    const RunResult result =
        Ran({layer + " {}", {Real({2}, {std::nan(""), 1}), Real({2}, {0, 1})}});
    EXPECT_TRUE(std::isnan(result.output[0])) << layer;
  }
}

TEST(MeanOverElements, Contract) {
  for (const std::string& layer : kLayers) {
    CheckContract({layer + " {}", {Distinct({5, 7}, 1), Distinct({5, 7}, 2)}});
    CheckContract({layer + " {}", {Distinct({3}, 3), Distinct({3}, 4)}});
    CheckContract(
        {layer + " {}", {Along(1, Distinct({2, 3, 4}, 5)), Along(1, Distinct({2, 3, 4}, 6))}});
  }
}

TEST(MeanOverElements, ContractOfWeights) {
  for (const char* layer : {"mean_squared_error {}", "sigmoid_cross_entropy {}",
                            "time_to_event { horizon: 1.031 offset: 0.25 }"}) {
    CheckContract({layer,
                   {Along(1, Distinct({2, 3, 4}, 5)), Along(1, Distinct({2, 3, 4}, 6)),
                    SampleWeightsOf({0.75, 0, 1.5})}});
  }
}

TEST(MeanOverElements, DeclaresALoss) {
  for (const std::string& layer : kLayers) {
    const RunResult result =
        Ran({layer + " { loss_weight: 0.25 }", {Distinct({2, 3}, 1), Distinct({2, 3}, 2)}});
    EXPECT_EQ(result.spec.loss_output, 2);
    EXPECT_EQ(result.spec.loss_weight, 0.25);
    EXPECT_EQ(result.spec.states[static_cast<size_t>(result.spec.metric)].shape, Shape{2});
  }
}

TEST(MeanOverElements, Errors) {
  const TestInput x = Distinct({2, 3}, 1);
  for (const std::string& layer : kLayers) {
    EXPECT_EQ(Refusal({layer + " {}", {x}}), "expects 2 inputs (prediction, target), got 1");
    EXPECT_EQ(Refusal({layer + " {}", {x, Labels({0, 1})}}), "expects target of type F64, got I32");
    EXPECT_EQ(Refusal({layer + " {}", {x, Distinct({2, 4}, 1)}}),
              "expects a target of the prediction's shape [2, 3], got [2, 4]");
    EXPECT_EQ(Refusal({layer + " {}", {Distinct({}, 1), Distinct({}, 1)}}),
              "expects inputs [N, ...], got []");
    EXPECT_EQ(Refusal({layer + " {}", {Along(1, x), x}}),
              "expects samples along one axis, but those of input 0, [2, 3], are along axis 1 and "
              "those of input 1, [2, 3], along axis 0; transpose one");
    EXPECT_EQ(Refusal({layer + " { loss_weight: inf }", {x, x}}),
              "loss_weight: expected 0 or more, got inf");
  }
}

}  // namespace
}  // namespace gyre
