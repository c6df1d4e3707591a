// array_file.h: reads a whole array into host memory from a format that many programs write.  It is
// IDX (that of MNIST), .npy, or an entry of an .npz.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/dtype.h"

namespace gyre {

struct ArrayFile {
  std::string path;
  std::string entry = {};             // of an .npz.  "": the file is no .npz
  int least_rank = 1, most_rank = 6;  // expected ranks
  bool as_stored = false;             // I64 and F16 stay what they are
};

struct HostArray {
  DType dtype = DType::kU8;   // U8, I32, F32 or F64
  std::vector<int64_t> dims;  // whose product neither overflows nor exceeds the bytes
  std::string bytes;          // the elements, row-major

  const std::byte* data() const { return reinterpret_cast<const std::byte*>(bytes.data()); }
};

// Reads an array.  IDX and .npy may be gzip, whatever their name.  Converts I64 to I32, F16 to F32
// unless as_stored, and N,H,W of IDX to N,H,W,1. Errors, naming file and entry: those of
// ByteSource, and
//   InvalidArgument    unexpected rank or type, or an integer beyond 32 bits
//   DataLoss           a header that is broken or does not fit the elements
//   ResourceExhausted  more than the machine's memory
// Source: LeCun, Cortes, Burges, http://yann.lecun.com/exdb/mnist; npy_header.h; RFC 1952 (gzip).
absl::StatusOr<HostArray> ReadArray(const ArrayFile& file);

// The file, and the entry if there is one, for messages.
std::string NameOf(const ArrayFile& file);

}  // namespace gyre
