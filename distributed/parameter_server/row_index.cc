#include "distributed/parameter_server/row_index.h"

#include <algorithm>

#include "engine/runtime/check.h"

namespace gyre {

int RowIndex::Add(std::span<const int64_t> places) {
  const auto follows = [](int64_t a, int64_t b) { return b != a + 1; };
  Entry& entry = entries_.emplace_back();
  entry.count = static_cast<int64_t>(places.size());
  entry.indexed = std::ranges::adjacent_find(places, follows) != places.end();
  if (!entry.indexed) {
    entry.first = places.empty() ? 0 : places.front();
  } else {
    entry.first = static_cast<int64_t>(all_.size());
    for (const int64_t place : places) all_.push_back(static_cast<int32_t>(place));
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

RowPlaces RowIndex::operator[](int number) const {
  const Entry& entry = entries_[number];
  if (!entry.indexed) return {.index = nullptr, .first = entry.first, .count = entry.count};
  return {.index = reinterpret_cast<const int32_t*>(memory_.data()) + entry.first,
          .first = 0,
          .count = entry.count};
}

}  // namespace gyre
