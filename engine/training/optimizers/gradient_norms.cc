#include "engine/runtime/parallel/parallel.h"
#include "engine/training/optimizers/optimizer.h"

namespace gyre {
namespace {

template <typename S>
struct SquaresOfGradient : SumReduction<double> {
  const UpdateScalars* update;
  const S* gradient;
  int64_t before, columns, count;
  double* pieces;
  HOST_DEVICE double Load(int64_t row, int64_t column) const {
    const int64_t i = row * columns + column - before;
    if (!update->logs_norms || i < 0 || i >= count) return 0;
    const double x = static_cast<double>(gradient[i]) * update->gradient_scale;
    return x * x;
  }
  HOST_DEVICE void Store(int64_t row, double sum) const { pieces[row] = sum; }
};

}  // namespace

absl::Status MeasureGradients(Stream& stream, const UpdateScalars* update,
                              std::span<const ParameterViews> parameters) {
  for (const ParameterViews& p : parameters) {
    const int64_t count = p.gradient.elements();
    if (count == 0) continue;
    RETURN_IF_ERROR(VisitReal(p.gradient.dtype, [&]<typename S>() {
      return ForEachRow(stream, CeilDiv(p.norms.before + count, p.norms.columns), p.norms.columns,
                        SquaresOfGradient<S>{{},
                                             update,
                                             p.gradient.as<S>(),
                                             p.norms.before,
                                             p.norms.columns,
                                             count,
                                             p.norms.logged});
    }));
  }
  return absl::OkStatus();
}

}  // namespace gyre
