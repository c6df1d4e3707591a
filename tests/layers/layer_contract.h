// layer_contract.h: what every layer must satisfy, whatever it computes.  Failures are
// GoogleTest's.
#pragma once

#include "tests/layers/layer_harness.h"

namespace gyre {

struct ContractOptions {
  bool differentiable = true;
  // F32 against F64, relative to the largest value: a few roundings of 2^-24 and sums of them.
  double f32_tolerance = 2e-5;
};

// Runs the case, whose sample count should be odd and small, and checks
//  - the declared states (names, order, sizes, access);
//  - every gradient in F64 against fourth-order central differences: relative error <= 1e-7;
//  - the same with one sample; no samples: parameter gradients are zero;
//  - F32 against F64; sim and cpu: the same bits; two runs: the same bits;
//  - 2, 3 and more ranks than samples: the same outputs, and gradients and metrics that add up;
//  - in place, where allowed, and with gradients left unbound: the same bits;
//  - without training, and with one sample: the first shape's parameters and layouts; without
//    training no access in backward.
void CheckContract(const LayerCase& layer, const ContractOptions& options = {});

// Parameters and inputs of the case as it is.
void CheckGradients(const LayerCase& layer, const RunOptions& options = {});

}  // namespace gyre
