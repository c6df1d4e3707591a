// layer_case.h: a layer and what it is handed, of a test.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/layers/slot.h"

namespace gyre {

struct TestInput {
  Shape shape;
  bool is_label = false;  // I32; otherwise of the compute type
  Doubles values;         // shape.elements()
  int batch_axis = 0;     // of the samples
  bool is_data = false;   // real, but nobody asks for its gradient

  int64_t samples() const { return shape[batch_axis]; }
};

TestInput Real(const Shape& shape, Doubles values);
TestInput Labels(const std::vector<int32_t>& labels);
TestInput Labels(const Shape& shape, const std::vector<int32_t>& labels);
// Of samples, for a layer that gives them no gradient.
TestInput SampleWeightsOf(Doubles weights);
// Distinct values within [-scale, scale], in random order, none of them 0 and no two closer than
// scale / elements: safe for central differences around kinks and maxima.
TestInput Distinct(const Shape& shape, uint64_t seed, double scale = 2);
// Distinct values within (0, 1.1).
TestInput Positive(const Shape& shape, uint64_t seed);

struct LayerCase {
  std::string config;  // LayerConfig as text
  std::vector<TestInput> inputs;
  // Canonical values of each parameter, in order; empty: random, the same in every run.
  std::vector<Doubles> parameters = {};
  // dL/doutput over all ranks, of all outputs one after another; empty: random.
  Doubles output_gradient = {};
  // Values of each buffer, in order; empty: its first ones.
  std::vector<Doubles> buffers = {};
  // Values of each carried state, in order; empty: random, by the number of the sample.
  std::vector<Doubles> carried = {};

  int64_t samples() const { return inputs[0].samples(); }
};

// The input with its samples along that axis; its values stay where they are.
TestInput Along(int batch_axis, TestInput input);

// The case of samples [begin, end) alone.  Preconditions: output gradients and what is carried are
// random.
LayerCase Slice(const LayerCase& whole, int64_t begin, int64_t end);

// Of [a, b, ...] the values in the order of [b, a, ...].
Doubles Swapped(const Doubles& x, int64_t a, int64_t b);

// dL/doutput[i] of a case that gives none; i counts over all ranks.
double RandomCotangent(int64_t i);

}  // namespace gyre
