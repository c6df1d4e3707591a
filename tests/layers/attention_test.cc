#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/runtime/math.h"
#include "layers/attention/attention_plan.h"
#include "tests/layers/layer_contract.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

// Query length T, key length S; lengths: none, or one for each of N samples.
struct Problem {
  int64_t heads, n, t, s, c;
  bool causal = false;
  std::vector<int32_t> lengths = {};

  std::string config() const {
    return "attention { heads: " + std::to_string(heads) + (causal ? " causal: true }" : " }");
  }
};

// The plan is a GPU's.
bool TestsGpu() { return NamedDevice() == DeviceKind::kCuda; }

struct Answer {
  Doubles y, dq, dk, dv;
};

// By the definition, in double; everything [N, ., C].
Answer ByDefinition(const Problem& p, const Doubles& q, const Doubles& k, const Doubles& v,
                    const Doubles& dy) {
  Answer a{Doubles(q.size()), Doubles(q.size()), Doubles(k.size()), Doubles(k.size())};
  const int64_t d = p.c / p.heads;
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  Doubles prob(p.s), dprob(p.s);
  for (int64_t n = 0; n < p.n; ++n) {
    const int64_t length = p.lengths.empty() ? p.s : p.lengths[n];
    for (int64_t h = 0; h < p.heads; ++h) {
      for (int64_t t = 0; t < p.t; ++t) {
        int64_t seen = std::min(length, p.causal ? t + 1 : p.s);
        const int64_t row = (n * p.t + t) * p.c + h * d;
        const auto key = [&](int64_t j) { return (n * p.s + j) * p.c + h * d; };
        double sum = 0, delta = 0;
        for (int64_t j = 0; j < seen; ++j) {
          double score = 0, product = 0;
          for (int64_t i = 0; i < d; ++i) {
            score += q[row + i] * k[key(j) + i];
            product += dy[row + i] * v[key(j) + i];
          }
          sum += prob[j] = std::exp(scale * score);
          dprob[j] = product;
        }
        for (int64_t j = 0; j < seen; ++j) delta += (prob[j] /= sum) * dprob[j];
        for (int64_t j = 0; j < seen; ++j) {
          const double ds = scale * prob[j] * (dprob[j] - delta);
          for (int64_t i = 0; i < d; ++i) {
            a.y[row + i] += prob[j] * v[key(j) + i];
            a.dv[key(j) + i] += prob[j] * dy[row + i];
            a.dq[row + i] += ds * k[key(j) + i];
            a.dk[key(j) + i] += ds * q[row + i];
          }
        }
      }
    }
  }
  return a;
}

// Rows of 3 c columns: c of q, of k and of v.  And those of one of the three again.
Doubles Packed(const Doubles& q, const Doubles& k, const Doubles& v, int64_t c) {
  Doubles packed;
  for (size_t row = 0; row < q.size(); row += c) {
    for (const Doubles* x : {&q, &k, &v}) {
      packed.insert(packed.end(), x->begin() + row, x->begin() + row + c);
    }
  }
  return packed;
}

Doubles PartOf(const Doubles& packed, int64_t c, int part) {
  Doubles x;
  for (size_t row = part * c; row < packed.size(); row += 3 * c) {
    x.insert(x.end(), packed.begin() + row, packed.begin() + row + c);
  }
  return x;
}

// In every type, samples first and times first, of three inputs and of one, where it can be.
// primitives: null: the device's.
void ExpectByDefinition(const Problem& p, const Primitives* primitives) {
  for (const DType compute : kRealTypes) {
    const auto random = [&](int64_t length, uint64_t seed) {
      return RoundedTo(compute, Distinct({p.n, length, p.c}, seed).values);
    };
    const Doubles q = random(p.t, 1), k = random(p.s, 2), v = random(p.s, 3), dy = random(p.t, 4);
    const Answer want = ByDefinition(p, q, k, v, dy);
    for (const auto& [axis, packed] : {std::pair{0, false}, {1, false}, {0, true}, {1, true}}) {
      if (packed && p.t != p.s) continue;
      SCOPED_TRACE(p.config() + " " + std::string(DTypeName(compute)) + " axis " +
                   std::to_string(axis) + (packed ? " packed" : ""));
      const auto place = [&, axis = axis](const Doubles& x, int64_t length, int64_t c) {
        return Along(axis, axis == 0 ? Real({p.n, length, c}, x)
                                     : Real({length, p.n, c}, Swapped(x, p.n, length)));
      };
      const auto home = [&, axis = axis](const Doubles& x, int64_t length) {
        return axis == 0 ? x : Swapped(x, length, p.n);
      };
      LayerCase layer{p.config(), {place(q, p.t, p.c), place(k, p.s, p.c), place(v, p.s, p.c)}};
      if (packed) layer.inputs = {place(Packed(q, k, v, p.c), p.t, 3 * p.c)};
      if (!p.lengths.empty()) layer.inputs.push_back(Labels(p.lengths));
      layer.output_gradient = place(dy, p.t, p.c).values;
      const RunResult result =
          Ran(layer, {.threads = 2, .compute = compute, .primitives = primitives});
      EXPECT_EQ(result.spec.states[layer.inputs.size()].batch_axis, axis);
      const auto gradient = [&, packed = packed](int part) {
        const auto& of = result.input_gradients;
        return packed ? PartOf(of[0], p.c, part) : of[part];
      };
      // A GPU's products read probabilities and dS of the type.
      const double rounded = primitives != nullptr || TestsGpu() ? 4 : 1;
      const double tolerance = compute == DType::kF64   ? 1e-13
                               : compute == DType::kF32 ? 3e-6
                               : compute == DType::kF16 ? rounded * 0x1p-11 + 3e-6
                                                        : rounded * 0x1p-8 + 3e-6;
      CompareNear("y", want.y, home(result.output, p.t), tolerance);
      CompareNear("dq", want.dq, home(gradient(0), p.t), tolerance);
      CompareNear("dk", want.dk, home(gradient(1), p.s), tolerance);
      CompareNear("dv", want.dv, home(gradient(2), p.s), tolerance);
    }
  }
}

// As the device works, and, with the reference's products, as a GPU does.
void ExpectByDefinition(const Problem& p) {
  ExpectByDefinition(p, /*primitives=*/nullptr);
  if (NamedDevice()) return;
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
  libraries.push_back(NewReferenceLibrary());
  const Primitives gpu(DeviceKind::kCuda, std::move(libraries));
  SCOPED_TRACE("as on a GPU");
  ExpectByDefinition(p, &gpu);
}

TEST(Attention, ByDefinition) {
  ExpectByDefinition({.heads = 2, .n = 3, .t = 5, .s = 7, .c = 8});
  ExpectByDefinition({.heads = 1, .n = 2, .t = 17, .s = 17, .c = 3, .causal = true});
  ExpectByDefinition({.heads = 2, .n = 3, .t = 4, .s = 6, .c = 8, .lengths = {6, 0, 3}});
  ExpectByDefinition({.heads = 2, .n = 3, .t = 6, .s = 6, .c = 2, .lengths = {5, 0, 6}});
  ExpectByDefinition(
      {.heads = 4, .n = 2, .t = 20, .s = 20, .c = 16, .causal = true, .lengths = {20, 7}});
}

// Several groups of samples, and of heads; several tiles of rows; tiles that share a width.
TEST(Attention, InPieces) {
  ExpectByDefinition({.heads = 2, .n = 17, .t = 128, .s = 128, .c = 8, .causal = true});
  ExpectByDefinition({.heads = 6, .n = 2, .t = 140, .s = 700, .c = 24, .lengths = {650, 1}});
  ExpectByDefinition(
      {.heads = 1, .n = 1, .t = 1300, .s = 1300, .c = 4, .causal = true, .lengths = {1111}});
}

TEST(Attention, Contract) {
  const ContractOptions once{.rounds_once = true};
  const TestInput x = Distinct({3, 3, 4}, 1), y = Distinct({3, 3, 4}, 2),
                  z = Distinct({3, 3, 4}, 3), longer = Distinct({3, 5, 4}, 4);
  CheckContract({"attention { heads: 2 }", {x, longer, longer}}, once);
  CheckContract({"attention { heads: 2 causal: true }", {x, y, z}}, once);
  CheckContract({"attention { heads: 4 }", {x, y, z, Labels({3, 0, 2})}}, once);
  CheckContract({"attention { causal: true }", {x, y, z, Labels({1, 3, 2})}}, once);
  const TestInput packed = Distinct({3, 3, 12}, 1);
  CheckContract({"attention { heads: 2 causal: true }", {packed}}, once);
  CheckContract({"attention { heads: 4 }", {packed, Labels({3, 0, 2})}}, once);
}

// A NaN or an infinity in a row of query is one's own.
TEST(Attention, NaNStaysInItsRow) {
  for (const double bad : {std::nan(""), static_cast<double>(INFINITY)}) {
    const RunResult result =
        Ran({"attention {}",
             {Real({1, 3, 1}, {1, bad, 2}), Real({1, 2, 1}, {1, 2}), Real({1, 2, 1}, {3, 4})}});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(std::isnan(result.output[i]), i == 1) << bad;
  }
}

TEST(Attention, LengthOutOfRangeIsAFault) {
  const TestInput x = Distinct({3, 2, 1}, 1);
  for (const auto& [lengths, bad] :
       {std::pair<std::vector<int32_t>, int>{{2, 3, -1}, 1}, {{0, 2, -1}, 2}}) {
    const RunResult result = Ran({"attention {}", {x, x, x, Labels(lengths)}});
    EXPECT_EQ(result.fault.index(), bad);
    EXPECT_EQ(result.output[2 * bad], 0);
  }
}

// What only one gradient needs is not declared.
TEST(Attention, ReadsInBackwardOnlyWhatItNeeds) {
  const TestInput x = Distinct({2, 3, 2}, 1);
  for (const auto& inputs : {std::vector{x, x, x}, {Distinct({2, 3, 6}, 1)}}) {
    const RunResult none = Ran({"attention {}", inputs}, {.input_gradients = false});
    for (const StateSpec& state : none.spec.states) EXPECT_EQ(state.backward, kNone) << state.name;
    EXPECT_EQ(none.spec.backward_flops, 0);
    const RunResult all = Ran({"attention { causal: true }", inputs});
    EXPECT_EQ(all.spec.states[inputs.size()].backward, kNone);  // the output
    EXPECT_EQ(all.spec.forward_flops, 2 * 6 * (2 * 2 * 2 + 5));
    EXPECT_EQ(all.spec.backward_flops, 2 * 6 * (5 * 2 * 2 + 9));
  }
}

// Of a GPU, also what its products want: a few megabytes.
void ExpectScratch(const RunResult& result, size_t bytes) {
  const size_t got = result.spec.states.back().size_bytes();
  EXPECT_GE(got, bytes);
  EXPECT_LE(got, bytes + (TestsGpu() ? size_t{64} << 20 : 0));
}

// Two tiles of 2^19 scores, 64 rows of one head, which has 2^26.  A GPU's have half of the rows of
// all heads, up to 2^28 scores, and operands are copied.  Each row's probabilities add up to 1, so
// dV adds up to what dY does.
TEST(Attention, LongSequence) {
  const int64_t kT = kSanitized || TestsGpu() ? 4096 : 8192;
  const Shape shape{1, kT, 16};
  LayerCase layer{"attention { heads: 4 causal: true }",
                  {Distinct(shape, 1), Distinct(shape, 2), Distinct(shape, 3)}};
  layer.output_gradient = Distinct(shape, 4).values;
  for (double& x : layer.output_gradient) x += 3;
  const RunResult result = Ran(layer, {.threads = 2, .compute = DType::kF32});
  const size_t scores = 2 * (TestsGpu() ? 4 * kT / 2 * kT : 1 << 19);
  const size_t copies = TestsGpu() ? 7 * kT * 16 : 0;
  ExpectScratch(result, (scores + copies) * sizeof(float));
  for (size_t c = 0; c < 16; ++c) {
    double dv = 0, dy = 0;
    for (size_t i = c; i < layer.output_gradient.size(); i += 16) {
      dv += result.input_gradients[2][i];
      dy += layer.output_gradient[i];
    }
    EXPECT_NEAR(dv, dy, 1e-5 * dy) << c;
  }
}

// A GPU's scores and their gradients end at 2^28 of each, however long the sequences.
TEST(Attention, GpuScoresAreBounded) {
  std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
  libraries.push_back(NewReferenceLibrary());
  const Primitives gpu(DeviceKind::kCuda, std::move(libraries));
  AttentionConfig config;
  config.set_heads(3);
  for (const int64_t t : {100, 3000, 20000, 70000, 1000000}) {
    const Shape x{5, t, 24};
    const Shape shapes[] = {x, x, x};
    const DType dtypes[] = {DType::kF32, DType::kF32, DType::kF32};
    const int axes[] = {0, 0, 0};
    const uint8_t needs_gradient[] = {true, true, true};
    const auto plan = *PlanAttention(config, {.inputs = shapes,
                                              .dtypes = dtypes,
                                              .batch_axes = axes,
                                              .needs_gradient = needs_gradient,
                                              .global_batch = 5,
                                              .primitives = &gpu});
    const int64_t matrices = plan.group_samples * plan.group_heads;
    const int64_t scores = matrices * plan.tile_rows * RoundUp(t, kAttentionAligned);
    EXPECT_LE(scores, int64_t{1} << 28) << t;
    if (t >= 20000) {
      EXPECT_GT(scores, int64_t{1} << 27) << t;
    }
  }
}

// Of types that are copied, also seven arrays of the eight heads of two samples that one block
// holds.  A GPU's copies of four operands, probabilities and dS have the type.
TEST(Attention, ScratchOfCopies) {
  const TestInput x = Distinct({2, 128, 32}, 1);
  const RunResult result = Ran({"attention { heads: 4 }", {x, x, x}}, {.compute = DType::kBF16});
  constexpr size_t kScores = 8 * 128 * 128, kOperand = 8 * 128 * 8;
  ExpectScratch(result, TestsGpu() ? (kScores + 3 * kOperand) * sizeof(float) +
                                         (2 * kScores + 4 * kOperand) * SizeOf(DType::kBF16)
                                   : (2 * kScores + 7 * kOperand) * sizeof(float));
}

TEST(Attention, Errors) {
  const TestInput x = Distinct({2, 3, 4}, 1);
  const std::string plain = "attention {}";
  EXPECT_EQ(Refusal({"attention { heads: 0 }", {x, x, x}}), "heads: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"attention { heads: 3 }", {x, x, x}}),
            "heads: expected a divisor of the 4 columns of query, got 3");
  EXPECT_EQ(Refusal({plain, {x, x}}), "expects 3 inputs (query, key, value), got 2");
  EXPECT_EQ(Refusal({plain, {x, x, x, x, x}}), "expects 3 inputs (query, key, value), got 5");
  EXPECT_EQ(Refusal({plain, {x, x, x, x}}), "expects lengths of type I32, got F64");
  EXPECT_EQ(Refusal({plain, {x, x, x, Labels({3})}}),
            "expects lengths [2], one for each sample, got [1]");
  EXPECT_EQ(Refusal({plain, {x, Labels({1}), x}}), "expects key of type F64, got I32");
  const TestInput flat = Distinct({2, 12}, 1);
  EXPECT_EQ(Refusal({plain, {flat, x, x}}),
            "expects a query [N, T, C] or [T, N, C], got [2, 12] with samples along axis 0");
  EXPECT_EQ(Refusal({plain, {Labels({1, 2})}}),
            "expects query, key and value packed of type F64, got I32");
  EXPECT_EQ(Refusal({plain, {flat}}),
            "expects query, key and value packed, [N, T, 3 C] or [T, N, 3 C], got [2, 12] with "
            "samples along axis 0");
  const std::string packed = " columns of query, key and value packed, got ";
  EXPECT_EQ(Refusal({plain, {x}}),
            "expects query, key and value packed, of 3 C columns, or three inputs, got [2, 3, 4]");
  EXPECT_EQ(Refusal({"attention { heads: 4 }", {Distinct({2, 3, 6}, 1)}}),
            "heads: expected 3 x heads to divide the 6" + packed + "4");
  EXPECT_EQ(Refusal({plain, {Distinct({2, 3, 6}, 1), Labels({1, 2, 3})}}),
            "expects lengths [2], one for each sample, got [3]");
  const TestInput empty = Distinct({2, 0, 4}, 1), narrow = Distinct({2, 3, 0}, 1);
  const std::string none = "expects sequences and columns of one or more, got ";
  EXPECT_EQ(Refusal({plain, {empty, x, x}}), none + "query [2, 0, 4] and key [2, 3, 4]");
  EXPECT_EQ(Refusal({plain, {x, empty, empty}}), none + "query [2, 3, 4] and key [2, 0, 4]");
  EXPECT_EQ(Refusal({plain, {narrow, narrow, narrow}}), none + "query [2, 3, 0] and key [2, 3, 0]");
  const std::string unlike =
      "expects key and value of one shape, and of query's but for the length, got query [2, 3, "
      "4], ";
  EXPECT_EQ(Refusal({plain, {x, flat, x}}), unlike + "key [2, 12] and value [2, 3, 4]");
  EXPECT_EQ(Refusal({plain, {x, Distinct({1, 3, 4}, 1), x}}),
            unlike + "key [1, 3, 4] and value [2, 3, 4]");
  EXPECT_EQ(Refusal({plain, {x, x, Distinct({2, 4, 4}, 1)}}),
            unlike + "key [2, 3, 4] and value [2, 4, 4]");
  EXPECT_EQ(
      Refusal({"attention { causal: true }", {x, Distinct({2, 4, 4}, 1), Distinct({2, 4, 4}, 1)}}),
      "causal: expects as many keys as queries, got query [2, 3, 4] and key [2, 4, 4]");
  EXPECT_EQ(Refusal({plain, {x, x, Along(1, x)}}),
            "expects samples along axis 0, as in query, but those of input 2, [2, 3, 4], are along "
            "axis 1; transpose it");
}

}  // namespace
}  // namespace gyre
