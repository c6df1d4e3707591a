#include "distributed/parameter_server/access.h"

#include <algorithm>

#include "distributed/parameter_server/exchange.h"
#include "engine/runtime/check.h"

namespace gyre {

int TagOf(bool update, int block) { return kExchangeTag + 1 + 2 * block + (update ? 1 : 0); }

void RowBlock::FindPieces(std::vector<RowPiece> of_owners, int of_rank, const Tensor& memory,
                          DType sent_as, RowIndex& index, Wanted& wanted) {
  rank = of_rank;
  pieces = std::move(of_owners);
  as_it_is = memory.dtype == sent_as;
  const int64_t row = memory.shape[1];
  RowList at;
  int64_t count = 0;
  for (const RowPiece& piece : pieces) {
    const RowList places_of = PlacesOf(piece);
    as_it_is = as_it_is && places_of.runs().size() <= 1;
    for (const ElementRange& run : places_of.runs()) at.Append(run);
    staged.push_back({nullptr, Shape({piece.count, row}), sent_as});
    count += piece.count;
  }
  places = index.Add(at);
  device = {nullptr, Shape({count, row}), sent_as};
  host = {nullptr, Shape({count - pieces[rank].count, row}), sent_as};
  wanted.host.push_back(&host);
  transfers_.resize(pieces.size());
}

void RowBlock::FindStaged(void* packed) {
  device.data = packed;
  auto* at = static_cast<std::byte*>(host.data);
  for (size_t owner = 0; owner < pieces.size(); ++owner) {
    if (static_cast<int>(owner) == rank) continue;
    staged[owner].data = at;
    at += staged[owner].bytes();
  }
}

absl::Status RowBlock::CopyPieces(Stream& stream, const Tensor& memory, bool to_staged) const {
  auto* packed = static_cast<std::byte*>(device.data);
  for (size_t owner = 0; owner < pieces.size(); ++owner) {
    const Tensor& piece = staged[owner];
    const size_t bytes = piece.bytes();
    if (bytes == 0) continue;
    std::byte* at = packed;
    if (as_it_is) {
      const size_t row_bytes = bytes / static_cast<size_t>(pieces[owner].count);
      at = static_cast<std::byte*>(memory.data) +
           static_cast<size_t>(pieces[owner].runs.front().at) * row_bytes;
    } else {
      packed += bytes;
    }
    RETURN_IF_ERROR(to_staged ? stream.Copy(piece.data, at, bytes)
                              : stream.Copy(at, piece.data, bytes));
  }
  return absl::OkStatus();
}

int RowBlock::AwaitedOwner() const {
  for (size_t owner = 0; owner < transfers_.size(); ++owner) {
    if (transfers_[owner].under_way()) return static_cast<int>(owner);
  }
  return kNobody;
}

absl::Status RowBlock::Withdraw(Communicator& communicator) {
  for (Transfer& transfer : transfers_) {
    if (transfer.under_way()) RETURN_IF_ERROR(transfer.Withdraw(communicator));
  }
  return absl::OkStatus();
}

// With the next rank first, so that not all begin with one.
absl::Status RowBlock::Begin(Communicator& communicator, Transfer::Way way, int tag) {
  for (int i = 1; i < communicator.size(); ++i) {
    const int owner = (communicator.rank() + i) % communicator.size();
    if (!meets[owner]) continue;
    RETURN_IF_ERROR(transfers_[owner].Begin(communicator, way,
                                            static_cast<std::byte*>(staged[owner].data),
                                            staged[owner].bytes(), owner, tag));
  }
  under_way_ = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> RowBlock::MessagesDone(Communicator& communicator) {
  bool all = true;
  left_ = 0;
  for (Transfer& transfer : transfers_) {
    if (!transfer.under_way()) continue;
    ASSIGN_OR_RETURN(const bool done, transfer.Progress(communicator));
    all = all && done;
    left_ += transfer.left();
  }
  return all;
}

absl::StatusOr<bool> UpdateBlock::Progress(Communicator& communicator, Shard& shard, int64_t posted,
                                           bool may_begin) {
  const int64_t done = sent;
  bool moved = false;
  if (!under_way_) {
    if (posted == done || !may_begin) return false;
    ASSIGN_OR_RETURN(const bool out, copied->Done());
    if (!out) return false;
    RETURN_IF_ERROR(Begin(communicator, Transfer::Way::kHandOver, TagOf(/*update=*/true, number)));
    if (own >= 0) shard.Deliver(own);
    moved = true;
  }
  ASSIGN_OR_RETURN(bool all, MessagesDone(communicator));
  if (own >= 0) {
    ASSIGN_OR_RETURN(const int64_t consumed, shard.consumed(own));
    all = all && consumed > done;
  }
  if (!all) return moved;
  under_way_ = false;
  sent = done + 1;
  return true;
}

bool UpdateAccess::sent() const {
  return std::ranges::all_of(blocks,
                             [&](const UpdateBlock& block) { return block.sent == posted; });
}

absl::Status UpdateAccess::Post(Stream& compute, Stream& out, const RowIndex& index) {
  if (rows.count() > 0) {
    RETURN_IF_ERROR(compute.Record(*computed));
    RETURN_IF_ERROR(out.Wait(*computed));
    for (const UpdateBlock& block : blocks) {
      if (!block.as_it_is) {
        RETURN_IF_ERROR(
            GatherRows(out, index[block.places], block.width(), memory, block.device));
      }
      RETURN_IF_ERROR(block.CopyPieces(out, memory, /*to_staged=*/true));
      RETURN_IF_ERROR(out.Record(*block.copied));
    }
  }
  ++posted;
  return absl::OkStatus();
}

// Messages come as soon as there is a place for them, whatever the caller does: an owner may have
// others wait for them.
absl::StatusOr<bool> ReadBlock::Progress(Communicator& communicator, Shard& shard,
                                         const ReadAccess& access, Stream* in,
                                         const RowIndex& index) {
  const int64_t done = arrived;
  bool moved = false;
  if (uploading_) {
    if (in == nullptr && access.opened < done) return false;
    ASSIGN_OR_RETURN(const bool up, uploaded->Done());
    if (!up) return false;
    uploading_ = false;
    moved = true;
    if (own >= 0) shard.Take(own);
  }
  if (!under_way_) {
    RETURN_IF_ERROR(Begin(communicator, Transfer::Way::kExpect, TagOf(/*update=*/false, number)));
    moved = true;
  }
  ASSIGN_OR_RETURN(bool all, MessagesDone(communicator));
  if (own >= 0) {
    ASSIGN_OR_RETURN(const int64_t gathered, shard.gathered(own));
    all = all && gathered > done;
  }
  if (!all || access.released < done) return moved;  // the caller's still
  if (in != nullptr) RETURN_IF_ERROR(Upload(*in, access, index));
  under_way_ = false;
  uploading_ = true;
  arrived = done + 1;
  return true;
}

absl::Status ReadBlock::Upload(Stream& in, const ReadAccess& access, const RowIndex& index) {
  RETURN_IF_ERROR(in.Wait(*access.released_at));
  RETURN_IF_ERROR(CopyPieces(in, access.memory, /*to_staged=*/false));
  if (!as_it_is) RETURN_IF_ERROR(ScatterRows(in, index[places], width(), device, access.memory));
  return in.Record(*uploaded);
}

bool ReadAccess::has_arrived(int64_t clock) const {
  return std::ranges::all_of(blocks,
                             [&](const ReadBlock& block) { return block.arrived > clock; });
}

}  // namespace gyre
