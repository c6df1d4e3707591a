#include "tests/any_device/step_kernels.h"

#include <vector>

#include "distributed/collectives/device_reduction.h"
#include "distributed/parameter_server/row_kernels.h"
#include "engine/training/net/infer/net_kernels.h"
#include "engine/training/net/run/row_kernels.h"
#include "engine/training/step/update_gate.h"

namespace gyre {
namespace {

constexpr DType kRealTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};
constexpr UpdateScalars kUpdate = {
    .learning_rate = 0.1, .gradient_scale = 0.5, .decay = {0.9, 0.99}, .correction = {{0.1, 0.01}}};

}  // namespace

// rows: of a table of 5 columns.
absl::Status StepKernels::RunUpdate(const Optimizer& optimizer, DType dtype, Tensor rows) const {
  const Shape shape{35};
  std::vector<Tensor> slots;
  for (size_t i = 0; i < optimizer.slot_names().size(); ++i) {
    slots.push_back(make_(shape, AccumulateDType(dtype)));
    // A mean of squares is 0 or more.
    RETURN_IF_ERROR(Fill(stream_, 0.25, slots.back()));
  }
  const ParameterViews parameter = {.value = make_(shape, dtype),
                                    .gradient = make_(shape, dtype),
                                    .slots = slots,
                                    .master = make_(shape, AccumulateDType(dtype)),
                                    .rows = rows,
                                    .width = 5,
                                    .norms = {.before = 3,
                                              .columns = 19,
                                              .own = Zeros<PieceSquares>(2),
                                              .all = Zeros<PieceSquares>(2),
                                              .count = 2,
                                              .ratio = Numbers(1),
                                              .logged = Numbers(2)}};
  auto* const update = Zeros<UpdateScalars>();
  RETURN_IF_ERROR(SetUpdate(stream_, kUpdate, update));
  if (optimizer.scales_by_norms()) {
    RETURN_IF_ERROR(MeasureGradients(stream_, update, {&parameter, 1}));
    RETURN_IF_ERROR(optimizer.Measure(stream_, update, {&parameter, 1}));
  }
  return optimizer.Update(stream_, update, {&parameter, 1});
}

absl::Status StepKernels::RunOptimizers(DType dtype) const {
  OptimizerConfig::Sgd plain, momentum, nesterov;
  momentum.set_momentum(0.9);
  nesterov.set_momentum(0.9);
  nesterov.set_nesterov(true);
  for (const Tensor& rows : {Tensor{}, make_({4}, DType::kI32)}) {
    for (const OptimizerConfig::Sgd& config : {plain, momentum, nesterov}) {
      RETURN_IF_ERROR(RunUpdate(*NewSgd(config, 1e-4), dtype, rows));
    }
    RETURN_IF_ERROR(RunUpdate(*NewAdam({}, 1e-4), dtype, rows));
    RETURN_IF_ERROR(RunUpdate(*NewAverage(NewSgd(plain, 1e-4), 0.9), dtype, rows));
  }
  RETURN_IF_ERROR(RunUpdate(*NewLars({}, 1e-4), dtype, {}));
  RETURN_IF_ERROR(RunUpdate(*NewLamb({}, 1e-4), dtype, {}));
  return absl::OkStatus();
}

absl::Status StepKernels::RunElements(DType dtype, int64_t elements) const {
  const auto numbers = [&] { return make_({elements}, dtype); };
  RETURN_IF_ERROR(Fill(stream_, 1, numbers()));
  RETURN_IF_ERROR(FillScaled(stream_, 1, Numbers(1), numbers()));
  const Tensor a = numbers();
  for (const size_t terms : {2, 3, 4}) {
    RETURN_IF_ERROR(SumOf(stream_, std::vector<Tensor>(terms, a), numbers()));
  }
  for (const size_t terms : {1, 2}) {
    RETURN_IF_ERROR(AddToMean(stream_, std::vector<Tensor>(terms, a), Zeros<BatchMean>(),
                              make_({elements}, AccumulateDType(dtype)), numbers()));
  }
  RETURN_IF_ERROR(Weigh(stream_, Zeros<StepScalars>(), Numbers(1), 2, Zeros<BatchMean>()));
  for (const DType to : kRealTypes) {
    RETURN_IF_ERROR(Convert(stream_, a, make_({elements}, to)));
  }
  RETURN_IF_ERROR(LookUp(stream_, make_({elements}, DType::kU8), make_({256}, dtype), numbers()));
  RETURN_IF_ERROR(SumSquares(stream_, a, Zeros<std::byte>(kSumSquaresScratchBytes), Numbers(1)));
  RETURN_IF_ERROR(SumSquaresOfRanges(stream_, a, 0, Zeros<ElementRange>(2), 2,
                                     Numbers(2 * kSquareLanes), Numbers(2)));
  auto* const update = Zeros<UpdateScalars>();
  RETURN_IF_ERROR(ScaleOrSpoil(stream_, numbers(), update, Zeros<GradientReport>()));
  return SetUpdateUnlessSpoilt(stream_, a, {}, 3, Zeros<int64_t>(), update);
}

absl::Status StepKernels::RunRows(DType dtype) const {
  const auto table = [&] { return make_({7 * 5}, dtype); };
  const Tensor values = make_({4 * 5}, dtype);
  RETURN_IF_ERROR(PackRows(stream_, make_({4}, DType::kF64), 5, table(), make_({4 * 5}, dtype)));
  RETURN_IF_ERROR(UnpackRows(stream_, make_({4}, DType::kI32), 5, values, table()));
  const int32_t* const indices = make_({4}, DType::kI32).as<int32_t>();
  for (const int32_t* const index : {indices, decltype(indices){nullptr}}) {
    const RowIndices places = {.index = index, .first = 1, .count = 4};
    for (const Tensor& to : {table(), make_({7 * 5}, AccumulateDType(dtype))}) {
      RETURN_IF_ERROR(GatherRows(stream_, places, 5, to, make_({4 * 5}, dtype)));
      RETURN_IF_ERROR(ScatterRows(stream_, places, 5, values, to));
      RETURN_IF_ERROR(AddScaledRows(stream_, places, 5, 0.5, values, to));
    }
  }
  return FillWithZeros(stream_, table());
}

absl::Status StepKernels::RunNetSteps(DType dtype) const {
  for (const int64_t elements : {35, 1 << 20}) {  // in one piece, and in several
    RETURN_IF_ERROR(RunElements(dtype, elements));
  }
  if (SizeOf(dtype) == 2) {
    RETURN_IF_ERROR(RoundTo(stream_, dtype, make_({35}, DType::kF32)));
  }
  RETURN_IF_ERROR(RunRows(dtype));
  const Tensor sum = make_({35}, dtype);
  RETURN_IF_ERROR(EnqueueAdd(stream_, dtype, sum.data, make_({35}, dtype).data, 35));
  return EnqueueMeasure(stream_, dtype, sum.data, 35, Zeros<DeviceMeasure>());
}

absl::Status StepKernels::RunScalars() const {
  const Tensor kept = make_({4}, DType::kI32), first = make_({7}, DType::kI32);
  RETURN_IF_ERROR(KeepIndices(stream_, make_({2}, DType::kI32), 7, 2, kept));
  for (const DType names : {DType::kI32, DType::kF64}) {
    RETURN_IF_ERROR(NameRows(stream_, kept, first, make_({4}, names)));
  }
  auto* const block = Zeros<StepScalars>();
  auto* const scale = Zeros<LossScaleState>();
  RETURN_IF_ERROR(SetLossScale(stream_, {}, scale));
  RETURN_IF_ERROR(SetUpdate(stream_, {}, &block->updates[0]));
  return PassGate(stream_, {2.0, scale, 3}, Numbers(1), 1, &block->updates[0], block);
}

}  // namespace gyre
