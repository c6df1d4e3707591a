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

// --- The disk's ----------------------------------------------------------------------------------

absl::StatusOr<std::unique_ptr<DiskCopies>> DiskCopies::Create(Device& device,
                                                               const PagingPlan& plan,
                                                               PageFile& file,
                                                               const PageCopies& copies,
                                                               std::byte* pages) {
  std::unique_ptr<DiskCopies> made(new DiskCopies(plan, copies));
  std::byte* memory = pages + plan.staging.offset;
  for (Lane* const lane : {&made->in_, &made->out_}) {
    for (int index = 0; index < plan.staging.slots; ++index) {
      TransferSlot& slot = lane->slots.emplace_back(TransferSlot{.index = index, .memory = memory});
      for (auto* const event : {&slot.copied, &slot.begun, &slot.ended}) {
        ASSIGN_OR_RETURN(*event, device.NewEvent());
      }
      memory += plan.staging.slot_bytes;
    }
    lane->queue = std::make_unique<PageQueue>(file, plan.staging.slots);
    ASSIGN_OR_RETURN(lane->begins, device.NewStream());
    ASSIGN_OR_RETURN(lane->ends, device.NewStream());
  }
  for (size_t s = 0; s < plan.stays.size(); ++s) {
    if (!plan.BlockOf(static_cast<int>(s)).on_disk) continue;
    ASSIGN_OR_RETURN(made->reads_[s], device.NewEvent());
    ASSIGN_OR_RETURN(made->writes_[s], device.NewEvent());
  }
  return made;
}

absl::Status DiskCopies::TakeHomes(const Event& begun) {
  return std::exchange(homes_are_out_, false) ? in_.begins->Wait(begun) : absl::OkStatus();
}

// Calls copy(slot, offset in the page, bytes).
template <typename Copy>
absl::Status DiskCopies::ForEachSegment(Lane& lane, const PagedBlock& block, Copy copy) {
  for (size_t at = 0; at < block.page_bytes; at += plan_.staging.slot_bytes) {
    TransferSlot& slot = lane.slots[lane.next];
    lane.next = (lane.next + 1) % lane.slots.size();
    RETURN_IF_ERROR(copy(slot, at, std::min(plan_.staging.slot_bytes, block.page_bytes - at)));
  }
  return absl::OkStatus();
}

// Enqueues the transfer of a segment of the block's page, after the slot's last copy.
absl::Status DiskCopies::Transfer(Lane& lane, TransferSlot& slot, const PagedBlock& block,
                                  size_t at, size_t bytes) {
  slot.begin = block.page + at;
  slot.end = slot.begin + bytes;
  RETURN_IF_ERROR(lane.begins->Wait(*slot.copied));
  RETURN_IF_ERROR(lane.begins->CallOnHost([&lane, index = slot.index, offset = slot.begin,
                                           memory = slot.memory, bytes]() -> absl::Status {
    RETURN_IF_ERROR(lane.queue->Await(index));  // over, unless work was skipped after an error
    (lane.queue.get()->*lane.transfer)(index, offset, memory, bytes);
    return absl::OkStatus();
  }));
  RETURN_IF_ERROR(lane.begins->Record(*slot.begun));
  RETURN_IF_ERROR(lane.ends->Wait(*slot.begun));
  RETURN_IF_ERROR(lane.ends->CallOnHost([&queue = *lane.queue, index = slot.index, &block] {
    return Annotate(queue.Await(index), block.name);
  }));
  return lane.ends->Record(*slot.ended);
}

absl::Status DiskCopies::Fetch(const PagingSchedule::ScheduledWork& fetch, Stream& in) {
  const PagedBlock& block = plan_.BlockOf(fetch.stay);
  for (const int write : fetch.after_writes) {
    if (&plan_.BlockOf(write) == &block) RETURN_IF_ERROR(in_.begins->Wait(*writes_[write]));
  }
  const auto copy = [&](TransferSlot& slot, size_t at, size_t bytes) -> absl::Status {
    RETURN_IF_ERROR(Transfer(in_, slot, block, at, bytes));
    RETURN_IF_ERROR(in.Wait(*slot.ended));
    RETURN_IF_ERROR(copies_.In(in, fetch.stay, at, slot.memory, bytes));
    return in.Record(*slot.copied);
  };
  RETURN_IF_ERROR(ForEachSegment(in_, block, copy));
  return in_.ends->Record(*reads_[fetch.stay]);
}

absl::Status DiskCopies::WriteBack(int stay, Stream& out) {
  const PagedBlock& block = plan_.BlockOf(stay);
  const auto copy = [&](TransferSlot& slot, size_t at, size_t bytes) -> absl::Status {
    RETURN_IF_ERROR(out.Wait(*slot.ended));
    RETURN_IF_ERROR(copies_.Out(out, stay, at, slot.memory, bytes));
    RETURN_IF_ERROR(out.Record(*slot.copied));
    // Of one place in the file the last write counts: one that is under way comes first.
    for (const TransferSlot& other : out_.slots) {
      if (other.begin >= block.page + at + bytes || block.page + at >= other.end) continue;
      RETURN_IF_ERROR(out_.begins->Wait(*other.ended));
    }
    return Transfer(out_, slot, block, at, bytes);
  };
  RETURN_IF_ERROR(ForEachSegment(out_, block, copy));
  return out_.ends->Record(*writes_[stay]);
}

absl::Status DiskCopies::AwaitRead(int stay) const {
  return reads_[stay] == nullptr ? absl::OkStatus() : reads_[stay]->Synchronize();
}

absl::Status DiskCopies::Finish(Stream& in, Stream& out) {
  for (Stream* const stream : {&in, &out, out_.ends.get()}) {
    RETURN_IF_ERROR(stream->Synchronize());
  }
  return absl::OkStatus();
}

absl::Status DiskCopies::BringHome(Stream& in, Stream& out) {
  if (homes_are_out_) return absl::OkStatus();
  RETURN_IF_ERROR(Finish(in, out));
  // On that stream, so that an error of it stays.
  RETURN_IF_ERROR(in.CallOnHost([this] { return CheckHomes(); }));
  RETURN_IF_ERROR(in.Synchronize());
  homes_are_out_ = true;
  return absl::OkStatus();
}

absl::Status DiskCopies::HandOver(DiskCopies* next, Stream& in, Stream& out) {
  if (!homes_are_out_) RETURN_IF_ERROR(Finish(in, out));
  if (next != nullptr) next->homes_are_out_ = homes_are_out_;
  return absl::OkStatus();
}

absl::Status DiskCopies::CheckHomes() {
  std::vector<const PagedBlock*> blocks(in_.slots.size());  // that are being read
  const auto await = [&](int slot) {
    if (blocks[slot] == nullptr) return absl::OkStatus();
    return Annotate(in_.queue->Await(slot), blocks[slot]->name);
  };
  for (const PagedBlock& block : plan_.blocks) {
    if (!block.persistent || !block.on_disk) continue;
    const auto read = [&](TransferSlot& slot, size_t at, size_t bytes) -> absl::Status {
      RETURN_IF_ERROR(await(slot.index));
      blocks[slot.index] = &block;
      in_.queue->Read(slot.index, block.page + at, slot.memory, bytes);
      return absl::OkStatus();
    };
    RETURN_IF_ERROR(ForEachSegment(in_, block, read));
  }
  for (const TransferSlot& slot : in_.slots) RETURN_IF_ERROR(await(slot.index));
  return absl::OkStatus();
}

}  // namespace gyre
