// add, multiply: y = x_0 + x_1 + ..., y = x_0 x_1 ..., element by element.  2 to kMost inputs, and
// y, have one shape [N, ...].

#include <algorithm>

#include "absl/strings/str_format.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/common/output_relu.h"
#include "layers/interface/infer.h"
#include "layers/interface/onnx.h"

namespace gyre {
namespace {

// A functor carries a pointer for each.
constexpr int kMost = 8;

template <typename T>
struct Operands {
  const T* x[kMost];
  int count;
};

// Count: number of operands, or 0 if only `count` has it.  Two are so common that they get a loop
// of their own, which is vectorised.
template <typename T, int Count, typename Output>
struct AddForward {
  Operands<T> in;
  Output output;
  T* y;
  HOST_DEVICE T Load(int64_t i) const {
    AccumulateType<T> sum = in.x[0][i];
    for (int k = 1; k < (Count > 0 ? Count : in.count); ++k) sum += in.x[k][i];
    return static_cast<T>(output(sum));
  }
  HOST_DEVICE void Store(int64_t i, T v) const { y[i] = v; }
};

// Addresses of the operands' gradients, each once, but a single one twice.
template <typename T>
struct OperandGradients {
  T* dx[kMost];
  int count;
};

// Backward of a sum with a ReLU applied.  All operands have one gradient.  Count: of addresses, or
// 0.
template <typename T, int Count>
struct AddReluBackward {
  OutputRelu<T> relu;
  const T* y;
  const T* dy;
  OperandGradients<T> to;
  HOST_DEVICE OutputAndGradient<T> Load(int64_t i) const { return {y[i], dy[i]}; }
  HOST_DEVICE void Store(int64_t i, OutputAndGradient<T> in) const {
    const T gradient = relu.Passes(in.y) ? in.dy : static_cast<T>(0);
    for (int k = 0; k < (Count > 0 ? Count : to.count); ++k) to.dx[k][i] = gradient;
  }
};

template <typename T, int Count>
struct MultiplyForward {
  Operands<T> in;
  T* y;
  HOST_DEVICE void operator()(int64_t i) const {
    AccumulateType<T> product = in.x[0][i];
    for (int k = 1; k < (Count > 0 ? Count : in.count); ++k) product *= in.x[k][i];
    y[i] = static_cast<T>(product);
  }
};

// The gradient of factor `of`: dy times the others.
template <typename T, int Count>
struct MultiplyBackward {
  Operands<T> in;
  int of;
  const T* dy;
  T* dx;
  HOST_DEVICE void operator()(int64_t i) const {
    AccumulateType<T> product = dy[i];
    for (int k = 0; k < (Count > 0 ? Count : in.count); ++k) {
      if (k != of) product *= in.x[k][i];
    }
    dx[i] = static_cast<T>(product);
  }
};

class Combine : public Layer {
 public:
  explicit Combine(bool multiplies) : multiplies_(multiplies) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    count_ = static_cast<int>(input.inputs.size());
    if (count_ < 2 || count_ > kMost) {
      return absl::InvalidArgumentError(
          absl::StrFormat("expects 2 to %d inputs, got %d", kMost, count_));
    }
    const Shape& shape = input.inputs[0];
    RETURN_IF_ERROR(SampleElements(input).status());
    LayerSpec spec;
    for (int k = 0; k < count_; ++k) {
      const std::string name = absl::StrFormat("input%d", k);
      InferInput one = input;
      one.inputs = input.inputs.subspan(k, 1);
      one.dtypes = input.dtypes.subspan(k, 1);
      RETURN_IF_ERROR(CheckInputs(one, {{name, input.compute}}));
      if (!(input.inputs[k] == shape)) {
        return absl::InvalidArgumentError(
            absl::StrFormat("expects inputs of one shape, got %s and %s", shape.ToString(),
                            input.inputs[k].ToString()));
      }
      spec.states.push_back(MakeState(name, StateKind::kInput, shape, input.compute, kRead,
                                      InBackward(input, multiplies_ ? kRead : kNone)));
    }
    RETURN_IF_ERROR(CommonBatchAxis(input).status());
    compute_ = input.compute;
    elements_ = shape.elements();
    relu_ = !multiplies_ && input.output_activation == Activation::kRelu;
    max_ = input.output_max;
    spec.states.push_back(MakeOutput(input, shape, InBackward(input, relu_ ? kRead : kNone)));
    if (!multiplies_) spec.aliases = {{.output = count_, .input = 0, .must = false}};
    spec.applied_activation = spec.applied_backward = !multiplies_;
    spec.passes_gradient = spec.cheap = !multiplies_;
    spec.forward_flops = static_cast<double>(elements_) * (count_ - 1);
    if (multiplies_) spec.backward_flops = spec.forward_flops * count_;
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return Visit([&]<typename T, int Count>() {
      const Operands<T> in = OperandsOf<T>(context);
      T* const y = context.states[count_].as<T>();
      const auto run = [&](auto functor) { return ForEach(context.stream, elements_, functor); };
      if (multiplies_) return run(MultiplyForward<T, Count>{in, y});
      if (relu_) return run(AddForward<T, Count, OutputRelu<T>>{in, OutputRelu<T>(max_), y});
      return run(AddForward<T, Count, PlainOutput<T>>{in, {}, y});
    });
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    const OnnxForm form = onnx.Form();
    std::string y = onnx.Input(0, form);
    for (int k = 1; k < count_; ++k) {
      y = onnx.Node(multiplies_ ? "Mul" : "Add", {y, onnx.Input(k, form)});
    }
    onnx.Output(0, y, form);
    return absl::OkStatus();
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (relu_) return BackwardRelu(context);
    const Tensor& dy = context.gradients[count_];
    // The first last: it may share memory with dy.
    for (int k = count_ - 1; k >= 0; --k) {
      const Tensor& dx = context.gradients[k];
      if (!dx || (!multiplies_ && dx.data == dy.data)) continue;
      if (!multiplies_) {
        RETURN_IF_ERROR(context.stream.Copy(dx.data, dy.data, dy.bytes()));
        continue;
      }
      RETURN_IF_ERROR((Visit([&]<typename T, int Count>() {
        return ForEach(
            context.stream, elements_,
            MultiplyBackward<T, Count>{OperandsOf<T>(context), k, dy.as<T>(), dx.as<T>()});
      })));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status BackwardRelu(const LayerContext& context) const {
    return VisitReal(compute_, [&]<typename T>() -> absl::Status {
      OperandGradients<T> to{{}, 0};
      for (const Tensor& dx : context.gradients.first(count_)) {
        T* const address = dx ? dx.as<T>() : nullptr;
        if (address != nullptr && std::find(to.dx, to.dx + to.count, address) == to.dx + to.count) {
          to.dx[to.count++] = address;
        }
      }
      if (to.count == 0) return absl::OkStatus();
      if (to.count == 1) to.dx[to.count++] = to.dx[0];
      const auto run = [&]<int Count>() {
        return ForEach(
            context.stream, elements_,
            AddReluBackward<T, Count>{OutputRelu<T>(max_), context.states[count_].as<T>(),
                                      context.gradients[count_].as<T>(), to});
      };
      return to.count == 2 ? run.template operator()<2>() : run.template operator()<0>();
    });
  }

  template <typename F>
  absl::Status Visit(const F& f) const {
    return VisitReal(compute_, [&]<typename T>() {
      return count_ == 2 ? f.template operator()<T, 2>() : f.template operator()<T, 0>();
    });
  }

  template <typename T>
  Operands<T> OperandsOf(const LayerContext& context) const {
    Operands<T> in{{}, count_};
    for (int k = 0; k < count_; ++k) in.x[k] = context.states[k].as<T>();
    return in;
  }

  const bool multiplies_;
  bool relu_ = false;
  double max_ = 0;  // of the ReLU
  int count_ = 0;
  DType compute_ = DType::kF32;
  int64_t elements_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateAdd(const AddConfig&) {
  return std::make_unique<Combine>(/*multiplies=*/false);
}

absl::StatusOr<std::unique_ptr<Layer>> CreateMultiply(const MultiplyConfig&) {
  return std::make_unique<Combine>(/*multiplies=*/true);
}

}  // namespace gyre
