#include "engine/training/optimizers/trust_ratio.h"

namespace gyre {
namespace {

template <typename S>
struct SquareOfGradient {
  const UpdateScalars* update;
  const S* gradient;
  HOST_DEVICE double operator()(int64_t i) const {
    if (!update->logs_norms) return 0;
    const double x = static_cast<double>(gradient[i]) * update->gradient_scale;
    return x * x;
  }
};

}  // namespace

absl::Status MeasureGradients(Stream& stream, const UpdateScalars* update,
                              std::span<const ParameterViews> parameters) {
  for (const ParameterViews& p : parameters) {
    RETURN_IF_ERROR(VisitReal(p.gradient.dtype, [&]<typename S>() {
      return SumPieces(stream, p, SquareOfGradient<S>{update, p.gradient.as<S>()}, p.norms.logged);
    }));
  }
  return absl::OkStatus();
}

}  // namespace gyre
