// lstm, gru, rnn: layers that go along a sequence, one step after another.
//
// For a direction of a layer, with x its rows and h' the state before a step:
//   all rows:   gates = x W_ih^T
//   each step:  r = h' W_hh^T; of gates, r and the biases a cell (recurrent_cells.h) makes the
//               gates' values, in place, and h, which lstm may project
// and backward
//   each step:  of the gates' values the cell makes their gradients, in place; these times W_hh
//               are a part of the gradient of h'
//   all rows:   dW_ih = dgates^T x, dW_hh = dgates^T h', dx = dgates W_ih; db: sums of dgates
// What is kept for backward is the gates, h, lstm's c and what a gru's candidate takes from h'.  A
// step's h lies twice: in the output, and end to end for the next product.
//
// Samples have lengths and resets by marks: see recurrent_cells.h.  Rows from a length on have no
// gradient; x's values there are multiplied by 0.

#include "absl/strings/str_cat.h"
#include "engine/runtime/math.h"
#include "engine/runtime/parallel/column_sum.h"
#include "engine/runtime/random.h"
#include "layers/cells.h"
#include "layers/dropped.h"
#include "layers/recurrent_plan.h"

namespace gyre {
namespace {

using Options = RecurrentOptions;
using Plan = RecurrentPlan;

class Recurrent : public Layer {
 public:
  explicit Recurrent(Options options) : options_(std::move(options)) {}

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
      spec.states.push_back(MakeBytes(name, StateKind::kScratch, bytes,
                                      backward ? uint8_t{kNone} : access,
                                      backward ? access : uint8_t{kNone}));
      return static_cast<int>(spec.states.size()) - 1;
    };
    plan_.scratch = add_scratch("scratch", false);
    if (plan_.backward) plan_.backward_scratch = add_scratch("backward_scratch", true);
    return spec;
  }

  absl::Status Forward(const LayerContext& context) const override {
    return VisitReal(plan_.compute, [&]<typename T>() {
      const Arrays<T> arrays = ArraysOf<T>(context, /*backward=*/false);
      for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
        ASSIGN_OR_RETURN(const T* const x, Input(context, layer, arrays));
        for (size_t d = 0; d < plan_.layers[layer].directions.size(); ++d) {
          RETURN_IF_ERROR(ForwardDirection({context, layer, d}, x, arrays));
        }
      }
      return absl::OkStatus();
    });
  }

  absl::Status Backward(const LayerContext& context) const override {
    if (!plan_.backward) return absl::OkStatus();
    return VisitReal(plan_.compute, [&]<typename T>() {
      const Arrays<T> arrays = ArraysOf<T>(context, /*backward=*/true);
      const T* dy = GradientAt<T>(context, plan_.output);
      if (dy == nullptr) {
        RETURN_IF_ERROR(Zero(context.stream, plan_.row_count(), columns(), arrays.doutput));
        dy = arrays.doutput;
      }
      for (size_t layer = plan_.layers.size(); layer-- > 0;) {
        RETURN_IF_ERROR(BackwardLayer(context, layer, dy, arrays));
        dy = arrays.doutput;
      }
      return absl::OkStatus();
    });
  }

 private:
  template <typename T>
  using Arrays = RecurrentScratch<T>;

  struct Place {
    const LayerContext& context;
    size_t layer, direction;
    bool reverse() const { return direction == 1; }
  };

  int64_t columns() const { return options_.directions() * options_.width(); }
  bool projects() const { return options_.projection > 0; }
  const Plan::Direction& StatesOf(const Place& place) const {
    return plan_.layers[place.layer].directions[place.direction];
  }
  bool IsTop(const Place& place) const { return place.layer + 1 == plan_.layers.size(); }

  template <typename T>
  static T* At(const LayerContext& context, int state) {
    return state < 0 ? nullptr : static_cast<T*>(context.states[state].data);
  }
  template <typename T>
  static T* GradientAt(const LayerContext& context, int state) {
    return state < 0 ? nullptr : static_cast<T*>(context.gradients[state].data);
  }

  template <typename T>
  Arrays<T> ArraysOf(const LayerContext& context, bool backward) const {
    Arrays<T> arrays;
    LayOut(options_, plan_, backward,
           At<std::byte>(context, backward ? plan_.backward_scratch : plan_.scratch), arrays);
    return arrays;
  }

  // The products of the steps of a pass, which have one weight: it is packed before them.
  absl::Status PackWeight(const LayerContext& context, const Gemm* gemm, int weight,
                          std::byte* packed) const {
    if (gemm == nullptr || gemm->packed_bytes() == 0) return absl::OkStatus();
    return gemm->Pack(context.stream, At<void>(context, weight), packed);
  }
  absl::Status Multiply(const LayerContext& context, const Gemm& gemm, const void* a, int weight,
                        const std::byte* packed, void* c, void* scratch) const {
    const void* const b = gemm.packed_bytes() > 0 ? packed : At<void>(context, weight);
    return gemm.Run(context.stream, a, b, nullptr, c, scratch);
  }

  // What a layer takes in.
  template <typename T>
  absl::StatusOr<const T*> Input(const LayerContext& context, size_t layer,
                                 const Arrays<T>& arrays) const {
    if (layer == 0) return At<T>(context, 0);
    const T* const before = At<T>(context, plan_.layers[layer - 1].output);
    if (!plan_.drops) return before;
    RETURN_IF_ERROR(
        dropped_[layer - 1].Apply(context.stream, context.position, before, arrays.input));
    return arrays.input;
  }

  template <typename T>
  absl::Status Zero(Stream& stream, int64_t rows, int64_t columns, T* to) const {
    return ZeroCells(stream, kDTypeOf<T>, rows, columns, {to, columns});
  }

  absl::Status Mark(const Place& place, int32_t* marks) const {
    const LayerContext& context = place.context;
    return ForEachCell(
        context.stream, plan_.rows.times + 1, plan_.rows.samples,
        MarkSteps{plan_.rows, place.reverse(), options_.carry, At<int32_t>(context, plan_.lengths),
                  At<int32_t>(context, plan_.reset), marks, context.fault, context.layer});
  }

  Step StepOf(const Place& place, int64_t s, const int32_t* marks) const {
    const int64_t t = place.reverse() ? plan_.rows.times - 1 - s : s;
    const int32_t* const of_step = marks + s * plan_.rows.samples;
    return {plan_.rows(t, 0), plan_.rows.sample_step, of_step, of_step + plan_.rows.samples};
  }

  template <typename T>
  absl::Status ForwardDirection(const Place& place, const T* x, const Arrays<T>& arrays) const {
    const LayerContext& context = place.context;
    const Plan::Direction& states = StatesOf(place);
    Stream& stream = context.stream;
    RETURN_IF_ERROR(Mark(place, arrays.marks));
    RETURN_IF_ERROR(plan_.products(place.layer)
                        .forward->Run(stream, x, At<T>(context, states.weight_ih), nullptr,
                                      At<T>(context, states.gates), arrays.products));
    RETURN_IF_ERROR(Begin(place, arrays));
    RETURN_IF_ERROR(PackWeight(context, plan_.step.get(), states.weight_hh, arrays.step_weight));
    RETURN_IF_ERROR(
        PackWeight(context, plan_.project.get(), states.weight_hr, arrays.projection_weight));
    for (int64_t s = 0; s < plan_.rows.times; ++s) {
      if (s == 0 && !options_.carry) {
        RETURN_IF_ERROR(Zero(stream, plan_.rows.samples, options_.gates(), arrays.gates));
      } else {
        RETURN_IF_ERROR(Multiply(context, *plan_.step, arrays.hidden, states.weight_hh,
                                 arrays.step_weight, arrays.gates, arrays.products));
      }
      RETURN_IF_ERROR(ForwardStep(place, s, arrays));
    }
    return End(place, arrays);
  }

  // The running state, and the cell before the first step, which is kept.
  template <typename T>
  absl::Status Begin(const Place& place, const Arrays<T>& arrays) const {
    using A = AccumulateType<T>;
    const Plan::Direction& states = StatesOf(place);
    Stream& stream = place.context.stream;
    const int64_t samples = plan_.rows.samples, hidden = options_.hidden, width = options_.width();
    const auto begin = [&]<typename E>(int64_t columns, int from, E* to) {
      if (!options_.carry) return Zero(stream, samples, columns, to);
      return ForEachCell(stream, samples, columns,
                         BeginState<E>{arrays.marks, columns, At<E>(place.context, from), to});
    };
    RETURN_IF_ERROR(begin(width, states.hidden, arrays.hidden));
    if (arrays.cell == nullptr) return absl::OkStatus();
    RETURN_IF_ERROR(begin(hidden, states.cell, arrays.cell));
    return ForEach(stream, samples * hidden,
                   RoundElement<A, T>{arrays.cell, CellsOf<T>(place, plan_.rows.times)});
  }

  // Of an lstm after step s; the last of them is what was there before the first step.
  template <typename T>
  T* CellsOf(const Place& place, int64_t s) const {
    return At<T>(place.context, StatesOf(place).cells) + s * plan_.rows.samples * options_.hidden;
  }

  template <typename T>
  absl::Status ForwardStep(const Place& place, int64_t s, const Arrays<T>& arrays) const {
    const LayerContext& context = place.context;
    const Plan::Direction& states = StatesOf(place);
    const Step step = StepOf(place, s, arrays.marks);
    const int64_t samples = plan_.rows.samples, hidden = options_.hidden, width = options_.width();
    const CellArrays<T> cell{step,
                             hidden,
                             options_.gates(),
                             At<T>(context, states.gates),
                             arrays.gates,
                             At<T>(context, states.bias_ih),
                             At<T>(context, states.bias_hh)};
    const StoreHidden<T> store{
        step, width, columns(),
        At<T>(context, plan_.layers[place.layer].output) + place.direction * width, arrays.hidden};
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
    T* const cells = CellsOf<T>(place, s);
    if (!projects()) {
      return run(LstmForward<T, StoreHidden<T>>{cell, arrays.cell, cells, store});
    }
    RETURN_IF_ERROR(run(LstmForward<T, StoreUnprojected<T>>{
        cell, arrays.cell, cells, {hidden, arrays.unprojected}}));
    RETURN_IF_ERROR(Multiply(context, *plan_.project, arrays.unprojected, states.weight_hr,
                             arrays.projection_weight, arrays.projected, arrays.products));
    return ForEachCell(context.stream, samples, width, StoreProjected<T>{arrays.projected, store});
  }

  // What comes after the last step.
  template <typename T>
  absl::Status End(const Place& place, const Arrays<T>& arrays) const {
    const LayerContext& context = place.context;
    const Plan::Direction& states = StatesOf(place);
    const int64_t samples = plan_.rows.samples, width = options_.width();
    if (plan_.last >= 0 && IsTop(place)) {
      T* const last = At<T>(context, plan_.last) + place.direction * width;
      RETURN_IF_ERROR(CopyCells(context.stream, plan_.compute, samples, width,
                                {arrays.hidden, width}, {last, columns()}));
    }
    if (!options_.carry) return absl::OkStatus();
    const auto carry = [&](int state, int64_t columns, auto* from) {
      const Tensor& to = context.states[state + 1];
      return CopyCells(context.stream, to.dtype, samples, columns, {from, columns},
                       {to.data, columns});
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
      const Place place{context, layer, d};
      RETURN_IF_ERROR(BackwardSteps(place, dy, arrays));
      RETURN_IF_ERROR(BackwardWeights(place, x, arrays));
    }
    T* const dx = layer == 0 ? GradientAt<T>(context, 0) : arrays.doutput;
    if (dx == nullptr) return absl::OkStatus();
    const Plan::InputProducts& products = plan_.products(layer);
    for (size_t d = 0; d < directions.size(); ++d) {
      const Gemm& product = d == 0 ? *products.dinput : *products.add_dinput;
      RETURN_IF_ERROR(product.Run(context.stream, At<T>(context, directions[d].gates),
                                  At<T>(context, directions[d].weight_ih), nullptr, dx,
                                  arrays.products));
    }
    if (layer == 0 || !plan_.drops) return absl::OkStatus();
    return dropped_[layer - 1].template Apply<T>(context.stream, context.position, dx, dx);
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
  absl::Status BackwardSteps(const Place& place, const T* dy, const Arrays<T>& arrays) const {
    const LayerContext& context = place.context;
    const Plan::Direction& states = StatesOf(place);
    Stream& stream = context.stream;
    const int64_t samples = plan_.rows.samples, width = options_.width();
    RETURN_IF_ERROR(Mark(place, arrays.marks));
    const T* const dlast =
        IsTop(place) && plan_.last >= 0 ? GradientAt<T>(context, plan_.last) : nullptr;
    if (dlast == nullptr) {
      RETURN_IF_ERROR(Zero(stream, samples, width, arrays.last));
    } else {
      T* const from = const_cast<T*>(dlast) + place.direction * width;
      RETURN_IF_ERROR(CopyCells(stream, plan_.compute, samples, width, {from, columns()},
                                {arrays.last, width}));
    }
    if (arrays.cell != nullptr) {
      RETURN_IF_ERROR(Zero(stream, samples, options_.hidden, arrays.cell));
    }
    if (plan_.previous) {
      RETURN_IF_ERROR(ForEachCell(
          stream, plan_.row_count(), width,
          PreviousHidden<T>{
              plan_.rows, place.reverse(), arrays.marks, width, columns(),
              At<T>(context, plan_.layers[place.layer].output) + place.direction * width,
              options_.carry ? At<T>(context, states.hidden) : nullptr, arrays.previous}));
    }
    RETURN_IF_ERROR(PackWeight(context, plan_.dstep.get(), states.weight_hh, arrays.step_weight));
    RETURN_IF_ERROR(
        PackWeight(context, plan_.dproject.get(), states.weight_hr, arrays.projection_weight));
    for (int64_t s = plan_.rows.times - 1; s >= 0; --s) {
      RETURN_IF_ERROR(BackwardStep(place, s, dy, arrays));
      if (s == 0) break;
      RETURN_IF_ERROR(Multiply(context, *plan_.dstep, arrays.gates, states.weight_hh,
                               arrays.step_weight, arrays.hidden, arrays.products));
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::Status BackwardStep(const Place& place, int64_t s, const T* dy,
                            const Arrays<T>& arrays) const {
    const LayerContext& context = place.context;
    const Plan::Direction& states = StatesOf(place);
    const Step step = StepOf(place, s, arrays.marks);
    const int64_t samples = plan_.rows.samples, hidden = options_.hidden, width = options_.width();
    const GateGradients<T> gates{step, hidden, options_.gates(), At<T>(context, states.gates),
                                 arrays.gates};
    const HiddenGradient<T> gradient{
        step, width, columns(), dy + place.direction * width, arrays.last, arrays.hidden};
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
    const T* const before = CellsOf<T>(place, s == 0 ? plan_.rows.times : s - 1);
    T* const cells = CellsOf<T>(place, s);
    if (!projects()) {
      return run(
          LstmBackward<T, HiddenGradient<T>, false>{gates, gradient, before, cells, arrays.cell});
    }
    T* const of_all = arrays.dprojected + s * samples * width;
    RETURN_IF_ERROR(ForEachCell(context.stream, samples, width,
                                ProjectedGradient<T>{gradient, arrays.projected, of_all}));
    RETURN_IF_ERROR(Multiply(context, *plan_.dproject, arrays.projected, states.weight_hr,
                             arrays.projection_weight, arrays.unprojected, arrays.products));
    return run(LstmBackward<T, UnprojectedGradient<T>, true>{
        gates, {hidden, arrays.unprojected}, before, cells, arrays.cell});
  }

  template <typename T>
  absl::Status BackwardWeights(const Place& place, const T* x, const Arrays<T>& arrays) const {
    const LayerContext& context = place.context;
    const Plan::Direction& states = StatesOf(place);
    Stream& stream = context.stream;
    T* const gates = At<T>(context, states.gates);
    const int64_t rows = plan_.row_count(), columns = options_.gates();
    const auto product = [&](const Gemm& gemm, const T* a, const T* b, int of) {
      T* const to = GradientAt<T>(context, of);
      return to == nullptr ? absl::OkStatus()
                           : gemm.Run(stream, a, b, nullptr, to, arrays.products);
    };
    const auto sum = [&](int of) {
      T* const to = GradientAt<T>(context, of);
      return to == nullptr
                 ? absl::OkStatus()
                 : ReduceColumns(stream, rows, columns, ColumnSum<T>{{}, columns, gates, to});
    };
    // Those of a GRU's candidate differ: x is not multiplied by r.
    const auto swap = [&] {
      if (options_.cell != Options::kGru) return absl::OkStatus();
      return ForEachCell(
          stream, rows, options_.hidden,
          SwapColumns<T>{options_.hidden, columns, gates, At<T>(context, states.candidates)});
    };
    RETURN_IF_ERROR(product(*plan_.products(place.layer).dweight, gates, x, states.weight_ih));
    RETURN_IF_ERROR(sum(states.bias_ih));
    RETURN_IF_ERROR(swap());
    RETURN_IF_ERROR(product(*plan_.dweight_hh, gates, arrays.previous, states.weight_hh));
    RETURN_IF_ERROR(sum(states.bias_hh));
    RETURN_IF_ERROR(swap());
    if (!projects()) return absl::OkStatus();
    return product(*plan_.dweight_hr, arrays.dprojected, CellsOf<T>(place, 0), states.weight_hr);
  }

  const Options options_;
  Plan plan_;
  std::vector<Dropped> dropped_;  // between layers
};

template <typename Config>
Options Common(const Config& config) {
  Options options;
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

absl::StatusOr<std::unique_ptr<Layer>> Create(Options options) {
  RETURN_IF_ERROR(Check(options));
  return std::make_unique<Recurrent>(std::move(options));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Layer>> CreateLstm(const LstmConfig& config) {
  Options options = Common(config);
  options.cell = Options::kLstm;
  options.projection = config.projection();
  options.projection_weight = config.projection_weight();
  return Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<Layer>> CreateGru(const GruConfig& config) {
  Options options = Common(config);
  options.cell = Options::kGru;
  return Create(std::move(options));
}

absl::StatusOr<std::unique_ptr<Layer>> CreateRnn(const RnnConfig& config) {
  Options options = Common(config);
  options.cell = config.nonlinearity() == RnnConfig::RELU ? Options::kRelu : Options::kTanh;
  return Create(std::move(options));
}

}  // namespace gyre
