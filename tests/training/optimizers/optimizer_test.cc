// Optimizers in both compute types, on cpu and sim; with GYRE_TEST_DEVICE=cuda, on the GPU.

#include "engine/training/optimizers/optimizer.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "engine/runtime/device/buffer.h"
#include "tests/runtime/instruction_sets.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

OptimizerConfig Config(const std::string& text) {
  OptimizerConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config)) << text;
  return config;
}

struct Step {
  std::vector<double> gradient;
  double learning_rate = 1, gradient_scale = 1;
  std::vector<int32_t> rows = {};  // of a table, of which the parameter is a part: those that move
  bool skip = false;
  UpdateGroups groups = {};
};

// Of the table in steps with rows.
constexpr int64_t kWidth = 5, kBegin = 3;

struct Multipliers {
  float learning_rate = 1, decay = 1;
  int group = 0;
};

// A parameter and its slots on a device, moved by an optimizer.
template <typename T>
class Parameter {
 public:
  Parameter(Device& device, const Optimizer& optimizer, const std::vector<double>& value,
            Multipliers multipliers = {})
      : device_(device),
        optimizer_(optimizer),
        elements_(value.size()),
        multipliers_(multipliers),
        stream_(*device.NewStream()),
        scalars_(NewBuffer(device, sizeof(UpdateScalars))),
        value_(NewBuffer(device, elements_ * sizeof(T))),
        gradient_(NewBuffer(device, elements_ * sizeof(T))) {
    Upload(value_, value);
    for (size_t i = 0; i < optimizer.slot_names().size(); ++i) {
      slots_.push_back(NewBuffer(device, elements_ * sizeof(T)));
      Upload(slots_.back(), std::vector<double>(elements_));
    }
  }

  void Apply(const Step& step) { ApplyTogether({this}, {step.gradient}, step); }

  // One call of the optimizer; gradients[k] is parameter k's.
  static void ApplyTogether(const std::vector<Parameter*>& parameters,
                            const std::vector<std::vector<double>>& gradients, const Step& step) {
    Parameter& first = *parameters[0];
    UpdateScalars scalars{.learning_rate = step.learning_rate,
                          .gradient_scale = step.gradient_scale,
                          .groups = step.groups,
                          .skip = step.skip};
    first.optimizer_.Prepare(first.steps_++, scalars);
    ASSERT_TRUE(first.stream_->Copy(first.scalars_.data(), &scalars, sizeof(scalars)).ok());
    std::vector<std::vector<Tensor>> slots(parameters.size());
    std::vector<ParameterViews> views;
    for (size_t k = 0; k < parameters.size(); ++k) {
      Parameter& p = *parameters[k];
      p.Upload(p.gradient_, gradients[k]);
      for (const Buffer& slot : p.slots_) slots[k].push_back(p.View(slot));
      views.push_back({p.View(p.value_), p.View(p.gradient_), slots[k],
                       p.multipliers_.learning_rate, p.multipliers_.decay, p.multipliers_.group});
    }
    if (!step.rows.empty()) {
      const size_t bytes = step.rows.size() * sizeof(int32_t);
      first.rows_ = NewBuffer(first.device_, bytes);
      ASSERT_TRUE(first.stream_->Copy(first.rows_.data(), step.rows.data(), bytes).ok());
      views[0].rows = {first.rows_.data(), {static_cast<int64_t>(step.rows.size())}, DType::kI32};
      views[0].width = kWidth;
      views[0].begin = kBegin;
    }
    const absl::Status status = first.optimizer_.Update(
        *first.stream_, reinterpret_cast<const UpdateScalars*>(first.scalars_.data()), views);
    ASSERT_TRUE(status.ok()) << status;
    ASSERT_TRUE(first.stream_->Synchronize().ok());
  }

  std::vector<double> value() { return Download(value_); }
  std::vector<double> slot(int index) { return Download(slots_[index]); }

 private:
  static Buffer NewBuffer(Device& device, size_t bytes) {
    return *Buffer::Allocate(device, MemoryKind::kDevice, bytes);
  }
  Tensor View(const Buffer& buffer) {
    return {buffer.data(), {static_cast<int64_t>(elements_)}, kDTypeOf<T>};
  }
  void Upload(const Buffer& to, const std::vector<double>& values) {
    ASSERT_EQ(values.size(), elements_);
    const std::vector<T> host(values.begin(), values.end());
    ASSERT_TRUE(stream_->Copy(to.data(), host.data(), host.size() * sizeof(T)).ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
  }
  std::vector<double> Download(const Buffer& from) {
    std::vector<T> host(elements_);
    EXPECT_TRUE(stream_->Copy(host.data(), from.data(), host.size() * sizeof(T)).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return {host.begin(), host.end()};
  }

  Device& device_;
  const Optimizer& optimizer_;
  const size_t elements_;
  const Multipliers multipliers_;
  std::unique_ptr<Stream> stream_;
  Buffer scalars_, value_, gradient_, rows_;
  std::vector<Buffer> slots_;
  uint64_t steps_ = 0;
};

template <typename T_, DeviceKind kDevice_>
struct Case {
  using T = T_;
  static constexpr DeviceKind kDevice = kDevice_;
};

template <typename C>
class OptimizerTest : public testing::Test {
 protected:
  using T = typename C::T;

  static std::shared_ptr<Device> Open(int threads) {
    return OpenTestDevice(NamedDevice().value_or(C::kDevice), threads).device;
  }

  // The value after each step, then the slots after the last.
  std::vector<std::vector<double>> Run(const std::string& config, const std::vector<double>& value,
                                       const std::vector<Step>& steps, Multipliers multipliers = {},
                                       int threads = 1) {
    const auto device = Open(threads);
    const std::unique_ptr<Optimizer> optimizer = NewOptimizer(Config(config));
    Parameter<T> parameter(*device, *optimizer, value, multipliers);
    std::vector<std::vector<double>> result;
    for (const Step& step : steps) {
      parameter.Apply(step);
      result.push_back(parameter.value());
    }
    for (size_t i = 0; i < optimizer->slot_names().size(); ++i) {
      result.push_back(parameter.slot(static_cast<int>(i)));
    }
    return result;
  }

  static constexpr double kTolerance = sizeof(T) == 8 ? 1e-13 : 2e-5;  // of values near 1
};

using Cases = testing::Types<Case<float, DeviceKind::kCpu>, Case<double, DeviceKind::kCpu>,
                             Case<float, DeviceKind::kSim>, Case<double, DeviceKind::kSim>>;
TYPED_TEST_SUITE(OptimizerTest, Cases);

using Values = std::vector<std::vector<double>>;

constexpr const char* kEveryKind[] = {
    "sgd {} weight_decay: 0.125", "sgd { momentum: 0.9 } weight_decay: 0.125",
    "sgd { momentum: 0.9 nesterov: true } weight_decay: 0.125", "adam {} weight_decay: 0.125",
    "adamw { beta1: 0.8 } weight_decay: 0.125"};

std::vector<double> RandomValues(std::mt19937_64& rng, size_t n) {
  std::normal_distribution<double> normal;
  std::vector<double> values(n);
  // Rounded to float, so that F32 and the double formula start from the same numbers.
  for (double& value : values) value = static_cast<float>(normal(rng));
  return values;
}

std::vector<Step> RandomSteps(std::mt19937_64& rng, int count, size_t n) {
  std::uniform_real_distribution<double> uniform(0.001, 0.05);
  std::vector<Step> steps;
  for (int i = 0; i < count; ++i) {
    steps.push_back({RandomValues(rng, n), uniform(rng), i % 3 == 0 ? 1 : 20 * uniform(rng)});
  }
  return steps;
}

// ---- Against formulas in double -----------------------------------------------------------------

// Moments as the sums that the recursions stand for: sum over s <= t of decay^(t - s) * g_s.
double DecayedSum(const std::vector<double>& g, double decay, bool squared) {
  double sum = 0;
  for (size_t s = 0; s < g.size(); ++s) {
    sum += std::pow(decay, static_cast<double>(g.size() - 1 - s)) * (squared ? g[s] * g[s] : g[s]);
  }
  return sum;
}

double Move(const OptimizerConfig& config, const std::vector<double>& g) {
  if (config.has_adam() || config.has_adamw()) {
    const auto& adam = config.has_adam() ? config.adam() : config.adamw();
    const double beta1 = adam.beta1(), beta2 = adam.beta2();
    const double t = static_cast<double>(g.size());
    const double m = (1 - beta1) * DecayedSum(g, beta1, false) / (1 - std::pow(beta1, t));
    const double v = (1 - beta2) * DecayedSum(g, beta2, true) / (1 - std::pow(beta2, t));
    return m / (std::sqrt(v) + adam.epsilon());
  }
  const double momentum = config.sgd().momentum();
  if (!config.sgd().nesterov()) return DecayedSum(g, momentum, false);
  return g.back() + momentum * DecayedSum(g, momentum, false);
}

TYPED_TEST(OptimizerTest, FollowsTheFormulaForFiftySteps) {
  for (const char* text : kEveryKind) {
    const OptimizerConfig config = Config(text);
    const Multipliers multipliers{2, 0.5f};
    std::mt19937_64 rng(5);
    constexpr size_t kElements = 33;
    const std::vector<double> start = RandomValues(rng, kElements);
    const std::vector<Step> steps = RandomSteps(rng, 50, kElements);
    const Values got = this->Run(text, start, steps, multipliers);
    for (size_t i = 0; i < kElements; ++i) {
      double value = start[i];
      std::vector<double> g;
      for (size_t t = 0; t < steps.size(); ++t) {
        const double decay = config.weight_decay() * multipliers.decay * value;
        const bool decoupled = config.has_adamw();
        g.push_back(steps[t].gradient[i] * steps[t].gradient_scale + (decoupled ? 0 : decay));
        value -= steps[t].learning_rate * multipliers.learning_rate *
                 (Move(config, g) + (decoupled ? decay : 0));
        ASSERT_NEAR(got[t][i], value, this->kTolerance * (1 + std::abs(value)))
            << text << " element " << i << " step " << t;
      }
    }
  }
}

// ---- What holds for every optimizer -------------------------------------------------------------

TYPED_TEST(OptimizerTest, PaddingStaysZero) {
  for (const char* text : kEveryKind) {
    std::mt19937_64 rng(9);
    std::vector<double> start = RandomValues(rng, 20);
    std::vector<Step> steps = RandomSteps(rng, 10, 20);
    for (size_t i = 13; i < 20; ++i) {
      start[i] = 0;
      for (Step& step : steps) step.gradient[i] = 0;
    }
    for (const std::vector<double>& values : this->Run(text, start, steps)) {
      for (size_t i = 13; i < 20; ++i) EXPECT_EQ(values[i], 0) << text;
    }
  }
}

// Longer than a loop that runs on one thread.
TYPED_TEST(OptimizerTest, SameBitsWithMoreThreadsAndOtherInstructions) {
  std::vector<std::string> texts(std::begin(kEveryKind), std::end(kEveryKind));
  texts.emplace_back("sgd { momentum: 0.9 } ema { decay: 0.99 }");
  for (const std::string& text : texts) {
    std::mt19937_64 rng(10);
    const std::vector<double> start = RandomValues(rng, 20011);
    const std::vector<Step> steps = RandomSteps(rng, 3, start.size());
    const Values want = this->Run(text, start, steps, {}, 1);
    WithEachInstructionSet([&] { EXPECT_EQ(this->Run(text, start, steps, {}, 3), want) << text; });
  }
}

TYPED_TEST(OptimizerTest, ManyParametersInOneCallMoveAsAlone) {
  using T = typename TestFixture::T;
  for (const char* text : kEveryKind) {
    const auto device = this->Open(2);
    const std::unique_ptr<Optimizer> optimizer = NewOptimizer(Config(text));
    std::mt19937_64 rng(11);
    std::vector<std::unique_ptr<Parameter<T>>> together;
    std::vector<Parameter<T>*> pointers;
    std::vector<std::vector<double>> gradients, alone;
    for (const size_t n : {3, 0, 9001, 1, 500}) {
      const std::vector<double> value = RandomValues(rng, n);
      const Multipliers multipliers{static_cast<float>(n % 7), 0.5f};
      gradients.push_back(RandomValues(rng, n));
      alone.push_back(this->Run(text, value, {{gradients.back(), 0.1}}, multipliers)[0]);
      together.push_back(std::make_unique<Parameter<T>>(*device, *optimizer, value, multipliers));
      pointers.push_back(together.back().get());
    }
    Parameter<T>::ApplyTogether(pointers, gradients, {{}, 0.1});
    for (size_t k = 0; k < alone.size(); ++k) EXPECT_EQ(together[k]->value(), alone[k]) << text;
  }
}

// A parameter whose group begins later moves as one of a run that begins then.
TYPED_TEST(OptimizerTest, AGroupCountsItsOwnUpdates) {
  using T = typename TypeParam::T;
  const auto device = this->Open(1);
  const std::vector<double> value = {1, -2, 3};
  const auto gradient = [](int s) { return std::vector<double>{0.5 * s, 1, -1.5}; };
  for (const char* text : {"adam {} ema { decay: 0.9 }", "adamw {} weight_decay: 0.1",
                           "sgd { momentum: 0.9 } ema { decay: 0.9 }"}) {
    const auto optimizer = NewOptimizer(Config(text));
    Parameter<T> straight(*device, *optimizer, value);
    Parameter<T> early(*device, *optimizer, value);
    Parameter<T> late(*device, *optimizer, value, {.group = 1});
    Parameter<T> fresh(*device, *optimizer, value);
    const UpdateGroups groups = {.count = 2, .first_update = {0, 3}};
    for (int s = 0; s < 7; ++s) {
      const Step step = {.gradient = gradient(s), .learning_rate = 0.1};
      straight.Apply(step);
      if (s < 3) {
        early.Apply(step);
        continue;
      }
      fresh.Apply(step);
      Parameter<T>::ApplyTogether({&early, &late}, {gradient(s), gradient(s)},
                                  {.gradient = {}, .learning_rate = 0.1, .groups = groups});
    }
    EXPECT_EQ(early.value(), straight.value()) << text;
    EXPECT_EQ(late.value(), fresh.value()) << text;
    for (size_t i = 0; i < optimizer->slot_names().size(); ++i) {
      EXPECT_EQ(late.slot(static_cast<int>(i)), fresh.slot(static_cast<int>(i))) << text;
    }
  }
}

// A part of a table that begins and ends within rows: those named move as all do, the others not at
// all, whatever their gradients.
TYPED_TEST(OptimizerTest, OfATableTheNamedRowsMoveAlone) {
  for (const char* text : kEveryKind) {
    std::mt19937_64 rng(12);
    constexpr size_t kElements = 4 * kWidth;  // of rows 0 to 4
    const std::vector<double> start = RandomValues(rng, kElements);
    std::vector<Step> whole = RandomSteps(rng, 3, kElements), some;
    for (const Step& step : whole) {
      some.push_back(step);
      some.back().rows = {3, -1, 0, 4, -1};
    }
    const Values moved = this->Run(text, start, whole), got = this->Run(text, start, some);
    for (size_t t = 0; t < got.size(); ++t) {
      for (size_t i = 0; i < kElements; ++i) {
        const size_t row = (i + kBegin) / kWidth;
        const bool named = row == 0 || row == 3 || row == 4;
        const double still = t < 3 ? start[i] : 0;
        EXPECT_EQ(got[t][i], named ? moved[t][i] : still) << text << " element " << i;
      }
    }
    for (Step& step : some) step.skip = true;
    EXPECT_EQ(this->Run(text, start, some)[2], start) << text;
  }
}

TYPED_TEST(OptimizerTest, ZerosChangeNothingWhereItSaysSo) {
  for (const std::string text : {"sgd {}", "sgd {} weight_decay: 0.1", "sgd { momentum: 0.9 }",
                                 "adam {}", "adamw { beta1: 0.8 } weight_decay: 0.1"}) {
    for (const std::string average : {"", " ema {}"}) {
      const std::unique_ptr<Optimizer> optimizer = NewOptimizer(Config(text + average));
      EXPECT_EQ(optimizer->leaves_untouched(1), text == "sgd {}") << text << average;
      EXPECT_EQ(optimizer->leaves_untouched(0), text.starts_with("sgd {}")) << text << average;
    }
  }
  std::mt19937_64 rng(13);
  std::vector<double> start = RandomValues(rng, 9);
  start[0] = -0.0;
  EXPECT_EQ(this->Run("sgd {}", start, {{std::vector<double>(9), 0.1}})[0], start);
}

// ---- An average beside another optimizer --------------------------------------------------------

// The values and slots are those of the optimizer alone, and the average is the recursion's, also
// of rows that stand still and through skipped steps.
TYPED_TEST(OptimizerTest, AnAverageFollowsTheFormulaForTwentySteps) {
  const double tolerance = sizeof(typename TestFixture::T) == 8 ? 1e-13 : 2e-6;
  for (const std::string text : kEveryKind) {
    for (const double decay : {0.3, 0.9, 0.999}) {
      for (const bool of_a_table : {false, true}) {
        std::mt19937_64 rng(14);
        const size_t elements = of_a_table ? 4 * kWidth : 33;
        const std::vector<double> start = RandomValues(rng, elements);
        std::vector<Step> steps = RandomSteps(rng, 20, elements);
        for (size_t t = 0; t < steps.size(); ++t) {
          steps[t].skip = t % 7 == 4;
          if (of_a_table) steps[t].rows = {static_cast<int32_t>(t % 5), -1, 3};
        }
        const Values alone = this->Run(text, start, steps);
        Values got = this->Run(absl::StrCat(text, " ema { decay: ", decay, " }"), start, steps);
        const std::vector<double> average = got.back();
        got.pop_back();
        EXPECT_EQ(got, alone) << text;
        for (size_t i = 0; i < elements; ++i) {
          double expected = alone[0][i];
          for (size_t t = 1; t < steps.size(); ++t) {
            if (!steps[t].skip) expected = decay * expected + (1 - decay) * alone[t][i];
          }
          ASSERT_NEAR(average[i], expected, tolerance * (1 + std::abs(expected))) << text;
        }
      }
    }
  }
}

// 0.9999 and 1 - 0.9999 as F32 do not add up to 1.
TYPED_TEST(OptimizerTest, TheAverageOfEqualValuesIsTheirValue) {
  const std::vector<double> start = {1, -0.7f, 3e-9f, 0};
  const Step still = {std::vector<double>(start.size()), 0.1};
  EXPECT_EQ(this->Run("sgd {} ema { decay: 0.9999 }", start, std::vector<Step>(30, still)).back(),
            start);
}

// ---- On the host --------------------------------------------------------------------------------

TEST(Optimizer, SlotNames) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(NewOptimizer(Config("sgd {}"))->slot_names(), Names{});
  EXPECT_EQ(NewOptimizer(Config("sgd { nesterov: true }"))->slot_names(), Names{});
  EXPECT_EQ(NewOptimizer(Config("sgd { momentum: 0.9 }"))->slot_names(), Names{"momentum"});
  EXPECT_EQ(NewOptimizer(Config("adam {}"))->slot_names(),
            (Names{"first_moment", "second_moment"}));
  EXPECT_EQ(NewOptimizer(Config("sgd {} ema {}"))->slot_names(), Names{"average"});
  EXPECT_EQ(NewOptimizer(Config("adam {} ema {}"))->slot_names(),
            (Names{"first_moment", "second_moment", "average"}));
}

TEST(OptimizerDeathTest, AConfigWithoutAKindIsABug) {
  EXPECT_DEATH(NewOptimizer(OptimizerConfig()), "has a kind");
}

}  // namespace
}  // namespace gyre
