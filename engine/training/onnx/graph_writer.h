// graph_writer.h: the OnnxWriter of a net's layers.  It makes the nodes and constants of an ONNX
// graph, layer by layer in the net's order, and knows in which forms each value of the net is
// there.
#pragma once

#include <bit>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "engine/data/tensors/tensor_file.h"
#include "engine/training/net/infer/net_spec.h"
#include "engine/training/onnx/onnx_subset.pb.h"
#include "layers/interface/onnx.h"

namespace gyre {

static_assert(std::endian::native == std::endian::little);

// Elements of float, or of int64, as a constant.
template <typename T>
void SetConstant(const std::vector<int64_t>& dims, const std::vector<T>& numbers,
                 onnx::TensorProto& to) {
  static_assert(std::is_same_v<T, float> || std::is_same_v<T, int64_t>);
  to.mutable_dims()->Assign(dims.begin(), dims.end());
  to.set_data_type(std::is_same_v<T, float> ? onnx::TensorProto::FLOAT : onnx::TensorProto::INT64);
  to.set_raw_data(numbers.data(), numbers.size() * sizeof(T));
}

class GraphWriter : public OnnxWriter {
 public:
  // A state of the net that the graph takes as an input, and its next value.
  struct CarriedValue {
    std::string name;  // LAYER.STATE
    Shape shape;
    std::string next = {};  // a value
  };

  // All must outlive the writer, and `weights` has every parameter.  Null weights: constants of
  // parameters have dims, and no numbers.
  GraphWriter(const NetSpec& net, const ParameterSet& parameters, const TensorFile* weights,
              bool time_is_free, onnx::GraphProto& graph)
      : net_(net),
        parameters_(parameters),
        weights_(weights),
        time_is_free_(time_is_free),
        to_(&graph),
        graph_(graph),
        forms_(net.values.size()) {}

  // An input of the net.
  void SetInput(int value, const std::string& name, OnnxForm form);
  // Writes a layer.  Errors: those of Layer::ToOnnx.
  absl::Status Add(const NetNode& node);
  // A value of the net in a form.
  std::string ValueOf(int value, OnnxForm form);
  // A constant, or a node's value, of no layer.  `layer` begins its name.
  void Begin(const std::string& layer) { layer_ = layer; }

  int opset() const { return opset_; }
  const std::vector<CarriedValue>& carried() const { return carried_; }

  const LayerSpec& spec() const override { return node_->spec; }
  int BatchAxis(int input) const override { return net_.values[node_->inputs[input]].batch_axis; }
  OnnxForm Form() const override;
  std::string Input(int index, OnnxForm form) override;
  void Output(int index, const std::string& value, OnnxForm form) override;
  void Pass() override;
  Values Nodes(const std::string& op, const Values& inputs,
               const std::vector<OnnxAttribute>& attributes, int outputs) override;
  std::vector<float> Numbers(std::string_view parameter) override;
  std::string Parameter(std::string_view parameter) override;
  std::string Weights(std::string_view name, const std::vector<int64_t>& dims,
                      const std::vector<float>& numbers) override;
  std::string Scalar(float number) override;
  std::string Ints(const std::vector<int64_t>& numbers) override;
  std::string Int(int64_t number) override;
  std::string Carried(int state) override;
  void Carry(int state, const std::string& next) override;
  std::pair<Values, Values> Scan(const Values& state, const Values& sequences, bool reverse,
                                 const Body& body) override;
  void RequireOpset(int version) override { opset_ = std::max(opset_, version); }
  bool TimeIsFree() const override { return time_is_free_; }

 private:
  // The names of a value of the net, by form.  The first is that in which it was made.
  using Forms = std::vector<std::pair<OnnxForm, std::string>>;

  std::string NewName(const std::string& base);
  std::string Convert(const Forms& forms, const Shape& shape, OnnxForm to);
  // A constant in the graph.
  template <typename T>
  std::string AddConstant(const std::string& name, const std::vector<int64_t>& dims,
                          const std::vector<T>& numbers);
  const gyre::Parameter& StoredOf(std::string_view parameter) const;

  const NetSpec& net_;
  const ParameterSet& parameters_;
  const TensorFile* const weights_;
  const bool time_is_free_;
  onnx::GraphProto* to_;     // where nodes go: the graph, or the body of a Scan
  onnx::GraphProto& graph_;  // where constants go
  std::vector<Forms> forms_;
  const NetNode* node_ = nullptr;
  std::string layer_;
  std::map<std::string, int> names_;          // how often each was wanted
  std::map<std::string, std::string> whole_;  // values of whole parameters
  std::map<std::vector<int64_t>, std::string> ints_;
  std::map<float, std::string> scalars_;
  std::vector<CarriedValue> carried_;
  int opset_ = 13;
};

}  // namespace gyre
