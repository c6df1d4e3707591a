// safetensors.cc: an 8-byte little-endian length, a JSON header of that length, the data.

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "engine/data/atomic_file.h"
#include "engine/data/file_reader.h"
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
constexpr char kDigest[] = "gyre.sha256";          // the metadata's key
constexpr uint64_t kAlignBytes = 8;  // the widest element: of the data in a file, of each in memory

uint64_t RoundUp(uint64_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

// Of names, types, shapes and elements, in name order: what a file means, however it is laid out.
std::string DigestOf(const std::vector<const NamedTensor*>& by_name) {
  Sha256Digest digest;
  for (const NamedTensor* named : by_name) {
    digest.Add(absl::StrCat(named->name, " ", std::string(DTypeName(named->tensor.dtype)), " ",
                            named->tensor.shape.ToString(), "\n"));
    digest.Add(BytesOf(named->tensor));
  }
  return digest.Hex();
}

// The length and the header, padded with spaces so that the data after it is aligned.
absl::StatusOr<std::string> HeaderOf(const std::string& path,
                                     const std::vector<const NamedTensor*>& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  header[kSafetensorsMetadata] = metadata;
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

absl::Status ReadExactly(FileReader& file, void* to, uint64_t bytes) {
  ASSIGN_OR_RETURN(const size_t count, file.Read(to, bytes));
  if (count == bytes) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("expected ", bytes, " more bytes, got ", count));
}

// Reads and checks length and header; leaves `file` at the data.
absl::StatusOr<SafetensorsHeader> ReadHeader(FileReader& file) {
  uint64_t length = 0;
  RETURN_IF_ERROR(ReadExactly(file, &length, kLengthBytes));
  const uint64_t rest = file.size() - kLengthBytes;
  if (length > kMaxHeaderBytes || length > rest) {
    return absl::DataLossError(
        absl::StrCat("expected a safetensors file; its first ", kLengthBytes,
                     " bytes say that a header of ", length, " bytes follows, ",
                     length > rest ? absl::StrCat("but ", rest, " do")
                                   : absl::StrCat("at most ", kMaxHeaderBytes, " are allowed")));
  }
  std::string text(length, '\0');
  RETURN_IF_ERROR(ReadExactly(file, text.data(), length));
  return ParseSafetensorsHeader(text, rest - length);
}

// Takes the digest out of the metadata, if there is one, and compares.
absl::Status CheckDigest(const std::vector<NamedTensor>& by_name,
                         std::map<std::string, std::string>& metadata) {
  const auto stated = metadata.extract(kDigest);
  if (stated.empty()) return absl::OkStatus();  // of another writer
  std::vector<const NamedTensor*> tensors;
  for (const NamedTensor& named : by_name) tensors.push_back(&named);
  const std::string got = DigestOf(tensors);
  if (got == stated.mapped()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("damaged: its tensors have sha256 ", got, ", but it states ", stated.mapped()));
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata) {
  ASSIGN_OR_RETURN(std::vector<const NamedTensor*> sorted, SortByName(path, tensors));
  std::map<std::string, std::string> with_digest = metadata;
  with_digest[kDigest] = DigestOf(sorted);
  std::stable_sort(sorted.begin(), sorted.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return SizeOf(a->tensor.dtype) > SizeOf(b->tensor.dtype);
  });
  ASSIGN_OR_RETURN(const std::string header, HeaderOf(path, sorted, with_digest));
  return WriteFileAtomically(path, [&](const FileSink& sink) {
    RETURN_IF_ERROR(sink(header));
    for (const NamedTensor* named : sorted) RETURN_IF_ERROR(sink(BytesOf(named->tensor)));
    return absl::OkStatus();
  });
}

absl::StatusOr<TensorFile> TensorFile::Read(const std::string& path) {
  ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  absl::StatusOr<SafetensorsHeader> header = ReadHeader(file);
  if (!header.ok()) return Annotate(header.status(), path);

  uint64_t total_bytes = 0;
  for (const SafetensorsEntry& entry : header->entries) {
    total_bytes += RoundUp(entry.last - entry.first);
  }
  RETURN_IF_ERROR(CheckFitsMemory(path, total_bytes));
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
  RETURN_IF_ERROR(Annotate(CheckDigest(result.tensors_, result.metadata_), path));
  return result;
}

}  // namespace gyre
