// lstm, gru, rnn: layers that go along a sequence, one step after another.
//
// One direction of a layer, with x its rows and h' the state before a step:
//   forward   all rows   gates = x W_ih^T
//             each step  r = h' W_hh^T.  A cell (recurrent_cells.h) makes the gates' values from
//                        gates, r and the biases, in place, and h, which lstm may project
//   backward  each step  the cell makes gradients from the gates' values, in place.  These times
//                        W_hh are a term of the gradient of h'
//             all rows   dW_ih = dgates^T x,  dW_hh = dgates^T h',  dx = dgates W_ih,
//                        db = the sum of dgates, on a CPU step by step
// Of one sample, most rows of x have their product beside the steps' own
// (RecurrentBase::InputAhead).
//
// Backward needs the gates, h, lstm's c, and what a gru's candidate takes from h'.  A step's h is
// stored twice, in the output and contiguously for the next product.
//
// Marks (recurrent_cells.h) handle lengths and resets.  Rows from a length on have no gradient.  A
// GPU multiplies x's values there by 0, and a CPU leaves them out (recurrent_rows.h).

#include "absl/strings/str_cat.h"
#include "engine/runtime/random.h"
#include "layers/recurrent/recurrent_base.h"
#include "layers/recurrent/recurrent_onnx.h"

namespace gyre {
namespace {

class Recurrent : public Layer, RecurrentBase {
 public:
  explicit Recurrent(Options options) : RecurrentBase(std::move(options)) {}

  absl::StatusOr<LayerSpec> Infer(const InferInput& input) override {
    LayerSpec spec;
    ASSIGN_OR_RETURN(plan_, PlanRecurrent(options_, input, spec));
    const int64_t columns = options_.directions() * options_.width();
    for (int64_t layer = 0; plan_.drops && layer + 1 < options_.layers; ++layer) {
      const int64_t elements = plan_.rows.times * columns;
      dropped_.push_back({.rate = options_.dropout,
                          .key = RandomKey(input.random_key, absl::StrCat("layer ", layer)),
                          .samples = plan_.rows.samples,
                          .sample_elements = elements,
                          .inner = BatchAxis(input, 0) == 0 ? elements : columns});
    }
    const uint8_t access = kRead | kWrite;
    const auto add_scratch = [&](const char* name, bool backward) {
      const size_t bytes = VisitReal(plan_.compute, [&]<typename T>() {
        Arrays<T> arrays;
        return LayOut(options_, plan_, backward, nullptr, arrays);
      });
      return AddState(
          spec, MakeBytes(name, StateKind::kScratch, bytes, backward ? uint8_t{kNone} : access,
                          backward ? access : uint8_t{kNone}));
    };
    plan_.scratch = add_scratch("scratch", false);
    if (plan_.backward) plan_.backward_scratch = add_scratch("backward_scratch", true);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    const auto forward = [this](const LayerContext& now) { return RunForward(now); };
    return plan_.packs ? RunAtOnce(context, forward) : forward(context);
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!plan_.backward) return absl::OkStatus();
    const auto backward = [this](const LayerContext& now) { return RunBackward(now); };
    return plan_.packs ? RunAtOnce(context, backward) : backward(context);
  }

  absl::Status ToOnnx(OnnxWriter& onnx) const override {
    return RecurrentToOnnx(options_, plan_, onnx);
  }

  absl::Status Pack(int state, Tensor canonical, Tensor opaque) const override {
    const Gemm* const product = plan_.ProductOf(state);
    return product == nullptr ? Layer::Pack(state, canonical, opaque)
                              : product->PackHere(canonical.data, opaque.data);
  }

  absl::Status Unpack(int state, Tensor opaque, Tensor canonical) const override {
    const Gemm* const product = plan_.ProductOf(state);
    return product == nullptr ? Layer::Unpack(state, opaque, canonical)
                              : product->UnpackHere(opaque.data, canonical.data);
  }

 private:
  absl::Status RunForward(const LayerContext& context) const {
    return VisitReal(plan_.compute, [&]<typename T>() {
      const Arrays<T> arrays = ArraysOf<T>(context, /*backward=*/false);
      RETURN_IF_ERROR(TakeInput(context, arrays));
      for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
        ASSIGN_OR_RETURN(const T* const x, Input(context, layer, arrays));
        for (size_t d = 0; d < plan_.layers[layer].directions.size(); ++d) {
          RETURN_IF_ERROR(ForwardDirection({context, layer, d}, x, arrays));
        }
      }
      if (!plan_.packs) return absl::OkStatus();
      return Spread(context, columns(), arrays.inner_output, At<T>(context, plan_.output), arrays);
    });
  }

  absl::Status RunBackward(const LayerContext& context) const {
    return VisitReal(plan_.compute, [&]<typename T>() {
      const Arrays<T> arrays = ArraysOf<T>(context, /*backward=*/true);
      T* dy = GradientAt<T>(context, plan_.output);
      if (plan_.packs) {
        RETURN_IF_ERROR(TakeInput(context, arrays));
        if (plan_.previous) {
          RETURN_IF_ERROR(Gather(context, columns(), At<T>(context, plan_.output),
                                 arrays.inner_output, arrays));
        }
        if (dy != nullptr) {
          RETURN_IF_ERROR(Gather(context, columns(), dy, arrays.doutput, arrays));
          dy = arrays.doutput;
        }
      }
      if (dy == nullptr) {
        RETURN_IF_ERROR(Zero(context.stream, 1, columns(), arrays.zeros));
        dy = arrays.zeros;
      }
      for (size_t layer = plan_.layers.size(); layer-- > 0;) {
        RETURN_IF_ERROR(BackwardLayer(context, layer, dy, arrays));
        dy = arrays.doutput;
      }
      return absl::OkStatus();
    });
  }

  template <typename T>
  absl::Status ForwardDirection(const DirectionContext& direction, const T* x,
                                const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const Plan::Direction& states = StatesOf(direction);
    Stream& stream = context.stream;
    RETURN_IF_ERROR(Mark(direction, arrays));
    const Gemm& forward = *plan_.products(direction.layer).forward;
    RETURN_IF_ERROR(PackWeight(context, &forward, states.weight_ih, arrays.input_weight));
    const InputAhead ahead = AheadOf(direction);
    RETURN_IF_ERROR(MultiplyInput(direction, ahead, x, arrays));
    RETURN_IF_ERROR(Begin(direction, arrays));
    RETURN_IF_ERROR(PackWeight(context, plan_.step.get(), states.weight_hh, arrays.step_weight));
    RETURN_IF_ERROR(
        PackWeight(context, plan_.project.get(), states.weight_hr, arrays.projection_weight));
    for (int64_t s = 0; s < plan_.rows.times; ++s) {
      if (s == 0 && !options_.carry) {
        RETURN_IF_ERROR(Zero(stream, plan_.rows.samples, options_.gates(), arrays.gates));
      } else if (ahead.Has(s)) {
        RETURN_IF_ERROR(plan_.step->RunBeside(
            stream, arrays.hidden,
            WeightOf(context, *plan_.step, states.weight_hh, arrays.step_weight), arrays.gates,
            RowsAhead(direction, ahead, s, x, arrays)));
      } else {
        RETURN_IF_ERROR(Multiply(context, *plan_.step, SamplesOf(direction, s, arrays),
                                 arrays.hidden, states.weight_hh, arrays.step_weight, arrays.gates,
                                 arrays.products));
      }
      RETURN_IF_ERROR(ForwardStep(direction, s, arrays));
    }
    return End(direction, arrays);
  }

  // The running state, and the cell before the first step, which is kept.
  template <typename T>
  absl::Status Begin(const DirectionContext& direction, const Arrays<T>& arrays) const {
    using A = AccumulateType<T>;
    const Plan::Direction& states = StatesOf(direction);
    Stream& stream = direction.context.stream;
    const int64_t samples = plan_.rows.samples, hidden = options_.hidden, width = options_.width();
    const auto begin = [&]<typename E>(int64_t columns, int from, E* to) {
      if (!options_.carry) return Zero(stream, samples, columns, to);
      RETURN_IF_ERROR(TakeCarried(direction, from, columns, to, arrays));
      return ForEachCell(stream, samples, columns, BeginState<E>{arrays.marks, columns, to});
    };
    RETURN_IF_ERROR(begin(width, states.hidden, arrays.hidden));
    if (arrays.cell == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(begin(hidden, states.cell, arrays.cell));
    return ForEach(stream, samples * hidden,
                   RoundElement<A, T>{arrays.cell, CellsOf(direction, plan_.rows.times, arrays)});
  }

  template <typename T>
  absl::Status ForwardStep(const DirectionContext& direction, int64_t s,
                           const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const Plan::Direction& states = StatesOf(direction);
    const Step step = StepOf(direction, s, arrays);
    const int64_t samples = SamplesOf(direction, s, arrays);
    const int64_t hidden = options_.hidden, width = options_.width();
    const CellArrays<T> cell{step,
                             hidden,
                             options_.gates(),
                             plan_.backward,
                             At<T>(context, states.gates),
                             arrays.gates,
                             At<T>(context, states.bias_ih),
                             At<T>(context, states.bias_hh)};
    const StoreHidden<T> store{step, width, columns(),
                               Output(context, direction.layer, arrays) + direction.index * width,
                               arrays.hidden};
    const auto run = [&](const auto& functor) {
      return ForEachCell(context.stream, samples, hidden, functor);
    };
    switch (options_.cell) {
      case Options::kTanh:
        return run(RnnForward<T, TanhCell>{cell, store});
      case Options::kRelu:
        return run(RnnForward<T, ReluCell>{cell, store});
      case Options::kGru:
        return run(GruForward<T>{cell, At<T>(context, states.candidates), store});
      case Options::kLstm:
        break;
    }
    T* const cells = CellsOf(direction, s, arrays);
    if (!projects()) {
      return run(LstmForward<T, StoreHidden<T>>{cell, arrays.cell, cells, store});
    }
    RETURN_IF_ERROR(run(LstmForward<T, StoreUnprojected<T>>{
        cell, arrays.cell, cells, {hidden, arrays.unprojected}}));
    RETURN_IF_ERROR(Multiply(context, *plan_.project, samples, arrays.unprojected, states.weight_hr,
                             arrays.projection_weight, arrays.projected, arrays.products));
    return ForEachCell(context.stream, samples, width, StoreProjected<T>{arrays.projected, store});
  }

  // What comes after the last step.
  template <typename T>
  absl::Status End(const DirectionContext& direction, const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const Plan::Direction& states = StatesOf(direction);
    const int64_t samples = plan_.rows.samples, width = options_.width();
    if (plan_.last >= 0 && IsTop(direction)) {
      T* const last = At<T>(context, plan_.last) + direction.index * width;
      RETURN_IF_ERROR(TakeRows(context.stream, plan_.compute, samples, width, arrays.packed.place,
                               arrays.packed.zeros, {arrays.hidden, width}, {last, columns()}));
    }
    if (!options_.carry) return absl::OkStatus();
    const auto carry = [&](int state, int64_t columns, auto* from) {
      const Tensor& to = context.states[state + 1];
      return TakeRows(context.stream, to.dtype, samples, columns, arrays.packed.place,
                      arrays.packed.zeros, {from, columns}, {to.data, columns});
    };
    RETURN_IF_ERROR(carry(states.hidden, width, arrays.hidden));
    return arrays.cell == nullptr ? absl::OkStatus()
                                  : carry(states.cell, options_.hidden, arrays.cell);
  }

  // dy: of the layer's output.  Leaves that of its input in doutput, or where the net wants it.
  template <typename T>
  absl::Status BackwardLayer(const LayerContext& context, size_t layer, const T* dy,
                             const Arrays<T>& arrays) const {
    const std::vector<Plan::Direction>& directions = plan_.layers[layer].directions;
    ASSIGN_OR_RETURN(const T* const x, BackwardInput(context, layer, arrays));
    for (size_t d = 0; d < directions.size(); ++d) {
      const DirectionContext direction{context, layer, d};
      RETURN_IF_ERROR(BackwardSteps(direction, dy, arrays));
      RETURN_IF_ERROR(BackwardWeights(direction, x, arrays));
    }
    T* const dinput = GradientAt<T>(context, 0);
    if (layer == 0 && dinput == nullptr) return absl::OkStatus();
    T* const dx = layer > 0 ? arrays.doutput : plan_.packs ? arrays.inner_input : dinput;
    const Plan::InputProducts& products = plan_.products(layer);
    for (size_t d = 0; d < directions.size(); ++d) {
      const Gemm& product = d == 0 ? *products.dinput : *products.add_dinput;
      const int weight = directions[d].weight_ih;
      RETURN_IF_ERROR(PackWeight(context, &product, weight, arrays.input_weight));
      RETURN_IF_ERROR(Multiply(context, product, RowCount(arrays),
                               At<T>(context, directions[d].gates), weight, arrays.input_weight, dx,
                               arrays.products));
    }
    if (layer == 0) {
      return plan_.packs ? Spread(context, plan_.inputs, dx, dinput, arrays) : absl::OkStatus();
    }
    return plan_.drops ? Drop(context, layer - 1, dx, dx, arrays) : absl::OkStatus();
  }

  // Null where no weight's gradient wants it.
  template <typename T>
  absl::StatusOr<const T*> BackwardInput(const LayerContext& context, size_t layer,
                                         const Arrays<T>& arrays) const {
    for (const Plan::Direction& states : plan_.layers[layer].directions) {
      if (context.gradients[states.weight_ih]) return Input(context, layer, arrays);
    }
    return nullptr;
  }

  template <typename T>
  absl::Status BackwardSteps(const DirectionContext& direction, const T* dy,
                             const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const Plan::Direction& states = StatesOf(direction);
    Stream& stream = context.stream;
    const int64_t samples = plan_.rows.samples, width = options_.width();
    RETURN_IF_ERROR(Mark(direction, arrays));
    const T* const dlast =
        IsTop(direction) && plan_.last >= 0 ? GradientAt<T>(context, plan_.last) : nullptr;
    if (dlast == nullptr) {
      RETURN_IF_ERROR(Zero(stream, samples, width, arrays.last));
    } else {
      T* const from = const_cast<T*>(dlast) + direction.index * width;
      RETURN_IF_ERROR(TakeRows(stream, plan_.compute, samples, width, arrays.packed.order,
                               arrays.packed.zeros, {from, columns()}, {arrays.last, width}));
    }
    if (arrays.cell != nullptr) {
      RETURN_IF_ERROR(Zero(stream, samples, options_.hidden, arrays.cell));
    }
    if (plan_.previous) RETURN_IF_ERROR(TakePrevious(direction, arrays));
    RETURN_IF_ERROR(PackWeight(context, plan_.dstep.get(), states.weight_hh, arrays.step_weight));
    RETURN_IF_ERROR(
        PackWeight(context, plan_.dproject.get(), states.weight_hr, arrays.projection_weight));
    for (int64_t s = plan_.rows.times - 1; s >= 0; --s) {
      RETURN_IF_ERROR(BackwardStep(direction, s, dy, arrays));
      if (plan_.sums_steps) {
        RETURN_IF_ERROR(SumGates(direction, SamplesOf(direction, s, arrays), arrays.gates,
                                 states.bias_ih, states.bias_hh,
                                 /*adds=*/s + 1 < plan_.rows.times));
      }
      if (s == 0) break;
      RETURN_IF_ERROR(Multiply(context, *plan_.dstep, SamplesOf(direction, s, arrays), arrays.gates,
                               states.weight_hh, arrays.step_weight, arrays.hidden,
                               arrays.products));
    }
    return absl::OkStatus();
  }

  // Biases' gradients of some rows, the same for both; -1: only for the other.
  template <typename T>
  absl::Status SumGates(const DirectionContext& direction, int64_t rows, const T* gates, int bias,
                        int other, bool adds) const {
    T* const dbias = GradientAt<T>(direction.context, bias);
    T* const dother = GradientAt<T>(direction.context, other);
    if (dbias == nullptr && dother == nullptr) return absl::OkStatus();
    return ReduceColumns(direction.context.stream, rows, options_.gates(),
                         SumOfGates<T>{{}, options_.gates(), gates, dbias, dother, adds});
  }

  // h' of all rows.
  template <typename T>
  absl::Status TakePrevious(const DirectionContext& direction, const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const int64_t width = options_.width();
    PreviousHidden<T> previous;
    previous.to = arrays.previous;
    previous.width = width;
    for (int64_t s = 0; s < plan_.rows.times; ++s) {
      previous.step = StepOf(direction, s, arrays);
      previous.before = StepOf(direction, std::max<int64_t>(s - 1, 0), arrays);
      previous.stride = columns();
      previous.from = Output(context, direction.layer, arrays) + direction.index * width;
      if (s == 0 && options_.carry) {
        RETURN_IF_ERROR(
            TakeCarried(direction, StatesOf(direction).hidden, width, arrays.hidden, arrays));
        previous.before = {0, 1, nullptr, nullptr};
        previous.stride = width;
        previous.from = arrays.hidden;
      }
      RETURN_IF_ERROR(
          ForEachCell(context.stream, SamplesOf(direction, s, arrays), width, previous));
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status BackwardStep(const DirectionContext& direction, int64_t s, const T* dy,
                            const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const Plan::Direction& states = StatesOf(direction);
    const Step step = StepOf(direction, s, arrays);
    const int64_t samples = SamplesOf(direction, s, arrays);
    const int64_t hidden = options_.hidden, width = options_.width();
    const GateGradients<T> gates{step, hidden, options_.gates(), At<T>(context, states.gates),
                                 arrays.gates};
    const int64_t stride = dy == arrays.zeros ? 0 : columns();
    const HiddenGradient<T> gradient{
        step, width, stride, dy + direction.index * width, arrays.last, arrays.hidden};
    const auto run = [&](const auto& functor) {
      return ForEachCell(context.stream, samples, hidden, functor);
    };
    switch (options_.cell) {
      case Options::kTanh:
        return run(RnnBackward<T, TanhCell>{gates, gradient});
      case Options::kRelu:
        return run(RnnBackward<T, ReluCell>{gates, gradient});
      case Options::kGru:
        return run(GruBackward<T>{gates, gradient, arrays.previous,
                                  At<T>(context, states.candidates), arrays.cell});
      case Options::kLstm:
        break;
    }
    const T* const before = CellsOf(direction, s == 0 ? plan_.rows.times : s - 1, arrays);
    T* const cells = CellsOf(direction, s, arrays);
    if (!projects()) {
      return run(
          LstmBackward<T, HiddenGradient<T>, false>{gates, gradient, before, cells, arrays.cell});
    }
    T* const of_all = arrays.dprojected + FirstOf(direction, s, arrays) * width;
    RETURN_IF_ERROR(ForEachCell(context.stream, samples, width,
                                ProjectedGradient<T>{gradient, arrays.projected, of_all}));
    RETURN_IF_ERROR(Multiply(context, *plan_.dproject, samples, arrays.projected, states.weight_hr,
                             arrays.projection_weight, arrays.unprojected, arrays.products));
    return run(LstmBackward<T, UnprojectedGradient<T>, true>{
        gates, {hidden, arrays.unprojected}, before, cells, arrays.cell});
  }

  template <typename T>
  absl::Status BackwardWeights(const DirectionContext& direction, const T* x,
                               const Arrays<T>& arrays) const {
    const LayerContext& context = direction.context;
    const Plan::Direction& states = StatesOf(direction);
    Stream& stream = context.stream;
    T* const gates = At<T>(context, states.gates);
    const int64_t rows = RowCount(arrays), columns = options_.gates();
    // For sums over many rows oneDNN's plain function, behind RunRows, is faster than its
    // primitive: a step of 2 x 200 took 344 ms in place of 364.
    const auto product = [&](const Gemm& gemm, const T* a, const T* b, int of) {
      T* const to = GradientAt<T>(context, of);
      if (to == nullptr) return absl::OkStatus();
      return plan_.by_parts ? gemm.RunRows(stream, rows, a, b, to, arrays.products)
                            : Multiply(context, gemm, rows, a, b, to, arrays.products);
    };
    const bool is_gru = options_.cell == Options::kGru;
    const auto sum = [&](int bias, int other) {
      return SumGates(direction, rows, gates, bias, other, /*adds=*/false);
    };
    // Those of a GRU's candidate differ: x is not multiplied by r.
    const auto swap = [&] {
      if (!is_gru) return absl::OkStatus();
      return ForEachCell(
          stream, rows, options_.hidden,
          SwapColumns<T>{options_.hidden, columns, gates, At<T>(context, states.candidates)});
    };
    RETURN_IF_ERROR(product(*plan_.products(direction.layer).dweight, gates, x, states.weight_ih));
    if (!plan_.sums_steps) RETURN_IF_ERROR(sum(states.bias_ih, is_gru ? -1 : states.bias_hh));
    RETURN_IF_ERROR(swap());
    RETURN_IF_ERROR(product(*plan_.dweight_hh, gates, arrays.previous, states.weight_hh));
    if (is_gru) RETURN_IF_ERROR(sum(states.bias_hh, -1));
    RETURN_IF_ERROR(swap());
    if (!projects()) return absl::OkStatus();
    return product(*plan_.dweight_hr, arrays.dprojected, At<T>(context, states.cells),
                   states.weight_hr);
  }
};

template <typename Config>
RecurrentOptions Common(const Config& config) {
  RecurrentOptions options;
  options.hidden = config.hidden();
  options.layers = config.layers();
  options.bidirectional = config.bidirectional();
  options.dropout = config.dropout();
  options.carry = config.carry();
  options.last = config.last();
  options.weight = config.weight();
  options.recurrent = config.recurrent();
  options.bias = config.bias();
  return options;
}

absl::StatusOr<std::unique_ptr<Layer>> Create(RecurrentOptions options) {
  RETURN_IF_ERROR(Check(options));
  return std::make_unique<Recurrent>(std::move(options));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateLstm(const LstmConfig& config) {
  RecurrentOptions options = Common(config);
  options.cell = RecurrentOptions::kLstm;
  options.projection = config.projection();
  options.projection_weight = config.projection_weight();
  return Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<Layer>> CreateGru(const GruConfig& config) {
  RecurrentOptions options = Common(config);
  options.cell = RecurrentOptions::kGru;
  return Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<Layer>> CreateRnn(const RnnConfig& config) {
  RecurrentOptions options = Common(config);
  options.cell =
      config.nonlinearity() == RnnConfig::RELU ? RecurrentOptions::kRelu : RecurrentOptions::kTanh;
  return Create(std::move(options));
}

}  // namespace gyre
