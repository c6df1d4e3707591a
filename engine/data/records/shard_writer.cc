#include "engine/data/records/shard_writer.h"

#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

template <typename T>
std::string_view BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

}  // namespace

absl::Status ShardWriter::Write(const std::string& path, const ShardHeader& header,
                                const std::function<absl::Status(ShardWriter&)>& fill) {
  return WriteFileAtomically(path, [&](const FileSink& sink) -> absl::Status {
    ShardWriter writer(header, sink);
    RETURN_IF_ERROR(writer.Begin(header));
    RETURN_IF_ERROR(fill(writer));
    return writer.End();
  });
}

absl::Status ShardWriter::Append(std::string_view bytes) {
  at_ += bytes.size();
  return sink_(bytes);
}

absl::Status ShardWriter::Begin(const ShardHeader& header) {
  const std::string text = header.SerializeAsString();
  ShardBegin begin{.mark = {},
                   .version = kShardVersion,
                   .header_bytes = static_cast<uint32_t>(text.size()),
                   .header_crc = Crc32(text),
                   .unused = 0};
  std::memcpy(begin.mark, kShardBeginMark.data(), sizeof(begin.mark));
  RETURN_IF_ERROR(Append(BytesOf(std::span<const ShardBegin>(&begin, 1))));
  return Append(text);
}

absl::Status ShardWriter::Add(std::span<const std::string_view> arrays, int32_t length) {
  GYRE_CHECK(static_cast<int>(arrays.size()) == set_.array_size());
  ShardEntry entry{.end = 0, .crc = 0, .indexed = 0};
  for (size_t i = 0; i < arrays.size(); ++i) {
    const std::string_view bytes = arrays[i];
    if (set_.has_indexed() && static_cast<size_t>(set_.indexed()) == i) {
      GYRE_CHECK(bytes.size() <= sizeof(entry.indexed));
      std::memcpy(&entry.indexed, bytes.data(), bytes.size());
      continue;
    }
    if (set_.array(static_cast<int>(i)).content() != RecordSet::Array::VALUES) {
      if (bytes.size() > std::numeric_limits<uint32_t>::max()) {
        return absl::InvalidArgumentError(
            absl::StrCat("a file of ", bytes.size(), " bytes; expected less than 4 GiB"));
      }
      const auto size = static_cast<uint32_t>(bytes.size());
      const std::string_view before = BytesOf(std::span<const uint32_t>(&size, 1));
      entry.crc = Crc32(before, entry.crc);
      RETURN_IF_ERROR(Append(before));
    }
    entry.crc = Crc32(bytes, entry.crc);
    RETURN_IF_ERROR(Append(bytes));
  }
  entry.end = at_;
  entries_.push_back(entry);
  if (set_.lengths()) lengths_.push_back(length);
  return absl::OkStatus();
}

absl::Status ShardWriter::End() {
  const std::string_view entries = BytesOf(std::span<const ShardEntry>(entries_));
  const std::string_view lengths = BytesOf(std::span<const int32_t>(lengths_));
  ShardEnd end{.samples = entries_.size(),
               .index = at_,
               .index_crc = Crc32(lengths, Crc32(entries)),
               .crc = 0,
               .mark = {}};
  end.crc = Crc32({reinterpret_cast<const char*>(&end), offsetof(ShardEnd, crc)});
  std::memcpy(end.mark, kShardEndMark.data(), sizeof(end.mark));
  RETURN_IF_ERROR(Append(entries));
  RETURN_IF_ERROR(Append(lengths));
  return Append(BytesOf(std::span<const ShardEnd>(&end, 1)));
}

}  // namespace gyre
