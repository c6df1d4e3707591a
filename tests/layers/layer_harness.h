// layer_harness.h: runs one layer as a net would, on any device and as any number of ranks, and
// brings everything home as doubles.
//
// It is stricter than a net.  States that a pass does not declare are not bound, and states that it
// does not declare to read hold NaNs; so do gradients before they are assigned.  What a pass does
// not declare to write must keep its bytes, and nothing may be written beyond a state's end.  In a
// pass a statistic is summed once.
#pragma once

#include <gmock/gmock.h>

#include <cstdint>
#include <string>
#include <vector>

#include "layers/interface/layer.h"
#include "tests/layers/layer_case.h"
#include "tests/test_device.h"

namespace gyre {

// What layers compute in.
inline constexpr DType kRealTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

struct RunOptions {
  DeviceKind device = NamedDevice().value_or(DeviceKind::kCpu);
  int threads = 1;
  DType compute = DType::kF64;
  bool train = true;
  bool backward = true;             // run it, if train
  bool input_gradients = true;      // bind them, for real inputs
  bool parameter_gradients = true;  // bind them
  bool in_place = false;            // where the layer allows it
  int unbound_output = -1;          // whose gradient is not bound, since no loss depends on it
  // Forward runs twice more.  First with what it wrote poisoned but for buffers and statistics,
  // when it must write the same bits; then with other numbers in those, which it must leave there.
  bool recompute = false;
  Activation output_activation = Activation::kNone;
  double output_max = std::numeric_limits<double>::quiet_NaN();
  int ranks = 1;  // that share the samples, nearly equally
  const LayerSpec* same_parameters_as = nullptr;
  const Primitives* primitives = nullptr;  // null: the device's
  uint64_t step = 3, first_sample = 1000, random_key = 42;
};

struct RunResult {
  LayerSpec spec;      // of the first rank
  Shape output_shape;  // of the first rank, and its first output
  Doubles output;      // of all ranks, joined along the axis of samples; scalars added
  std::vector<int64_t> output_sizes;                     // how much of it each output has
  std::vector<Doubles> parameters, parameter_gradients;  // canonical; gradients added over ranks
  std::vector<Doubles> input_gradients;                  // joined as outputs are; labels: empty
  std::vector<Doubles> buffers;                          // after forward, of the first rank
  std::vector<Doubles> carried;                          // what forward leaves, joined likewise
  Doubles metric;                                        // added over ranks; empty if there is none
  Doubles records;                                       // joined over ranks; likewise
  Fault fault;                                           // the smallest of any rank
};

// Errors: the layer's; Internal if the layer broke its contract with memory.
absl::StatusOr<RunResult> RunLayer(const LayerCase& layer, const RunOptions& options = {});

// Its result, for tests that are about nothing else.  Throws if the layer does not run.
RunResult Ran(const LayerCase& layer, const RunOptions& options = {});

// A matcher: as many values, each this near in absolute terms.
inline auto IsNear(const Doubles& values, double tolerance) {
  return testing::Pointwise(testing::DoubleNear(tolerance), values);
}

// The message with which Create or Infer refuses the case, or "" if they do not.
std::string Refusal(const LayerCase& layer, const RunOptions& options = {});

}  // namespace gyre
