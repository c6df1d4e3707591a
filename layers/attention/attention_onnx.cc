#include "layers/attention/attention_onnx.h"

#include <cmath>
#include <numeric>

namespace gyre {
namespace {

using Ints = std::vector<int64_t>;
using Plan = AttentionPlan;

constexpr float kUnseen = -1e9f;  // e to its power is 0, and no sum with a score overflows

class OnnxOfAttention {
 public:
  OnnxOfAttention(const Plan& plan, OnnxWriter& onnx) : plan_(plan), onnx_(onnx) {}

  void Write() {
    const bool rows_first = plan_.axis == 0;
    const std::string q = Operand(Plan::kQuery), k = Operand(Plan::kKey), v = Operand(Plan::kValue);
    const std::string query = Heads(q, rows_first ? Ints{0, 2, 1, 3} : Ints{1, 2, 0, 3});
    const std::string key = Heads(k, rows_first ? Ints{0, 2, 3, 1} : Ints{1, 2, 3, 0});
    const std::string value = Heads(v, rows_first ? Ints{0, 2, 1, 3} : Ints{1, 2, 0, 3});
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(plan_.width)));
    std::string shares =
        Node("MatMul", {Node("Mul", {query, onnx_.Scalar(scale)}), key});  // [N, heads, T, S]
    if (plan_.causal) {
      shares = Node("Add", {shares, CausalMask(k)});
    }
    std::string seen;
    if (plan_.has_lengths) {
      const std::string lengths = onnx_.Node(
          "Cast", {Node("Unsqueeze", {onnx_.Input(plan_.lengths()), onnx_.Ints({1, 2, 3})})},
          {{"to", int64_t{7}}});
      seen = Node("Less", {Steps(k), lengths});  // [N, 1, 1, S]
      shares = Node("Add", {shares, Mask(Node("Not", {seen}))});
    }
    shares = onnx_.Node("Softmax", {shares}, {{"axis", int64_t{3}}});
    if (!seen.empty()) {
      // A sample without keys gives 0.
      shares = Node("Mul", {shares, onnx_.Node("Cast", {seen}, {{"to", int64_t{1}}})});
    }
    const std::string y = onnx_.Node("Transpose", {Node("MatMul", {shares, value})},
                                     {{"perm", rows_first ? Ints{0, 2, 1, 3} : Ints{2, 0, 1, 3}}});
    onnx_.Output(0, Node("Reshape", {y, onnx_.Ints({0, 0, plan_.columns})}));
  }

 private:
  std::string Node(const char* op, const OnnxWriter::Values& inputs) {
    return onnx_.Node(op, inputs);
  }

  std::string Operand(Plan::Role role) {
    if (!plan_.is_packed) return onnx_.Input(role);
    const int64_t begin = role * plan_.columns;
    return Node("Slice", {onnx_.Input(0), onnx_.Ints({begin}), onnx_.Ints({begin + plan_.columns}),
                          onnx_.Ints({2})});
  }

  // [.., .., heads, width] with axes in this order.
  std::string Heads(const std::string& operand, Ints axes) {
    const std::string apart =
        Node("Reshape", {operand, onnx_.Ints({0, 0, plan_.heads, plan_.width})});
    return onnx_.Node("Transpose", {apart}, {{"perm", std::move(axes)}});
  }

  // 0, 1, ... of the keys.
  std::string Steps(const std::string& key) {
    if (onnx_.TimeIsFree()) {
      const std::string keys = Node("Gather", {Node("Shape", {key}), onnx_.Int(1 - plan_.axis)});
      return Node("Range", {onnx_.Int(0), keys, onnx_.Int(1)});
    }
    Ints steps(static_cast<size_t>(plan_.keys));
    std::iota(steps.begin(), steps.end(), 0);
    return onnx_.Ints(steps);
  }

  // [T, S].
  std::string CausalMask(const std::string& key) {
    if (onnx_.TimeIsFree()) {
      const std::string steps = Steps(key);
      return Mask(Node("Greater", {steps, Node("Unsqueeze", {steps, onnx_.Ints({1})})}));
    }
    const int64_t keys = plan_.keys;
    std::vector<float> mask(static_cast<size_t>(keys * keys));
    for (int64_t row = 0; row < keys; ++row) {
      for (int64_t column = row + 1; column < keys; ++column) mask[row * keys + column] = kUnseen;
    }
    return onnx_.Weights("mask", {keys, keys}, mask);
  }

  std::string Mask(const std::string& unseen) {
    return Node("Where", {unseen, onnx_.Scalar(kUnseen), onnx_.Scalar(0)});
  }

  const Plan& plan_;
  OnnxWriter& onnx_;
};

}  // namespace

void AttentionToOnnx(const AttentionPlan& plan, OnnxWriter& onnx) {
  OnnxOfAttention(plan, onnx).Write();
}

}  // namespace gyre
