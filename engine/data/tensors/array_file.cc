#include "engine/data/tensors/array_file.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/tensors/byte_source.h"
#include "engine/data/tensors/npy_header.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr size_t kLeastGrowth = size_t{1} << 20;
constexpr uint32_t kU8Type = 0x08;  // the third byte of an IDX file of unsigned bytes
constexpr std::string_view kNpyMagic("\x93NUMPY");
constexpr std::string_view kZipMagic("PK\3\4");

// An array being read: what its header says, and the source, which stands behind the header.
struct ArrayReader {
  const ArrayFile& file;
  ByteSource& source;
  size_t header_bytes = 0;
  HostArray array = {};

  absl::Status Broken(const std::string& what) const {
    return absl::DataLossError(absl::StrCat(NameOf(file), ": ", what));
  }
  // Appends `bytes` more bytes of the header to `header`.
  absl::Status ReadHeader(size_t bytes, std::string& header) {
    header.resize(header_bytes + bytes);
    ASSIGN_OR_RETURN(const size_t got, source.Read(header.data() + header_bytes, bytes));
    header_bytes += got;
    if (got == bytes) return absl::OkStatus();
    return Broken(absl::StrFormat("a header of %d bytes or more, the file has %d", header.size(),
                                  header_bytes));
  }
};

uint32_t BigEndian32(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Big-endian uint32 extents after a magic number 00 00 TYPE RANK.
absl::Status ReadIdxHeader(std::string header, ArrayReader& reader) {
  const uint32_t magic = BigEndian32(header.data());
  const int rank = static_cast<int>(magic & 0xff);
  const int least = reader.file.least_rank, most = reader.file.most_rank;
  if (magic >> 8 != kU8Type || rank < least || rank > most) {
    std::string expected = absl::StrFormat("0x%08x", kU8Type << 8 | least);
    if (most > least) {
      absl::StrAppendFormat(&expected, " %s 0x%08x", most == least + 1 ? "or" : "to",
                            kU8Type << 8 | most);
    }
    const bool images = least == 3, labels = most == 1;  // which it should hold
    if (magic >> 8 == kU8Type && ((images && rank == 1) || (labels && rank >= 3))) {
      return absl::InvalidArgumentError(absl::StrFormat(
          "%s: holds %s (IDX magic 0x%08x), expected %s (%s); name the file of %s here, and this "
          "one as %s",
          NameOf(reader.file), images ? "labels" : "images", magic, images ? "images" : "labels",
          expected, images ? "images" : "labels", images ? "labels" : "images"));
    }
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected IDX magic %s (unsigned bytes)%s, got 0x%08x", NameOf(reader.file), expected,
        least == 1 && most > 1 ? ", or a .npy file" : "", magic));
  }
  RETURN_IF_ERROR(reader.ReadHeader(4 * static_cast<size_t>(rank), header));
  for (int axis = 0; axis < rank; ++axis) {
    reader.array.dims.push_back(BigEndian32(header.data() + 4 + 4 * axis));
  }
  reader.array.dtype = DType::kU8;
  return absl::OkStatus();
}

// Version and little-endian length after the magic, of 16 bits in version 1, of 32 in 2 and 3.
absl::Status ReadNpyHeader(std::string header, ArrayReader& reader) {
  RETURN_IF_ERROR(reader.ReadHeader(kNpyMagic.size() + 2 - header.size(), header));
  const int version = header[kNpyMagic.size()];
  if (!header.starts_with(kNpyMagic) || version < 1 || version > 3) {
    return reader.Broken(
        absl::StrFormat("expected a .npy file of version 1 to 3, got %d", version));
  }
  const size_t width = version == 1 ? 2 : 4;
  RETURN_IF_ERROR(reader.ReadHeader(width, header));
  uint32_t length = 0;
  for (size_t i = 0; i < width; ++i) {
    length |= uint32_t{static_cast<uint8_t>(header[kNpyMagic.size() + 2 + i])} << (8 * i);
  }
  constexpr uint32_t kMost = 1 << 16;  // numpy refuses more than 10,000
  if (length > kMost) {
    return reader.Broken("expected a .npy file; its header is too long for one");
  }
  const size_t before = header.size();
  RETURN_IF_ERROR(reader.ReadHeader(length, header));
  const auto npy = ParseNpyHeader(std::string_view(header).substr(before));
  if (!npy.ok()) return Annotate(npy.status(), NameOf(reader.file));
  const auto rank = static_cast<int>(npy->dims.size());
  if (rank < reader.file.least_rank || rank > reader.file.most_rank) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected %d to %d axes, got [%s]", NameOf(reader.file), reader.file.least_rank,
        reader.file.most_rank, absl::StrJoin(npy->dims, ", ")));
  }
  reader.array.dtype = npy->dtype;
  reader.array.dims = npy->dims;
  return absl::OkStatus();
}

// Memory is made for what the header says, as far as the file goes: a few bytes may unpack to any
// number.
absl::Status ReadElements(ArrayReader& reader) {
  HostArray& array = reader.array;
  uint64_t bytes = SizeOf(array.dtype), expected = 0;
  bool overflow = false;
  for (const int64_t extent : array.dims) {
    overflow |= __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes);
  }
  overflow |= __builtin_add_overflow(bytes, reader.header_bytes, &expected);
  const auto broken = [&](const std::string& but) {
    return reader.Broken(absl::StrCat("extents [", absl::StrJoin(array.dims, ", "), "] make ",
                                      overflow ? "more than 2^64" : absl::StrCat(expected),
                                      " bytes, but ", but));
  };
  const std::optional<uint64_t> size = reader.source.size();
  if (size && (overflow || *size < expected)) {
    return broken(absl::StrCat("the file ends after ", *size));
  }
  if (size && *size > expected) return broken(absl::StrCat(*size - expected, " more follow"));
  if (overflow) return broken("a file holds less");
  RETURN_IF_ERROR(CheckFitsMemory(NameOf(reader.file), expected));
  while (array.bytes.size() < bytes) {
    const size_t before = array.bytes.size();
    const size_t more = std::max(kLeastGrowth, before);
    array.bytes.resize(before + std::min<uint64_t>(bytes - before, more));
    ASSIGN_OR_RETURN(const size_t got,
                     reader.source.Read(array.bytes.data() + before, array.bytes.size() - before));
    if (before + got < array.bytes.size()) {
      return broken(absl::StrCat("the file ends after ", reader.header_bytes + before + got));
    }
  }
  char beyond;
  ASSIGN_OR_RETURN(const size_t follows, reader.source.Read(&beyond, 1));
  return follows > 0 ? broken("more follow") : absl::OkStatus();
}

template <typename T>
T ElementAt(const std::string& bytes, size_t index) {
  T element;
  std::memcpy(&element, bytes.data() + index * sizeof(T), sizeof(T));
  return element;
}

template <typename From, typename To>
void ConvertElements(HostArray& array) {
  const size_t elements = array.bytes.size() / sizeof(From);
  std::string to(elements * sizeof(To), '\0');
  for (size_t i = 0; i < elements; ++i) {
    const auto converted = static_cast<To>(ElementAt<From>(array.bytes, i));
    std::memcpy(to.data() + i * sizeof(To), &converted, sizeof(To));
  }
  array.bytes = std::move(to);
  array.dtype = kDTypeOf<To>;
}

// To the types of HostArray.
absl::Status Narrow(ArrayReader& reader) {
  HostArray& array = reader.array;
  if (array.dtype == DType::kF16) ConvertElements<Half, float>(array);
  if (array.dtype != DType::kI64) return absl::OkStatus();
  const size_t elements = array.bytes.size() / sizeof(int64_t);
  for (size_t i = 0; i < elements; ++i) {
    const auto element = ElementAt<int64_t>(array.bytes, i);
    if (element == static_cast<int32_t>(element)) continue;
    const size_t of_a_sample =
        array.dims.empty() ? 1 : elements / static_cast<size_t>(array.dims[0]);
    return absl::InvalidArgumentError(absl::StrCat(NameOf(reader.file), ": sample ",
                                                   i / of_a_sample, " (the first is 0) holds ",
                                                   element, ", which takes more than 32 bits"));
  }
  ConvertElements<int64_t, int32_t>(array);
  return absl::OkStatus();
}

}  // namespace

std::string NameOf(const ArrayFile& file) {
  return file.entry.empty() ? file.path : absl::StrCat(file.path, ": ", file.entry);
}

absl::StatusOr<HostArray> ReadArray(const ArrayFile& file) {
  auto source = file.entry.empty() ? ByteSource::OpenFile(file.path)
                                   : ByteSource::OpenZipEntry(file.path, file.entry + ".npy");
  if (!source.ok()) return source.status();
  ArrayReader reader{.file = file, .source = **source};
  std::string magic(4, '\0');
  ASSIGN_OR_RETURN(reader.header_bytes, reader.source.Read(magic.data(), magic.size()));
  if (reader.header_bytes < magic.size()) {
    return reader.Broken(
        absl::StrCat("expected an IDX or a .npy file, got ", reader.header_bytes, " bytes"));
  }
  if (magic == kZipMagic) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path, ": an .npz may hold several arrays; say which with entry: \"...\""));
  }
  const bool npy = kNpyMagic.starts_with(magic);
  RETURN_IF_ERROR(npy ? ReadNpyHeader(magic, reader) : ReadIdxHeader(magic, reader));
  RETURN_IF_ERROR(ReadElements(reader));
  if (!npy && reader.array.dims.size() == 3) reader.array.dims.push_back(1);
  if (!file.as_stored) RETURN_IF_ERROR(Narrow(reader));
  return std::move(reader.array);
}

}  // namespace gyre
