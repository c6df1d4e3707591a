#include <gtest/gtest.h>

#include "engine/runtime/random.h"
#include "tests/layers/layer_contract.h"

namespace gyre {
namespace {

// Samples of ones: outputs are the mask, scaled.
LayerCase Ones(const Shape& shape, const char* config = "dropout { rate: 0.25 }") {
  return {config, {Real(shape, Doubles(static_cast<size_t>(shape.elements()), 1))}};
}

Doubles Output(const LayerCase& layer, const RunOptions& options = {}) {
  return Ran(layer, options).output;
}

// Element e of the sample at position s: word e % 4 of Philox(key, step, s * groups + e / 4), where
// a sample of 5 or of 8 elements has 2 groups.  runtime/random_test has what Philox gives.
TEST(Dropout, HandComputed) {
  const RunOptions options{.step = 9, .first_sample = 11, .random_key = 5};
  for (const uint64_t elements : {5, 8, 1001}) {
    const Doubles mask = Output(Ones({3, static_cast<int64_t>(elements)}), options);
    ASSERT_EQ(mask.size(), 3 * elements);
    for (uint64_t i = 0; i < mask.size(); ++i) {
      const uint64_t e = i % elements, groups = (elements + 3) / 4;
      const RandomBits bits = Philox(5, 9, (11 + i / elements) * groups + e / 4);
      const bool kept = bits.v[e % 4] >= (1u << 30);  // 0.25 * 2^32
      EXPECT_EQ(mask[i], kept ? 1 / 0.75 : 0) << i << " of " << mask.size();
    }
  }
}

// [T, N, C] has the mask of [N, T, C].
TEST(Dropout, FollowsTheSampleAlongAnyAxis) {
  for (const int64_t channels : {3, 4}) {
    const int64_t times = 5, samples = 6;
    const Doubles rows = Output(Ones({samples, times, channels}));
    LayerCase layer = Ones({times, samples, channels});
    layer.inputs[0] = Along(1, layer.inputs[0]);
    const Doubles columns = Output(layer);
    for (int64_t t = 0; t < times; ++t) {
      for (int64_t n = 0; n < samples; ++n) {
        for (int64_t c = 0; c < channels; ++c) {
          ASSERT_EQ(columns[(t * samples + n) * channels + c],
                    rows[(n * times + t) * channels + c]);
        }
      }
    }
  }
}

TEST(Dropout, IsAViewWhereItDoesNothing) {
  const LayerCase none{"dropout { rate: 0 }", {Distinct({3, 5}, 1)}};
  const LayerCase half{"dropout {}", {Distinct({3, 5}, 1)}};
  for (const RunResult& result : {Ran(none), Ran(half, {.train = false})}) {
    EXPECT_EQ(result.output, half.inputs[0].values);
    EXPECT_TRUE(result.spec.aliases[0].must);
  }
  const RunResult result = Ran(none);
  for (int64_t i = 0; i < 15; ++i) EXPECT_EQ(result.input_gradients[0][i], RandomCotangent(i));
}

TEST(Dropout, Contract) {
  const ContractOptions options{.rounds_once = true};
  CheckContract({"dropout {}", {Distinct({5, 7}, 1)}}, options);
  CheckContract({"dropout { rate: 0.7 }", {Distinct({3, 2, 2, 3}, 2)}}, options);
  CheckContract({"dropout { rate: 0 }", {Distinct({3, 4}, 3)}}, options);
  CheckContract({"dropout {}", {Distinct({7}, 4)}}, options);
  CheckContract({"dropout {}", {Along(1, Distinct({3, 5, 4}, 5))}}, options);
  CheckContract({"dropout {}", {Along(2, Distinct({2, 3, 5, 1}, 6))}}, options);
}

TEST(Dropout, Errors) {
  const TestInput x = Distinct({2, 3}, 1);
  EXPECT_EQ(Refusal({"dropout { rate: 1 }", {x}}), "rate: expected at least 0 and below 1, got 1");
  EXPECT_EQ(Refusal({"dropout { rate: -0.5 }", {x}}),
            "rate: expected at least 0 and below 1, got -0.5");
  EXPECT_EQ(Refusal({"dropout { rate: nan }", {x}}),
            "rate: expected at least 0 and below 1, got nan");
  EXPECT_EQ(Refusal({"dropout {}", {x, x}}), "expects 1 input (x), got 2");
  EXPECT_EQ(Refusal({"dropout {}", {Labels({1})}}), "expects x of type F64, got I32");
  EXPECT_EQ(Refusal({"dropout {}", {Distinct({}, 1)}}), "expects inputs [N, ...], got []");
}

}  // namespace
}  // namespace gyre
