#include "engine/data/idx_dataset.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/file_reader.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr char kGzipMagic[] = "\x1f\x8b";
constexpr size_t kLeastGrowth = size_t{1} << 20;
constexpr uint8_t kU8Type = 0x08;  // the third byte of an IDX file of unsigned bytes
constexpr char kFashionMnistFolder[] = "/usr/share/datasets/fashion-mnist/";

// An IDX file: big-endian uint32 extents after a magic number 00 00 TYPE RANK, then the elements.
struct IdxFile {
  std::string path;
  std::vector<int64_t> dims;
  std::string bytes;  // the elements

  const uint8_t* elements() const { return reinterpret_cast<const uint8_t*>(bytes.data()); }
};

absl::Status Broken(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

// A file's bytes, unpacked if they are gzip: one member or several in a row, as RFC 1952
// section 2.2 allows.
class Unpacker {
 public:
  explicit Unpacker(FileReader file) : file_(std::move(file)) {}
  Unpacker(const Unpacker&) = delete;
  Unpacker& operator=(const Unpacker&) = delete;
  ~Unpacker() {
    if (packed_) inflateEnd(&stream_);
  }

  bool packed() const { return packed_; }
  uint64_t file_size() const { return file_.size(); }

  // Up to `bytes` bytes; fewer only where the data end.
  absl::StatusOr<size_t> Read(char* to, size_t bytes) {
    if (input_.empty()) RETURN_IF_ERROR(Begin());
    if (!packed_) {
      const size_t begun = std::min<size_t>(bytes, stream_.avail_in);
      std::copy_n(reinterpret_cast<const char*>(stream_.next_in), begun, to);
      stream_.next_in += begun;
      stream_.avail_in -= static_cast<uInt>(begun);
      ASSIGN_OR_RETURN(const size_t count, file_.Read(to + begun, bytes - begun));
      return begun + count;
    }
    size_t done = 0;
    while (done < bytes) {
      ASSIGN_OR_RETURN(const size_t count, Inflate(to + done, bytes - done));
      if (count == 0) break;
      done += count;
    }
    unpacked_ += done;
    return done;
  }

 private:
  absl::Status Begin() {
    input_.resize(size_t{1} << 16);
    RETURN_IF_ERROR(Refill());
    packed_ = std::string_view(input_.data(), stream_.avail_in).starts_with(kGzipMagic);
    if (packed_) GYRE_CHECK(inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK);  // 16: gzip
    return absl::OkStatus();
  }

  absl::Status Refill() {
    ASSIGN_OR_RETURN(const size_t count, file_.Read(input_.data(), input_.size()));
    stream_.next_in = reinterpret_cast<Bytef*>(input_.data());
    stream_.avail_in = static_cast<uInt>(count);
    return absl::OkStatus();
  }

  // At least one byte; none where the data end.
  absl::StatusOr<size_t> Inflate(char* to, size_t bytes) {
    constexpr size_t kMostAtOnce = size_t{1} << 30;  // uInt counts
    const size_t room = std::min(bytes, kMostAtOnce);
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(room);
    while (stream_.avail_out == room) {
      if (stream_.avail_in == 0) RETURN_IF_ERROR(Refill());
      if (!inside_member_) {
        if (stream_.avail_in == 0) return 0;
        GYRE_CHECK(inflateReset(&stream_) == Z_OK);
        inside_member_ = true;
      }
      const int result = inflate(&stream_, Z_NO_FLUSH);
      if (result == Z_STREAM_END) {
        inside_member_ = false;
      } else if (result == Z_BUF_ERROR) {
        return Broken(file_.path(), absl::StrCat("the gzip data is truncated: it ends after ",
                                                 unpacked_, " unpacked bytes"));
      } else if (result != Z_OK) {
        return Broken(file_.path(),
                      absl::StrCat("broken gzip data after ", unpacked_, " unpacked bytes: ",
                                   stream_.msg != nullptr ? stream_.msg : zError(result)));
      }
    }
    return room - stream_.avail_out;
  }

  FileReader file_;
  std::vector<char> input_;  // of the file, as it lies; empty before the first Read
  z_stream stream_{};        // plain: the rest of input_ alone
  bool packed_ = false, inside_member_ = true;
  uint64_t unpacked_ = 0;
};

absl::StatusOr<FileReader> OpenFile(const std::string& path) {
  absl::StatusOr<FileReader> file = FileReader::Open(path);
  if (absl::IsNotFound(file.status()) && path.starts_with(kFashionMnistFolder)) {
    return absl::NotFoundError(
        absl::StrCat(file.status().message(), "; apt-get install dataset-fashion-mnist brings it"));
  }
  return file;
}

uint32_t BigEndian32(const char* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  return value;
}

// Reads an IDX file of bytes with min_rank to max_rank extents.  Memory is made for what the header
// says, as far as the file goes: a few bytes of gzip may unpack to any number.
absl::StatusOr<IdxFile> ReadIdx(const std::string& path, int min_rank, int max_rank) {
  IdxFile file;
  file.path = path;
  ASSIGN_OR_RETURN(FileReader opened, OpenFile(path));
  Unpacker unpacker(std::move(opened));
  std::string header(4 + 4 * static_cast<size_t>(max_rank), '\0');
  ASSIGN_OR_RETURN(const size_t begun, unpacker.Read(header.data(), 4));
  if (begun < 4) {
    return Broken(path, absl::StrCat("an IDX file has at least 4 bytes, got ", begun));
  }
  const uint32_t magic = BigEndian32(header.data());
  const int rank = static_cast<int>(magic & 0xff);
  if (magic >> 8 != kU8Type || rank < min_rank || rank > max_rank) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected IDX magic 0x%08x%s (unsigned bytes), got 0x%08x", path,
        kU8Type << 8 | min_rank,
        min_rank == max_rank ? "" : absl::StrFormat(" or 0x%08x", kU8Type << 8 | max_rank), magic));
  }
  const size_t extents = 4 * static_cast<size_t>(rank);
  ASSIGN_OR_RETURN(const size_t count, unpacker.Read(header.data() + 4, extents));
  if (count < extents) {
    return Broken(path, absl::StrFormat("the header of %d extents takes %d bytes, the file has %d",
                                        rank, 4 + extents, 4 + count));
  }
  uint64_t elements = 1;
  bool overflow = false;
  for (int axis = 0; axis < rank; ++axis) {
    file.dims.push_back(BigEndian32(header.data() + 4 + 4 * axis));
    overflow |=
        __builtin_mul_overflow(elements, static_cast<uint64_t>(file.dims.back()), &elements);
  }
  uint64_t expected = 0;
  overflow |= __builtin_add_overflow(elements, 4 + extents, &expected);
  const auto broken = [&](const std::string& but) {
    return Broken(path, absl::StrCat("extents [", absl::StrJoin(file.dims, ", "), "] make ",
                                     overflow ? "more than 2^64" : absl::StrCat(expected),
                                     " bytes, but ", but));
  };
  const uint64_t size = unpacker.file_size();
  if (!unpacker.packed() && (overflow || size < expected)) {
    return broken(absl::StrCat("the file ends after ", size));
  }
  if (!unpacker.packed() && size > expected) {
    return broken(absl::StrCat(size - expected, " more follow"));
  }
  if (overflow) return broken("a file holds less");
  RETURN_IF_ERROR(CheckFitsMemory(path, expected));
  while (file.bytes.size() < elements) {
    const size_t before = file.bytes.size();
    const size_t more = std::max(kLeastGrowth, before);
    file.bytes.resize(before + std::min<uint64_t>(elements - before, more));
    ASSIGN_OR_RETURN(const size_t got,
                     unpacker.Read(file.bytes.data() + before, file.bytes.size() - before));
    if (before + got < file.bytes.size()) {
      return broken(absl::StrCat("the file ends after ", 4 + extents + before + got));
    }
  }
  char beyond;
  ASSIGN_OR_RETURN(const size_t follows, unpacker.Read(&beyond, 1));
  if (follows > 0) return broken("more follow");
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
  const PixelValues& pixel_values() const override { return table64_; }

  absl::Status Read(int64_t index, Tensor image, int32_t* label) const override {
    if (index < 0 || index >= size()) {
      return absl::OutOfRangeError(
          absl::StrCat(images_.path, ": sample ", index, " of ", size(), " does not exist"));
    }
    GYRE_CHECK(image.shape == shape_);
    const int64_t pixels = shape_.elements();
    const uint8_t* from = images_.elements() + index * pixels;
    if (image.dtype == DType::kU8) {
      std::copy_n(from, pixels, image.as<uint8_t>());
    } else if (image.dtype == DType::kF64) {
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
  PixelValues table64_;
  std::array<float, 256> table32_;  // the same, rounded
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
  if (images.bytes.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        images_path, ": images without pixels: extents [", absl::StrJoin(images.dims, ", "), "]"));
  }
  return std::make_unique<IdxDataset>(std::move(images), std::move(labels), normalization);
}

}  // namespace gyre
