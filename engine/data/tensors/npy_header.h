// npy_header.h: what a .npy file says of its array, a Python literal, parsed strictly: a hostile
// header costs no more than its length.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/dtype.h"

namespace gyre {

struct NpyHeader {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;  // each >= 0; outermost first, row-major
};

// Parses the literal of a file of any version: {'descr': '<f4', 'fortran_order': False, 'shape':
// (60000, 28), }.
// Errors: DataLoss for what is no such literal; InvalidArgument for big-endian elements, types but
// u1, i4, i8, f2, f4 and f8, and Fortran order of more than one axis that is longer than 1; both
// without the file's name.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view literal);

}  // namespace gyre
