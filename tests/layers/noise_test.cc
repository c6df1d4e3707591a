#include <gtest/gtest.h>

#include "engine/runtime/random.h"
#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

// What is drawn for that many samples.
Doubles Drawn(const std::string& config, int64_t samples, const RunOptions& options = {}) {
  return Ran({config, {Distinct({samples, 2}, 1)}}, options).output;
}

Doubles Part(const Doubles& of, size_t begin, size_t end) {
  return {of.begin() + static_cast<std::ptrdiff_t>(begin),
          of.begin() + static_cast<std::ptrdiff_t>(end)};
}

// Element e of the sample at position s: normal e % 2 of Philox(key, step, s * pairs + e / 2),
// where a sample of 3 x 1 or of 4 elements has 2 pairs.  runtime/random_test has their moments.
TEST(Noise, HandComputed) {
  const RunOptions options{.step = 9, .first_sample = 11, .random_key = 5};
  for (const auto& [dims, elements] :
       {std::pair<std::string, uint64_t>("[3, 1]", 3), {"4", 4}, {"1001", 1001}}) {
    const Doubles y = Drawn("noise { dims: " + dims + " mean: 0.5 std: 2 }", 3, options);
    ASSERT_EQ(y.size(), 3 * elements);
    for (uint64_t i = 0; i < y.size(); ++i) {
      const uint64_t e = i % elements, pairs = (elements + 1) / 2;
      const NormalPair normals = Normals(Philox(5, 9, (11 + i / elements) * pairs + e / 2));
      // A GPU rounds a product and its sum once.
      EXPECT_NEAR(y[i], 0.5 + 2 * (e % 2 == 0 ? normals.first : normals.second), 1e-13) << i;
    }
  }
}

TEST(Noise, WithoutDeviationIsTheMean) {
  const RunResult result = Ran({"noise { mean: -1.5 std: 0 }", {Distinct({3, 5}, 1)}});
  EXPECT_EQ(result.output_shape, Shape({3}));
  EXPECT_EQ(result.output, Doubles(3, -1.5));
  EXPECT_EQ(result.input_gradients[0], Doubles(15, 0));
  EXPECT_EQ(Drawn("noise { dims: [2, 1] std: 0 }", 1), Doubles(2, 0));
}

// The values of x, its form and its type do not matter, but the samples' positions do.
TEST(Noise, FollowsTheSample) {
  const char* const config = "noise { dims: [3, 7] }";
  for (const DType compute : kRealTypes) {
    const Doubles whole = Drawn(config, 7, {.compute = compute});
    EXPECT_EQ(Drawn(config, 7, {.compute = compute, .ranks = 3}), whole);
    EXPECT_EQ(Drawn(config, 2, {.compute = compute}), Part(whole, 0, 42));
    EXPECT_EQ(Drawn(config, 4, {.compute = compute, .first_sample = 1003}), Part(whole, 63, 147));
    EXPECT_EQ(Ran({config, {Labels({1, 0, 3, 2, 9, 5, 5})}}, {.compute = compute}).output, whole);
    EXPECT_EQ(Ran({config, {Along(1, Distinct({3, 7, 2}, 5))}}, {.compute = compute}).output,
              whole);
    EXPECT_EQ(Drawn(config, 7, {.compute = compute, .train = false}), whole);
  }
}

TEST(Noise, Contract) {
  const ContractOptions options{.rounds_once = true};
  CheckContract({"noise { dims: [3, 5] mean: 0.3 std: 0.7 }", {Distinct({5, 7}, 1)}}, options);
  CheckContract({"noise { dims: 8 }", {Along(1, Distinct({2, 3, 2}, 2))}}, options);
  CheckContract({"noise {}", {Distinct({7}, 3)}}, options);
  CheckContract({"noise { dims: [1, 1, 3, 1, 2] mean: 0.1 std: 0 }", {Distinct({3, 4}, 4)}},
                options);
}

TEST(Noise, Errors) {
  const TestInput x = Distinct({2, 3}, 1);
  EXPECT_EQ(Refusal({"noise { dims: [2, 0] }", {x}}), "dims: expected 1 or more, got 0");
  EXPECT_EQ(Refusal({"noise { dims: 2147483648 }", {x}}),
            "dims: expected at most 2^31 - 1, got 2147483648");
  EXPECT_EQ(Refusal({"noise { dims: [1, 1, 1, 1, 1, 1] }", {x}}),
            "dims: expected at most 5 of them, got 6");
  const char* const large = "noise { dims: [2000000000, 2000000000] }";
  for (const int64_t samples : {2, 0}) {
    EXPECT_EQ(Refusal({large, {Distinct({samples, 3}, 1)}}),
              "output [" + std::to_string(samples == 0 ? 1 : samples) +
                  ", 2000000000, 2000000000] has more than 2^56 elements; make it smaller");
  }
  EXPECT_EQ(Refusal({"noise { mean: inf }", {x}}), "mean: expected a finite number, got inf");
  EXPECT_EQ(Refusal({"noise { std: -1 }", {x}}), "std: expected 0 or more, got -1");
  EXPECT_EQ(Refusal({"noise { std: nan }", {x}}), "std: expected 0 or more, got nan");
  EXPECT_EQ(Refusal({"noise {}", {x, x}}), "expects 1 input, got 2");
  EXPECT_EQ(Refusal({"noise {}", {Distinct({}, 1)}}), "expects inputs [N, ...], got []");
}

}  // namespace
}  // namespace gyre
