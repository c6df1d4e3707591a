// safetensors.cc: an 8-byte little-endian length, a JSON header of that length, the data.

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/data/atomic_file.h"
#include "engine/data/safetensors_header.h"
#include "engine/data/tensor_file.h"
#include "engine/data/tensor_file_internal.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "elements are written as they lie");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr uint64_t kAlignBytes = 8;  // the widest element: of the data in a file, of each in memory

uint64_t RoundUp(uint64_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

// The length and the header, padded with spaces so that the data after it is aligned.
absl::StatusOr<std::string> HeaderOf(const std::string& path,
                                     const std::vector<const NamedTensor*>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header[kSafetensorsMetadata] = metadata;
  uint64_t first = 0;
  for (const NamedTensor* named : tensors) {
    if (named->name == kSafetensorsMetadata) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the name ", kSafetensorsMetadata, " is reserved"));
    }
    const uint64_t last = first + named->tensor.bytes();
    header[named->name] = {{"dtype", DTypeName(named->tensor.dtype)},
                           {"shape", named->tensor.shape.dims()},
                           {"data_offsets", {first, last}}};
    first = last;
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::type_error& error) {  // the library's only way to say so
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": a name or the metadata is not UTF-8: ", error.what()));
  }
  text.resize(RoundUp(text.size()), ' ');
  if (text.size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": the header would take ", text.size(),
                                                   " bytes, at most ", kMaxHeaderBytes,
                                                   " are allowed"));
  }
  const uint64_t length = text.size();
  std::string bytes(kLengthBytes, '\0');
  std::memcpy(bytes.data(), &length, kLengthBytes);
  return bytes + text;
}

absl::Status ReadExactly(std::ifstream& file, void* to, uint64_t bytes) {
  file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes));
  if (file) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("expected ", bytes, " more bytes, got ", file.gcount()));
}

// Reads and checks length and header; leaves `file` at the data.
absl::StatusOr<SafetensorsHeader> ReadHeader(std::ifstream& file, uint64_t file_bytes) {
  uint64_t length = 0;
  RETURN_IF_ERROR(ReadExactly(file, &length, kLengthBytes));
  const uint64_t rest = file_bytes - kLengthBytes;
  if (length > kMaxHeaderBytes || length > rest) {
    return absl::DataLossError(
        absl::StrCat("the header would take ", length, " bytes, ",
                     length > rest ? absl::StrCat("but ", rest, " follow its length")
                                   : absl::StrCat("at most ", kMaxHeaderBytes, " are allowed")));
  }
  std::string text(length, '\0');
  RETURN_IF_ERROR(ReadExactly(file, text.data(), length));
  return ParseSafetensorsHeader(text, rest - length);
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(std::vector<const NamedTensor*> sorted, SortByName(path, tensors));
  std::stable_sort(sorted.begin(), sorted.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return SizeOf(a->tensor.dtype) > SizeOf(b->tensor.dtype);
  });
  ASSIGN_OR_RETURN(const std::string header, HeaderOf(path, sorted, metadata));
  return WriteFileAtomically(path, [&](const FileSink& sink) {
    RETURN_IF_ERROR(sink(header));
    for (const NamedTensor* named : sorted) RETURN_IF_ERROR(sink(BytesOf(named->tensor)));
    return absl::OkStatus();
  });
}

absl::StatusOr<TensorFile> TensorFile::Read(const std::string& path) {
  std::error_code error;
  const uint64_t file_bytes = std::filesystem::file_size(path, error);
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot open ", path));
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  absl::StatusOr<SafetensorsHeader> header = ReadHeader(file, file_bytes);
  if (!header.ok()) return Annotate(header.status(), path);

  uint64_t total_bytes = 0;
  for (const SafetensorsEntry& entry : header->entries) {
    total_bytes += RoundUp(entry.last - entry.first);
  }
  TensorFile result;
  // One byte more gives an empty tensor at the end an address of its own.
  result.bytes_ = std::make_shared<std::vector<std::byte>>(total_bytes + 1);
  std::byte* to = result.bytes_->data();
  for (SafetensorsEntry& entry : header->entries) {
    const uint64_t bytes = entry.last - entry.first;
    const absl::Status status = ReadExactly(file, to, bytes);
    if (!status.ok()) return Annotate(status, path);
    result.tensors_.push_back({std::move(entry.name), {to, entry.shape, entry.dtype}});
    to += RoundUp(bytes);
  }
  std::sort(result.tensors_.begin(), result.tensors_.end(),
            [](const NamedTensor& a, const NamedTensor& b) { return a.name < b.name; });
  result.metadata_ = std::move(header->metadata);
  return result;
}

}  // namespace gyre
