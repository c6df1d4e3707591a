// npy_header.h: numpy's names of types, and a .npy file's header, a Python literal.  Its parser is
// strict, and takes time of the header's length.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/dtype.h"
#include "engine/runtime/shape.h"

namespace gyre {

// numpy's name of a little-endian element type, or "".
std::string_view NumpyTypeOf(DType dtype);

struct NpyHeader {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // each >= 0, outermost first, row-major
};

// Parses the literal of a file of any version, such as
//   {'descr': '<f4', 'fortran_order': False, 'shape': (60000, 28), }
// Errors: DataLoss for any other text.  InvalidArgument for big-endian elements, types except u1,
// i4, i8, f2, f4 and f8, and Fortran order of two or more axes longer than 1.  Without file name.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view literal);

// Everything of a .npy file of format 1.0 before the elements, which then start at a multiple of 64
// bytes.  Precondition: NumpyTypeOf(dtype) is not empty.
std::string NpyBeginning(const Shape& shape, DType dtype);

}  // namespace gyre
