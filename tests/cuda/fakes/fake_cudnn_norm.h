// fake_cudnn_norm.h: batch normalisation in the fake cuDNN: what finalizing it checks, and its
// arithmetic; inside the fake only.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/cuda/fakes/fake_cudnn_graph.h"

namespace gyre::fake_cudnn {

// Whether an operation is one of them.
bool IsNorm(const Descriptor& operation);

std::string CheckNorm(const Descriptor& operation);

// The tensors that it assigns.
std::vector<const Descriptor*> ResultsOfNorm(const Descriptor& operation);

// Adds their values, in row-major order of their extents, to those known by tensors' ids.
void ComputeNorm(const Descriptor& operation, std::map<int64_t, Values>& known);

}  // namespace gyre::fake_cudnn
