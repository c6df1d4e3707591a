#include "engine/training/onnx/graph_writer.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

struct SetAttribute {
  onnx::AttributeProto& to;
  void operator()(int64_t value) const {
    to.set_type(onnx::AttributeProto::INT);
    to.set_i(value);
  }
  void operator()(float value) const {
    to.set_type(onnx::AttributeProto::FLOAT);
    to.set_f(value);
  }
  void operator()(const std::string& value) const {
    to.set_type(onnx::AttributeProto::STRING);
    to.set_s(value);
  }
  void operator()(const std::vector<int64_t>& value) const {
    to.set_type(onnx::AttributeProto::INTS);
    to.mutable_ints()->Assign(value.begin(), value.end());
  }
  void operator()(const std::vector<std::string>& value) const {
    to.set_type(onnx::AttributeProto::STRINGS);
    for (const std::string& text : value) to.add_strings(text);
  }
};

}  // namespace

void GraphWriter::SetInput(int value, const std::string& name, OnnxForm form) {
  forms_[value] = {{form, name}};
}

absl::Status GraphWriter::Add(const NetNode& node) {
  node_ = &node;
  layer_ = node.config->name();
  return node.layer->ToOnnx(*this);
}

std::string GraphWriter::ValueOf(int value, OnnxForm form) {
  Forms& forms = forms_[value];
  GYRE_CHECK(!forms.empty());
  for (const auto& [has, name] : forms) {
    if (has == form) return name;
  }
  const std::string name = Convert(forms, net_.values[value].shape, form);
  forms.emplace_back(form, name);
  return name;
}

std::string GraphWriter::Convert(const Forms& forms, const Shape& shape, OnnxForm to) {
  const auto& [from, name] = forms.front();
  const int rank = shape.rank();
  if (from.kind == OnnxForm::kColumnsFirst) {
    GYRE_CHECK(to.kind == OnnxForm::kRows);
    const std::string apart =
        Node("Reshape", {name, Ints({0, from.channels, shape[1] / from.channels})});
    const std::string turned =
        Node("Transpose", {apart}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
    return Node("Flatten", {turned}, {{"axis", int64_t{1}}});
  }
  GYRE_CHECK(to.kind != OnnxForm::kColumnsFirst && rank >= 3);
  std::vector<int64_t> axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  if (to.kind == OnnxForm::kRows) {
    std::rotate(axes.begin() + 1, axes.begin() + 2, axes.end());
  } else {
    std::rotate(axes.begin() + 1, axes.end() - 1, axes.end());
  }
  return Node("Transpose", {name}, {{"perm", axes}});
}

OnnxForm GraphWriter::Form() const {
  const auto first_of = [&](int value) { return forms_[value].front().first; };
  const OnnxForm form = first_of(node_->inputs[0]);
  if (form.kind != OnnxForm::kColumnsFirst) return form;
  const bool all =
      std::ranges::all_of(node_->inputs, [&](int value) { return first_of(value) == form; });
  return all ? form : OnnxForm{};
}

std::string GraphWriter::Input(int index, OnnxForm form) {
  return ValueOf(node_->inputs[index], form);
}

void GraphWriter::Output(int index, const std::string& value, OnnxForm form) {
  forms_[node_->outputs[index]] = {{form, value}};
}

void GraphWriter::Pass() { forms_[node_->outputs[0]] = forms_[node_->inputs[0]]; }

std::string GraphWriter::NewName(const std::string& base) {
  const int number = names_[base]++;
  return number == 0 ? base : absl::StrCat(base, "_", number);
}

GraphWriter::Values GraphWriter::Nodes(const std::string& op, const Values& inputs,
                                       const std::vector<OnnxAttribute>& attributes, int outputs) {
  onnx::NodeProto& node = *to_->add_node();
  node.set_op_type(op);
  node.set_name(NewName(absl::StrCat(layer_, "/", op)));
  for (const std::string& input : inputs) node.add_input(input);
  while (!node.input().empty() && node.input(node.input_size() - 1).empty()) {
    node.mutable_input()->RemoveLast();
  }
  for (const OnnxAttribute& attribute : attributes) {
    onnx::AttributeProto& to = *node.add_attribute();
    to.set_name(attribute.name);
    std::visit(SetAttribute{to}, attribute.value);
  }
  Values values;
  for (int k = 0; k < outputs; ++k) {
    values.push_back(k == 0 ? node.name() : absl::StrCat(node.name(), ":", k));
    node.add_output(values.back());
  }
  return values;
}

const gyre::Parameter& GraphWriter::StoredOf(std::string_view parameter) const {
  for (size_t s = 0;; ++s) {
    GYRE_CHECK(s < node_->spec.states.size());
    const StateSpec& state = node_->spec.states[s];
    if (node_->parameters[s] < 0) continue;
    if ((state.slice ? state.slice->of : state.name) != parameter) continue;
    return parameters_.all()[node_->parameters[s]];
  }
}

template <typename T>
std::string GraphWriter::AddConstant(const std::string& name, const std::vector<int64_t>& dims,
                                     const std::vector<T>& numbers) {
  onnx::TensorProto& constant = *graph_.add_initializer();
  constant.set_name(NewName(name));
  SetConstant(dims, numbers, constant);
  return constant.name();
}

std::vector<float> GraphWriter::Numbers(std::string_view parameter) {
  const gyre::Parameter& of = StoredOf(parameter);
  std::vector<float> numbers(static_cast<size_t>(CanonicalShape(of, "").elements()));
  if (weights_ == nullptr) return numbers;
  const Tensor& stored = *weights_->Find(CanonicalName(of, ""));
  VisitReal(stored.dtype, [&]<typename T>() {
    for (size_t i = 0; i < numbers.size(); ++i) {
      numbers[i] = static_cast<float>(static_cast<AccumulateType<T>>(stored.as<T>()[i]));
    }
  });
  return numbers;
}

std::string GraphWriter::Parameter(std::string_view parameter) {
  const gyre::Parameter& of = StoredOf(parameter);
  std::string& value = whole_[CanonicalName(of, "")];
  if (!value.empty()) return value;
  const Shape shape = CanonicalShape(of, "");
  return value = AddConstant(CanonicalName(of, ""), {shape.dims().begin(), shape.dims().end()},
                             weights_ == nullptr ? std::vector<float>() : Numbers(parameter));
}

std::string GraphWriter::Weights(std::string_view name, const std::vector<int64_t>& dims,
                                 const std::vector<float>& numbers) {
  return AddConstant(absl::StrCat(layer_, ".", std::string(name)), dims,
                     weights_ == nullptr ? std::vector<float>() : numbers);
}

std::string GraphWriter::Scalar(float number) {
  std::string& name = scalars_[number];
  if (name.empty()) name = AddConstant("number", {}, std::vector<float>{number});
  return name;
}

std::string GraphWriter::Ints(const std::vector<int64_t>& numbers) {
  std::string& name = ints_[numbers];
  if (name.empty()) name = AddConstant("integers", {std::ssize(numbers)}, numbers);
  return name;
}

std::string GraphWriter::Int(int64_t number) {
  return AddConstant("integer", {}, std::vector<int64_t>{number});
}

std::string GraphWriter::Carried(int state) {
  const StateSpec& spec = node_->spec.states[state];
  carried_.push_back({absl::StrCat(layer_, ".", spec.name), spec.shape});
  return carried_.back().name;
}

void GraphWriter::Carry(int state, const std::string& next) {
  const std::string name = absl::StrCat(layer_, ".", node_->spec.states[state].name);
  std::ranges::find(carried_, name, &CarriedValue::name)->next = next;
}

std::pair<GraphWriter::Values, GraphWriter::Values> GraphWriter::Scan(const Values& state,
                                                                      const Values& sequences,
                                                                      bool reverse,
                                                                      const Body& body) {
  onnx::GraphProto inner;
  inner.set_name(NewName(absl::StrCat(layer_, "/step")));
  const auto declare = [](const std::string& name, onnx::ValueInfoProto& value) {
    value.set_name(name);
    value.mutable_type()->mutable_tensor_type()->set_elem_type(onnx::TensorProto::FLOAT);
  };
  const auto inputs = [&](size_t count, const char* kind) {
    Values values;
    for (size_t i = 0; i < count; ++i) {
      declare(values.emplace_back(NewName(absl::StrCat(layer_, "/", kind))), *inner.add_input());
    }
    return values;
  };
  const Values before = inputs(state.size(), "state");
  const Values slices = inputs(sequences.size(), "slice");
  onnx::GraphProto* const outer = std::exchange(to_, &inner);
  auto [after, stacked] = body(before, slices);
  // An output of a body must be a node's.
  for (Values* values : {&after, &stacked}) {
    for (std::string& value : *values) {
      value = Node("Identity", {value});
      declare(value, *inner.add_output());
    }
  }
  to_ = outer;
  Values all = state;
  all.insert(all.end(), sequences.begin(), sequences.end());
  std::vector<OnnxAttribute> attributes = {
      {"num_scan_inputs", static_cast<int64_t>(sequences.size())}};
  if (reverse) {
    attributes.push_back({"scan_input_directions", std::vector<int64_t>(sequences.size(), 1)});
    attributes.push_back({"scan_output_directions", std::vector<int64_t>(stacked.size(), 1)});
  }
  const Values results =
      Nodes("Scan", all, attributes, static_cast<int>(state.size() + stacked.size()));
  onnx::AttributeProto& graph = *to_->mutable_node(to_->node_size() - 1)->add_attribute();
  graph.set_name("body");
  graph.set_type(onnx::AttributeProto::GRAPH);
  *graph.mutable_g() = std::move(inner);
  const auto middle = results.begin() + static_cast<std::ptrdiff_t>(state.size());
  return {Values(results.begin(), middle), Values(middle, results.end())};
}

}  // namespace gyre
