#include "engine/training/step/gradient_clipping.h"

#include <cmath>

#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

template <typename T>
struct Squares : Sum<double> {
  const T* gradient;
  double* sum;
  HOST_DEVICE double Load(int64_t, int64_t i) const {
    const double x = gradient[i];
    return x * x;
  }
  HOST_DEVICE void Store(int64_t, double total) const { *sum = total; }
};

struct Clip {
  const double* sums;
  int buckets;
  bool clips;
  double clip_norm;
  UpdateScalars* update;
  GradientReport* report;
  HOST_DEVICE void operator()(int64_t) const {
    double total = 0;
    int64_t bad = -1;
    for (int b = 0; b < buckets; ++b) {
      total += sums[b];
      if (bad < 0 && !(sums[b] - sums[b] == 0)) bad = b;
    }
    const double norm = sqrt(total);
    if (clips && norm > clip_norm) update->gradient_scale = clip_norm / norm;
    report->norm = norm;
    report->bad_bucket = bad;
  }
};

}  // namespace

absl::Status SumSquares(Stream& stream, Tensor gradient, void* scratch, double* sum) {
  return VisitReal(gradient.dtype, [&]<typename T>() {
    GYRE_CHECK(ForEachRowScratch<Squares<T>>(1, gradient.elements()) <= kSumSquaresScratchBytes);
    return ForEachRow(stream, 1, gradient.elements(), Squares<T>{{}, gradient.as<T>(), sum},
                      scratch);
  });
}

absl::Status ClipGradients(Stream& stream, const double* sums, int buckets,
                           std::optional<double> clip_norm, UpdateScalars* update,
                           GradientReport* report) {
  return ForEach(stream, 1,
                 Clip{sums, buckets, clip_norm.has_value(), clip_norm.value_or(0), update, report});
}

}  // namespace gyre
