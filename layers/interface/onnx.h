// onnx.h: how a layer writes itself as nodes of an ONNX graph (Layer::ToOnnx).  The writer is
// abstract, so layers know no schema of ONNX.  Used by one thread.
//
// Terms:
//   value  a tensor of the graph, by its name there
//   form   the order of a value's axes in the graph
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "layers/interface/layer.h"

namespace gyre {

struct OnnxAttribute {
  std::string name;
  std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<std::string>> value;
};

// The forms:
//   kRows           as Gyre has it
//   kChannelsFirst  of three axes or more: the last one moved to position 1
//   kColumnsFirst   [N, channels x pixels], where Gyre has [N, pixels x channels]
struct OnnxForm {
  enum Axes : uint8_t { kRows, kChannelsFirst, kColumnsFirst };
  Axes kind = kRows;
  int64_t channels = 0;  // of kColumnsFirst
  friend bool operator==(const OnnxForm&, const OnnxForm&) = default;
};

class OnnxWriter {
 public:
  using Values = std::vector<std::string>;
  virtual ~OnnxWriter() = default;

  // What the layer declared, and the axis of the samples of an input.
  virtual const LayerSpec& spec() const = 0;
  virtual int BatchAxis(int input) const = 0;
  const Shape& shape(int state) const { return spec().states[state].shape; }

  // A form that all inputs of the layer have, or can have by one transpose.
  virtual OnnxForm Form() const = 0;
  // An input's value.  Transposes it if it has another form.
  virtual std::string Input(int index, OnnxForm form = {}) = 0;
  // What an output is.
  virtual void Output(int index, const std::string& value, OnnxForm form = {}) = 0;
  // The first output is the first input.
  virtual void Pass() = 0;

  // A node, and its first output or all of them.  An input "" is left out.
  std::string Node(const std::string& op, const Values& inputs,
                   const std::vector<OnnxAttribute>& attributes = {}) {
    return Nodes(op, inputs, attributes, 1).front();
  }
  virtual Values Nodes(const std::string& op, const Values& inputs,
                       const std::vector<OnnxAttribute>& attributes, int outputs) = 0;

  // A parameter or buffer by its state's name, whole and canonical: its numbers, and a value.
  virtual std::vector<float> Numbers(std::string_view parameter) = 0;
  virtual std::string Parameter(std::string_view parameter) = 0;
  // Constants.  `name` is of a parameter whose numbers they are, in another order.
  virtual std::string Weights(std::string_view name, const std::vector<int64_t>& dims,
                              const std::vector<float>& numbers) = 0;
  virtual std::string Scalar(float number) = 0;
  virtual std::string Ints(const std::vector<int64_t>& numbers) = 0;  // of one axis
  virtual std::string Int(int64_t number) = 0;                        // of none

  // A kCarried state as an input of the graph, and its next value as an output.
  virtual std::string Carried(int state) = 0;
  virtual void Carry(int state, const std::string& next) = 0;

  // A node Scan.  `body` gets the state before a step, and the step's slice of each sequence
  // (axis 0).  It returns the state after the step, and what is stacked along axis 0.  Values from
  // outside are visible in it.  Returns the last state, and the stacks.
  using Body = std::function<std::pair<Values, Values>(const Values& state, const Values& slices)>;
  virtual std::pair<Values, Values> Scan(const Values& state, const Values& sequences, bool reverse,
                                         const Body& body) = 0;

  // The graph needs this version of ONNX's operators.  The default is 13.
  virtual void RequireOpset(int version) = 0;
  // Whether the extent of an input's time axis is unknown, so that no constant may depend on it.
  virtual bool TimeIsFree() const = 0;
};

}  // namespace gyre
