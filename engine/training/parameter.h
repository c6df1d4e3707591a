// parameter.h: the persistent states of a net, which training changes and files hold.  The first
// inferred net makes the set and picks each parameter's storage layout.  Nets of other shapes bind
// to it.  Immutable after that.
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
  std::string layer;                   // the layer's name, or that of the first to share it
  StateSpec spec;                      // kind kParameter or kBuffer
  int state = 0;                       // index in the layer's spec
  std::shared_ptr<const Layer> owner;  // packs and unpacks

  std::string name() const {
    return spec.shared_name.empty() ? layer + "." + spec.name : spec.shared_name;
  }
  bool trained() const { return spec.trained(); }
  // Elements of the storage with padding, as optimizers and reductions see it.
  int64_t storage_elements() const {
    return static_cast<int64_t>(spec.size_bytes() / SizeOf(spec.dtype));
  }
};

// Converts numbers between real types, each rounded once.
std::vector<std::byte> ToType(std::span<const std::byte> bytes, DType from, DType to);

// The name of a parameter in files.  `suffix` is an optimizer slot's (".momentum") or "".  The
// slices of one parameter share a name for values, but not for slots.
std::string CanonicalName(const Parameter& parameter, absl::string_view suffix);
// The shape of the tensor of that name.
Shape CanonicalShape(const Parameter& parameter, absl::string_view suffix);

// The type in files.  For 16 bits it is F32, the type of the master.
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
  // Index of the parameter with this name (Parameter::name), or -1.
  int Find(absl::string_view name) const;

 private:
  std::vector<Parameter> parameters_;
  std::unordered_map<std::string, int> index_of_name_;
};

// Bytes of storage in host memory: storage_elements() of FileDType, in the parameter's layout.
// Values, masters and optimizer slots have this form.
size_t MasterBytes(const Parameter& parameter);

// Writes the first values of a parameter, packed, to such storage.  They depend only on the seed
// and the names.  A slice has the values of its range in the whole parameter.
absl::Status SetInitialValue(const Parameter& parameter, uint64_t seed, void* storage);

// Appends the canonical tensor of such storage, of FileDType, with `suffix` in its name.  It points
// into the storage if that is canonical.
absl::Status UnpackParameter(const Parameter& parameter, std::span<std::byte> storage,
                             absl::string_view suffix, HostTensors& to);
// Likewise from storage of the parameter's own type, which is widened to FileDType.
absl::Status UnpackValue(const Parameter& parameter, std::span<std::byte> storage, HostTensors& to);
// Joins slices of a parameter that follow one another in `tensors`.  Copies them unless they are
// contiguous in memory.
void JoinSlices(HostTensors& tensors);
// Host memory of UnpackParameter beside the storage.
size_t UnpackedBytes(const Parameter& parameter);
// Checks a tensor of a file, or its header.  `stored` is null if the file lacks it.
// Errors: NotFound, or InvalidArgument for another shape or dtype.  Both name the tensor and tell
// that the file is of another net.
absl::Status CheckStored(const Parameter& parameter, absl::string_view suffix,
                         const Tensor* stored);
// The storage of a parameter from a file.  Errors: those of CheckStored and CheckReadable.
absl::StatusOr<std::vector<std::byte>> PackParameter(const Parameter& parameter,
                                                     const TensorFile& from,
                                                     absl::string_view suffix);

}  // namespace gyre
