// tensor_file.h: named tensors on disk: safetensors (read and written) and npz (written).
// Both are little-endian; layouts are canonical and row-major.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/tensor.h"

namespace gyre {

struct NamedTensor {
  std::string name;
  Tensor tensor;  // host memory
};

// Writes the tensors, wider elements first, then in name order, so that each is aligned to its
// element in the file, and their checksum into the metadata, as "gyre.crc32".  The same tensors
// give the same bytes, in whatever order they come.  crc32_of_file, if not null, is set to that of
// all bytes of the file, which costs no second pass. Errors: InvalidArgument for a name that is
// repeated, reserved or not UTF-8; those of WriteFileAtomically. Source:
// https://github.com/huggingface/safetensors, "Format".
absl::Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {},
                              uint32_t* crc32_of_file = nullptr);
// crc32_of_file of a file that WriteSafetensors wrote, as it was then: by what its header states of
// the data, which are not read.  Errors: those of TensorFile::Read; DataLoss where it states
// nothing.
absl::StatusOr<uint32_t> Crc32ByHeader(const std::string& path);
// A zip archive of .npy files (format 1.0), stored, as numpy.load reads it; deterministic likewise.
// Errors: InvalidArgument for a repeated name or BF16, which numpy lacks; those of
// WriteFileAtomically.
absl::Status WriteNpz(const std::string& path, std::span<const NamedTensor> tensors);

class TensorFiles;

// A safetensors file in memory.  A copy shares the elements, which live as long as any copy.
class TensorFile {
 public:
  // Errors: NotFound, or DataLoss saying what is broken (length, header, repeated names, offsets
  // that overlap, overrun or leave gaps, a shape that does not fit them, a checksum in the metadata
  // that differs); ResourceExhausted for more than the machine's memory.
  static absl::StatusOr<TensorFile> Read(const std::string& path);

  const std::vector<NamedTensor>& tensors() const { return tensors_; }  // in name order
  // Without the checksum.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Tensor* Find(std::string_view name) const;  // null if absent
  // Tensors of the file that are none of tensors(), of an unknown dtype or too many extents: what
  // is wrong, by name.
  const std::map<std::string, std::string, std::less<>>& unreadable() const { return unreadable_; }
  // Errors: InvalidArgument for the name of one of these.
  absl::Status CheckReadable(std::string_view name) const;
  // The same file with these tensors, of distinct names, in place of its own.
  TensorFile With(std::vector<NamedTensor> tensors) const;

 private:
  friend class TensorFiles;
  std::shared_ptr<std::vector<std::byte>> bytes_;  // tensors_ point into it, each 8-byte aligned
  std::vector<NamedTensor> tensors_;
  std::map<std::string, std::string, std::less<>> unreadable_;
  std::map<std::string, std::string> metadata_;
};

// Safetensors files that hold one set of tensors together, which stay on the disk until asked for.
class TensorFiles {
 public:
  // Reads the headers alone.  Errors: those of TensorFile::Read; DataLoss naming both files that
  // have a tensor of the same name.
  static absl::StatusOr<TensorFiles> Open(const std::vector<std::string>& paths);

  struct TensorEntry {
    Shape shape;
    DType dtype = DType::kF32;
    size_t file = 0;  // index of its path
    uint64_t at = 0;  // its first byte in the file
  };
  // By name; without those that TensorFile has as unreadable.
  const std::map<std::string, TensorEntry, std::less<>>& entries() const { return entries_; }

  // Those of `names` that there are, each once.  What checksums cover whole files is not compared.
  absl::StatusOr<TensorFile> Read(std::span<const std::string> names) const;

 private:
  std::vector<std::string> paths_;
  std::map<std::string, TensorEntry, std::less<>> entries_;
};

}  // namespace gyre
