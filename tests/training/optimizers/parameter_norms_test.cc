// LARS and LAMB, whose changes norms of whole parameters scale, against their papers' formulas in
// double, and in however many views a parameter is cut.

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/runtime/device/buffer.h"
#include "engine/training/optimizers/optimizer.h"
#include "tests/runtime/instruction_sets.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

constexpr int64_t kColumns = 7;  // of a piece
constexpr int64_t kBefore = 3;   // cells before the parameter in its first piece
constexpr int kSteps = 20;

OptimizerConfig Config(const std::string& text) {
  OptimizerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

struct Training {
  std::string config;
  std::vector<double> value;
  std::vector<std::vector<double>> gradients;  // by step
  double decay_multiplier = 0.5;
  std::vector<int64_t> cuts = {};  // elements at which views begin, besides 0
  int threads = 1;
};

double RateOf(int step) { return 0.1 + 0.01 * step; }
constexpr double kGradientScale = 0.25, kRateMultiplier = 2;

// The values after each step.
template <typename T>
std::vector<std::vector<double>> Train(const Training& run, DeviceKind kind) {
  const auto device = OpenTestDevice(NamedDevice().value_or(kind), run.threads).device;
  const auto stream = *device->NewStream();
  const std::unique_ptr<Optimizer> optimizer = NewOptimizer(Config(run.config));
  EXPECT_TRUE(optimizer->scales_by_norms());
  const auto n = static_cast<int64_t>(run.value.size());
  std::vector<Buffer> buffers;
  const auto on_device = [&](const void* from, size_t bytes) {
    buffers.push_back(*Buffer::Allocate(*device, MemoryKind::kDevice, bytes));
    EXPECT_TRUE(stream->Copy(buffers.back().data(), from, bytes).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return buffers.back().data();
  };
  const auto numbers = [&](const std::vector<double>& values) {
    const std::vector<T> host(values.begin(), values.end());
    return reinterpret_cast<T*>(on_device(host.data(), host.size() * sizeof(T)));
  };
  T* const value = numbers(run.value);
  std::vector<T*> slots;
  for (size_t s = 0; s < optimizer->slot_names().size(); ++s) {
    slots.push_back(numbers(std::vector<double>(n)));
  }
  const int64_t pieces = CeilDiv(kBefore + n, kColumns);
  const std::vector<double> unknown(2 * pieces + 1, NAN);
  auto* const squares =
      reinterpret_cast<PieceSquares*>(on_device(unknown.data(), unknown.size() * 8));
  std::vector<int64_t> begins = run.cuts;
  begins.insert(begins.begin(), 0);
  std::vector<std::vector<double>> values;
  for (int step = 0; step < kSteps; ++step) {
    const T* const gradient = numbers(run.gradients[step]);
    UpdateScalars scalars = {.learning_rate = RateOf(step), .gradient_scale = kGradientScale};
    optimizer->Prepare(step, scalars);
    const auto* update =
        reinterpret_cast<const UpdateScalars*>(on_device(&scalars, sizeof(scalars)));
    std::vector<std::vector<Tensor>> slots_of(begins.size());
    std::vector<ParameterViews> views;
    for (size_t v = 0; v < begins.size(); ++v) {
      const int64_t begin = begins[v], end = v + 1 < begins.size() ? begins[v + 1] : n;
      const auto view = [&](const T* of) {
        return Tensor{const_cast<T*>(of) + begin, Shape({end - begin}), kDTypeOf<T>};
      };
      for (T* const slot : slots) slots_of[v].push_back(view(slot));
      views.push_back({.value = view(value),
                       .gradient = view(gradient),
                       .slots = slots_of[v],
                       .learning_rate_multiplier = kRateMultiplier,
                       .decay_multiplier = run.decay_multiplier,
                       .norms = {.before = (kBefore + begin) % kColumns,
                                 .columns = kColumns,
                                 .own = squares + (kBefore + begin) / kColumns,
                                 .all = squares,
                                 .count = pieces,
                                 .ratio = &squares[pieces].value}});
    }
    // As tiles are: all are measured, one by one, before any is updated.
    for (const ParameterViews& view : views) {
      EXPECT_TRUE(optimizer->Measure(*stream, update, {&view, 1}).ok());
    }
    for (const ParameterViews& view : views) {
      EXPECT_TRUE(optimizer->Update(*stream, update, {&view, 1}).ok());
    }
    std::vector<T> host(n);
    EXPECT_TRUE(stream->Copy(host.data(), value, n * sizeof(T)).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    values.emplace_back(host.begin(), host.end());
  }
  return values;
}

double Norm(const std::vector<double>& of) {
  double sum = 0;
  for (const double x : of) sum += x * x;
  return std::sqrt(sum);
}

// The papers' formulas.
std::vector<std::vector<double>> Formula(const Training& run) {
  const OptimizerConfig config = Config(run.config);
  const size_t n = run.value.size();
  const double decay = config.weight_decay() * run.decay_multiplier;
  std::vector<double> value = run.value, first(n), second(n);
  std::vector<std::vector<double>> values;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<double> g = run.gradients[step], change(n);
    for (double& x : g) x *= kGradientScale;
    const double rate = RateOf(step) * kRateMultiplier;
    if (config.has_lars()) {
      const double w = Norm(value), of_g = Norm(g);
      const bool scales = w > 0 && of_g > 0 && run.decay_multiplier != 0;
      const double ratio = scales ? config.lars().coefficient() * w / (of_g + decay * w) : 1;
      for (size_t i = 0; i < n; ++i) {
        first[i] = config.lars().momentum() * first[i] + rate * ratio * (g[i] + decay * value[i]);
        value[i] -= first[i];
      }
    } else {
      const double beta1 = config.lamb().beta1(), beta2 = config.lamb().beta2();
      for (size_t i = 0; i < n; ++i) {
        first[i] = beta1 * first[i] + (1 - beta1) * g[i];
        second[i] = beta2 * second[i] + (1 - beta2) * g[i] * g[i];
        const double m = first[i] / (1 - std::pow(beta1, step + 1));
        const double v = second[i] / (1 - std::pow(beta2, step + 1));
        change[i] = m / (std::sqrt(v) + config.lamb().epsilon()) + decay * value[i];
      }
      const double w = Norm(value), c = Norm(change);
      const double ratio = w > 0 && c > 0 && run.decay_multiplier != 0 ? w / c : 1;
      for (size_t i = 0; i < n; ++i) value[i] -= rate * ratio * change[i];
    }
    values.push_back(value);
  }
  return values;
}

constexpr const char* kConfigs[] = {
    "lars {} weight_decay: 0.25", "lars { momentum: 0.5 coefficient: 0.125 }",
    "lamb {} weight_decay: 0.25", "lamb { beta1: 0.5 beta2: 0.75 }"};

Training RandomTraining(const std::string& config, int64_t n) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal;
  // Rounded to float, so that F32 and the formula start from the same numbers.
  const auto numbers = [&] {
    std::vector<double> values(n);
    for (double& value : values) value = static_cast<float>(normal(random));
    return values;
  };
  Training run = {.config = config, .value = numbers(), .gradients = {}};
  for (int step = 0; step < kSteps; ++step) run.gradients.push_back(numbers());
  return run;
}

template <typename T>
void ExpectFormula(const Training& run) {
  const auto expected = Formula(run);
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kSim}) {
    const auto got = Train<T>(run, kind);
    const double tolerance = sizeof(T) == 8 ? 1e-12 : 2e-5;
    for (int step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < run.value.size(); ++i) {
        ASSERT_NEAR(got[step][i], expected[step][i], tolerance * (1 + std::abs(expected[step][i])))
            << run.config << " element " << i << " step " << step;
      }
    }
  }
}

TEST(ParameterNorms, FollowTheFormulaForTwentySteps) {
  for (const char* const config : kConfigs) {
    for (const int64_t n : {0, 1, 4, 5, 33}) {
      for (const double decay_multiplier : {0.5, 0.0}) {
        Training run = RandomTraining(config, n);
        run.decay_multiplier = decay_multiplier;
        ExpectFormula<double>(run);
        ExpectFormula<float>(run);
      }
    }
  }
}

TEST(ParameterNorms, ZerosMoveAsWithoutARatio) {
  for (const char* const config : kConfigs) {
    Training run = RandomTraining(config, 9);
    std::ranges::fill(run.value, 0);
    ExpectFormula<double>(run);
    run = RandomTraining(config, 9);
    for (int step = 0; step < 3; ++step) std::ranges::fill(run.gradients[step], 0);
    ExpectFormula<double>(run);
  }
}

// Of more elements than one thread's, in pieces of other numbers than the threads'.
TEST(ParameterNorms, NoCutOrThreadOrInstructionSetChangesABit) {
  for (const char* const config : kConfigs) {
    Training run = RandomTraining(config, 20011);
    const auto expected = Train<float>(run, DeviceKind::kCpu);
    for (const std::vector<int64_t>& cuts :
         {std::vector<int64_t>{4}, {4, 11, 18}, {kColumns * 1000 - kBefore}}) {
      run.cuts = cuts;
      EXPECT_EQ(Train<float>(run, DeviceKind::kCpu), expected) << config;
      run.threads = 3;
      WithEachInstructionSet(
          [&] { EXPECT_EQ(Train<float>(run, DeviceKind::kSim), expected) << config; });
    }
  }
}

}  // namespace
}  // namespace gyre
