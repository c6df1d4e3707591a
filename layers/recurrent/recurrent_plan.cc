#include "layers/recurrent/recurrent_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace gyre {
namespace {

using Plan = RecurrentPlan;

// Each is some states, and the least that a mistaken number should cost.
constexpr int64_t kMostLayers = 1000;
// So many steps, or rows of one product, pay for packing a weight.
constexpr int64_t kPackingTimes = 4, kPackingRows = 64;

absl::Status FindInputs(const InferInput& input, Plan& plan) {
  const ExpectedInput x{"x", input.compute}, lengths{"lengths", DType::kI32},
      reset{"reset", DType::kI32};
  switch (input.inputs.size()) {
    case 0:
    case 1:
      return CheckInputs(input, {x});
    case 2:
      // Either may be left out; a sample has one length and many resets.
      if (input.inputs[1].rank() == 2) {
        plan.reset = 1;
        return CheckInputs(input, {x, reset});
      }
      plan.lengths = 1;
      return CheckInputs(input, {x, lengths});
    default:
      plan.lengths = 1;
      plan.reset = 2;
      return CheckInputs(input, {x, lengths, reset});
  }
}

absl::Status CheckShapes(const InferInput& input, Plan& plan) {
  const Shape& x = input.inputs[0];
  const int axis = BatchAxis(input, 0);
  if (x.rank() != 3 || axis > 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "expects x [T, N, C] or [N, T, C], got %s with samples along axis %d", x.ToString(), axis));
  }
  const int64_t times = x[1 - axis], samples = x[axis];
  if (times < 1 || x[2] < 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects sequences and columns of one or more, got x %s", x.ToString()));
  }
  RETURN_IF_ERROR(CheckExtent("rows of x", times * samples, /*least=*/0));
  RETURN_IF_ERROR(CheckExtent("columns of x", x[2]));
  plan.rows = axis == 1 ? SequenceRows{times, samples, std::max<int64_t>(1, samples), 1}
                        : SequenceRows{times, samples, 1, times};
  plan.inputs = x[2];
  if (plan.lengths > 0 && !(input.inputs[plan.lengths] == Shape{samples})) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects lengths [%d], one for each sample, got %s", samples,
                        input.inputs[plan.lengths].ToString()));
  }
  if (plan.reset < 0) return absl::OkStatus();
  const Shape& reset = input.inputs[plan.reset];
  if (!(reset == Shape{x[0], x[1]}) || BatchAxis(input, plan.reset) != axis) {
    return absl::InvalidArgumentError(
        absl::StrFormat("expects reset [%d, %d] with samples along axis %d, as in x, got %s "
                        "with samples along "
                        "axis %d",
                        x[0], x[1], axis, reset.ToString(), BatchAxis(input, plan.reset)));
  }
  return absl::OkStatus();
}

// The states of a spec, added one by one.
class States {
 public:
  States(const RecurrentOptions& options, const InferInput& input, Plan& plan, LayerSpec& spec)
      : options_(options), input_(input), plan_(plan), spec_(spec) {}

  absl::Status Add() {
    trains_weight_ = Trains(options_.weight);
    needs_x_ = NeedsGradient(input_, 0);
    plan_.backward = needs_x_ || trains_weight_ || Trains(options_.recurrent) ||
                     Trains(options_.bias) ||
                     (options_.projection > 0 && Trains(options_.projection_weight));
    plan_.previous = plan_.backward && (Trains(options_.recurrent) || IsGru());
    AddInputs();
    AddOutputs();
    for (int64_t layer = 0; layer < options_.layers; ++layer) RETURN_IF_ERROR(AddLayer(layer));
    return absl::OkStatus();
  }

 private:
  bool IsGru() const { return options_.cell == RecurrentOptions::kGru; }
  bool IsLstm() const { return options_.cell == RecurrentOptions::kLstm; }
  bool Trains(const ParameterConfig& config) const {
    return input_.train && RateMultiplier(config, input_) != 0;
  }
  static uint8_t If(bool it, uint8_t access) { return it ? access : uint8_t{kNone}; }

  void AddInputs() {
    AddState(spec_, MakeState("input", StateKind::kInput, input_.inputs[0], plan_.compute, kRead,
                              If(trains_weight_, kRead)));
    for (int i = 1; i < static_cast<int>(input_.inputs.size()); ++i) {
      const bool is_reset = i == plan_.reset;
      const int state = AddState(
          spec_, MakeState(is_reset ? "reset" : "lengths", StateKind::kInput, input_.inputs[i],
                           DType::kI32, kRead, If(plan_.backward, kRead)));
      spec_.states[state].largest = is_reset ? 1 : plan_.rows.times;
    }
  }

  void AddOutputs() {
    const int64_t columns = options_.directions() * options_.width();
    plan_.output = AddState(
        spec_, MakeOutput(input_, input_.inputs[0].With(2, columns), If(plan_.previous, kRead)));
    if (!options_.last) return;
    plan_.last =
        AddState(spec_, MakeState("last", StateKind::kOutput, Shape{plan_.rows.samples, columns},
                                  plan_.compute, kWrite, kNone));
  }

  // Kept for backward, where there is one.
  int AddKept(std::string name, const Shape& shape, uint8_t backward) {
    const StateKind kind = plan_.backward ? StateKind::kSaved : StateKind::kScratch;
    return AddState(spec_, MakeState(std::move(name), kind, shape, plan_.compute, kRead | kWrite,
                                     If(plan_.backward, backward)));
  }

  absl::Status AddLayer(int64_t layer) {
    Plan::LayerStates& layer_states = plan_.layers.emplace_back();
    const int64_t columns = options_.directions() * options_.width();
    const int64_t inputs = layer == 0 ? plan_.inputs : columns;
    const int64_t rows = plan_.row_count();
    for (int d = 0; d < options_.directions(); ++d) {
      const std::string suffix = absl::StrCat("l", layer, d == 1 ? "_reverse" : "");
      Plan::Direction& states = layer_states.directions.emplace_back();
      RETURN_IF_ERROR(AddParameters(suffix, inputs, layer > 0 || needs_x_, states));
      const uint8_t both = kRead | kWrite;
      states.gates = AddKept("gates_" + suffix, Shape{rows, options_.gates()}, both);
      if (IsLstm()) {
        const int64_t kept = plan_.backward ? plan_.rows.times + 1 : 1;
        const Shape cells{kept, plan_.rows.samples, options_.hidden};
        RETURN_IF_ERROR(CheckCountable("cells", cells));
        states.cells =
            AddKept("cells_" + suffix, cells, options_.projection > 0 ? both : uint8_t{kRead});
      }
      if (IsGru()) {
        states.candidates = AddKept("candidates_" + suffix, Shape{rows, options_.hidden}, both);
      }
      if (options_.carry) AddCarriedStates(suffix, states);
    }
    layer_states.output = plan_.output;
    if (layer + 1 < options_.layers) {
      layer_states.output = AddKept(absl::StrCat("output_l", layer), Shape{rows, columns},
                                    If(plan_.previous || trains_weight_, kRead));
    }
    return absl::OkStatus();
  }

  absl::Status AddParameters(const std::string& suffix, int64_t inputs, bool back,
                             Plan::Direction& states) {
    const int64_t gates = options_.gates(), hidden = options_.hidden, width = options_.width();
    const auto add = [&](const char* kind, const char* which, const Shape& shape,
                         const ParameterConfig& config, const Initializer& first, bool read,
                         int& state) {
      ASSIGN_OR_RETURN(StateSpec parameter,
                       MakeParameter(absl::StrCat(kind, which, "_", suffix), shape, config, first,
                                     input_, If(plan_.backward && read, kRead)));
      if (!config.name().empty()) {
        parameter.shared_name = absl::StrCat(config.name(), which, "_", suffix);
      }
      state = AddState(spec_, std::move(parameter));
      return absl::OkStatus();
    };
    // Fans are those of one gate.
    const auto fans = [&](Initializer::Kind kind, int64_t in, int64_t out) {
      return Initializer{.kind = kind, .fan_in = in, .fan_out = out};
    };
    const auto xavier = Initializer::Kind::kXavier, constant = Initializer::Kind::kConstant;
    RETURN_IF_ERROR(add("weight", "_ih", Shape{gates, inputs}, options_.weight,
                        fans(xavier, inputs, hidden), back, states.weight_ih));
    RETURN_IF_ERROR(add("weight", "_hh", Shape{gates, width}, options_.recurrent,
                        fans(xavier, width, hidden), true, states.weight_hh));
    RETURN_IF_ERROR(add("bias", "_ih", Shape{gates}, options_.bias, fans(constant, inputs, hidden),
                        false, states.bias_ih));
    RETURN_IF_ERROR(add("bias", "_hh", Shape{gates}, options_.bias, fans(constant, width, hidden),
                        false, states.bias_hh));
    if (options_.projection == 0) return absl::OkStatus();
    return add("weight", "_hr", Shape{width, hidden}, options_.projection_weight,
               fans(xavier, hidden, width), true, states.weight_hr);
  }

  void AddCarriedStates(const std::string& suffix, Plan::Direction& states) {
    const int64_t samples = plan_.rows.samples;
    states.hidden = AddCarried(spec_, "hidden_" + suffix, Shape{samples, options_.width()},
                               plan_.compute, /*batch_axis=*/0, If(plan_.previous, kRead));
    if (!IsLstm()) return;
    // As wide as it is computed in: two batches make what one of both would.
    const DType wide = AccumulateDType(plan_.compute);
    states.cell = AddCarried(spec_, "cell_" + suffix, Shape{samples, options_.hidden}, wide,
                             /*batch_axis=*/0, kNone);
  }

  const RecurrentOptions& options_;
  const InferInput& input_;
  Plan& plan_;
  LayerSpec& spec_;
  bool trains_weight_ = false, needs_x_ = false;
};

// [m, k] [k, n], as stored or of a transpose.
struct Product {
  int64_t m, n, k;
  bool transpose_a = false, transpose_b = false, accumulate = false, packs_b = false;
};

absl::Status Prepare(const InferInput& input, const Product& product, std::unique_ptr<Gemm>& gemm) {
  GemmSpec spec{.dtype = input.compute, .m = product.m, .n = product.n, .k = product.k};
  spec.transpose_a = product.transpose_a;
  spec.transpose_b = product.transpose_b;
  spec.accumulate = product.accumulate;
  spec.packs_b = product.packs_b;
  ASSIGN_OR_RETURN(gemm, input.primitives->Prepare(spec));
  return absl::OkStatus();
}

absl::Status PrepareInput(const InferInput& input, const RecurrentOptions& options,
                          const Plan& plan, int64_t columns, bool back,
                          Plan::InputProducts& products) {
  const int64_t rows = plan.row_count(), gates = options.gates();
  const bool packs = plan.stores_packed || rows >= kPackingRows;
  RETURN_IF_ERROR(
      Prepare(input, {.m = rows, .n = gates, .k = columns, .transpose_b = true, .packs_b = packs},
              products.forward));
  if (!plan.backward) return absl::OkStatus();
  RETURN_IF_ERROR(
      Prepare(input, {.m = gates, .n = columns, .k = rows, .transpose_a = true}, products.dweight));
  if (!back) return absl::OkStatus();
  Product dinput{.m = rows, .n = columns, .k = gates, .packs_b = packs};
  RETURN_IF_ERROR(Prepare(input, dinput, products.dinput));
  dinput.accumulate = true;
  return options.bidirectional ? Prepare(input, dinput, products.add_dinput) : absl::OkStatus();
}

absl::Status PrepareProducts(const InferInput& input, const RecurrentOptions& options, Plan& plan) {
  const int64_t rows = plan.row_count(), samples = plan.rows.samples;
  const int64_t gates = options.gates(), width = options.width(), hidden = options.hidden;
  RETURN_IF_ERROR(
      PrepareInput(input, options, plan, plan.inputs, NeedsGradient(input, 0), plan.first));
  if (options.layers > 1) {
    RETURN_IF_ERROR(PrepareInput(input, options, plan, options.directions() * width,
                                 /*back=*/true, plan.other));
  }
  const bool projects = options.projection > 0;
  const bool packs = plan.stores_packed || plan.rows.times >= kPackingTimes;
  Product step{.m = samples, .n = gates, .k = width, .transpose_b = true, .packs_b = packs};
  RETURN_IF_ERROR(Prepare(input, step, plan.step));
  Product project{.m = samples, .n = width, .k = hidden, .transpose_b = true, .packs_b = packs};
  if (projects) RETURN_IF_ERROR(Prepare(input, project, plan.project));
  if (!plan.backward) return absl::OkStatus();
  Product dstep{.m = samples, .n = width, .k = gates, .packs_b = packs};
  RETURN_IF_ERROR(Prepare(input, dstep, plan.dstep));
  RETURN_IF_ERROR(
      Prepare(input, {.m = gates, .n = width, .k = rows, .transpose_a = true}, plan.dweight_hh));
  if (!projects) return absl::OkStatus();
  RETURN_IF_ERROR(
      Prepare(input, {.m = samples, .n = hidden, .k = width, .packs_b = packs}, plan.dproject));
  return Prepare(input, {.m = width, .n = hidden, .k = rows, .transpose_a = true}, plan.dweight_hr);
}

// Whether weights are stored as their products want them, so that no pass packs them: in a net that
// is not trained, if nothing else has a say in how they are stored.  Another shape may have chosen.
absl::StatusOr<bool> StoresPacked(const InferInput& input, const RecurrentOptions& options,
                                  const Plan& plan, const LayerSpec& spec) {
  const StateSpec& weight = spec.states[plan.layers[0].directions[0].weight_hh];
  if (const StateSpec* first = FindState(input.same_parameters_as, weight.name)) {
    return !first->layout.empty();
  }
  for (const ParameterConfig* config :
       {&options.weight, &options.recurrent, &options.projection_weight}) {
    if (input.train || !config->name().empty()) return false;
  }
  Product step{.m = plan.rows.samples, .n = options.gates(), .k = options.width()};
  step.transpose_b = step.packs_b = true;
  std::unique_ptr<Gemm> gemm;
  RETURN_IF_ERROR(Prepare(input, step, gemm));
  return !gemm->packed_layout().empty();
}

void StorePacked(const Plan& plan, LayerSpec& spec) {
  for (const Plan::LayerStates& layer : plan.layers) {
    for (const Plan::Direction& states : layer.directions) {
      for (const int state : {states.weight_ih, states.weight_hh, states.weight_hr}) {
        if (state < 0) continue;
        StateSpec& weight = spec.states[state];
        weight.layout = plan.ProductOf(state)->packed_layout();
        weight.bytes = plan.ProductOf(state)->packed_bytes();
        weight.shape = Shape{static_cast<int64_t>(weight.bytes / SizeOf(plan.compute))};
      }
    }
  }
}

void CountOperations(const RecurrentOptions& options, const Plan& plan, bool needs_x,
                     LayerSpec& spec) {
  const auto rows = static_cast<double>(plan.row_count() * options.directions());
  const auto gates = static_cast<double>(options.gates());
  const auto width = static_cast<double>(options.width());
  const auto hidden = static_cast<double>(options.hidden);
  double input = 0, first = 0;
  for (int64_t layer = 0; layer < options.layers; ++layer) {
    const auto columns =
        layer == 0 ? static_cast<double>(plan.inputs) : options.directions() * width;
    input += 2 * rows * gates * columns;
    if (layer == 0) first = input;
  }
  const double step =
      2 * rows * gates * width + (options.projection > 0 ? 2 * rows * hidden * width : 0);
  const double steps = static_cast<double>(options.layers) * step;
  spec.forward_flops = input + steps;
  if (plan.backward) spec.backward_flops = 2 * (input + steps) - (needs_x ? 0 : first);
}

}  // namespace

absl::Status Check(const RecurrentOptions& options) {
  RETURN_IF_ERROR(CheckExtent("hidden", options.hidden));
  RETURN_IF_ERROR(CheckExtent("gates", options.gates()));
  if (options.layers < 1 || options.layers > kMostLayers) {
    return absl::InvalidArgumentError(
        absl::StrFormat("layers: expected 1 to %d, got %d", kMostLayers, options.layers));
  }
  RETURN_IF_ERROR(CheckBelowOne("dropout", options.dropout));
  if (options.dropout > 0 && options.layers == 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "dropout: is between layers, and there is one; expected 0, got %g", options.dropout));
  }
  if (options.projection < 0 || options.projection >= std::max<int64_t>(1, options.hidden)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("projection: expected less than the %d of hidden, or 0 "
                        "for none, got %d",
                        options.hidden, options.projection));
  }
  if (options.carry && options.bidirectional) {
    return absl::InvalidArgumentError(
        "carry: expected false where the layer is bidirectional, since its "
        "other direction begins "
        "at the end, which the batch before does not know");
  }
  return absl::OkStatus();
}

size_t RecurrentPlan::product_scratch() const {
  size_t bytes = 0;
  for (const InputProducts* products : {&first, &other}) {
    for (const auto* gemm :
         {&products->forward, &products->dweight, &products->dinput, &products->add_dinput}) {
      if (*gemm) bytes = std::max(bytes, (*gemm)->scratch_bytes());
    }
  }
  for (const auto* gemm : {&step, &dstep, &dweight_hh, &project, &dproject, &dweight_hr}) {
    if (*gemm) bytes = std::max(bytes, (*gemm)->scratch_bytes());
  }
  return bytes;
}

const Gemm* RecurrentPlan::ProductOf(int weight) const {
  if (!stores_packed) return nullptr;
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    for (const Direction& states : layers[layer].directions) {
      if (weight == states.weight_ih) return products(layer).forward.get();
      if (weight == states.weight_hh) return step.get();
      if (weight == states.weight_hr) return project.get();
    }
  }
  return nullptr;
}

absl::StatusOr<RecurrentPlan> PlanRecurrent(const RecurrentOptions& options,
                                            const InferInput& input, LayerSpec& spec) {
  RecurrentPlan plan;
  plan.compute = input.compute;
  RETURN_IF_ERROR(FindInputs(input, plan));
  RETURN_IF_ERROR(CheckShapes(input, plan));
  RETURN_IF_ERROR(CheckCountable("gates", Shape{plan.row_count(), options.gates()}));
  RETURN_IF_ERROR(
      CheckCountable("output", Shape{plan.row_count(), options.directions() * options.width()}));
  plan.drops = input.train && options.dropout > 0;
  const bool on_host = input.primitives->device() != DeviceKind::kCuda;
  plan.packs = plan.lengths > 0 && on_host;
  // 16 bits would round a step's sum; oneDNN makes a primitive of them for each part.  A GRU's
  // biases have two sums.
  plan.by_parts = on_host && IsComputeType(plan.compute);
  plan.sums_steps = plan.by_parts && options.cell != RecurrentOptions::kGru;
  RETURN_IF_ERROR(States(options, input, plan, spec).Add());
  ASSIGN_OR_RETURN(plan.stores_packed, StoresPacked(input, options, plan, spec));
  RETURN_IF_ERROR(PrepareProducts(input, options, plan));
  if (plan.stores_packed) StorePacked(plan, spec);
  CountOperations(options, plan, NeedsGradient(input, 0), spec);
  return plan;
}

}  // namespace gyre
