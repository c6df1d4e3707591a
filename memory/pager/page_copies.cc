#include "memory/pager/page_copies.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr size_t kWide = 4, kNarrow = 2;  // bytes of a number

bool IsNarrow(const PagedBlock& block) { return block.page_bytes < block.bytes; }

// Calls segment(offset in the page, bytes) for each slot of bytes, until the end or an error.
template <typename Segment>
absl::Status ForEachSegment(const PagedBlock& block, size_t at, size_t bytes, size_t slot_bytes,
                            Segment segment) {
  const size_t end = std::min(at + bytes, block.bytes / kWide * kNarrow);
  for (size_t length = 0; at < end; at += length) {
    length = std::min(end - at, slot_bytes);
    RETURN_IF_ERROR(segment(at, length));
  }
  return absl::OkStatus();
}

}  // namespace

PageCopies::PageCopies(const PagingPlan& plan, std::byte* arena, NarrowKernels kernels)
    : plan_(plan), arena_(arena), kernels_(std::move(kernels)) {
  GYRE_CHECK(!plan.rounds() || (kernels_.narrow != nullptr && kernels_.widen != nullptr));
}

absl::Status PageCopies::In(Stream& stream, int stay, size_t at, const std::byte* host,
                            size_t bytes) const {
  const PagedBlock& block = plan_.BlockOf(stay);
  std::byte* const place = arena_ + plan_.stays[stay].offset;
  if (!IsNarrow(block)) return stream.Copy(place + at, host, bytes);
  const DeviceStaging& staging = plan_.device_staging;
  std::byte* const slot = arena_ + staging.offset;
  return ForEachSegment(block, at, bytes, staging.slot_bytes,
                        [&](size_t from, size_t length) -> absl::Status {
                          RETURN_IF_ERROR(stream.Copy(slot, host + (from - at), length));
                          return kernels_.widen(stream, slot, place + from / kNarrow * kWide,
                                                static_cast<int64_t>(length / kNarrow));
                        });
}

absl::Status PageCopies::Out(Stream& stream, int stay, size_t at, std::byte* host,
                             size_t bytes) const {
  const PagedBlock& block = plan_.BlockOf(stay);
  const std::byte* const place = arena_ + plan_.stays[stay].offset;
  if (!IsNarrow(block)) return stream.Copy(host, place + at, bytes);
  const DeviceStaging& staging = plan_.device_staging;
  std::byte* const slot = arena_ + staging.offset + staging.slot_bytes;
  return ForEachSegment(
      block, at, bytes, staging.slot_bytes, [&](size_t from, size_t length) -> absl::Status {
        RETURN_IF_ERROR(kernels_.narrow(stream, place + from / kNarrow * kWide, slot,
                                        static_cast<int64_t>(length / kNarrow)));
        return stream.Copy(host + (from - at), slot, length);
      });
}

}  // namespace gyre
