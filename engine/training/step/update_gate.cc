#include "engine/training/step/update_gate.h"

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

struct Gate {
  const double* sums;
  int buckets;
  bool clips;
  double clip_norm;
  int64_t growth_interval;
  LossScaleState* state;
  UpdateScalars* update;
  StepBlock* block;
  HOST_DEVICE void operator()(int64_t) const {
    double total = 0;
    int64_t bad = -1;
    for (int b = 0; b < buckets; ++b) {
      total += sums[b];
      if (bad < 0 && !(sums[b] - sums[b] == 0)) bad = b;
    }
    const double scale = state != nullptr ? state->scale : block->loss_scale;
    const double norm = sqrt(total) / scale;
    update->gradient_scale = (clips && norm > clip_norm ? clip_norm / norm : 1) / scale;
    block->gradients.norm = norm;
    block->gradients.bad_bucket = bad;
    if (state == nullptr) return;
    update->skip = bad >= 0;
    if (update->skip) {
      state->scale /= 2;
      state->good_steps = 0;
      ++state->skipped;
    } else {
      update->CorrectBias(static_cast<double>(block->position.step) -
                          static_cast<double>(state->skipped));
      if (++state->good_steps >= growth_interval) {  // a run that goes on may have a smaller one
        if (state->scale <= kMostLossScale / 2) state->scale *= 2;
        state->good_steps = 0;
      }
    }
    block->gradients.loss_scale = *state;
  }
};

template <typename T>
struct Set {
  T value;
  T* to;
  HOST_DEVICE void operator()(int64_t) const { *to = value; }
};

}  // namespace

absl::Status SumSquares(Stream& stream, Tensor gradient, void* scratch, double* sum) {
  return VisitReal(gradient.dtype, [&]<typename T>() {
    GYRE_CHECK(ForEachRowScratch<Squares<T>>(1, gradient.elements()) <= kSumSquaresScratchBytes);
    return ForEachRow(stream, 1, gradient.elements(), Squares<T>{{}, gradient.as<T>(), sum},
                      scratch);
  });
}

absl::Status PassGate(Stream& stream, const UpdateGate& gate, const double* sums, int buckets,
                      UpdateScalars* update, StepBlock* block) {
  return ForEach(stream, 1,
                 Gate{sums, buckets, gate.clip_norm.has_value(), gate.clip_norm.value_or(0),
                      gate.growth_interval, gate.loss_scale, update, block});
}

absl::Status SetLossScale(Stream& stream, const LossScaleState& value, LossScaleState* state) {
  return ForEach(stream, 1, Set<LossScaleState>{value, state});
}

absl::Status SetUpdate(Stream& stream, const UpdateScalars& value, UpdateScalars* update) {
  return ForEach(stream, 1, Set<UpdateScalars>{value, update});
}

}  // namespace gyre
