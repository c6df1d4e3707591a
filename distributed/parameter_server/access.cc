#include "distributed/parameter_server/access.h"

#include <algorithm>

#include "engine/runtime/check.h"

namespace gyre {

int TagOf(bool update, int chunk) { return kFirstServerTag + 2 * chunk + (update ? 1 : 0); }

void RowChunk::AddSlice(const RowSelection& slice, bool meets, const Tensor& memory,
                        DType wire_type, RowIndex& index) {
  OwnerSlice& added = slices.emplace_back();
  added.meets = meets;
  added.staged = {nullptr, Shape({slice.count(), memory.shape[1]}), wire_type};
  added.packs = slice.places.runs().size() != 1 || memory.dtype != wire_type;
  added.places = index.Add(slice.places);
}

size_t RowChunk::packed_bytes() const {
  size_t largest = 0;
  for (const OwnerSlice& slice : slices) {
    if (slice.packs) largest = std::max(largest, slice.staged.bytes());
  }
  return largest;
}

void RowChunk::FindStaged(int rank, void* packed) {
  packed_ = packed;
  auto* at = static_cast<std::byte*>(host.data);
  for (size_t owner = 0; owner < slices.size(); ++owner) {
    if (static_cast<int>(owner) == rank) continue;
    slices[owner].staged.data = at;
    at += slices[owner].staged.bytes();
  }
}

absl::Status RowChunk::CopySlices(Stream& stream, const RowIndex& index, const Tensor& memory,
                                  bool to_staged) const {
  for (const auto& [meets, packs, places, staged, transfer] : slices) {
    const size_t bytes = staged.bytes();
    if (bytes == 0) continue;
    Tensor rows = staged;  // where they are gathered or scattered
    if (packs) rows.data = packed_;
    if (to_staged) {
      RETURN_IF_ERROR(GatherRows(stream, index[places], staged.shape[1], memory, rows));
      if (packs) RETURN_IF_ERROR(stream.Copy(staged.data, rows.data, bytes));
    } else {
      if (packs) RETURN_IF_ERROR(stream.Copy(rows.data, staged.data, bytes));
      RETURN_IF_ERROR(ScatterRows(stream, index[places], staged.shape[1], rows, memory));
    }
  }
  return stream.Record(*copied);
}

int RowChunk::AwaitedOwner() const {
  for (size_t owner = 0; owner < slices.size(); ++owner) {
    if (slices[owner].transfer.under_way()) return static_cast<int>(owner);
  }
  return kNobody;
}

// With the next rank first, so that not all begin with one.
absl::Status RowChunk::Begin(Communicator& communicator, RequestKind kind, int tag) {
  left_ = 0;
  for (int i = 1; i < communicator.size(); ++i) {
    const int owner = (communicator.rank() + i) % communicator.size();
    auto& [meets, packs, places, staged, transfer] = slices[owner];
    if (!meets) continue;
    RETURN_IF_ERROR(transfer.Begin(communicator, kind, static_cast<std::byte*>(staged.data),
                                   staged.bytes(), owner, tag));
    left_ += staged.bytes();
  }
  under_way_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> RowChunk::MessagesDone(Communicator& communicator) {
  bool all = true;
  left_ = 0;
  for (OwnerSlice& slice : slices) {
    if (!slice.transfer.under_way()) continue;
    ASSIGN_OR_RETURN(const bool done, slice.transfer.Progress(communicator));
    all = all && done;
    left_ += slice.transfer.left();
  }
  return all;
}

absl::StatusOr<bool> UpdateChunk::Begin(Communicator& communicator, Shard& shard) {
  ASSIGN_OR_RETURN(const bool out, copied->Done());
  if (!out) return false;
  RETURN_IF_ERROR(
      RowChunk::Begin(communicator, RequestKind::kHandOver, TagOf(/*update=*/true, number)));
  if (own >= 0) shard.Deliver(own);
  return true;
}

absl::StatusOr<bool> UpdateChunk::Progress(Communicator& communicator, const Shard& shard) {
  if (!under_way_) return false;
  ASSIGN_OR_RETURN(bool all, MessagesDone(communicator));
  if (all && own >= 0) {
    ASSIGN_OR_RETURN(all, shard.HasConsumed(own, sent + 1));
  }
  if (!all) return false;
  under_way_ = false;
  ++sent;
  return true;
}

bool UpdateAccess::sent() const {
  return std::ranges::all_of(chunks,
                             [&](const UpdateChunk& chunk) { return chunk.sent == posted; });
}

absl::Status UpdateAccess::Post(Stream& compute, Stream& out, const RowIndex& index) {
  if (rows.count() > 0) {
    RETURN_IF_ERROR(compute.Record(*used));
    RETURN_IF_ERROR(out.Wait(*used));
    for (const UpdateChunk& chunk : chunks) {
      RETURN_IF_ERROR(chunk.CopySlices(out, index, memory, /*to_staged=*/true));
    }
  }
  ++posted;
  return absl::OkStatus();
}

absl::StatusOr<bool> ReadChunk::Progress(Communicator& communicator, Shard& shard,
                                         const ReadAccess& access, Stream* in,
                                         const RowIndex& index) {
  const int64_t done = arrived;
  bool moved = false;
  if (uploading_) {
    if (in == nullptr && access.opened < done) return false;
    ASSIGN_OR_RETURN(const bool up, copied->Done());
    if (!up) return false;
    uploading_ = false;
    moved = true;
    if (own >= 0) shard.Take(own);
  }
  if (!under_way_) {
    if (access.released < done) return moved;  // the caller's still
    RETURN_IF_ERROR(Begin(communicator, RequestKind::kExpect, TagOf(/*update=*/false, number)));
    moved = true;
  }
  ASSIGN_OR_RETURN(bool all, MessagesDone(communicator));
  if (all && own >= 0) {
    ASSIGN_OR_RETURN(all, shard.HasGathered(own, done + 1));
  }
  if (!all) return moved;
  if (in != nullptr) RETURN_IF_ERROR(Upload(*in, access, index));
  under_way_ = false;
  uploading_ = true;
  arrived = done + 1;
  return true;
}

absl::Status ReadChunk::Upload(Stream& in, const ReadAccess& access, const RowIndex& index) {
  RETURN_IF_ERROR(in.Wait(*access.used));
  return CopySlices(in, index, access.memory, /*to_staged=*/false);
}

bool ReadAccess::has_arrived(int64_t clock) const {
  return std::ranges::all_of(chunks, [&](const ReadChunk& chunk) { return chunk.arrived > clock; });
}

}  // namespace gyre
