#include "engine/training/step/update_gate.h"

#include <cmath>

#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

template <typename T>
struct GradientSquares : SumReduction<double> {
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
  double shares;
  LossScaleState* state;
  UpdateScalars* update;
  StepScalars* block;
  HOST_DEVICE void operator()(int64_t) const {
    double total = 0;
    int64_t bad = -1;
    for (int b = 0; b < buckets; ++b) {
      total += sums[b];
      if (bad < 0 && !(sums[b] - sums[b] == 0)) bad = b;
    }
    const double scale = state != nullptr ? state->scale : block->loss_scale;
    const double norm = shares * sqrt(total) / scale;
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
      update->SetNumber(static_cast<double>(block->position.step) -
                        static_cast<double>(state->skipped));
      if (++state->good_steps >= growth_interval) {  // a run that goes on may have a smaller one
        if (state->scale <= kMostLossScale / 2) state->scale *= 2;
        state->good_steps = 0;
      }
    }
    block->gradients.loss_scale = *state;
  }
};

// Squares in kLanes consecutive lanes of a range.  A CPU's vectors take all lanes at once, and a
// GPU's threads take one each.
template <typename T, int kLanes>
struct SquaresInLanes {
  const T* part;
  int64_t first;
  const ElementRange* pieces;
  double* lanes;
  HOST_DEVICE void operator()(int64_t i) const {
    const ElementRange piece = pieces[i * kLanes / kSquareLanes];
    const int64_t lane = i * kLanes % kSquareLanes;
    const T* const data = part + (piece.begin - first) + lane;
    const int64_t count = piece.end - piece.begin - lane;
    double sums[kLanes] = {};
    int64_t at = 0;
    for (; at + kLanes <= count; at += kSquareLanes) {
      for (int k = 0; k < kLanes; ++k) {
        const double x = data[at + k];
        sums[k] += x * x;
      }
    }
    for (int k = 0; at + k < count && k < kLanes; ++k) {
      const double x = data[at + k];
      sums[k] += x * x;
    }
    for (int k = 0; k < kLanes; ++k) lanes[i * kLanes + k] = sums[k];
  }
};

struct AddLanes {
  const double* lanes;
  double* squares;
  HOST_DEVICE void operator()(int64_t piece) const {
    double sum = 0;
    for (int k = 0; k < kSquareLanes; ++k) sum += lanes[piece * kSquareLanes + k];
    squares[piece] = sum;
  }
};

template <typename T>
struct ScaleOrSpoilElement {
  T* gradient;
  const UpdateScalars* update;
  const GradientReport* report;
  HOST_DEVICE void operator()(int64_t i) const {
    using A = AccumulateType<T>;
    const A x = gradient[i];
    const bool spoils = report->bad_bucket >= 0 || update->skip;
    gradient[i] =
        static_cast<T>(spoils ? static_cast<A>(NAN) : x * static_cast<A>(update->gradient_scale));
  }
};

template <typename T>
struct SetUnlessSpoilt {
  const T* gradient;
  UpdateScalars value;
  double number;
  int64_t* dropped;
  UpdateScalars* to;
  HOST_DEVICE void operator()(int64_t) const {
    const double x = *gradient;
    UpdateScalars update = value;
    update.skip = !(x - x == 0);
    if (update.skip) {
      ++*dropped;
    } else {
      update.SetNumber(number - static_cast<double>(*dropped));
    }
    *to = update;
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
    GYRE_CHECK(ForEachRowScratch<GradientSquares<T>>(1, gradient.elements()) <=
               kSumSquaresScratchBytes);
    return ForEachRow(stream, 1, gradient.elements(), GradientSquares<T>{{}, gradient.as<T>(), sum},
                      scratch);
  });
}

absl::Status PassGate(Stream& stream, const UpdateGate& gate, const double* sums, int buckets,
                      UpdateScalars* update, StepScalars* block) {
  return ForEach(stream, 1,
                 Gate{sums, buckets, gate.clip_norm.has_value(), gate.clip_norm.value_or(0),
                      gate.growth_interval, gate.shares, gate.loss_scale, update, block});
}

absl::Status SumSquaresOfRanges(Stream& stream, Tensor part, int64_t first,
                                const ElementRange* pieces, int64_t count, double* lanes,
                                double* squares) {
  RETURN_IF_ERROR(VisitReal(part.dtype, [&]<typename T>() {
    if (stream.kind() == DeviceKind::kCuda) {
      return ForEach(stream, count * kSquareLanes,
                     SquaresInLanes<T, 1>{part.as<T>(), first, pieces, lanes});
    }
    const SquaresInLanes<T, kSquareLanes> squares_of{part.as<T>(), first, pieces, lanes};
    return stream.Call([count, squares_of] {
      ForEachOnHost(count, squares_of);
      return absl::OkStatus();
    });
  }));
  return ForEach(stream, count, AddLanes{lanes, squares});
}

absl::Status ScaleOrSpoil(Stream& stream, Tensor gradient, const UpdateScalars* update,
                          const GradientReport* report) {
  return VisitReal(gradient.dtype, [&]<typename T>() {
    return ForEach(stream, gradient.elements(),
                   ScaleOrSpoilElement<T>{gradient.as<T>(), update, report});
  });
}

absl::Status SetUpdateUnlessSpoilt(Stream& stream, Tensor gradient, const UpdateScalars& value,
                                   int64_t number, int64_t* dropped, UpdateScalars* to) {
  return VisitReal(gradient.dtype, [&]<typename T>() {
    return ForEach(
        stream, 1,
        SetUnlessSpoilt<T>{gradient.as<T>(), value, static_cast<double>(number), dropped, to});
  });
}

absl::Status SetLossScale(Stream& stream, const LossScaleState& value, LossScaleState* state) {
  return ForEach(stream, 1, Set<LossScaleState>{value, state});
}

absl::Status SetUpdate(Stream& stream, const UpdateScalars& value, UpdateScalars* update) {
  return ForEach(stream, 1, Set<UpdateScalars>{value, update});
}

}  // namespace gyre
