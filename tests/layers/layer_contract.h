// layer_contract.h: what every layer must satisfy, whatever it computes.  Failures are
// GoogleTest's.
#pragma once

#include "tests/layers/layer_harness.h"

namespace gyre {

struct ContractOptions {
  bool differentiable = true;
  // F32 against F64, relative to the largest value: a few roundings of 2^-24 and sums of them.
  double f32_tolerance = 2e-5;
  // In F16 and BF16 every output and gradient is that of F64, up to float's error, rounded once.
  // It holds where the loops are ours and nothing is stored in between.
  bool rounds_once = false;
  // Samples are independent of those of other ranks.
  bool ranks_agree = true;
};

// Runs the case, whose sample count should be odd and small, and checks
//  - the declared states (names, order, sizes, access);
//  - every gradient in F64 against fourth-order central differences: relative error <= 1e-7;
//  - the same with one sample; no samples: parameter gradients are zero;
//  - F32, F16 and BF16 against F64 from the same numbers, which the smaller type can hold: an
//    element's error, divided by the largest magnitude in F64 of the same output, gradient or
//    metric, or of what is carried on, is <= 3e-3 (F16), 2e-2 (BF16);
//  - sim and cpu: the same bits; two runs: the same bits;
//  - in place, where allowed, with gradients left unbound, and recomputed: the same bits; no buffer
//    or statistic is written when recomputed, be it with the bits that it held;
//  - 2, 3 and more ranks than samples: the same outputs and carried rows, and gradients and metrics
//    that add up;
//  - a ReLU that the net wants after it: applied to the output, or declined;
//  - without training, and with one sample: the first shape's parameters and layouts; without
//    training no access in backward.
//
// Where the environment names a device (GYRE_TEST_DEVICE=cuda), what that one could get wrong
// instead: its four types against the CPU's F64 (F64: 1e-12, F32: 1e-5, the others as above), two
// runs, runs in place and with gradients left unbound, no samples, several ranks, a ReLU after it.
void CheckContract(const LayerCase& layer, const ContractOptions& options = {});

// Of the above, the checks of F32, F16 and BF16 against F64: for cases too large for differences.
void CheckPrecisions(const LayerCase& layer, const ContractOptions& options = {});

// One run on a device against F64 on a CPU, from the same numbers; tolerance: relative to the
// largest value.  Where the device's layer applies the ReLU after it otherwise, that it runs.
void CheckAgainstF64(const LayerCase& layer, const RunOptions& run, double tolerance,
                     const ContractOptions& options = {});

// Each of `b` is as in `a`, to a tolerance that is relative to the largest magnitude in `a`.
void CompareNear(const std::string& what, const Doubles& a, const Doubles& b, double tolerance);

// Parameters and inputs of the case as it is.
void CheckGradients(const LayerCase& layer, const RunOptions& options = {});

}  // namespace gyre
