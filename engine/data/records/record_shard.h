// record_shard.h: reads a shard.  Its index alone is in memory, 16 bytes a sample.  Nothing that a
// file claims is believed before its size and its checksum agree.  Immutable.  Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/records/shard_format.h"

namespace gyre {

class RecordShard {
 public:
  // Reads the index, and the header, which is not kept.  Errors, naming path: those of FileReader,
  // and DataLoss for a file that is no shard, of a later release, cut short or damaged.
  static absl::StatusOr<RecordShard> Open(const std::string& path, ShardHeader& header);

  const std::string& path() const { return file_.path(); }
  int64_t size() const { return static_cast<int64_t>(entries_.size()); }
  // Bytes of a sample.
  size_t bytes(int64_t sample) const {
    return static_cast<size_t>(entries_[static_cast<size_t>(sample)].end - FirstByte(sample));
  }
  // The indexed array's bytes, then 0.
  const uint32_t& indexed(int64_t sample) const {
    return entries_[static_cast<size_t>(sample)].indexed;
  }
  std::span<const int32_t> lengths() const { return lengths_; }

  // Reads a sample's bytes, and compares their checksum.
  // Errors, naming path and sample: the system's, DataLoss for damaged bytes.
  absl::Status Read(int64_t sample, std::byte* to) const;
  // Says that samples from `first` to before `end` will be read soon.
  void ReadSoon(int64_t first, int64_t end) const;
  // Of sample `sample`, with path and number.
  absl::Status Error(int64_t sample, absl::string_view what) const;

 private:
  explicit RecordShard(FileReader file) : file_(std::move(file)) {}
  absl::Status ReadHeader(ShardHeader& header);
  absl::Status ReadIndex(bool has_lengths);
  absl::Status Damaged(absl::string_view what) const;
  uint64_t FirstByte(int64_t sample) const {
    return sample == 0 ? first_byte_ : entries_[static_cast<size_t>(sample) - 1].end;
  }

  FileReader file_;
  uint64_t first_byte_ = 0;  // of the samples
  std::vector<ShardEntry> entries_;
  std::vector<int32_t> lengths_;
};

}  // namespace gyre
