// fake_cudnn_graph.h: what the fake cuDNN's descriptors mean: what finalizing them checks, and the
// arithmetic of a graph; inside the fake only.
#pragma once

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/device/cuda/cuda_libraries.h"
#include "tests/cuda/fakes/fake_cudnn.h"

namespace gyre::fake_cudnn {

struct Descriptor : FakeLibrary::Object {
  cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
  bool finalized = false;
  std::map<int, std::vector<std::byte>> attributes;  // that were set
  std::set<int> of_children;                         // those whose values are descriptors
  FakeCudnn::Engine engine;           // of a configuration, an engine, a knob or a plan
  const Descriptor* graph = nullptr;  // of a configuration or a plan

  // The values of an attribute; none if it was not set.
  template <typename T>
  std::vector<T> Values(int attribute) const {
    const auto found = attributes.find(attribute);
    if (found == attributes.end()) return {};
    std::vector<T> values(found->second.size() / sizeof(T));
    std::memcpy(values.data(), found->second.data(), found->second.size());
    return values;
  }
  template <typename T>
  T Value(int attribute) const {
    return Values<T>(attribute).at(0);
  }
  std::vector<const Descriptor*> Children(int attribute) const {
    return Values<const Descriptor*>(attribute);
  }
  const Descriptor* Child(int attribute) const { return Children(attribute).at(0); }
  std::vector<const Descriptor*> AllChildren() const;
};

// The values of a tensor, in row-major order of its extents.
using Values = std::vector<double>;

inline int64_t Id(const Descriptor& tensor) {
  return tensor.Value<int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID);
}
inline std::vector<int64_t> Extents(const Descriptor& tensor) {
  return tensor.Values<int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
}
// Whether a tensor is a number in host memory.
bool IsByValue(const Descriptor& tensor);

// Why a descriptor with all its attributes cannot be finalized; empty if it can.
std::string Check(const Descriptor& descriptor);

// The pointers of a plan's tensors that are in memory; returns why a pack does not suit it.
std::string Bind(const Descriptor& plan, const Descriptor& pack,
                 std::map<int64_t, void*>* pointers);

// Reads what a plan wants by value, whose pointers it takes out.
std::map<int64_t, Values> TakeNumbers(const Descriptor& plan, std::map<int64_t, void*>* pointers);

// Computes a plan's graph in double, rounding where a tensor is stored.  numbers: as above.
void Run(const Descriptor& plan, const std::map<int64_t, void*>& pointers,
         std::map<int64_t, Values> numbers);

}  // namespace gyre::fake_cudnn
