// parameter.h: the persistent states of a net: what training changes and files keep.
//
// The first net that is inferred makes the set and thereby picks each parameter's storage layout;
// nets of other shapes bind to it.  Immutable after that.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/data/tensors/tensor_file.h"
#include "layers/interface/layer.h"

namespace gyre {

struct Parameter {
  std::string layer;                   // the layer's name; where it is shared, the first one's
  StateSpec spec;                      // kind kParameter or kBuffer
  int state = 0;                       // index in the layer's spec
  std::shared_ptr<const Layer> owner;  // packs and unpacks

  std::string name() const {
    return spec.shared_name.empty() ? layer + "." + spec.name : spec.shared_name;
  }
  bool trained() const { return spec.trained(); }
  // Elements of the storage, padding included: what optimizers and reductions see.
  int64_t storage_elements() const {
    return static_cast<int64_t>(spec.size_bytes() / SizeOf(spec.dtype));
  }
};

// Numbers of a real type as another, each rounded once.
std::vector<std::byte> ToType(std::span<const std::byte> bytes, DType from, DType to);

// What files call a part of a parameter; `suffix` is an optimizer slot's (".momentum") or "".  Of
// values those that are cut have one name, their slots names of their own.
std::string CanonicalName(const Parameter& parameter, const CanonicalPart& part,
                          absl::string_view suffix);
// The shape of the tensor of that name.
Shape CanonicalShape(const Parameter& parameter, const CanonicalPart& part,
                     absl::string_view suffix);

// What files have of it: of 16 bits F32, in which a trained one's master is.
inline DType FileDType(const Parameter& parameter) { return AccumulateDType(parameter.spec.dtype); }

// Host tensors with the memory behind them.
struct HostTensors {
  std::vector<NamedTensor> tensors;
  std::vector<std::vector<std::byte>> memory;
  Tensor Add(std::string name, Shape shape, DType dtype);
};

class ParameterSet {
 public:
  void Add(Parameter parameter);
  std::span<const Parameter> all() const { return parameters_; }
  // Index of the one of that name (Parameter::name); -1: there is none.
  int Find(absl::string_view name) const;

 private:
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, int> index_of_name_;
};

// Host memory of storage_elements() in a parameter's layout, each of FileDType: the parameter
// itself, or of one of 16 bits its master, and slots of the optimizer.
size_t MasterBytes(const Parameter& parameter);

// Writes the first values of one parameter, packed, over such memory.  They depend on (seed, names)
// alone, where it is cut on the whole one's.
absl::Status SetInitialValue(const Parameter& parameter, uint64_t seed, void* storage);

// The bytes of such memory <-> canonical tensors of FileDType; `suffix` is appended to each name
// (".momentum").  Where the storage is canonical the tensor lies in it.
absl::Status UnpackParameter(const Parameter& parameter, std::span<std::byte> storage,
                             absl::string_view suffix, HostTensors& to);
// Likewise of bytes of the parameter's own type, which need not be as wide as FileDType.
absl::Status UnpackValue(const Parameter& parameter, std::span<std::byte> storage, HostTensors& to);
// Pieces of one parameter, one after another in `tensors`, become one tensor; a copy where they do
// not lie end to end.
void JoinSlices(HostTensors& tensors);
// Host memory that UnpackParameter takes beside the storage.
size_t UnpackedBytes(const Parameter& parameter);
// `stored`: what a file has of a part, or its header says of it; null if it lacks it.  Errors:
// NotFound if it does, InvalidArgument for a shape or dtype that differs; both say that the file is
// of another net and name the tensor.
absl::Status CheckStored(const Parameter& parameter, const CanonicalPart& part,
                         absl::string_view suffix, const Tensor* stored);
// Errors: those of CheckStored and TensorFile::CheckReadable.
absl::StatusOr<std::vector<std::byte>> PackParameter(const Parameter& parameter,
                                                     const TensorFile& from,
                                                     absl::string_view suffix);

}  // namespace gyre
