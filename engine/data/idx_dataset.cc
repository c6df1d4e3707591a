#include "engine/data/idx_dataset.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/atomic_file.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr char kGzipMagic[] = "\x1f\x8b";
constexpr uint8_t kU8Type = 0x08;  // the third byte of an IDX file of unsigned bytes
constexpr char kFashionMnistFolder[] = "/usr/share/datasets/fashion-mnist/";

// An IDX file: big-endian uint32 extents after a magic number 00 00 TYPE RANK, then the elements.
struct IdxFile {
  std::string path;
  std::vector<int64_t> dims;
  std::string bytes;  // all of it
  size_t first = 0;   // of the elements

  const uint8_t* elements() const { return reinterpret_cast<const uint8_t*>(bytes.data()) + first; }
};

absl::Status Broken(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

// Unpacks gzip: one member or several in a row, as RFC 1952 section 2.2 allows.
absl::StatusOr<std::string> Gunzip(const std::string& path, std::string_view packed) {
  z_stream stream{};
  GYRE_CHECK(inflateInit2(&stream, 16 + MAX_WBITS) == Z_OK);  // 16: a gzip wrapper
  struct End {
    z_stream* stream;
    ~End() { inflateEnd(stream); }
  } end{&stream};

  std::string unpacked;
  std::vector<char> piece(size_t{1} << 18);
  bool inside_member = true;
  while (true) {
    if (stream.avail_in == 0) {  // uInt counts: a file may be larger
      const size_t count = std::min<size_t>(packed.size(), size_t{1} << 30);
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
      stream.avail_in = static_cast<uInt>(count);
      packed.remove_prefix(count);
    }
    if (!inside_member) {
      if (stream.avail_in == 0) return unpacked;
      GYRE_CHECK(inflateReset(&stream) == Z_OK);
      inside_member = true;
    }
    stream.next_out = reinterpret_cast<Bytef*>(piece.data());
    stream.avail_out = static_cast<uInt>(piece.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    unpacked.append(piece.data(), piece.size() - stream.avail_out);
    if (result == Z_STREAM_END) {
      inside_member = false;
    } else if (result == Z_BUF_ERROR) {
      return Broken(path, absl::StrCat("the gzip data is truncated: it ends after ",
                                       unpacked.size(), " unpacked bytes"));
    } else if (result != Z_OK) {
      return Broken(path,
                    absl::StrCat("broken gzip data after ", unpacked.size(), " unpacked bytes: ",
                                 stream.msg != nullptr ? stream.msg : zError(result)));
    }
  }
}

absl::StatusOr<std::string> ReadMaybeGzip(const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadFile(path);
  if (absl::IsNotFound(bytes.status()) && path.starts_with(kFashionMnistFolder)) {
    return absl::NotFoundError(absl::StrCat(bytes.status().message(),
                                            "; apt-get install dataset-fashion-mnist brings it"));
  }
  if (!bytes.ok() || !bytes->starts_with(kGzipMagic)) return bytes;
  return Gunzip(path, *bytes);
}

uint32_t BigEndian32(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Reads an IDX file of bytes with min_rank to max_rank extents.
absl::StatusOr<IdxFile> ReadIdx(const std::string& path, int min_rank, int max_rank) {
  IdxFile file;
  file.path = path;
  ASSIGN_OR_RETURN(file.bytes, ReadMaybeGzip(path));
  const std::string& bytes = file.bytes;
  if (bytes.size() < 4) {
    return Broken(path, absl::StrCat("an IDX file has at least 4 bytes, got ", bytes.size()));
  }
  const uint32_t magic = BigEndian32(bytes.data());
  const int rank = static_cast<int>(magic & 0xff);
  if (magic >> 8 != kU8Type || rank < min_rank || rank > max_rank) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected IDX magic 0x%08x%s (unsigned bytes), got 0x%08x", path,
        kU8Type << 8 | min_rank,
        min_rank == max_rank ? "" : absl::StrFormat(" or 0x%08x", kU8Type << 8 | max_rank), magic));
  }
  file.first = 4 + 4 * static_cast<size_t>(rank);
  if (bytes.size() < file.first) {
    return Broken(path, absl::StrFormat("the header of %d extents takes %d bytes, the file has %d",
                                        rank, file.first, bytes.size()));
  }
  uint64_t expected = file.first;
  uint64_t elements = 1;
  bool overflow = false;
  for (int axis = 0; axis < rank; ++axis) {
    file.dims.push_back(BigEndian32(bytes.data() + 4 + 4 * axis));
    overflow |=
        __builtin_mul_overflow(elements, static_cast<uint64_t>(file.dims.back()), &elements);
  }
  overflow |= __builtin_add_overflow(expected, elements, &expected);
  if (overflow || bytes.size() != expected) {
    return Broken(
        path, absl::StrFormat("extents [%s] make %s bytes, %s", absl::StrJoin(file.dims, ", "),
                              overflow ? "more than 2^64" : absl::StrCat(expected),
                              overflow || bytes.size() < expected
                                  ? absl::StrCat("but the file ends after ", bytes.size())
                                  : absl::StrCat("but ", bytes.size() - expected, " more follow")));
  }
  return file;
}

class IdxDataset : public Dataset {
 public:
  IdxDataset(IdxFile images, IdxFile labels, const NormalizationConfig& normalization)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        shape_{images_.dims[1], images_.dims[2], images_.dims.size() == 4 ? images_.dims[3] : 1} {
    for (size_t pixel = 0; pixel < table64_.size(); ++pixel) {
      table64_[pixel] =
          (static_cast<double>(pixel) / 255.0 - normalization.mean()) / normalization.std();
      table32_[pixel] = static_cast<float>(table64_[pixel]);
    }
  }

  int64_t size() const override { return images_.dims[0]; }
  const Shape& sample_shape() const override { return shape_; }

  absl::Status Read(int64_t index, Tensor image, int32_t* label) const override {
    if (index < 0 || index >= size()) {
      return absl::OutOfRangeError(
          absl::StrCat(images_.path, ": sample ", index, " of ", size(), " does not exist"));
    }
    GYRE_CHECK(image.shape == shape_);
    const int64_t pixels = shape_.elements();
    const uint8_t* from = images_.elements() + index * pixels;
    if (image.dtype == DType::kF64) {
      Normalize(from, pixels, table64_, image.as<double>());
    } else {
      Normalize(from, pixels, table32_, image.as<float>());
    }
    *label = labels_.elements()[index];
    return absl::OkStatus();
  }

 private:
  template <typename T>
  static void Normalize(const uint8_t* from, int64_t pixels, const std::array<T, 256>& table,
                        T* to) {
    for (int64_t i = 0; i < pixels; ++i) to[i] = table[from[i]];
  }

  IdxFile images_, labels_;
  Shape shape_;
  std::array<double, 256> table64_;  // pixel -> normalised, in double
  std::array<float, 256> table32_;   // the same, rounded
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(const std::string& images_path,
                                                        const std::string& labels_path,
                                                        const NormalizationConfig& normalization) {
  ASSIGN_OR_RETURN(IdxFile images, ReadIdx(images_path, 3, 4));
  ASSIGN_OR_RETURN(IdxFile labels, ReadIdx(labels_path, 1, 1));
  if (images.dims[0] != labels.dims[0]) {
    return absl::InvalidArgumentError(absl::StrCat(images_path, " holds ", images.dims[0],
                                                   " images, but ", labels_path, " holds ",
                                                   labels.dims[0], " labels"));
  }
  if (images.dims[0] == 0) {
    return absl::InvalidArgumentError(absl::StrCat(images_path, ": no samples"));
  }
  if (images.bytes.size() == images.first) {
    return absl::InvalidArgumentError(absl::StrCat(
        images_path, ": images without pixels: extents [", absl::StrJoin(images.dims, ", "), "]"));
  }
  return std::make_unique<IdxDataset>(std::move(images), std::move(labels), normalization);
}

}  // namespace gyre
