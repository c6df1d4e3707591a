// dtype.h: the element types of tensors, and the dispatch from a run-time DType to a C++ type.
// Enumerators are stable, because checkpoints and plan hashes contain them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/runtime/half.h"

namespace gyre {

enum class DType : uint8_t { kF64 = 0, kF32 = 1, kF16 = 2, kBF16 = 3, kI32 = 4, kI64 = 5, kU8 = 6 };

constexpr size_t SizeOf(DType dtype) {
  switch (dtype) {
    case DType::kF64:
    case DType::kI64:
      return 8;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kU8:
      return 1;
  }
  return 0;
}

constexpr std::string_view DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return "F64";
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

template <typename T>
struct DTypeOfT;
template <>
struct DTypeOfT<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOfT<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOfT<Half> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOfT<BFloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOfT<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOfT<int64_t> {
  static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOfT<uint8_t> {
  static constexpr DType value = DType::kU8;
};

// The DType whose elements are T.
template <typename T>
inline constexpr DType kDTypeOf = DTypeOfT<T>::value;

// The type in which elements of T are computed and summed.  It is float for 16-bit types, else T.
template <typename T>
using AccumulateType = std::conditional_t<sizeof(T) == 2, float, T>;

constexpr DType AccumulateDType(DType dtype) {
  return dtype == DType::kF16 || dtype == DType::kBF16 ? DType::kF32 : dtype;
}

// Floating-point types, in which activations and parameters may be stored.
constexpr bool IsReal(DType dtype) {
  return dtype == DType::kF64 || dtype == DType::kF32 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}
// Types in which arithmetic is done.  Optimizers and reductions over ranks take no other.
constexpr bool IsComputeType(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }

// Calls f.template operator()<T>() with the C++ type of `dtype`.  Precondition: IsReal(dtype).
// Infer has refused every other type with a Status.
template <typename F>
decltype(auto) VisitReal(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF64:
      return std::forward<F>(f).template operator()<double>();
    case DType::kF16:
      return std::forward<F>(f).template operator()<Half>();
    case DType::kBF16:
      return std::forward<F>(f).template operator()<BFloat16>();
    default:
      return std::forward<F>(f).template operator()<float>();
  }
}

// The same for the two compute types.  Precondition: IsComputeType(dtype).
template <typename F>
decltype(auto) VisitComputeType(DType dtype, F&& f) {
  if (dtype == DType::kF64) return std::forward<F>(f).template operator()<double>();
  return std::forward<F>(f).template operator()<float>();
}

}  // namespace gyre
