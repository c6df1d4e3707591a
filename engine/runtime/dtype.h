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

// By DType.
inline constexpr size_t kDTypeSizes[] = {8, 4, 2, 2, 4, 8, 1};
inline constexpr std::string_view kDTypeNames[] = {"F64", "F32", "F16", "BF16", "I32", "I64", "U8"};

constexpr size_t SizeOf(DType dtype) { return kDTypeSizes[static_cast<size_t>(dtype)]; }
constexpr std::string_view DTypeName(DType dtype) {
  return kDTypeNames[static_cast<size_t>(dtype)];
}

// The DType whose elements are T.
template <typename T>
inline constexpr DType kDTypeOf = T::not_an_element_type;
template <>
inline constexpr DType kDTypeOf<double> = DType::kF64;
template <>
inline constexpr DType kDTypeOf<float> = DType::kF32;
template <>
inline constexpr DType kDTypeOf<Half> = DType::kF16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::kBF16;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::kI32;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::kI64;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::kU8;

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
