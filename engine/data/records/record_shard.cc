#include "engine/data/records/record_shard.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

template <typename T>
std::string_view BytesOf(const T* first, size_t count) {
  return {reinterpret_cast<const char*>(first), count * sizeof(T)};
}

}  // namespace

absl::StatusOr<RecordShard> RecordShard::Open(const std::string& path, ShardHeader& header) {
  ASSIGN_OR_RETURN(FileReader file, FileReader::Open(path));
  RecordShard shard(std::move(file));
  RETURN_IF_ERROR(shard.ReadHeader(header));
  RETURN_IF_ERROR(shard.ReadIndex(header.set().lengths()));
  return shard;
}

absl::Status RecordShard::Damaged(absl::string_view what) const {
  return absl::DataLossError(
      absl::StrCat(path(), ": damaged: ", what, "; remove it, and make_records makes it again"));
}

absl::Status RecordShard::ReadHeader(ShardHeader& header) {
  ShardBegin begin{};
  const uint64_t size = file_.size();
  if (size >= sizeof(begin)) RETURN_IF_ERROR(file_.ReadAt(0, &begin, sizeof(begin)));
  if (std::string_view(begin.mark, sizeof(begin.mark)) != kShardBeginMark) {
    return absl::DataLossError(
        absl::StrCat(path(), ": expected a shard of tools/make_records, got another file"));
  }
  if (begin.version != kShardVersion) {
    return absl::DataLossError(
        absl::StrFormat("%s: expected version %d of shards, got %d, which another release wrote",
                        path(), kShardVersion, begin.version));
  }
  if (begin.unused != 0) return Damaged("it begins otherwise than a shard");
  if (begin.header_bytes > size - sizeof(begin)) return Damaged("it ends within its header");
  std::string text(begin.header_bytes, '\0');
  RETURN_IF_ERROR(file_.ReadAt(sizeof(begin), text.data(), text.size()));
  if (Crc32(text) != begin.header_crc) return Damaged("its header's checksum is another");
  if (!header.ParseFromString(text)) return Damaged("its header does not parse");
  first_byte_ = sizeof(begin) + text.size();
  const absl::Status layout = RecordLayout::Of(header.set()).status();
  if (!layout.ok()) return Damaged(layout.message());
  const RecordSet& set = header.set();
  const bool known = header.shard() >= 0 && header.shard() < set.shards();
  if (known && set.shards() <= kMostShards) return absl::OkStatus();
  return Damaged(absl::StrFormat("it is shard %d of %d", header.shard(), set.shards()));
}

absl::Status RecordShard::ReadIndex(bool has_lengths) {
  ShardEnd end{};
  const uint64_t size = file_.size();
  if (size - first_byte_ < sizeof(end)) return Damaged("it ends before its index");
  RETURN_IF_ERROR(file_.ReadAt(size - sizeof(end), &end, sizeof(end)));
  if (std::string_view(end.mark, sizeof(end.mark)) != kShardEndMark) {
    return Damaged("it is cut short");
  }
  if (Crc32(BytesOf(reinterpret_cast<const char*>(&end), offsetof(ShardEnd, crc))) != end.crc) {
    return Damaged("its end's checksum is another");
  }
  const uint64_t a_sample = sizeof(ShardEntry) + (has_lengths ? sizeof(int32_t) : 0);
  const uint64_t left = size - sizeof(end);  // the index ends there
  if (end.index < first_byte_ || end.index > left || end.samples > (left - end.index) / a_sample ||
      end.samples * a_sample != left - end.index) {
    return Damaged(
        absl::StrFormat("an index of %d samples does not fit its %d bytes", end.samples, size));
  }
  entries_.resize(end.samples);
  if (has_lengths) lengths_.resize(end.samples);
  const size_t entry_bytes = entries_.size() * sizeof(ShardEntry);
  const size_t length_bytes = lengths_.size() * sizeof(int32_t);
  RETURN_IF_ERROR(file_.ReadAt(end.index, entries_.data(), entry_bytes));
  RETURN_IF_ERROR(file_.ReadAt(end.index + entry_bytes, lengths_.data(), length_bytes));
  const uint32_t crc = Crc32(BytesOf(lengths_.data(), lengths_.size()),
                             Crc32(BytesOf(entries_.data(), entries_.size())));
  if (crc != end.index_crc) return Damaged("its index's checksum is another");
  for (const int32_t length : lengths_) {
    if (length < 0) return Damaged(absl::StrFormat("its index has a length of %d", length));
  }
  uint64_t before = first_byte_;
  for (const ShardEntry& entry : entries_) {
    if (entry.end < before) return Damaged("its index does not ascend");
    before = entry.end;
  }
  if (before != end.index) return Damaged("its samples do not end where its index begins");
  return absl::OkStatus();
}

absl::Status RecordShard::Error(int64_t sample, absl::string_view what) const {
  return absl::DataLossError(
      absl::StrFormat("%s: sample %d (the first is 0): %s", path(), sample, what));
}

absl::Status RecordShard::Read(int64_t sample, std::byte* to) const {
  GYRE_CHECK(sample >= 0 && sample < size());
  const size_t count = bytes(sample);
  RETURN_IF_ERROR(file_.ReadAt(FirstByte(sample), to, count));
  const uint32_t got = Crc32(BytesOf(to, count));
  const uint32_t expected = entries_[static_cast<size_t>(sample)].crc;
  if (got == expected) return absl::OkStatus();
  return Error(sample, absl::StrFormat("damaged: expected checksum %08x, got %08x; remove the "
                                       "file, and make_records makes it again",
                                       expected, got));
}

void RecordShard::ReadSoon(int64_t first, int64_t end) const {
  if (first < end) file_.ReadSoon(FirstByte(first), FirstByte(end) - FirstByte(first));
}

}  // namespace gyre
