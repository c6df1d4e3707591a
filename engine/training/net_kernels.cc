#include "engine/training/net_kernels.h"

#include "engine/runtime/parallel/parallel.h"

namespace gyre {
namespace {

template <typename T>
struct FillWith {
  T value;
  T* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = value; }
};

template <typename T>
struct Accumulate {
  const T* from;
  T* to;
  HOST_DEVICE void operator()(int64_t i) const { to[i] = static_cast<T>(to[i] + from[i]); }
};

}  // namespace

absl::Status Fill(Stream& stream, double value, Tensor to) {
  return VisitReal(to.dtype, [&]<typename T>() {
    return ForEach(stream, to.elements(), FillWith<T>{static_cast<T>(value), to.as<T>()});
  });
}

absl::Status AddInto(Stream& stream, Tensor from, Tensor to) {
  GYRE_CHECK(from.elements() == to.elements());
  return VisitReal(to.dtype, [&]<typename T>() {
    return ForEach(stream, to.elements(), Accumulate<T>{from.as<T>(), to.as<T>()});
  });
}

}  // namespace gyre
