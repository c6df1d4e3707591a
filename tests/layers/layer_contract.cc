#include "tests/layers/layer_contract.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iostream>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

// The distance of the nearer points of the stencil.  Its error is of the order of step^4, the
// rounding of the objective / step: both are far below 1e-7 of an ordinary gradient, and the
// farther points stay clear of the kinks that Distinct() keeps away.
constexpr double kDifferenceStep = 1e-4;
constexpr double kGradientTolerance = 1e-7;

double Objective(const LayerCase& layer, RunOptions options) {
  options.backward = false;
  const RunResult result = Ran(layer, options);
  double sum = 0;
  for (size_t i = 0; i < result.output.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    sum += result.output[i] *
           (layer.output_gradient.empty() ? RandomCotangent(at) : layer.output_gradient[i]);
  }
  return sum;
}

// d Objective / d value, where `value` is part of `layer`.
double Difference(const LayerCase& layer, const RunOptions& options, double& value) {
  const double x = value;
  const auto at = [&](double steps) {
    value = x + steps * kDifferenceStep;
    return Objective(layer, options);
  };
  const double difference = 8 * (at(1) - at(-1)) - (at(2) - at(-2));
  value = x;
  return difference / (12 * kDifferenceStep);
}

double Largest(const Doubles& values) {
  double largest = 0;
  for (const double x : values) largest = std::max(largest, std::abs(x));
  return largest;
}

// An element's error is relative to the element, or to a thousandth of the largest one: rounding in
// the objective, which all elements share, leaves no more digits to smaller ones.
void CompareGradients(const std::string& name, const Doubles& analytic, const Doubles& numeric) {
  ASSERT_EQ(analytic.size(), numeric.size()) << name;
  const double floor = std::max(1e-3 * Largest(numeric), 1e-4);
  for (size_t i = 0; i < analytic.size(); ++i) {
    const double scale = std::max({std::abs(analytic[i]), std::abs(numeric[i]), floor});
    const double error = std::abs(analytic[i] - numeric[i]) / scale;
    ASSERT_TRUE(error <= kGradientTolerance)  // false for a NaN
        << name << "[" << i << "]: analytic " << analytic[i] << ", numeric " << numeric[i]
        << ", relative error " << error;
  }
}

void CompareBits(const std::string& what, const Doubles& a, const Doubles& b) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(double)), 0)
        << what << "[" << i << "]: " << a[i] << " and " << b[i];
  }
}

// Each of `b` is the number nearest to one that float may make of `a`.
void CompareRoundedOnce(const std::string& what, const Doubles& a, const Doubles& b, DType dtype) {
  ASSERT_EQ(a.size(), b.size()) << what;
  const double float_error = 1e-6 * Largest(a);
  for (size_t i = 0; i < a.size(); ++i) {
    const Doubles nearest = RoundedTo(dtype, {a[i] - float_error, a[i] + float_error});
    ASSERT_TRUE(nearest[0] <= b[i] && b[i] <= nearest[1])
        << what << "[" << i << "]: " << a[i] << " became " << b[i];
  }
}

// The same case in numbers that `dtype` can hold; `run` has its parameters.
LayerCase InNumbersOf(DType dtype, const LayerCase& layer, const RunResult& run) {
  LayerCase rounded = layer;
  for (TestInput& input : rounded.inputs) {
    if (!input.is_label) input.values = RoundedTo(dtype, input.values);
  }
  rounded.parameters.clear();
  for (const Doubles& values : run.parameters) {
    rounded.parameters.push_back(RoundedTo(dtype, values));
  }
  rounded.output_gradient.clear();
  for (size_t i = 0; i < run.output.size(); ++i) {
    rounded.output_gradient.push_back(RandomCotangent(static_cast<int64_t>(i)));
  }
  rounded.output_gradient = RoundedTo(dtype, rounded.output_gradient);
  return rounded;
}

using Compare = std::function<void(const std::string&, const Doubles&, const Doubles&)>;

Compare Near(double tolerance) {
  return [tolerance](const std::string& what, const Doubles& a, const Doubles& b) {
    CompareNear(what, a, b, tolerance);
  };
}

void CompareAll(const std::string& what, const RunResult& a, const RunResult& b,
                const Compare& compare) {
  SCOPED_TRACE(what);
  compare("output", a.output, b.output);
  compare("metric", a.metric, b.metric);
  EXPECT_EQ(a.fault.word, b.fault.word);
  const auto both = [&](const std::string& name, const std::vector<Doubles>& x,
                        const std::vector<Doubles>& y) {
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      // Empty: left unbound in one of the runs.
      if (!x[i].empty() && !y[i].empty()) compare(absl::StrCat(name, " ", i), x[i], y[i]);
    }
  };
  both("gradient of input", a.input_gradients, b.input_gradients);
  both("gradient of parameter", a.parameter_gradients, b.parameter_gradients);
  both("buffer", a.buffers, b.buffers);
  EXPECT_EQ(a.carried.size(), b.carried.size());
  both("carried", a.carried, b.carried);
}

void CheckSpec(const LayerSpec& spec, size_t inputs, int64_t samples, bool train) {
  std::set<std::string> names;
  ASSERT_GT(spec.states.size(), inputs);
  for (size_t i = 0; i < spec.states.size(); ++i) {
    const StateSpec& state = spec.states[i];
    SCOPED_TRACE(state.name);
    EXPECT_FALSE(state.name.empty());
    EXPECT_TRUE(names.insert(state.name).second) << "not unique";
    EXPECT_EQ(state.kind == StateKind::kInput, i < inputs);
    if (i == inputs) {
      EXPECT_EQ(state.kind, StateKind::kOutput);
    } else if (i > inputs) {  // outputs stand together
      EXPECT_TRUE(state.kind != StateKind::kOutput ||
                  spec.states[i - 1].kind == StateKind::kOutput);
    }
    if (state.kind == StateKind::kOutput && state.shape.rank() > 0) {
      EXPECT_GE(state.batch_axis, 0);
      EXPECT_LT(state.batch_axis, state.shape.rank());
    }
    EXPECT_EQ(state.size_bytes(),
              static_cast<size_t>(state.shape.elements()) * SizeOf(state.dtype));
    EXPECT_TRUE(train || state.backward == kNone);
    EXPECT_LT(state.summed_after, spec.forward_phases - 1);
    EXPECT_LT(state.summed_after_backward, spec.backward_phases - 1);
    EXPECT_TRUE(state.kind == StateKind::kStatistic ||
                (state.summed_after < 0 && state.summed_after_backward < 0));
    if (state.kind == StateKind::kBuffer) {
      EXPECT_EQ(state.backward, kNone);
      EXPECT_TRUE(train || (state.forward & kWrite) == 0);
      EXPECT_EQ(state.canonical, state.shape);
    }
    if (state.kind == StateKind::kCarried) {
      EXPECT_EQ(state.forward | state.backward, kRead);
      EXPECT_GE(state.batch_axis, 0);
      ASSERT_LT(state.batch_axis, state.shape.rank());
      EXPECT_EQ(state.shape[state.batch_axis], samples);
      EXPECT_EQ(std::ranges::count(spec.states, static_cast<int>(i), &StateSpec::carried_to), 1);
    }
    if (state.carried_to >= 0) {
      EXPECT_EQ(state.kind, StateKind::kSaved);
      EXPECT_TRUE(state.forward & kWrite);
      EXPECT_FALSE(state.backward & kWrite);
      ASSERT_LT(state.carried_to, static_cast<int>(spec.states.size()));
      const StateSpec& to = spec.states[state.carried_to];
      EXPECT_EQ(to.kind, StateKind::kCarried);
      EXPECT_EQ(to.shape, state.shape);
      EXPECT_EQ(to.dtype, state.dtype);
    }
    if (state.kind == StateKind::kParameter) {
      EXPECT_EQ(state.forward, kRead);
      EXPECT_LE(state.canonical.elements(), state.shape.elements());
      EXPECT_TRUE(!state.layout.empty() || state.canonical == state.shape);
    }
  }
  EXPECT_GE(spec.forward_flops, 0);
}

// For each parameter.
std::vector<bool> Trained(const LayerSpec& spec) {
  std::vector<bool> trained;
  for (const StateSpec& state : spec.states) {
    if (state.kind == StateKind::kParameter) trained.push_back(state.trained());
  }
  return trained;
}

std::vector<std::string> Layouts(const LayerSpec& spec) {
  std::vector<std::string> layouts;
  for (const StateSpec& state : spec.states) {
    if (state.kind != StateKind::kParameter) continue;
    layouts.push_back(absl::StrCat(state.name, " ", state.layout, " ", state.size_bytes()));
  }
  return layouts;
}

class Contract {
 public:
  Contract(const LayerCase& layer, const ContractOptions& options)
      : layer_(layer), options_(options) {}

  RunResult Run(RunOptions run) const { return Run(layer_, run); }
  RunResult Run(const LayerCase& layer, RunOptions run) const {
    run.backward = options_.differentiable;
    return Ran(layer, run);
  }

  // What a device could get wrong.  Says what it runs, since tools/gpu ends a test that is silent.
  void OnDevice(DeviceKind device) const {
    std::cout << "case: " << layer_.config << " " << layer_.inputs[0].shape.ToString() << std::endl;
    const RunOptions oracle = {.device = DeviceKind::kCpu};
    const RunResult f64 = Run(oracle);
    for (const DType compute : kRealTypes) {
      SCOPED_TRACE(DTypeName(compute));
      double tolerance = Tolerance(compute);
      if (compute == DType::kF64) tolerance = 1e-12;
      if (compute == DType::kF32) tolerance = 1e-5;
      const LayerCase layer = InNumbersOf(compute, layer_, f64);
      const RunOptions plain = {.device = device, .compute = compute};
      const auto with = [&plain](auto set) {
        RunOptions other = plain;
        set(other);
        return other;
      };
      const RunResult exact = Run(layer, oracle), once = Run(layer, plain);
      CompareAll("against F64", exact, once, Near(tolerance));
      CompareAll("again", once, Run(layer, plain), CompareBits);
      CompareAll("in place", once, Run(layer, with([](auto& o) { o.in_place = true; })),
                 CompareBits);
      CompareAll("input gradients unbound", once,
                 Run(layer, with([](auto& o) { o.input_gradients = false; })), CompareBits);
      CompareRelu(plain, std::numeric_limits<double>::quiet_NaN(), tolerance);
      NoSamples(plain);
      const RunResult whole = Run(plain);
      for (const int ranks : {2, static_cast<int>(layer_.samples()) + 2}) {
        if (!options_.ranks_agree) break;
        CompareAll(absl::StrCat(ranks, " ranks"), whole,
                   Run(with([ranks](auto& o) { o.ranks = ranks; })), Near(tolerance));
      }
    }
  }

  void AgainstF64(const RunOptions& run, double tolerance) const {
    const RunOptions oracle = {
        .device = DeviceKind::kCpu, .train = run.train, .output_activation = run.output_activation};
    const LayerCase layer = InNumbersOf(run.compute, layer_, Run(oracle));
    const RunResult exact = Run(layer, oracle), once = Run(layer, run);
    if (testing::Test::HasFailure()) return;
    if (exact.spec.applied_activation == once.spec.applied_activation &&
        exact.spec.applied_backward == once.spec.applied_backward) {
      CompareAll("against F64", exact, once, Near(tolerance));
    }
  }

  void Gradients() const {
    if (!options_.differentiable) return;
    CheckGradients(layer_);
    SCOPED_TRACE("one sample");
    CheckGradients(Slice(layer_, 0, 1));
  }

  void NoSamples(const RunOptions& run) const {
    const RunResult result = Run(Slice(layer_, 0, 0), run);
    for (const double y : result.output) EXPECT_EQ(y, 0);
    const std::vector<bool> trained = Trained(result.spec);
    for (size_t i = 0; i < result.parameter_gradients.size(); ++i) {
      EXPECT_EQ(result.parameter_gradients[i].empty(), !trained[i]);
      for (const double dw : result.parameter_gradients[i]) ASSERT_EQ(dw, 0);
    }
  }

  void Precisions(const RunResult& f64) const {
    for (const DType compute : {DType::kF32, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(DTypeName(compute));
      const LayerCase layer = InNumbersOf(compute, layer_, f64);
      const RunResult exact = Run(layer, {}), rounded = Run(layer, {.compute = compute});
      CompareAll("against F64", exact, rounded, Near(Tolerance(compute)));
      EXPECT_EQ(rounded.parameters, layer.parameters);  // what is packed comes back
      if (!options_.rounds_once || SizeOf(compute) != 2) continue;
      CompareAll("rounded once", exact, rounded,
                 [&](const std::string& what, const Doubles& a, const Doubles& b) {
                   CompareRoundedOnce(what, a, b, compute);
                 });
    }
  }

  void SameBits() const {
    for (const DType compute : kRealTypes) {
      SCOPED_TRACE(DTypeName(compute));
      const RunResult once = Run({.compute = compute});
      CompareAll("again", once, Run({.compute = compute}), CompareBits);
      CompareAll("sim", once, Run({.device = DeviceKind::kSim, .compute = compute}), CompareBits);
      CompareAll("in place", once, Run({.compute = compute, .in_place = true}), CompareBits);
      CompareAll("input gradients unbound", once,
                 Run({.compute = compute, .input_gradients = false}), CompareBits);
      CompareAll("recompute", once, Run({.compute = compute, .recompute = true}), CompareBits);
      UnboundOutputs(once, {.compute = compute});
      CompareAll("parameter gradients unbound", once,
                 Run({.compute = compute, .parameter_gradients = false}), CompareBits);
    }
  }

  void Ranks() const {
    if (!options_.ranks_agree) return;
    for (const DType compute : {DType::kF64, DType::kF16, DType::kBF16}) {
      SCOPED_TRACE(DTypeName(compute));
      const RunResult whole = Run({.compute = compute});
      const double tolerance = compute == DType::kF64 ? 1e-13 : Tolerance(compute);
      for (const int ranks : {2, 3, static_cast<int>(layer_.samples()) + 2}) {
        CompareAll(absl::StrCat(ranks, " ranks"), whole, Run({.compute = compute, .ranks = ranks}),
                   Near(tolerance));
      }
    }
  }

  void OutputActivation() const {
    for (const DType compute : kRealTypes) {
      SCOPED_TRACE(DTypeName(compute));
      // Another kernel may be chosen, and add in another order.
      for (const double max : {std::numeric_limits<double>::quiet_NaN(), 0.5}) {
        CompareRelu({.compute = compute}, max, Tolerance(compute));
      }
    }
  }

  // Other batch sizes and inference use the parameters of the first shape, layout and all.
  void SameParameters() const {
    for (const DType compute : kRealTypes) {
      SCOPED_TRACE(DTypeName(compute));
      const RunResult first = Run({.compute = compute});
      const RunResult inference =
          Run({.compute = compute, .train = false, .same_parameters_as = &first.spec});
      CheckSpec(inference.spec, layer_.inputs.size(), layer_.samples(), /*train=*/false);
      EXPECT_EQ(inference.output_shape, first.output_shape);
      for (const double y : inference.output) EXPECT_TRUE(std::isfinite(y));
      ASSERT_EQ(inference.carried.size(), first.carried.size());
      for (const Doubles& rows : inference.carried) {
        for (const double row : rows) EXPECT_TRUE(std::isfinite(row));
      }
      const RunResult one =
          Run(Slice(layer_, 0, 1), {.compute = compute, .same_parameters_as = &first.spec});
      for (const RunResult* other : {&inference, &one}) {
        EXPECT_EQ(other->parameters, first.parameters);
        EXPECT_EQ(Layouts(other->spec), Layouts(first.spec));
      }
    }
  }

 private:
  // max: NaN: none.
  void CompareRelu(const RunOptions& plain, double max, double tolerance) const {
    RunResult expected = Run(plain);
    RunOptions run = plain;
    run.output_activation = Activation::kRelu;
    run.output_max = max;
    const RunResult relu = Run(run);
    EXPECT_TRUE(relu.spec.applied_activation || !relu.spec.applied_backward);
    if (relu.spec.applied_backward) {
      LayerCase cut = layer_;
      cut.output_gradient.resize(expected.output.size());
      for (size_t i = 0; i < expected.output.size(); ++i) {
        const bool passes = expected.output[i] > 0 && !(expected.output[i] >= max);
        cut.output_gradient[i] = !passes ? 0
                                 : layer_.output_gradient.empty()
                                     ? RandomCotangent(static_cast<int64_t>(i))
                                     : layer_.output_gradient[i];
      }
      expected = Run(cut, plain);
    }
    if (relu.spec.applied_activation) {
      for (double& y : expected.output) y = y > max ? max : std::max(y, 0.0);
    }
    CompareAll("ReLU", expected, relu, Near(tolerance));
  }

  // An output that no loss depends on has no gradient, which stands for 0.
  void UnboundOutputs(const RunResult& run, const RunOptions& options) const {
    if (run.output_sizes.size() < 2 || !options_.differentiable) return;
    int64_t first = 0;
    for (size_t k = 0; k < run.output_sizes.size(); ++k) {
      LayerCase zero = layer_;
      zero.output_gradient.clear();
      for (int64_t i = 0; i < std::ssize(run.output); ++i) {
        const bool of_it = i >= first && i < first + run.output_sizes[k];
        zero.output_gradient.push_back(of_it ? 0 : RandomCotangent(i));
      }
      first += run.output_sizes[k];
      RunOptions unbound = options;
      unbound.unbound_output = static_cast<int>(k);
      CompareAll(absl::StrCat("without the gradient of output ", k), Run(zero, options),
                 Run(unbound), CompareBits);
    }
  }

  // Six units of rounding of F16, 2^-11, and five of BF16, 2^-8: those of what a layer stores in
  // between, and of ranks' shares.
  double Tolerance(DType compute) const {
    if (compute == DType::kF16) return 3e-3;
    return compute == DType::kBF16 ? 2e-2 : options_.f32_tolerance;
  }

  const LayerCase& layer_;
  const ContractOptions& options_;
};

}  // namespace

void CompareNear(const std::string& what, const Doubles& a, const Doubles& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size()) << what;
  const double scale = std::max(Largest(a), 1e-30);
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(std::abs(a[i] - b[i]) <= tolerance * scale)
        << what << "[" << i << "]: " << a[i] << " and " << b[i];
  }
}

void CheckGradients(const LayerCase& layer, const RunOptions& options) {
  const RunResult analytic = Ran(layer, options);
  LayerCase moving = layer;
  moving.parameters = analytic.parameters;
  const auto check = [&](const std::string& name, const Doubles& gradient, Doubles& values) {
    Doubles numeric;
    for (double& value : values) numeric.push_back(Difference(moving, options, value));
    CompareGradients(name, gradient, numeric);
  };
  const std::vector<bool> trained = Trained(analytic.spec);
  for (size_t i = 0; i < moving.parameters.size(); ++i) {
    if (!trained[i]) continue;
    check(absl::StrCat("parameter ", i), analytic.parameter_gradients[i], moving.parameters[i]);
  }
  for (size_t i = 0; i < moving.inputs.size(); ++i) {
    if (moving.inputs[i].is_label || moving.inputs[i].is_data) continue;
    check(absl::StrCat("input ", i), analytic.input_gradients[i], moving.inputs[i].values);
  }
}

void CheckPrecisions(const LayerCase& layer, const ContractOptions& options) {
  SCOPED_TRACE(layer.config);
  const Contract contract(layer, options);
  if (const auto device = NamedDevice()) return contract.OnDevice(*device);
  contract.Precisions(contract.Run({}));
}

void CheckAgainstF64(const LayerCase& layer, const RunOptions& run, double tolerance,
                     const ContractOptions& options) {
  SCOPED_TRACE(layer.config);
  Contract(layer, options).AgainstF64(run, tolerance);
}

void CheckContract(const LayerCase& layer, const ContractOptions& options) {
  SCOPED_TRACE(layer.config);
  const Contract contract(layer, options);
  if (const auto device = NamedDevice()) return contract.OnDevice(*device);
  const RunResult f64 = contract.Run({});
  if (testing::Test::HasFailure()) return;
  CheckSpec(f64.spec, layer.inputs.size(), layer.samples(), /*train=*/true);
  contract.Gradients();
  for (const DType compute : kRealTypes) contract.NoSamples({.compute = compute});
  contract.Precisions(f64);
  contract.SameBits();
  contract.Ranks();
  contract.OutputActivation();
  contract.SameParameters();
}

}  // namespace gyre
