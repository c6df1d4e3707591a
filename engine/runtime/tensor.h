// tensor.h: a non-owning, contiguous view of typed elements on some device.  A copy is another
// view.  The memory must outlive every view of it.
#pragma once

#include "engine/runtime/check.h"
#include "engine/runtime/dtype.h"
#include "engine/runtime/shape.h"

namespace gyre {

struct Tensor {
  void* data = nullptr;  // null: not bound (the state was not declared for this pass)
  Shape shape;
  DType dtype = DType::kF32;

  explicit operator bool() const { return data != nullptr; }
  int64_t elements() const { return shape.elements(); }
  size_t bytes() const { return static_cast<size_t>(elements()) * SizeOf(dtype); }

  // The elements as T.  Precondition: kDTypeOf<T> == dtype.
  template <typename T>
  T* as() const {
    GYRE_CHECK(kDTypeOf<T> == dtype);
    return static_cast<T*>(data);
  }
};

}  // namespace gyre
