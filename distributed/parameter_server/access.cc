#include "distributed/parameter_server/access.h"

#include "distributed/parameter_server/exchange.h"
#include "engine/runtime/check.h"

namespace gyre {

int TagOf(bool update, int access) { return kExchangeTag + 1 + 2 * access + (update ? 1 : 0); }

void RowAccess::FindPieces(std::vector<RowPiece> of_owners, int of_rank, RowIndex& index,
                           Wanted& wanted) {
  rank = of_rank;
  pieces = std::move(of_owners);
  in_order = IsPacked(pieces) && memory.dtype == host.dtype;
  RowList at;
  for (const RowPiece& piece : pieces) {
    const RowList places_of = PlacesOf(piece);
    for (const ElementRange& run : places_of.runs()) at.Append(run);
    Tensor& part = staged.emplace_back(host);
    part.shape = Shape({piece.count, width()});
  }
  places = index.Add(at);
  device = host;
  host.shape = Shape({rows.count() - pieces[rank].count, width()});
  wanted.host.push_back(&host);
  transfers_.resize(pieces.size());
}

void RowAccess::FindStaged(void* packed) {
  device.data = packed;
  auto* at = static_cast<std::byte*>(host.data);
  for (size_t owner = 0; owner < pieces.size(); ++owner) {
    if (static_cast<int>(owner) == rank) continue;
    staged[owner].data = at;
    at += staged[owner].bytes();
  }
}

absl::Status RowAccess::CopyPieces(Stream& stream, const Tensor& packed, bool to_staged) const {
  auto* at = static_cast<std::byte*>(packed.data);
  for (const Tensor& piece : staged) {
    const size_t bytes = piece.bytes();
    if (bytes == 0) continue;
    RETURN_IF_ERROR(to_staged ? stream.Copy(piece.data, at, bytes)
                              : stream.Copy(at, piece.data, bytes));
    at += bytes;
  }
  return absl::OkStatus();
}

int RowAccess::AwaitedOwner() const {
  for (size_t owner = 0; owner < transfers_.size(); ++owner) {
    if (transfers_[owner].under_way()) return static_cast<int>(owner);
  }
  return kNobody;
}

// With the next rank first, so that not all begin with one.
absl::Status RowAccess::Begin(Communicator& communicator, Transfer::Way way, int tag) {
  for (int i = 1; i < communicator.size(); ++i) {
    const int owner = (communicator.rank() + i) % communicator.size();
    if (!meets[owner]) continue;
    RETURN_IF_ERROR(transfers_[owner].Begin(communicator, way,
                                            static_cast<std::byte*>(staged[owner].data),
                                            staged[owner].bytes(), owner, tag));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> RowAccess::MessagesDone(Communicator& communicator) {
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

absl::Status UpdateAccess::Post(Stream& compute, Stream& out, const RowIndex& index) {
  if (rows.count() > 0) {
    RETURN_IF_ERROR(compute.Record(*computed));
    RETURN_IF_ERROR(out.Wait(*computed));
    if (!in_order) RETURN_IF_ERROR(GatherRows(out, index[places], width(), memory, device));
    RETURN_IF_ERROR(CopyPieces(out, in_order ? memory : device, /*to_staged=*/true));
    RETURN_IF_ERROR(out.Record(*copied));
  }
  ++posted;
  return absl::OkStatus();
}

absl::StatusOr<bool> UpdateAccess::Progress(Communicator& communicator, Shard& shard,
                                            bool may_begin) {
  const int64_t done = sent;
  bool moved = false;
  if (!under_way_) {
    if (posted == done || !may_begin) return false;
    ASSIGN_OR_RETURN(const bool out, copied->Done());
    if (!out) return false;
    RETURN_IF_ERROR(Begin(communicator, Transfer::Way::kHandOver, TagOf(/*update=*/true, number)));
    if (own >= 0) shard.Deliver(own);
    under_way_ = moved = true;
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

absl::StatusOr<bool> ReadAccess::Progress(Communicator& communicator, Shard& shard, Stream* in,
                                          const RowIndex& index) {
  const int64_t done = arrived;
  bool moved = false;
  if (uploading_) {
    if (in == nullptr && opened < done) return false;
    ASSIGN_OR_RETURN(const bool up, uploaded->Done());
    if (!up) return false;
    uploading_ = false;
    moved = true;
    if (own >= 0) shard.Take(own);
  }
  if (!under_way_) {
    if (released < done) return moved;  // the caller's still
    RETURN_IF_ERROR(Begin(communicator, Transfer::Way::kExpect, TagOf(/*update=*/false, number)));
    under_way_ = moved = true;
  }
  ASSIGN_OR_RETURN(bool all, MessagesDone(communicator));
  if (own >= 0) {
    ASSIGN_OR_RETURN(const int64_t gathered, shard.gathered(own));
    all = all && gathered > done;
  }
  if (!all) return moved;
  if (in != nullptr) RETURN_IF_ERROR(Upload(*in, index));
  under_way_ = false;
  uploading_ = true;
  arrived = done + 1;
  return true;
}

absl::Status ReadAccess::Upload(Stream& in, const RowIndex& index) {
  RETURN_IF_ERROR(in.Wait(*released_at));
  const Tensor& packed = in_order ? memory : device;
  RETURN_IF_ERROR(CopyPieces(in, packed, /*to_staged=*/false));
  if (!in_order) RETURN_IF_ERROR(ScatterRows(in, index[places], width(), packed, memory));
  return in.Record(*uploaded);
}

}  // namespace gyre
