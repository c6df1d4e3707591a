#include "engine/data/tensors/byte_source.h"

#include <zip.h>
#include <zlib.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/tensors/zip_archive.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr char kGzipMagic[] = "\x1f\x8b";

absl::Status Broken(const std::string& path, const std::string& what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

// A file's bytes, unpacked if they are gzip: one member or several in a row, as RFC 1952
// section 2.2 allows.
class Unpacker : public ByteSource {
 public:
  explicit Unpacker(FileReader file) : file_(std::move(file)) {}
  ~Unpacker() override {
    if (packed_) inflateEnd(&stream_);
  }

  // Once something was read.
  std::optional<uint64_t> size() const override {
    return packed_ ? std::nullopt : std::optional(file_.size());
  }

  absl::StatusOr<size_t> Read(char* to, size_t bytes) override {
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
    unpacked_ += room - stream_.avail_out;
    return room - stream_.avail_out;
  }

  FileReader file_;
  std::vector<char> input_;  // of the file, as it lies; empty before the first Read
  z_stream stream_{};        // plain: the rest of input_ alone
  bool packed_ = false, inside_member_ = true;
  uint64_t unpacked_ = 0;
};

struct CloseEntry {
  void operator()(zip_file_t* entry) const { zip_fclose(entry); }
};

absl::StatusOr<ZipArchive> OpenArchive(const std::string& path) {
  RETURN_IF_ERROR(ByteSource::OpenFile(path).status());  // libzip would wait for a pipe
  int code = 0;
  ZipArchive archive(zip_open(path.c_str(), ZIP_RDONLY, &code));
  if (archive != nullptr) return archive;
  zip_error_t error;
  zip_error_init_with_code(&error, code);
  const std::string why = zip_error_strerror(&error);
  zip_error_fini(&error);
  return Broken(path, absl::StrCat("no .npz: ", why));
}

class ZipEntry : public ByteSource {
 public:
  explicit ZipEntry(const std::string& path) : path_(path) {}

  absl::Status Open(const std::string& entry) {
    ASSIGN_OR_RETURN(archive_, OpenArchive(path_));
    zip_stat_t stat;
    if (zip_stat(archive_.get(), entry.c_str(), 0, &stat) != 0) {
      return absl::NotFoundError(
          absl::StrCat(path_, ": holds no \"", entry, "\"; it holds ", Entries()));
    }
    // Of two, libzip takes one and says nothing.
    const auto count = static_cast<zip_uint64_t>(zip_get_num_entries(archive_.get(), 0));
    for (zip_uint64_t i = 0; i < count; ++i) {
      const char* name = zip_get_name(archive_.get(), i, 0);
      if (i == stat.index || name == nullptr || name != entry) continue;
      return Broken(path_, absl::StrCat("holds two entries \"", entry, "\""));
    }
    if ((stat.valid & ZIP_STAT_SIZE) != 0) size_ = stat.size;
    entry_.reset(zip_fopen_index(archive_.get(), stat.index, 0));
    if (entry_ == nullptr) return Broken(path_, zip_strerror(archive_.get()));
    return absl::OkStatus();
  }

  std::optional<uint64_t> size() const override { return size_; }

  absl::StatusOr<size_t> Read(char* to, size_t bytes) override {
    size_t done = 0;
    while (done < bytes) {
      const zip_int64_t count = zip_fread(entry_.get(), to + done, bytes - done);
      if (count < 0) return Broken(path_, zip_file_strerror(entry_.get()));
      if (count == 0) break;
      done += static_cast<size_t>(count);
    }
    return done;
  }

 private:
  std::string Entries() const {
    constexpr zip_int64_t kMost = 20;
    const zip_int64_t count = zip_get_num_entries(archive_.get(), 0);
    std::vector<std::string> names;
    for (zip_int64_t i = 0; i < std::min(count, kMost); ++i) {
      const char* name = zip_get_name(archive_.get(), static_cast<zip_uint64_t>(i), 0);
      names.push_back(absl::StrCat("\"", absl::CHexEscape(name == nullptr ? "" : name), "\""));
    }
    if (count > kMost) names.push_back("...");
    return names.empty() ? "nothing" : absl::StrJoin(names, ", ");
  }

  const std::string path_;
  ZipArchive archive_;
  std::unique_ptr<zip_file_t, CloseEntry> entry_;  // before the archive goes
  std::optional<uint64_t> size_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ZipEntries(const std::string& path) {
  ASSIGN_OR_RETURN(const ZipArchive archive, OpenArchive(path));
  std::vector<std::string> names;
  const zip_int64_t count = zip_get_num_entries(archive.get(), 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* name = zip_get_name(archive.get(), static_cast<zip_uint64_t>(i), 0);
    names.emplace_back(name == nullptr ? "" : name);
  }
  return names;
}

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::OpenFile(const std::string& path) {
  ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  return std::make_unique<Unpacker>(std::move(file));
}

absl::StatusOr<std::unique_ptr<ByteSource>> ByteSource::OpenZipEntry(const std::string& path,
                                                                     const std::string& entry) {
  auto source = std::make_unique<ZipEntry>(path);
  RETURN_IF_ERROR(source->Open(entry));
  return source;
}

}  // namespace gyre
