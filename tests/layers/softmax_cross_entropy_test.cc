#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

constexpr char kPlain[] = "softmax_cross_entropy {}";
constexpr char kIgnoring[] = "softmax_cross_entropy { ignore_label: 255 }";

// softmax [0, 0] = [1/2, 1/2];  softmax [log 3, 0] = [3/4, 1/4].
const TestInput kScores = Real({2, 2}, {0, 0, std::log(3), 0});

// A few roundings of numbers around 1.
double Tolerance(DType compute) {
  switch (compute) {
    case DType::kF64:
      return 1e-15;
    case DType::kF32:
      return 1e-6;
    case DType::kF16:
      return 1e-3;
    default:
      return 1e-2;
  }
}

TEST(SoftmaxCrossEntropy, HandComputed) {
  for (const DType compute : kRealTypes) {
    const double tolerance = Tolerance(compute);
    LayerCase layer{.config = kPlain, .inputs = {kScores, Labels({1, 0})}, .output_gradient = {10}};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_EQ(result.output_shape, Shape{});
    EXPECT_NEAR(result.output[0], (std::log(2) + std::log(4.0 / 3)) / 2, tolerance);
    EXPECT_NEAR(result.metric[0], std::log(2) + std::log(4.0 / 3), 2 * tolerance);
    EXPECT_EQ(result.metric[1], 2);
    // 10 / 2 times [1/2, 1/2 - 1], [3/4 - 1, 1/4].
    EXPECT_THAT(result.input_gradients[0], IsNear({2.5, -2.5, -1.25, 1.25}, 10 * tolerance));
  }
}

TEST(SoftmaxCrossEntropy, IgnoredSamplesCountForNothing) {
  LayerCase all{kPlain, {kScores, Labels({1, 0})}};
  LayerCase some{kIgnoring,
                 {Real({4, 2}, {0, 0, 9, 8, std::log(3), 0, 7, 5}), Labels({1, 255, 0, 255})}};
  const RunResult a = Ran(all), b = Ran(some);
  EXPECT_EQ(a.output, b.output);
  EXPECT_EQ(a.metric, b.metric);
  const Doubles &da = a.input_gradients[0], &db = b.input_gradients[0];
  EXPECT_EQ(db, (Doubles{da[0], da[1], 0, 0, da[2], da[3], 0, 0}));
  EXPECT_EQ(b.fault.word, Fault::kNone);
}

TEST(SoftmaxCrossEntropy, NothingCounted) {
  const LayerCase layer{kIgnoring, {kScores, Labels({255, 255})}};
  for (const int ranks : {1, 2}) {
    const RunResult result = Ran(layer, {.ranks = ranks});
    EXPECT_EQ(result.output, Doubles{0});
    EXPECT_EQ(result.metric, (Doubles{0, 0}));
    EXPECT_EQ(result.input_gradients[0], (Doubles{0, 0, 0, 0}));
  }
}

// The other samples count as ever; the smallest bad sample is reported.
TEST(SoftmaxCrossEntropy, LabelOutOfRangeIsAFault) {
  for (const int32_t bad :
       {-1, 2, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min()}) {
    const RunResult result = Ran({kPlain, {Distinct({4, 2}, 1), Labels({0, bad, 1, bad})}});
    EXPECT_EQ(result.fault.layer(), 7);
    EXPECT_EQ(result.fault.index(), 1);
    EXPECT_EQ(result.metric[1], 2);
    for (const size_t i : {2, 3, 6, 7}) EXPECT_EQ(result.input_gradients[0][i], 0);
    for (const size_t i : {0, 1, 4, 5}) EXPECT_NE(result.input_gradients[0][i], 0);
  }
}

// log p = log 1/2 of both classes, and log 3/4, log 1/4: with s = 1/4 the label's weigh 7/8.
TEST(SoftmaxCrossEntropy, LabelSmoothing) {
  const double log2 = std::log(2), log4_3 = std::log(4.0 / 3), log4 = std::log(4);
  for (const DType compute : kRealTypes) {
    const double tolerance = Tolerance(compute);
    LayerCase layer{"softmax_cross_entropy { label_smoothing: 0.25 }", {kScores, Labels({1, 0})}};
    layer.output_gradient = {16};
    const RunResult result = Ran(layer, {.compute = compute});
    EXPECT_NEAR(result.output[0], (log2 + 7.0 / 8 * log4_3 + 1.0 / 8 * log4) / 2, 2 * tolerance);
    // 16 / 2 times [1/2 - 1/8, 1/2 - 7/8], [3/4 - 7/8, 1/4 - 1/8].
    EXPECT_THAT(result.input_gradients[0], IsNear({3, -3, -1, 1}, 20 * tolerance));
  }
}

// The same labels and scores as rows of any other axes; a bad label's sample is reported.
TEST(SoftmaxCrossEntropy, LabelsWithSeveralAxes) {
  const TestInput rows = Distinct({6, 4}, 5);
  const std::vector<int32_t> labels = {0, 3, 2, 255, 1, 7};
  const RunResult flat = Ran({kIgnoring, {rows, Labels(labels)}});
  EXPECT_EQ(flat.fault.index(), 5);
  const struct {
    Shape shape;
    int batch_axis;
    int64_t bad;  // sample of the last label
  } cases[] = {{{3, 2, 4}, 0, 2}, {{3, 2, 4}, 1, 1}, {{1, 3, 2, 4}, 1, 2}, {{6, 1, 1, 4}, 0, 5}};
  for (const auto& c : cases) {
    const Shape of_labels(c.shape.dims().first(c.shape.rank() - 1));
    const RunResult result = Ran({kIgnoring,
                                  {Along(c.batch_axis, Real(c.shape, rows.values)),
                                   Along(c.batch_axis, Labels(of_labels, labels))}});
    EXPECT_EQ(result.output, flat.output);
    EXPECT_EQ(result.metric, flat.metric);
    EXPECT_EQ(result.input_gradients, flat.input_gradients);
    EXPECT_EQ(result.fault.index(), c.bad);
  }
}

// Places of a sample count for the mean on every rank, also on one without samples.
TEST(SoftmaxCrossEntropy, NoPlaces) {
  const RunResult result = Ran({kPlain, {Real({3, 0, 2}, {}), Labels({3, 0}, {})}});
  EXPECT_EQ(result.output, Doubles{0});
}

TEST(SoftmaxCrossEntropy, LargeScores) {
  for (const DType compute : kRealTypes) {
    if (compute == DType::kBF16) continue;  // has no 1e4
    const RunResult result =
        Ran({kPlain, {Real({2, 2}, {1e4, -1e4, 1e4, -1e4}), Labels({0, 1})}}, {.compute = compute});
    EXPECT_EQ(result.output[0], 1e4);
    for (const double dx : result.input_gradients[0]) EXPECT_TRUE(std::isfinite(dx));
  }
}

TEST(SoftmaxCrossEntropy, Contract) {
  CheckContract({kPlain, {Distinct({5, 7}, 1), Labels({0, 6, 3, 3, 1})}});
  CheckContract({kPlain, {Distinct({3, 1}, 2), Labels({0, 0, 0})}});
  CheckContract({kIgnoring, {Distinct({5, 4}, 3), Labels({0, 255, 3, 255, 2})}});
  for (const int axis : {0, 1}) {
    for (const char* config :
         {kPlain, kIgnoring, "softmax_cross_entropy { label_smoothing: 0.1 ignore_label: 255 }"}) {
      CheckContract({config,
                     {Along(axis, Distinct({3, 5, 4}, 5)),
                      Along(axis, Labels({3, 5}, {0, 1, 2, 3, 0, 3, 1, 2, 0, 1, 1, 1, 3, 0, 2}))}});
    }
  }
  CheckContract({"softmax_cross_entropy { label_smoothing: 0.3 }",
                 {Distinct({5, 7}, 6), Labels({0, 6, 3, 3, 1})}});
  // The count differs from rank to rank, and one rank has nothing that counts.
  CheckContract({kIgnoring, {Distinct({7, 3}, 4), Labels({0, 255, 255, 255, 2, 1, 1})}});
}

// Against PyTorch 2.15's cross_entropy in F64: weight, label_smoothing and ignore_index.
TEST(SoftmaxCrossEntropy, ClassWeights) {
  const TestInput x = Real({4, 3}, {0.5, -1.25, 2, 1.5, 0.25, -0.75, -2, 0, 1, 0.75, 0.5, 0.25});
  const struct {
    const char* more;
    std::vector<int32_t> labels;
    double mean;
    Doubles gradient;
  } cases[] = {
      {"",
       {2, 0, 1, 0},
       0.8444252374871448,
       {0.052005935913954207, 0.0090372765665989504, -0.061043212480553159, -0.03312466574693354,
        0.024216071058547242, 0.0089085946883862965, 0.016526600922042219, -0.34847225395650866,
        0.33194565303446638, -0.068326005692976741, 0.038411274799980778, 0.029914730892995952}},
      {"label_smoothing: 0.3",
       {2, 0, 1, 0},
       1.1527133921542179,
       {0.040241230031601266, -0.038021546962812812, -0.0022196830687884394, 0.028439822902240491,
        -0.011945520494518263, -0.016494302407722223, 0.0029026524359595293, -0.26809265479816613,
        0.26519000236220658, -0.022602120019522165, 0.0086375249305603637, 0.013964595088961779}},
      {"label_smoothing: 0.3 ignore_label: 7",
       {2, 0, 7, 0},
       1.1242378808408422,
       {0.076011212281913501, -0.071818477596424193, -0.0041927346854892513, 0.053719665482009779,
        -0.022563760934090051, -0.031155904547919756, 0, 0, 0, -0.042692893370208561,
        0.016315324868836235, 0.026377568501372239}},
  };
  for (const auto& c : cases) {
    LayerCase layer{
        "softmax_cross_entropy { class_weight: [0.5, 2, 1.25] " + std::string(c.more) + " }",
        {x, Labels(c.labels)}};
    layer.output_gradient = {1};
    for (const int ranks : {1, 2}) {
      const RunResult result = Ran(layer, {.ranks = ranks});
      CompareNear("mean", {c.mean}, result.output, 1e-14);
      CompareNear("gradient", c.gradient, result.input_gradients[0], 1e-14);
      EXPECT_EQ(result.metric[1], c.labels[2] == 7 ? 2.25 : 4.25);
    }
  }
}

// Nothing of the labels of a class of weight 0 counts.
TEST(SoftmaxCrossEntropy, ClassOfWeightZero) {
  const double nan = std::nan("");
  for (const char* more : {"", " label_smoothing: 0.25"}) {
    const LayerCase layer{"softmax_cross_entropy { class_weight: [0, 2]" + std::string(more) + " }",
                          {Real({3, 2}, {nan, 1, 0, std::log(3), nan, nan}), Labels({0, 1, 0})}};
    const RunResult result = Ran(layer);
    const double share = *more == 0 ? 1 : 0.875;  // of class 1, which has all of the loss
    EXPECT_NEAR(result.output[0], share * std::log(4.0 / 3), 1e-15);
    EXPECT_EQ(result.metric[1], 2);
    for (const size_t i : {0, 1, 4, 5}) EXPECT_EQ(result.input_gradients[0][i], 0);
  }
}

// More of them than one kernel brings to the device.  Scores are equal, so each l_n is log C.
TEST(SoftmaxCrossEntropy, ManyClassWeights) {
  constexpr int64_t kClasses = 600;
  std::string weights;
  for (int64_t c = 0; c < kClasses; ++c) weights += (c > 0 ? ", " : "") + std::to_string(c);
  const RunResult result =
      Ran({"softmax_cross_entropy { class_weight: [" + weights + "] }",
           {Real({4, kClasses}, Doubles(4 * kClasses, 0.5)), Labels({1, 255, 256, 599})}});
  EXPECT_EQ(result.metric[1], 1 + 255 + 256 + 599);
  EXPECT_NEAR(result.output[0], std::log(kClasses), 1e-12);
}

// Against PyTorch 2.15, as above; of four distributions, the last with a sum of 0.6.
TEST(SoftmaxCrossEntropy, Distributions) {
  const TestInput x = Real({4, 3}, {0.5, -1.25, 2, 1.5, 0.25, -0.75, -2, 0, 1, 0.75, 0.5, 0.25});
  const TestInput q = Real({4, 3}, {0.2, 0.3, 0.5, 1, 0, 0, 0.6, 0.4, 0, 0.1, 0.2, 0.3});
  const struct {
    const char* config;
    double mean;
    Doubles dx, dq;
  } cases[] = {
      {kPlain,
       1.2772274149802127,
       {-0.0057949544731389288, -0.067318314918390895, 0.073113269391529817, -0.07038991471223377,
        0.051459150999412888, 0.018930763712820878, -0.14122024326016508, -0.035125884914395236,
        0.17634612817456027, 0.037884342741454656, -0.0010256246300245058, -0.036858718111430155},
       {0.43315549577550816, 0.87065549577550816, 0.058155495775508166, 0.082668152351806024,
        0.39516815235180602, 0.64516815235180602, 0.83725305419204665, 0.33725305419204665,
        0.087253054192046625, 0.2173345211014196, 0.2798345211014196, 0.3423345211014196}},
      {"softmax_cross_entropy { class_weight: [0.5, 2, 1.25] label_smoothing: 0.3 }",
       1.5875978221016542,
       {0.027577071798736551, -0.14499460518120413, 0.11741753338246759, 0.030217311833630522,
        -0.012692115525425653, -0.017525196308204861, -0.05494717853288901, -0.11571913822698252,
        0.17066631675987151, 0.078578894102059246, -0.042253179100163914, -0.036325715001895388},
       {0.15160442352142783, 1.2189176940857114, 0.050886058803569646, 0.028933853323132107,
        0.55323541329252834, 0.56452213330783019, 0.29303856896721631, 0.47215427586886527,
        0.076346422418040794, 0.076067082385496851, 0.39176832954198743, 0.29954270596374211}}};
  for (const auto& c : cases) {
    for (const DType compute : kRealTypes) {
      const double tolerance = compute == DType::kF64 ? 1e-14 : 10 * Tolerance(compute);
      const RunResult result =
          Ran({.config = c.config, .inputs = {x, q}, .output_gradient = {1}}, {.compute = compute});
      CompareNear("mean", {c.mean}, result.output, tolerance);
      CompareNear("dx", c.dx, result.input_gradients[0], tolerance);
      CompareNear("dq", c.dq, result.input_gradients[1], tolerance);
      EXPECT_EQ(result.metric[1], 4);
      EXPECT_EQ(result.spec.count, -1);
    }
  }
}

// Labels written as distributions, of a row that reaches -inf in a class without a share.
TEST(SoftmaxCrossEntropy, OneHotDistributionsAreLabels) {
  const TestInput x = Real({2, 3}, {1, 2, -std::numeric_limits<double>::infinity(), 0, 3, 1});
  const RunResult labels = Ran({kPlain, {x, Labels({0, 2})}});
  const RunResult shares = Ran({kPlain, {x, Real({2, 3}, {1, 0, 0, 0, 0, 1})}});
  EXPECT_EQ(shares.output, labels.output);
  EXPECT_EQ(shares.input_gradients[0], labels.input_gradients[0]);
}

TEST(SoftmaxCrossEntropy, BadShareIsAFault) {
  for (const double bad : {-0.25, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const RunResult result =
        Ran({kPlain, {Distinct({3, 2}, 1), Real({3, 2}, {0.5, 0.5, 1, bad, bad, 0})}});
    EXPECT_EQ(result.fault.layer(), 7);
    EXPECT_EQ(result.fault.index(), 1);
    EXPECT_EQ(result.metric[1], 1);
    for (const size_t i : {2, 3, 4, 5}) EXPECT_EQ(result.input_gradients[0][i], 0);
    EXPECT_TRUE(result.spec.states[1].not_negative);
    EXPECT_EQ(result.spec.states[1].largest, -1);
  }
}

TEST(SoftmaxCrossEntropy, ContractOfWeights) {
  const TestInput weights = SampleWeightsOf({0.75, 2, 0, 1.5, 0.5});
  for (const char* config :
       {kPlain, "softmax_cross_entropy { class_weight: [0.5, 2, 0, 1] }",
        "softmax_cross_entropy { class_weight: [0.5, 2, 0, 1] label_smoothing: 0.3 }"}) {
    const TestInput scores = Distinct({5, 4}, 8), labels = Labels({0, 1, 3, 3, 1});
    CheckContract({config, {scores, labels}});
    CheckContract({config, {scores, labels, weights}});
    CheckContract({config, {scores, Positive({5, 4}, 9)}});
    CheckContract(
        {config, {Along(1, Distinct({3, 5, 4}, 5)), Along(1, Positive({3, 5, 4}, 6)), weights}});
  }
}

TEST(SoftmaxCrossEntropy, DeclaresALoss) {
  const RunResult result = Ran(
      {"softmax_cross_entropy { loss_weight: 0.25 ignore_label: 0 }", {kScores, Labels({1, 0})}});
  EXPECT_EQ(result.spec.loss_output, 2);
  EXPECT_EQ(result.spec.loss_weight, 0.25);
  EXPECT_EQ(result.spec.forward_phases, 2);
  EXPECT_EQ(result.spec.states[static_cast<size_t>(result.spec.metric)].shape, Shape{2});
  EXPECT_EQ(result.spec.states[0].backward, kNone);  // scores: log softmax is saved
}

TEST(SoftmaxCrossEntropy, Errors) {
  EXPECT_EQ(Refusal({kPlain, {kScores}}), "expects 2 inputs (scores, labels), got 1");
  EXPECT_EQ(Refusal({kPlain, {Distinct({2, 3}, 1), Distinct({2, 2}, 1)}}),
            "expects labels [2] of type LABEL, or REAL distributions [2, 3], a share for each of "
            "the scores, got REAL [2, 2]");
  EXPECT_EQ(
      Refusal({kIgnoring, {kScores, kScores}}),
      "ignore_label: expected none beside distributions, got 255; give a sample the weight 0");
  EXPECT_EQ(
      Refusal({"softmax_cross_entropy { class_weight: [1, 2, 3] }", {kScores, Labels({0, 1})}}),
      "class_weight: expected 2, one for each class, got 3");
  EXPECT_EQ(Refusal({"softmax_cross_entropy { class_weight: [1, -2] }", {kScores, Labels({0, 1})}}),
            "class_weight: expected 0 or more, got -2");
  EXPECT_EQ(Refusal({kPlain, {Distinct({2}, 1), Labels({0, 1})}}),
            "expects scores [..., classes] of two axes or more, got [2]");
  EXPECT_EQ(Refusal({kPlain, {Distinct({2, 2, 1}, 1), Labels({0, 1})}}),
            "expects labels [2, 2], one for each row of scores [2, 2, 1], got [2]");
  EXPECT_EQ(Refusal({kPlain, {Along(1, Distinct({2, 3}, 1)), Labels({0, 1})}}),
            "expects scores [..., classes], but the samples of [2, 3] are along its last axis; "
            "transpose it");
  EXPECT_EQ(Refusal({kPlain, {Along(1, Distinct({1, 2, 3}, 1)), Labels({1, 2}, {0, 1})}}),
            "expects samples along one axis, but those of input 0, [1, 2, 3], are along axis 1 and "
            "those of input 1, [1, 2], along axis 0; transpose one");
  EXPECT_EQ(Refusal({kPlain, {kScores, Labels({0, 1, 1})}}),
            "expects labels [2], one for each row of scores [2, 2], got [3]");
  EXPECT_EQ(Refusal({kPlain, {Real({2, 0}, {}), Labels({0, 1})}}),
            "classes: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"softmax_cross_entropy { loss_weight: -1 }", {kScores, Labels({0, 1})}}),
            "loss_weight: expected 0 or more, got -1");
  for (const char* smoothing : {"-0.1", "1", "nan"}) {
    const std::string config =
        "softmax_cross_entropy { label_smoothing: " + std::string(smoothing) + " }";
    EXPECT_EQ(Refusal({config, {kScores, Labels({0, 1})}}),
              "label_smoothing: expected at least 0 and below 1, got " + std::string(smoothing));
  }
}

}  // namespace
}  // namespace gyre
