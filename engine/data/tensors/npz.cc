// npz.cc: tensors as numpy arrays in a zip archive, and what is no such archive.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html, format 1.0.

#include <zip.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/tensors/array_file.h"
#include "engine/data/tensors/byte_source.h"
#include "engine/data/tensors/npy_header.h"
#include "engine/data/tensors/safetensors_header.h"
#include "engine/data/tensors/tensor_file.h"
#include "engine/data/tensors/zip_archive.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// 1 January 1980, 0:00, the first moment that a zip entry can state: the same tensors give the same
// bytes whenever they are written.  Bits 15-9: years since 1980, 8-5: month, 4-0: day.
constexpr zip_uint16_t kZipDate = 1 << 5 | 1;
constexpr zip_uint16_t kZipTime = 0;

// The record that ends an archive, alone: an archive without entries, which libzip does not write.
constexpr std::string_view kEmptyArchive("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22);

struct FreeSource {
  void operator()(zip_source_t* source) const { zip_source_free(source); }
};
using Source = std::unique_ptr<zip_source_t, FreeSource>;

// Adds NAME.npy; `header` and the tensor must live until the archive is closed.
absl::Status AddTensor(const std::string& path, const NamedTensor& tensor,
                       const std::string& header, zip_t* archive) {
  const std::string_view bytes = BytesOf(tensor.tensor);
  const zip_buffer_fragment_t fragments[2] = {
      {reinterpret_cast<zip_uint8_t*>(const_cast<char*>(header.data())), header.size()},
      {reinterpret_cast<zip_uint8_t*>(const_cast<char*>(bytes.data())), bytes.size()}};
  zip_source_t* source =
      zip_source_buffer_fragment(archive, fragments, bytes.empty() ? 1 : 2, /*freep=*/0);
  GYRE_CHECK(source != nullptr);
  const zip_int64_t index =
      zip_file_add(archive, absl::StrCat(tensor.name, ".npy").c_str(), source, ZIP_FL_ENC_UTF_8);
  if (index < 0) {
    zip_source_free(source);  // zip_file_add owns it only if it succeeds
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": cannot add \"", tensor.name, "\": ", zip_strerror(archive)));
  }
  const auto entry = static_cast<zip_uint64_t>(index);
  GYRE_CHECK(zip_set_file_compression(archive, entry, ZIP_CM_STORE, 0) == 0 &&
             zip_file_set_dostime(archive, entry, kZipTime, kZipDate, 0) == 0);
  return absl::OkStatus();
}

// Of a tensor in memory.
uint64_t RoundUp(uint64_t bytes) { return (bytes + 7) / 8 * 8; }

// Builds the archive in memory, where libzip's calls fail for want of memory alone: its own writer
// to a path syncs nothing.
absl::StatusOr<Source> BuildArchive(const std::string& path,
                                    const std::vector<const NamedTensor*>& tensors) {
  Source memory(zip_source_buffer_create(nullptr, 0, 0, nullptr));
  GYRE_CHECK(memory != nullptr);
  std::vector<std::string> headers;
  headers.reserve(tensors.size());  // the archive points into them
  ZipArchive archive(zip_open_from_source(memory.get(), ZIP_TRUNCATE, nullptr));
  GYRE_CHECK(archive != nullptr);
  zip_source_keep(memory.get());  // the archive took the reference that `memory` still frees

  for (const NamedTensor* tensor : tensors) {
    headers.push_back(NpyBeginning(tensor->tensor.shape, tensor->tensor.dtype));
    RETURN_IF_ERROR(AddTensor(path, *tensor, headers.back(), archive.get()));
  }
  if (zip_close(archive.get()) != 0) {
    return absl::InternalError(
        absl::StrCat(path, ": libzip cannot build the archive: ", zip_strerror(archive.get())));
  }
  archive.release();  // zip_close freed it
  return memory;
}

absl::Status CopyTo(const FileSink& sink, zip_source_t* archive) {
  GYRE_CHECK(zip_source_open(archive) == 0);
  std::vector<char> piece(size_t{1} << 20);
  zip_int64_t count = 0;
  while ((count = zip_source_read(archive, piece.data(), piece.size())) > 0) {
    RETURN_IF_ERROR(sink(std::string_view(piece.data(), static_cast<size_t>(count))));
  }
  GYRE_CHECK(count == 0);
  zip_source_close(archive);
  return absl::OkStatus();
}

}  // namespace

absl::Status RefusePickle(const std::string& path) {
  std::filesystem::path npz(path);
  npz.replace_extension(".npz");
  return absl::InvalidArgumentError(
      absl::StrCat(path,
                   ": is a pickle, as PyTorch writes, which only Python reads; convert it there:\n"
                   "  import numpy, torch\n"
                   "  numpy.savez(\"",
                   npz.string(), "\", **{name: t.numpy() for name, t in torch.load(\"", path,
                   "\", map_location=\"cpu\").items()})"));
}

absl::Status WriteNpz(const std::string& path, std::span<const NamedTensor> tensors) {
  ASSIGN_OR_RETURN(const std::vector<const NamedTensor*> sorted, SortByName(path, tensors));
  for (const NamedTensor* tensor : sorted) {
    if (NumpyTypeOf(tensor->tensor.dtype).empty()) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": numpy has no type for \"",
                                                     tensor->name, "\", which is ",
                                                     std::string(DTypeName(tensor->tensor.dtype))));
    }
  }
  if (sorted.empty()) return WriteFileAtomically(path, kEmptyArchive);
  ASSIGN_OR_RETURN(const Source archive, BuildArchive(path, sorted));
  return WriteFileAtomically(path,
                             [&](const FileSink& sink) { return CopyTo(sink, archive.get()); });
}

absl::StatusOr<TensorFile> TensorFile::ReadNpz(const std::string& path) {
  constexpr absl::string_view kEnding = ".npy", kOfPyTorch = "data.pkl";
  ASSIGN_OR_RETURN(const std::vector<std::string> entries, ZipEntries(path));
  TensorFile result;
  std::vector<std::pair<std::string, HostArray>> arrays;
  uint64_t bytes = 0;
  for (const std::string& entry : entries) {
    if (absl::EndsWith(entry, kOfPyTorch)) return RefusePickle(path);
    absl::string_view name = entry;
    if (!absl::ConsumeSuffix(&name, kEnding)) {
      return absl::InvalidArgumentError(absl::StrCat(
          path, ": expected an .npz of arrays, but it holds \"", absl::CHexEscape(entry), "\""));
    }
    auto array = ReadArray({.path = path,
                            .entry = std::string(name),
                            .least_rank = 0,
                            .most_rank = Shape::kMaxRank,
                            .as_stored = true});
    if (absl::IsInvalidArgument(array.status())) {
      result.unreadable_.emplace(name, absl::StrCat("is not read: ", array.status().message()));
      continue;
    }
    RETURN_IF_ERROR(array.status());
    bytes += RoundUp(array->bytes.size());
    RETURN_IF_ERROR(CheckFitsMemory(path, bytes));
    arrays.emplace_back(name, *std::move(array));
  }
  result.bytes_ = std::make_shared<std::vector<std::byte>>(bytes + 1);
  std::byte* to = result.bytes_->data();
  for (auto& [name, array] : arrays) {
    result.tensors_.push_back(
        {name, {to, Shape(std::span<const int64_t>(array.dims)), array.dtype}});
    std::memcpy(to, array.bytes.data(), array.bytes.size());
    to += RoundUp(array.bytes.size());
    array.bytes = {};
  }
  std::ranges::sort(result.tensors_, {}, &NamedTensor::name);
  return result;
}

}  // namespace gyre
