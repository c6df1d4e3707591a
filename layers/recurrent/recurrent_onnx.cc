#include "layers/recurrent/recurrent_onnx.h"

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

using Values = OnnxWriter::Values;
using Ints = std::vector<int64_t>;

// [rows, columns] as [columns, rows].
std::vector<float> Turned(const std::vector<float>& from, int64_t rows) {
  const int64_t columns = static_cast<int64_t>(from.size()) / rows;
  std::vector<float> to(from.size());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) to[c * rows + r] = from[r * columns + c];
  }
  return to;
}

// Rows of gates, of `hidden` rows each, in the order of ONNX:
//   lstm  i, o, f, g
//   gru   z, r, n
std::vector<float> Ordered(const std::vector<float>& from, const RecurrentOptions& options) {
  std::vector<int> order = {0};
  if (options.cell == RecurrentOptions::kLstm) order = {0, 3, 1, 2};
  if (options.cell == RecurrentOptions::kGru) order = {1, 0, 2};
  const auto gate = static_cast<std::ptrdiff_t>(from.size() / order.size());
  std::vector<float> to;
  for (const int k : order)
    to.insert(to.end(), from.begin() + k * gate, from.begin() + (k + 1) * gate);
  return to;
}

class OnnxOfRecurrent {
 public:
  OnnxOfRecurrent(const RecurrentOptions& options, const RecurrentPlan& plan, OnnxWriter& onnx)
      : options_(options), plan_(plan), onnx_(onnx), rows_first_(onnx.BatchAxis(0) == 0) {}

  void Write() {
    const bool scans =
        plan_.reset >= 0 || options_.projection > 0 || (options_.carry && plan_.lengths >= 0);
    std::string x = onnx_.Input(0);
    if (rows_first_) x = Transpose(x, {1, 0, 2});
    if (scans) MarkSteps(x);
    for (size_t layer = 0; layer < plan_.layers.size(); ++layer) {
      const bool is_last = layer + 1 == plan_.layers.size();
      x = scans ? ScanLayer(layer, x, is_last) : NodeLayer(layer, x, is_last);
    }
    // A Scan's output has the steps first.
    onnx_.Output(0, rows_first_ && scans ? Transpose(x, {1, 0, 2}) : x);
  }

 private:
  std::string Transpose(const std::string& value, Ints axes) {
    return onnx_.Node("Transpose", {value}, {{"perm", std::move(axes)}});
  }
  std::string Reshape(const std::string& value, const Ints& dims) {
    return onnx_.Node("Reshape", {value, onnx_.Ints(dims)});
  }
  std::string Unsqueeze(const std::string& value, int64_t axis) {
    return onnx_.Node("Unsqueeze", {value, onnx_.Ints({axis})});
  }
  static std::string Suffix(size_t layer, size_t d) {
    return absl::StrCat("_l", layer, d == 1 ? "_reverse" : "");
  }
  int64_t directions() const { return options_.directions(); }

  // ---- LSTM, GRU, RNN ---------------------------------------------------------------------------

  // A parameter of all directions, gates as ONNX has them.
  std::vector<float> OfDirections(const char* name, size_t layer) {
    std::vector<float> all;
    for (size_t d = 0; d < static_cast<size_t>(directions()); ++d) {
      const std::vector<float> one =
          Ordered(onnx_.Numbers(absl::StrCat(name, Suffix(layer, d))), options_);
      all.insert(all.end(), one.begin(), one.end());
    }
    return all;
  }

  std::string Biases(size_t layer) {
    const std::vector<float> ih = OfDirections("bias_ih", layer),
                             hh = OfDirections("bias_hh", layer);
    std::vector<float> both;
    const auto gates = static_cast<std::ptrdiff_t>(options_.gates());
    for (int64_t d = 0; d < directions(); ++d) {
      both.insert(both.end(), ih.begin() + d * gates, ih.begin() + (d + 1) * gates);
      both.insert(both.end(), hh.begin() + d * gates, hh.begin() + (d + 1) * gates);
    }
    return onnx_.Weights(absl::StrCat("bias_l", layer), {directions(), 2 * options_.gates()}, both);
  }

  std::string NodeLayer(size_t layer, const std::string& x, bool is_last) {
    const std::vector<float> weight = OfDirections("weight_ih", layer);
    const int64_t gates = options_.gates(), hidden = options_.hidden;
    const int64_t inputs = static_cast<int64_t>(weight.size()) / (directions() * gates);
    const RecurrentPlan::Direction& states = plan_.layers[layer].directions[0];
    Values operands = {
        x,
        onnx_.Weights(absl::StrCat("weight_ih_l", layer), {directions(), gates, inputs}, weight),
        onnx_.Weights(absl::StrCat("weight_hh_l", layer), {directions(), gates, hidden},
                      OfDirections("weight_hh", layer)),
        Biases(layer),
        plan_.lengths >= 0 ? onnx_.Input(plan_.lengths) : "",
        options_.carry ? Unsqueeze(onnx_.Carried(states.hidden), 0) : ""};
    std::vector<OnnxAttribute> attributes = {{"hidden_size", hidden}};
    if (options_.bidirectional) attributes.push_back({"direction", std::string("bidirectional")});
    Values results;
    switch (options_.cell) {
      case RecurrentOptions::kLstm:
        if (options_.carry) operands.push_back(Unsqueeze(onnx_.Carried(states.cell), 0));
        results = onnx_.Nodes("LSTM", operands, attributes, 3);
        if (options_.carry) Carry(states.cell, results[2]);
        break;
      case RecurrentOptions::kGru:
        attributes.push_back({"linear_before_reset", int64_t{1}});
        results = onnx_.Nodes("GRU", operands, attributes, 2);
        break;
      case RecurrentOptions::kRelu:
        attributes.push_back(
            {"activations", std::vector<std::string>(static_cast<size_t>(directions()), "Relu")});
        [[fallthrough]];
      case RecurrentOptions::kTanh:
        results = onnx_.Nodes("RNN", operands, attributes, 2);
    }
    if (options_.carry) Carry(states.hidden, results[1]);
    if (is_last && plan_.last >= 0) {
      onnx_.Output(1, Reshape(Transpose(results[1], {1, 0, 2}), {0, directions() * hidden}));
    }
    // [T, directions, N, hidden].
    const bool turns = is_last && rows_first_;
    return Reshape(Transpose(results[0], turns ? Ints{2, 0, 1, 3} : Ints{0, 2, 1, 3}),
                   {0, 0, directions() * hidden});
  }

  void Carry(int state, const std::string& of_directions) {
    onnx_.Carry(state, onnx_.Node("Squeeze", {of_directions, onnx_.Ints({0})}));
  }

  // ---- Scan -------------------------------------------------------------------------------------

  // Marks [T, N, 1] of steps: 1 where the state before is kept, where a step is within the length,
  // and where it is not.
  void MarkSteps(const std::string& x) {
    shape_ = onnx_.Node("Shape", {x});
    if (plan_.reset >= 0) {
      std::string reset = onnx_.Input(plan_.reset);
      if (rows_first_) reset = Transpose(reset, {1, 0});
      const std::string begins = onnx_.Node("Cast", {reset}, {{"to", int64_t{1}}});
      keep_[0] = Unsqueeze(onnx_.Node("Sub", {onnx_.Scalar(1), begins}), 2);
      if (options_.bidirectional) {
        // In reverse, a sequence's first step is before the begin of the next one.
        const std::string later =
            onnx_.Node("Slice", {keep_[0], onnx_.Ints({1}), onnx_.Ints({kEnd}), onnx_.Ints({0})});
        const std::string first =
            onnx_.Node("Slice", {keep_[0], onnx_.Ints({0}), onnx_.Ints({1}), onnx_.Ints({0})});
        keep_[1] = onnx_.Node("Concat", {later, first}, {{"axis", int64_t{0}}});
      }
    }
    if (plan_.lengths < 0) return;
    const std::string times = onnx_.Node("Gather", {shape_, onnx_.Int(0)});
    const std::string steps = onnx_.Node("Range", {onnx_.Int(0), times, onnx_.Int(1)});
    const std::string lengths =
        onnx_.Node("Cast", {onnx_.Input(plan_.lengths)}, {{"to", int64_t{7}}});
    const std::string within = onnx_.Node("Less", {Unsqueeze(steps, 1), lengths});
    alive_ = Unsqueeze(onnx_.Node("Cast", {within}, {{"to", int64_t{1}}}), 2);
    dead_ = onnx_.Node("Sub", {onnx_.Scalar(1), alive_});
  }

  std::string Zeros(int64_t columns) {
    const std::string samples =
        onnx_.Node("Slice", {shape_, onnx_.Ints({1}), onnx_.Ints({2}), onnx_.Ints({0})});
    return onnx_.Node("ConstantOfShape", {onnx_.Node("Concat", {samples, onnx_.Ints({columns})},
                                                     {{"axis", int64_t{0}}})});
  }

  // A weight [rows, columns] as the second operand of a product.
  std::string Operand(const std::string& name, int64_t rows) {
    const std::vector<float> numbers = onnx_.Numbers(name);
    return onnx_.Weights(name, {static_cast<int64_t>(numbers.size()) / rows, rows},
                         Turned(numbers, rows));
  }

  std::string ScanLayer(size_t layer, const std::string& x, bool is_last) {
    Values outputs, last;
    for (size_t d = 0; d < static_cast<size_t>(directions()); ++d) {
      const auto [states, y] = ScanDirection(layer, d, x);
      outputs.push_back(y);
      last.push_back(states[0]);
      const RecurrentPlan::Direction& carried = plan_.layers[layer].directions[d];
      if (!options_.carry) continue;
      onnx_.Carry(carried.hidden, states[0]);
      if (IsLstm()) onnx_.Carry(carried.cell, states[1]);
    }
    const auto joined = [&](const Values& values, int64_t axis) {
      return values.size() == 1 ? values[0] : onnx_.Node("Concat", values, {{"axis", axis}});
    };
    if (is_last && plan_.last >= 0) onnx_.Output(1, joined(last, 1));
    return joined(outputs, 2);
  }

  std::pair<Values, std::string> ScanDirection(size_t layer, size_t d, const std::string& x) {
    const std::string suffix = Suffix(layer, d);
    const std::string gates = onnx_.Node(
        "Add", {onnx_.Node("MatMul", {x, Operand("weight_ih" + suffix, options_.gates())}),
                onnx_.Parameter("bias_ih" + suffix)});
    const RecurrentPlan::Direction& carried = plan_.layers[layer].directions[d];
    Values before = {options_.carry ? onnx_.Carried(carried.hidden) : Zeros(options_.width())};
    if (IsLstm()) {
      before.push_back(options_.carry ? onnx_.Carried(carried.cell) : Zeros(options_.hidden));
    }
    Values sequences = {gates};
    if (plan_.reset >= 0) sequences.push_back(keep_[d]);
    if (plan_.lengths >= 0) sequences.insert(sequences.end(), {alive_, dead_});
    const std::string weight_hh = Operand("weight_hh" + suffix, options_.gates());
    const std::string bias_hh = onnx_.Parameter("bias_hh" + suffix);
    const std::string weight_hr =
        options_.projection > 0 ? Operand("weight_hr" + suffix, options_.projection) : "";
    auto [after, stacked] = onnx_.Scan(
        before, sequences, /*reverse=*/d == 1, [&](const Values& state, const Values& slices) {
          size_t at = 1;
          Values kept = state;
          if (plan_.reset >= 0) {
            for (std::string& value : kept) value = onnx_.Node("Mul", {value, slices[at]});
            ++at;
          }
          const std::string recurrent =
              onnx_.Node("Add", {onnx_.Node("MatMul", {kept[0], weight_hh}), bias_hh});
          Values next = Cell(slices[0], recurrent, kept);
          if (!weight_hr.empty()) next[0] = onnx_.Node("MatMul", {next[0], weight_hr});
          if (plan_.lengths < 0) return std::pair(next, Values{next[0]});
          const std::string &alive = slices[at], &dead = slices[at + 1];
          const std::string y = onnx_.Node("Mul", {next[0], alive});
          for (size_t i = 0; i < next.size(); ++i) {
            next[i] = onnx_.Node("Add", {i == 0 ? y : onnx_.Node("Mul", {next[i], alive}),
                                         onnx_.Node("Mul", {state[i], dead})});
          }
          return std::pair(next, Values{y});
        });
    return {after, stacked[0]};
  }

  // The gate number k of [N, gates].
  std::string Gate(const std::string& all, int64_t k) {
    const int64_t hidden = options_.hidden;
    return onnx_.Node(
        "Slice", {all, onnx_.Ints({k * hidden}), onnx_.Ints({(k + 1) * hidden}), onnx_.Ints({1})});
  }

  // h, and lstm's c, after a step: by gates of x and of the state, and the state before.
  Values Cell(const std::string& of_x, const std::string& of_state, const Values& before) {
    const auto node = [&](const char* op, const Values& inputs) { return onnx_.Node(op, inputs); };
    if (options_.cell == RecurrentOptions::kGru) {
      const auto sum = [&](int64_t k) {
        return node("Sigmoid", {node("Add", {Gate(of_x, k), Gate(of_state, k)})});
      };
      const std::string r = sum(0), z = sum(1);
      const std::string n =
          node("Tanh", {node("Add", {Gate(of_x, 2), node("Mul", {r, Gate(of_state, 2)})})});
      return {node("Add", {n, node("Mul", {z, node("Sub", {before[0], n})})})};
    }
    const std::string gates = node("Add", {of_x, of_state});
    if (!IsLstm()) {
      return {node(options_.cell == RecurrentOptions::kRelu ? "Relu" : "Tanh", {gates})};
    }
    const std::string i = node("Sigmoid", {Gate(gates, 0)}), f = node("Sigmoid", {Gate(gates, 1)});
    const std::string g = node("Tanh", {Gate(gates, 2)}), o = node("Sigmoid", {Gate(gates, 3)});
    const std::string c = node("Add", {node("Mul", {f, before[1]}), node("Mul", {i, g})});
    return {node("Mul", {o, node("Tanh", {c})}), c};
  }

  bool IsLstm() const { return options_.cell == RecurrentOptions::kLstm; }

  static constexpr int64_t kEnd = int64_t{1} << 31;  // beyond any extent
  const RecurrentOptions& options_;
  const RecurrentPlan& plan_;
  OnnxWriter& onnx_;
  const bool rows_first_;                       // x is [N, T, C]
  std::string shape_, keep_[2], alive_, dead_;  // of Scan; keep_: by direction
};

}  // namespace

absl::Status RecurrentToOnnx(const RecurrentOptions& options, const RecurrentPlan& plan,
                             OnnxWriter& onnx) {
  OnnxOfRecurrent(options, plan, onnx).Write();
  return absl::OkStatus();
}

}  // namespace gyre
