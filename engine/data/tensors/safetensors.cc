// safetensors.cc: an 8-byte little-endian length, a JSON header of that length, the data.

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/tensors/safetensors_header.h"
#include "engine/data/tensors/tensor_file.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "elements are written as they lie");

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr char kChecksum[] = "gyre.crc32";         // the metadata's key
constexpr char kMetadataChecksum[] = "gyre.metadata_crc32";
constexpr size_t kPieceBytes = size_t{1} << 18;  // still in the cache when it is summed
constexpr uint64_t kAlignBytes = 8;  // the widest element: of the data in a file, of each in memory

uint64_t RoundUp(uint64_t bytes) { return (bytes + kAlignBytes - 1) / kAlignBytes * kAlignBytes; }

// What the data are, a line a tensor in name order, and then the data, of this CRC.
uint32_t ChecksumOf(std::vector<SafetensorsEntry> entries, uint32_t data) {
  std::ranges::sort(entries, {}, &SafetensorsEntry::name);
  uint32_t lines = 0;
  uint64_t data_bytes = 0;
  for (const SafetensorsEntry& entry : entries) {
    lines = Crc32(absl::StrCat(entry.name, " ", std::string(DTypeName(entry.dtype)), " ",
                               entry.shape.ToString(), " ", entry.first, "\n"),
                  lines);
    data_bytes += entry.last - entry.first;
  }
  return JoinCrc32(lines, data, data_bytes);
}

// Of all other keys and values, each behind its length.
std::string MetadataChecksumOf(const std::map<std::string, std::string>& metadata) {
  uint32_t crc = 0;
  for (const auto& [key, value] : metadata) {
    if (key == kChecksum || key == kMetadataChecksum) continue;
    crc = Crc32(absl::StrCat(key.size(), " ", key, value.size(), " ", value), crc);
  }
  return absl::StrFormat("%08x", crc);
}

// The length and the header, padded with spaces so that the data after it is aligned.
absl::StatusOr<std::string> HeaderOf(const std::string& path,
                                     const std::vector<SafetensorsEntry>& entries,
                                     const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  header[kSafetensorsMetadata] = metadata;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.name == kSafetensorsMetadata) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": the name ", kSafetensorsMetadata, " is reserved"));
    }
    header[entry.name] = {{"dtype", DTypeName(entry.dtype)},
                          {"shape", entry.shape.dims()},
                          {"data_offsets", {entry.first, entry.last}}};
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

// Reads and checks length and header; leaves `file` at the data.  crc32: of what is ahead of them.
absl::StatusOr<SafetensorsHeader> ReadHeader(FileReader& file, uint32_t* crc32 = nullptr) {
  uint64_t length = 0;
  RETURN_IF_ERROR(ReadExactly(file, &length, kLengthBytes));
  const uint64_t rest = file.size() - kLengthBytes;
  if (length > kMaxHeaderBytes || length > rest) {
    return absl::DataLossError(
        "expected a safetensors file; this is of another kind, or only the beginning of one");
  }
  std::string text(length, '\0');
  RETURN_IF_ERROR(ReadExactly(file, text.data(), length));
  if (crc32 != nullptr) {
    *crc32 = Crc32(text, Crc32({reinterpret_cast<const char*>(&length), kLengthBytes}));
  }
  return ParseSafetensorsHeader(text, rest - length);
}

// Takes the checksums out of the metadata, if there are any, and compares.
absl::Status Check(SafetensorsHeader& header, uint32_t data) {
  const auto of_metadata = header.metadata.extract(kMetadataChecksum);
  if (!of_metadata.empty() && of_metadata.mapped() != MetadataChecksumOf(header.metadata)) {
    return absl::DataLossError(absl::StrCat("damaged: its metadata have crc32 ",
                                            MetadataChecksumOf(header.metadata), ", but it states ",
                                            of_metadata.mapped()));
  }
  const auto stated = header.metadata.extract(kChecksum);
  if (stated.empty()) return absl::OkStatus();  // of another writer
  const std::string got = absl::StrFormat("%08x", ChecksumOf(header.entries, data));
  if (got == stated.mapped()) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("damaged: its tensors have crc32 ", got, ", but it states ", stated.mapped()));
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::span<const NamedTensor> tensors,
                              const std::map<std::string, std::string>& metadata,
                              uint32_t* crc32_of_file) {
  ASSIGN_OR_RETURN(std::vector<const NamedTensor*> sorted, SortByName(path, tensors));
  std::ranges::stable_sort(sorted, std::greater(),
                           [](const NamedTensor* named) { return SizeOf(named->tensor.dtype); });
  std::vector<SafetensorsEntry> entries;
  uint64_t end = 0;
  for (const NamedTensor* named : sorted) {
    const Tensor& tensor = named->tensor;
    entries.push_back({named->name, tensor.dtype, tensor.shape, end, end + tensor.bytes()});
    end += tensor.bytes();
  }
  uint32_t data = 0;
  const auto header_of = [&] {
    std::map<std::string, std::string> with_checksum = metadata;
    if (!metadata.empty()) with_checksum[kMetadataChecksum] = MetadataChecksumOf(metadata);
    with_checksum[kChecksum] = absl::StrFormat("%08x", ChecksumOf(entries, data));
    return HeaderOf(path, entries, with_checksum);
  };
  // A checksum has eight digits whatever it is, so this one is as long as the one that replaces it.
  ASSIGN_OR_RETURN(std::string header, header_of());
  const auto write = [&](const FileSink& sink) -> absl::Status {
    RETURN_IF_ERROR(sink(header));
    for (const NamedTensor* named : sorted) {
      for (std::string_view rest = BytesOf(named->tensor); !rest.empty();) {
        const std::string_view piece = rest.substr(0, kPieceBytes);
        rest.remove_prefix(piece.size());
        RETURN_IF_ERROR(sink(piece));
        data = Crc32(piece, data);
      }
    }
    ASSIGN_OR_RETURN(header, header_of());
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(WriteFileAtomically(path, write, &header));
  if (crc32_of_file != nullptr) *crc32_of_file = JoinCrc32(Crc32(header), data, end);
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> Crc32ByHeader(const std::string& path) {
  ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  uint32_t ahead = 0, stated = 0;
  const absl::StatusOr<SafetensorsHeader> header = ReadHeader(file, &ahead);
  if (!header.ok()) return Annotate(header.status(), path);
  const auto checksum = header->metadata.find(kChecksum);
  if (checksum == header->metadata.end() || !absl::SimpleHexAtoi(checksum->second, &stated)) {
    return absl::DataLossError(absl::StrCat(path, ": states no checksum of its tensors"));
  }
  // Joining is an exclusive or with the second sum, so it is undone by one with the first's share.
  const uint32_t data = stated ^ ChecksumOf(header->entries, 0);
  const uint64_t bytes = header->entries.empty() ? 0 : header->entries.back().last;
  return JoinCrc32(ahead, data, bytes);
}

absl::StatusOr<TensorFile> TensorFile::Read(const std::string& path) {
  ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  // No length of a header begins like these.
  char begin[kLengthBytes] = {};
  uint64_t length = 0;
  ASSIGN_OR_RETURN(const size_t count, file.Read(begin, kLengthBytes));
  std::memcpy(&length, begin, kLengthBytes);
  const std::string_view first(begin, count);
  if (length > kMaxHeaderBytes && first.starts_with("PK")) return ReadNpz(path);
  if (length > kMaxHeaderBytes && begin[0] == '\x80' && begin[1] >= 2 && begin[1] <= 5) {
    return RefusePickle(path);
  }
  RETURN_IF_ERROR(file.Seek(0));
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
  uint32_t data = 0;
  for (const SafetensorsEntry& entry : header->entries) {
    const uint64_t bytes = entry.last - entry.first;
    const absl::Status status = ReadExactly(file, to, bytes);
    if (!status.ok()) return Annotate(status, path);
    if (entry.unreadable.empty()) {
      result.tensors_.push_back({entry.name, {to, entry.shape, entry.dtype}});
    } else {
      result.unreadable_.emplace(entry.name, entry.unreadable);
    }
    data = Crc32({reinterpret_cast<const char*>(to), bytes}, data);
    to += RoundUp(bytes);
  }
  std::ranges::sort(result.tensors_, {}, &NamedTensor::name);
  RETURN_IF_ERROR(Annotate(Check(*header, data), path));
  result.metadata_ = std::move(header->metadata);
  return result;
}

absl::StatusOr<TensorFiles> TensorFiles::Open(const std::vector<std::string>& paths) {
  TensorFiles files;
  files.paths_ = paths;
  for (size_t f = 0; f < paths.size(); ++f) {
    ASSIGN_OR_RETURN(FileReader file, FileReader::Open(paths[f]));
    const absl::StatusOr<SafetensorsHeader> header = ReadHeader(file);
    if (!header.ok()) return Annotate(header.status(), paths[f]);
    const uint64_t bytes = header->entries.empty() ? 0 : header->entries.back().last;
    for (const SafetensorsEntry& entry : header->entries) {
      if (!entry.unreadable.empty()) continue;
      const auto [other, is_new] = files.entries_.try_emplace(
          entry.name, TensorEntry{entry.shape, entry.dtype, f, file.size() - bytes + entry.first});
      if (!is_new) {
        return absl::DataLossError(absl::StrCat(paths[f], ": holds a tensor \"", entry.name,
                                                "\", as does ", paths[other->second.file]));
      }
    }
  }
  return files;
}

absl::StatusOr<TensorFile> TensorFiles::Read(std::span<const std::string> names) const {
  std::map<std::string_view, const TensorEntry*> found;
  uint64_t total_bytes = 0;
  for (const std::string& name : names) {
    const auto entry = entries_.find(name);
    if (entry == entries_.end() || !found.emplace(name, &entry->second).second) continue;
    total_bytes += RoundUp(Tensor{nullptr, entry->second.shape, entry->second.dtype}.bytes());
    RETURN_IF_ERROR(CheckFitsMemory(paths_[entry->second.file], total_bytes));
  }
  TensorFile result;
  result.bytes_ = std::make_shared<std::vector<std::byte>>(total_bytes + 1);
  std::byte* to = result.bytes_->data();
  for (const auto& [name, entry] : found) {
    const std::string& path = paths_[entry->file];
    const Tensor tensor{to, entry->shape, entry->dtype};
    ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
    RETURN_IF_ERROR(file.Seek(entry->at));
    RETURN_IF_ERROR(Annotate(ReadExactly(file, to, tensor.bytes()), path));
    result.tensors_.push_back({std::string(name), tensor});
    to += RoundUp(tensor.bytes());
  }
  return result;
}

}  // namespace gyre
