// softmax: y = e^x / sum e^x over the last axis; x, y: [..., C].  dx = y (dy - sum y dy): backward
// reads y alone, and the layer may work in place.

#include <cmath>

#include "engine/runtime/elementary.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/common/max_and_exp_sum.h"
#include "layers/interface/infer.h"

namespace gyre {
namespace {

constexpr int kX = 0, kY = 1;  // states

// Of some elements of a row: the largest, and the sum of exp(x - largest).  A NaN or +inf, or a row
// of -inf, makes its row NaN.
// Source: Milakov & Gimelshein 2018, arXiv:1805.02867, Alg. 3.
template <typename T>
struct SoftmaxRows {
  using A = AccumulateType<T>;
  using Value = MaxAndExpSum<A>;
  int64_t columns;
  const T* x;
  T* y;

  HOST_DEVICE Value Identity() const { return {-static_cast<A>(INFINITY), 0}; }
  HOST_DEVICE Value Load(int64_t row, int64_t column) const {
    return {static_cast<A>(x[row * columns + column]), 1};
  }
  HOST_DEVICE Value Combine(Value a, Value b) const {
    const bool b_is_larger = a.largest < b.largest;
    const A larger = b_is_larger ? b.largest : a.largest,
            smaller = b_is_larger ? a.largest : b.largest;
    // Equal infinities have no difference.  A NaN's takes it into the sum.
    const A scale = larger == smaller ? A{1} : Exp(smaller - larger);
    return {larger, b_is_larger ? b.sum + a.sum * scale : a.sum + b.sum * scale};
  }
  // The sum becomes its reciprocal, or NaN if the maximum is not finite.
  HOST_DEVICE Value Finish(Value v) const {
    return {v.largest, A{1} / v.sum + (v.largest - v.largest)};
  }
  HOST_DEVICE void Apply(int64_t row, int64_t column, Value v) const {
    const int64_t i = row * columns + column;
    y[i] = static_cast<T>(Exp(static_cast<A>(x[i]) - v.largest) * v.sum);
  }
};

template <typename T>
struct SoftmaxGradient : SumReduction<AccumulateType<T>> {
  using A = AccumulateType<T>;
  int64_t columns;
  const T* y;
  const T* dy;
  T* dx;

  HOST_DEVICE A Load(int64_t row, int64_t column) const {
    const int64_t i = row * columns + column;
    return static_cast<A>(y[i]) * static_cast<A>(dy[i]);
  }
  HOST_DEVICE A Finish(A sum) const { return sum; }
  HOST_DEVICE void Apply(int64_t row, int64_t column, A sum) const {
    const int64_t i = row * columns + column;
    dx[i] = static_cast<T>(static_cast<A>(y[i]) * (static_cast<A>(dy[i]) - sum));
  }
};

class Softmax : public Layer {
 public:
  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    RETURN_IF_ERROR(CheckInputs(input, {{"x", input.compute}}));
    const Shape& shape = input.inputs[kX];
    ASSIGN_OR_RETURN(rows_, RowsOf(input, "x", "channels"));
    compute_ = input.compute;
    LayerSpec spec;
    spec.states = {MakeState("input", StateKind::kInput, shape, compute_, kRead, kNone),
                   MakeOutput(input, shape, InBackward(input, kRead))};
    spec.aliases = {{.output = kY, .input = kX, .must = false}};
    // Maximum, difference, exponential, sum, quotient; product, sum, difference, product.
    spec.forward_flops = 5 * static_cast<double>(shape.elements());
    spec.backward_flops = 4 * static_cast<double>(shape.elements());
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return VisitReal(compute_, [&]<typename T>() {
      return TransformRows(
          context.stream, rows_.count, rows_.columns,
          SoftmaxRows<T>{rows_.columns, context.states[kX].as<T>(), context.states[kY].as<T>()});
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!context.gradients[kX]) return absl::OkStatus();
    return VisitReal(compute_, [&]<typename T>() {
      return TransformRows(context.stream, rows_.count, rows_.columns,
                           SoftmaxGradient<T>{{},
                                              rows_.columns,
                                              context.states[kY].as<T>(),
                                              context.gradients[kY].as<T>(),
                                              context.gradients[kX].as<T>()});
    });
  }

 private:
  DType compute_ = DType::kF32;
  Rows rows_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateSoftmax(const SoftmaxConfig&) {
  return std::make_unique<Softmax>();
}

}  // namespace gyre
