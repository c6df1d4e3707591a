#include "distributed/parameter_server/row_index.h"

#include "engine/runtime/check.h"

namespace gyre {

int RowIndex::Add(const RowList& places) {
  const std::span<const ElementRange> runs = places.runs();
  Entry& entry = entries_.emplace_back();
  entry.places.count = places.count();
  if (runs.size() == 1) entry.places.first = runs.front().begin;
  if (runs.size() > 1) {
    entry.offset = static_cast<int64_t>(all_.size());
    for (const ElementRange& run : runs) {
      for (int64_t place = run.begin; place < run.end; ++place) {
        all_.push_back(static_cast<int32_t>(place));
      }
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
  auto [places, offset] = entries_[number];
  if (offset >= 0) places.index = reinterpret_cast<const int32_t*>(memory_.data()) + offset;
  return places;
}

}  // namespace gyre
