// array_file.h: an array read whole into host memory from a file that many programs can write: IDX,
// the format of MNIST, .npy, or an entry of an .npz.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/dtype.h"

namespace gyre {

struct ArrayFile {
  std::string path;
  std::string entry = {};             // of an .npz; "": the file is no .npz
  int least_rank = 1, most_rank = 6;  // of what it is expected to hold
};

struct HostArray {
  DType dtype = DType::kU8;   // U8, I32, F32 or F64
  std::vector<int64_t> dims;  // whose product neither overflows nor exceeds the bytes
  std::string bytes;          // the elements, row-major

  const std::byte* data() const { return reinterpret_cast<const std::byte*>(bytes.data()); }
};

// Reads an array; IDX and .npy may be gzip, whatever the name.  I64 becomes I32, F16 becomes F32,
// and N,H,W of an IDX file N,H,W,1.
// Errors, naming file and entry: those of ByteSource; InvalidArgument for a rank or a type that is
// not expected, or an integer beyond 32 bits; DataLoss for a header that is broken or does not fit
// the elements; ResourceExhausted for more than the machine's memory.
// Source: LeCun, Cortes, Burges, "The MNIST database", http://yann.lecun.com/exdb/mnist, "File
// formats"; npy_header.h; RFC 1952 for gzip.
absl::StatusOr<HostArray> ReadArray(const ArrayFile& file);

// The file, and the entry if there is one, for messages.
std::string NameOf(const ArrayFile& file);

}  // namespace gyre
