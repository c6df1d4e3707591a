// tensor_file.h: named tensors on disk, in safetensors and npz, each read and written.  Both are
// written little-endian, row-major and canonical, so that the same tensors give the same bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/tensor.h"

namespace gyre {

struct NamedTensor {
  std::string name;
  Tensor tensor;  // host memory
};

// Writes the tensors, wider elements first, then in name order, so that each is aligned in the
// file.  The order of `tensors` does not matter.  Their checksum is metadata "gyre.crc32".  Sets
// *crc32_of_file, if not null, to that of the whole file, without a second pass.
// Errors: InvalidArgument for a name that is repeated, reserved or not UTF-8, and those of
// WriteFileAtomically.  Source: https://github.com/huggingface/safetensors, "Format".
absl::Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata = {},
                              uint32_t* crc32_of_file = nullptr);
// The crc32_of_file that WriteSafetensors returned, from the checksum in the header.  Does not read
// the data.  Errors: those of TensorFile::Read, and DataLoss if the header has no checksum.
absl::StatusOr<uint32_t> Crc32ByHeader(const std::string& path);
// Writes a zip archive of .npy files (format 1.0), stored, as numpy.load reads it.
// Errors: InvalidArgument for a repeated name or BF16, which numpy lacks, and those of
// WriteFileAtomically.
absl::Status WriteNpz(const std::string& path, std::span<const NamedTensor> tensors);

// For both writers: the tensors in name order, as pointers into `tensors`.
// Errors: InvalidArgument, beginning with path, for a repeated name.
absl::StatusOr<std::vector<const NamedTensor*>> SortByName(const std::string& path,
                                                           std::span<const NamedTensor> tensors);

// The elements as bytes.  Empty for a tensor without elements.
std::string_view BytesOf(const Tensor& tensor);

class TensorFiles;

// A safetensors or npz file in memory.  Copies share the elements, which live as long as any copy.
class TensorFile {
 public:
  // By the file's first bytes.
  // Errors: NotFound, ResourceExhausted for more than the machine's memory, or DataLoss.  DataLoss
  // names a broken length or header, repeated names, offsets that overlap, overrun, leave gaps or
  // do not fit the shape, or a differing checksum of tensors or metadata.  InvalidArgument for a
  // pickle, as of PyTorch, with how to convert it, and for another zip archive than an npz.
  static absl::StatusOr<TensorFile> Read(const std::string& path);

  const std::vector<NamedTensor>& tensors() const { return tensors_; }  // in name order
  // Without the checksums.
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const Tensor* Find(std::string_view name) const;  // null if absent
  // Tensors that tensors() lacks, for an unknown dtype or too many extents.  Maps name to reason.
  const std::map<std::string, std::string, std::less<>>& unreadable() const { return unreadable_; }
  // Errors: InvalidArgument for the name of one of these.
  absl::Status CheckReadable(std::string_view name) const;
  // The same file with these tensors, of distinct names, instead of its own.
  TensorFile With(std::vector<NamedTensor> tensors) const;

 private:
  friend class TensorFiles;
  static absl::StatusOr<TensorFile> ReadNpz(const std::string& path);

  std::shared_ptr<std::vector<std::byte>> bytes_;  // tensors_ point into it, each 8-byte aligned
  std::vector<NamedTensor> tensors_;
  std::map<std::string, std::string, std::less<>> unreadable_;
  std::map<std::string, std::string> metadata_;
};

// Safetensors files that together hold one set of tensors.  Tensors stay on disk until read.
class TensorFiles {
 public:
  // Reads headers alone.  Errors: those of TensorFile::Read, DataLoss naming two files of a tensor.
  static absl::StatusOr<TensorFiles> Open(const std::vector<std::string>& paths);

  struct TensorEntry {
    Shape shape;
    DType dtype = DType::kF32;
    size_t file = 0;  // index of its path
    uint64_t at = 0;  // offset of its first byte in the file
  };
  // By name, without tensors that TensorFile calls unreadable.
  const std::map<std::string, TensorEntry, std::less<>>& entries() const { return entries_; }

  // Reads the `names` that exist, each once.  Checksums of whole files are not compared.
  absl::StatusOr<TensorFile> Read(std::span<const std::string> names) const;

 private:
  std::vector<std::string> paths_;
  std::map<std::string, TensorEntry, std::less<>> entries_;
};

}  // namespace gyre
