#include "layers/interface/initializer.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <set>
#include <vector>

#include "tests/runtime/instruction_sets.h"

namespace gyre {
namespace {

absl::StatusOr<Initializer> FromText(const std::string& text, Initializer fallback = {}) {
  InitializerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return MakeInitializer(config, fallback);
}

Initializer Made(const std::string& text, const Initializer& fallback = {}) {
  return FromText(text, fallback).value();
}

template <typename T>
std::vector<T> Values(const Initializer& initializer, uint64_t key, int64_t n) {
  std::vector<T> values(static_cast<size_t>(n));
  Initialize(initializer, key, {values.data(), Shape{n}, kDTypeOf<T>});
  return values;
}

struct Moments {
  double mean = 0, std = 0, least = 0, most = 0;
};

Moments MomentsOf(const std::vector<double>& values) {
  Moments m{0, 0, values[0], values[0]};
  for (const double x : values) {
    m.mean += x;
    m.least = std::min(m.least, x);
    m.most = std::max(m.most, x);
  }
  m.mean /= static_cast<double>(values.size());
  for (const double x : values) m.std += (x - m.mean) * (x - m.mean);
  m.std = std::sqrt(m.std / static_cast<double>(values.size()));
  return m;
}

// Standard errors below are those of 100,000 independent values, five of which are allowed.
constexpr int64_t kMany = 100000;

TEST(Initializer, Constant) {
  const Initializer initializer = Made("constant { value: -2.5 }");
  EXPECT_EQ(Values<double>(initializer, 1, 3), (std::vector<double>{-2.5, -2.5, -2.5}));
}

TEST(Initializer, Gaussian) {
  const Initializer initializer = Made("gaussian { mean: 3 std: 0.5 }");
  const Moments m = MomentsOf(Values<double>(initializer, 1, kMany));
  EXPECT_NEAR(m.mean, 3, 5 * 0.5 / std::sqrt(kMany));
  EXPECT_NEAR(m.std, 0.5, 5 * 0.5 / std::sqrt(2 * kMany));
  EXPECT_GT(m.most, 3 + 0.5 * 3.5);
}

// sqrt(6 / (200 + 400)) = 0.1; a uniform number in +-a has the deviation a / sqrt(3).
TEST(Initializer, Xavier) {
  const Initializer initializer = Made("xavier {}", {.fan_in = 200, .fan_out = 400});
  const Moments m = MomentsOf(Values<double>(initializer, 1, kMany));
  EXPECT_NEAR(m.mean, 0, 5 * 0.1 / std::sqrt(3 * kMany));
  EXPECT_NEAR(m.std, 0.1 / std::sqrt(3), 5 * 0.03 / std::sqrt(kMany));
  EXPECT_GE(m.least, -0.1);
  EXPECT_LE(m.most, 0.1);
  EXPECT_GT(m.most, 0.0999);
}

// sqrt(2 / 200) = 0.1.
TEST(Initializer, Msra) {
  const Initializer initializer = Made("msra {}", {.fan_in = 200, .fan_out = 400});
  const Moments m = MomentsOf(Values<double>(initializer, 1, kMany));
  EXPECT_NEAR(m.mean, 0, 5 * 0.1 / std::sqrt(kMany));
  EXPECT_NEAR(m.std, 0.1, 5 * 0.1 / std::sqrt(2 * kMany));
}

// Not on how many there are, how many threads share them, or which instructions they have.
TEST(Initializer, AnElementDependsOnKeyAndIndexAlone) {
  constexpr int64_t kElements = 40001;  // more than one thread takes
  const int threads_before = omp_get_max_threads();
  for (const char* text : {"gaussian { mean: 1 std: 3 }", "xavier {}", "msra {}"}) {
    const Initializer initializer = Made(text, {.fan_in = 3, .fan_out = 4});
    std::vector<double> first;
    WithEachInstructionSet([&] {
      for (const int threads : {1, 2, 3}) {
        omp_set_num_threads(threads);
        const auto all = Values<double>(initializer, 9, kElements);
        if (first.empty()) first = all;
        EXPECT_EQ(all, first) << text << ", " << threads << " threads";
      }
    });
    for (const int64_t n : {1, 2, 5, 8192, 20001}) {
      EXPECT_EQ(Values<double>(initializer, 9, n),
                std::vector<double>(first.begin(), first.begin() + n));
    }
    EXPECT_NE(Values<double>(initializer, 10, 5), Values<double>(initializer, 9, 5));
    EXPECT_EQ(std::set<double>(first.begin(), first.end()).size(), kElements) << "repeats itself";
  }
  omp_set_num_threads(threads_before);
}

TEST(Initializer, NarrowTypesAreF64Rounded) {
  const Initializer initializer = Made("gaussian { std: 1 }");
  const auto f64 = Values<double>(initializer, 9, 100);
  const auto f32 = Values<float>(initializer, 9, 100);
  const auto f16 = Values<Half>(initializer, 9, 100);
  const auto bf16 = Values<BFloat16>(initializer, 9, 100);
  for (size_t i = 0; i < f64.size(); ++i) {
    EXPECT_EQ(f32[i], static_cast<float>(f64[i]));
    EXPECT_EQ(f16[i].bits, Half(f32[i]).bits);
    EXPECT_EQ(bf16[i].bits, BFloat16(f32[i]).bits);
  }
}

TEST(Initializer, FallbackWhereNotSet) {
  const Initializer fallback{.kind = Initializer::Kind::kMsra, .fan_in = 7, .fan_out = 5};
  EXPECT_EQ(Made("", fallback).kind, Initializer::Kind::kMsra);
  const Initializer set = Made("xavier {}", fallback);
  EXPECT_EQ(set.kind, Initializer::Kind::kXavier);
  EXPECT_EQ(set.fan_in, 7);
  EXPECT_EQ(set.fan_out, 5);
}

TEST(Initializer, Empty) { EXPECT_TRUE(Values<float>({}, 1, 0).empty()); }

TEST(Initializer, Errors) {
  EXPECT_EQ(FromText("gaussian { std: -0.1 }").status(),
            absl::InvalidArgumentError("initializer gaussian std: expected 0 or more, got -0.1"));
  EXPECT_EQ(
      FromText("gaussian { mean: nan }").status(),
      absl::InvalidArgumentError("initializer gaussian mean: expected a finite number, got nan"));
  EXPECT_TRUE(absl::IsInvalidArgument(FromText("gaussian { std: inf }").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(FromText("constant { value: inf }").status()));
}

}  // namespace
}  // namespace gyre
