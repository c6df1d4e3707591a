#include "tests/layers/layer_case.h"

#include <algorithm>
#include <random>

#include "engine/runtime/random.h"
#include "tests/layers/share.h"

namespace gyre {

TestInput Real(const Shape& shape, Doubles values) {
  GYRE_CHECK(static_cast<int64_t>(values.size()) == shape.elements());
  return {.shape = shape, .values = std::move(values)};
}

TestInput Labels(const std::vector<int32_t>& labels) {
  return Labels(Shape{static_cast<int64_t>(labels.size())}, labels);
}

TestInput Labels(const Shape& shape, const std::vector<int32_t>& labels) {
  GYRE_CHECK(static_cast<int64_t>(labels.size()) == shape.elements());
  return {.shape = shape, .is_label = true, .values = Doubles(labels.begin(), labels.end())};
}

TestInput SampleWeightsOf(Doubles weights) {
  const Shape samples{std::ssize(weights)};
  TestInput input = Real(samples, std::move(weights));
  input.is_data = true;
  return input;
}

TestInput Distinct(const Shape& shape, uint64_t seed, double scale) {
  const auto n = static_cast<size_t>(shape.elements());
  Doubles values(n);
  // 0.3: an even or odd number of values, none falls on 0.
  for (size_t i = 0; i < n; ++i) {
    values[i] = scale * (2 * (static_cast<double>(i) + 0.3) / static_cast<double>(n) - 1);
  }
  std::mt19937_64 random(seed);
  std::shuffle(values.begin(), values.end(), random);
  return {.shape = shape, .values = std::move(values)};
}

TestInput Positive(const Shape& shape, uint64_t seed) {
  TestInput input = Distinct(shape, seed, 0.5);
  for (double& value : input.values) value += 0.55;
  return input;
}

LayerCase Slice(const LayerCase& whole, int64_t begin, int64_t end) {
  LayerCase part = whole;
  for (TestInput& input : part.inputs) {
    Values cut = Cut({input.shape, input.values}, input.batch_axis, begin, end);
    input.shape = cut.shape;
    input.values = std::move(cut.values);
  }
  return part;
}

TestInput Along(int batch_axis, TestInput input) {
  input.batch_axis = batch_axis;
  return input;
}

Doubles Swapped(const Doubles& x, int64_t a, int64_t b) {
  const int64_t inner = std::ssize(x) / (a * b);
  Doubles y(x.size());
  for (int64_t i = 0; i < a; ++i) {
    for (int64_t j = 0; j < b; ++j) {
      std::copy_n(x.begin() + (i * b + j) * inner, inner, y.begin() + (j * a + i) * inner);
    }
  }
  return y;
}

double RandomCotangent(int64_t i) {
  const RandomBits bits = Philox(/*key=*/77, 0, static_cast<uint64_t>(i));
  return 2 * UniformDouble(bits.v[0], bits.v[1]) - 1;
}

}  // namespace gyre
