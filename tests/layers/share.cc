#include "tests/layers/share.h"

namespace gyre {

Values Join(const std::vector<Values>& parts, int axis) {
  Values whole = parts[0];
  if (whole.shape.rank() == 0) {
    for (size_t p = 1; p < parts.size(); ++p) whole.values[0] += parts[p].values[0];
    return whole;
  }
  int64_t samples = 0;
  for (const Values& part : parts) samples += part.shape[axis];
  whole.shape = whole.shape.With(axis, samples);
  whole.values.clear();
  for (int64_t outer = 0; outer < whole.shape.elements(0, axis); ++outer) {
    for (const Values& part : parts) {
      const int64_t run = part.shape.elements(axis, part.shape.rank());
      const auto from = part.values.begin() + outer * run;
      whole.values.insert(whole.values.end(), from, from + run);
    }
  }
  return whole;
}

Values Cut(const Values& whole, int axis, int64_t begin, int64_t end) {
  Values part{whole.shape.With(axis, end - begin), {}};
  const int64_t inner = whole.shape.elements(axis + 1, whole.shape.rank());
  for (int64_t outer = 0; outer < whole.shape.elements(0, axis); ++outer) {
    const auto from = whole.values.begin() + outer * whole.shape[axis] * inner;
    part.values.insert(part.values.end(), from + begin * inner, from + end * inner);
  }
  return part;
}

}  // namespace gyre
