#include "distributed/parameter_server/row_index.h"

#include "engine/runtime/check.h"

namespace gyre {

int RowIndex::Add(const RowList& places) {
  Entry& entry = entries_.emplace_back();
  entry.count = places.count();
  entry.indexed = places.runs().size() > 1;
  if (!entry.indexed) {
    entry.first = places.count() == 0 ? 0 : places.runs().front().begin;
    return static_cast<int>(entries_.size()) - 1;
  }
  entry.first = static_cast<int64_t>(all_.size());
  for (const ElementRange& run : places.runs()) {
    for (int64_t place = run.begin; place < run.end; ++place) {
      all_.push_back(static_cast<int32_t>(place));
    }
  }
  return static_cast<int>(entries_.size()) - 1;
}

absl::Status RowIndex::Upload(Device& device, Stream& stream) {
  const size_t bytes = all_.size() * sizeof(int32_t);
  ASSIGN_OR_RETURN(memory_, Buffer::Allocate(device, MemoryKind::kDevice, bytes));
  if (bytes == 0) return absl::OkStatus();
  RETURN_IF_ERROR(stream.Copy(memory_.data(), all_.data(), bytes));
  return stream.Synchronize();
}

RowIndices RowIndex::operator[](int number) const {
  const Entry& entry = entries_[number];
  if (!entry.indexed) return {.index = nullptr, .first = entry.first, .count = entry.count};
  return {.index = reinterpret_cast<const int32_t*>(memory_.data()) + entry.first,
          .first = 0,
          .count = entry.count};
}

}  // namespace gyre
