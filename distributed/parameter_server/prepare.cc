// prepare.cc: how the two ends of a parameter server meet: ranks tell each other what they access,
// and each finds which of it is whose, and takes memory for it.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "distributed/parameter_server/parameter_server.h"
#include "distributed/server_parts.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"

namespace gyre {

std::vector<ElementRange> ParameterServer::Parts(const TableSpec& table) const {
  if (!table.parts.empty()) return table.parts;
  std::vector<ElementRange> parts;
  for (int rank = 0; rank < group_.size(); ++rank) {
    parts.push_back(
        ServerPart(table.rows, group_.size() - options_.servers, options_.servers, rank));
  }
  return parts;
}

// All ranks hear of all accesses: a shard must know who comes.
absl::Status ParameterServer::Agree(DeclaredByRank& declared) {
  std::string text = absl::StrCat(
      "sync ", std::string(SyncName(options_.sync)), " staleness ", options_.staleness, " servers ",
      options_.servers, options_.gated ? " gated" : "", in_host_memory() ? " in host memory" : "");
  for (const TableSpec& table : tables_) {
    absl::StrAppend(&text, "\n", table.name, " ", table.rows, " ", table.width, " ",
                    std::string(DTypeName(table.dtype)), " sent as ",
                    std::string(DTypeName(table.sent_as())));
    for (const ElementRange& part : table.parts) absl::StrAppend(&text, " to ", part.end);
  }
  RETURN_IF_ERROR(group_.CheckEqual("the parameter server's tables and options", text));
  std::vector<int64_t> own;
  const auto declare = [&](bool update, const RowAccess& access) {
    own.insert(own.end(),
               {update ? 1 : 0, access.table, static_cast<int64_t>(access.rows.runs().size())});
    for (const ElementRange& run : access.rows.runs()) own.insert(own.end(), {run.begin, run.end});
  };
  for (const auto& read : reads_) declare(false, *read);
  for (const auto& update : updates_) declare(true, *update);
  std::vector<std::vector<int64_t>> all;
  RETURN_IF_ERROR(group_.Call("the parameter server's accesses",
                              [&](Communicator& communicator) -> absl::Status {
                                ASSIGN_OR_RETURN(all, TellAll(communicator, std::move(own)));
                                return absl::OkStatus();
                              }));
  declared.assign(group_.size(), {});
  for (int rank = 0; rank < group_.size(); ++rank) {
    for (size_t at = 0; at < all[rank].size();) {
      Declared& access = declared[rank].emplace_back();
      access.update = all[rank][at] == 1;
      access.table = static_cast<int>(all[rank][at + 1]);
      const auto runs = static_cast<size_t>(all[rank][at + 2]);
      at += 3;
      for (size_t i = 0; i < runs; ++i, at += 2) {
        access.rows.Append({all[rank][at], all[rank][at + 1]});
      }
    }
  }
  return absl::OkStatus();
}

absl::Status ParameterServer::Prepare() {
  GYRE_CHECK(!prepared_);
  prepared_ = true;
  declared_updates_ = updates_.size();
  for (int table = 0; table < static_cast<int>(tables_.size()); ++table) {
    const auto touches = [&](const auto& access) { return access->table == table; };
    if (std::ranges::none_of(reads_, touches) || std::ranges::any_of(updates_, touches)) continue;
    const Tensor nothing{nullptr, Shape({0, tables_[table].width}), tables_[table].dtype};
    RETURN_IF_ERROR(NewUpdate(table, RowList(), nothing).status());
  }
  DeclaredByRank declared;
  RETURN_IF_ERROR(Agree(declared));
  RETURN_IF_ERROR(group_.Call("the parameter server's shards", [&](Communicator& communicator) {
    auto shard = Shard::Create(communicator, in_host_memory() ? *options_.in_host_memory : device_,
                               {.sync = options_.sync,
                                .staleness = options_.staleness,
                                .gated = options_.gated,
                                .stages_own = !options_.background});
    if (shard.ok()) shard_ = *std::move(shard);
    return shard.status();
  }));
  return MeetShard(declared);
}

// Both ends of each piece.
absl::Status ParameterServer::MeetShard(const DeclaredByRank& declared) {
  const int rank = group_.rank();
  std::vector<std::vector<ElementRange>> parts;
  for (size_t t = 0; t < tables_.size(); ++t) {
    parts.push_back(Parts(tables_[t]));
    shard_->AddTable(tables_[t], parts.back()[rank], *table_updates_[t]);
  }
  Wanted wanted;
  std::vector<RowAccess*> own;
  for (const auto& read : reads_) own.push_back(read.get());
  for (const auto& update : updates_) own.push_back(update.get());
  for (int worker = 0; worker < group_.size(); ++worker) {
    const std::vector<Declared>& accesses = declared[worker];
    // By table and owner: whether the worker accesses a row there.
    std::vector<std::vector<bool>> meets(tables_.size(), std::vector<bool>(group_.size()));
    std::vector<std::vector<RowPiece>> pieces;
    for (const Declared& access : accesses) {
      pieces.push_back(CutByOwner(access.rows, parts[access.table]));
      for (int owner = 0; owner < group_.size(); ++owner) {
        if (pieces.back()[owner].count > 0) meets[access.table][owner] = true;
      }
    }
    for (size_t a = 0; a < accesses.size(); ++a) {
      const auto [update, table, rows] = accesses[a];
      const auto meets_owner = [&, update = update, table = table](int owner) {
        return update ? static_cast<bool>(meets[table][owner]) : pieces[a][owner].count > 0;
      };
      const int tag = TagOf(update, static_cast<int>(a));
      Tensor* staged = nullptr;
      if (worker == rank) {
        RowAccess& access = *own[a];
        access.number = static_cast<int>(a);
        for (int owner = 0; owner < group_.size(); ++owner) {
          access.meets.push_back(meets_owner(owner));
        }
        access.FindPieces(pieces[a], rank, index_, wanted);
        staged = &access.staged[rank];
      }
      if (!meets_owner(rank)) continue;
      const int number = update ? shard_->AddUpdate(worker, table, pieces[a][rank], tag, staged)
                                : shard_->AddRead(worker, table, pieces[a][rank], tag, staged);
      if (worker == rank) own[a]->own = number;
    }
  }
  RETURN_IF_ERROR(index_.Upload(device_, compute_));
  const auto most_packed = [](const auto& accesses) {
    size_t most = 0;
    for (const auto& access : accesses) most = std::max(most, access->packed_bytes());
    return Tensor{nullptr, Shape({static_cast<int64_t>(most)}), DType::kU8};
  };
  packed_reads_ = most_packed(reads_);
  packed_updates_ = most_packed(updates_);
  wanted.device = {&packed_reads_, &packed_updates_};
  // What a shard has in its device's memory lies where the device's copies reach it.
  Wanted of_shard;
  RETURN_IF_ERROR(shard_->Prepare(of_shard));
  const auto add = [](const std::vector<Tensor*>& more, std::vector<Tensor*>& to) {
    to.insert(to.end(), more.begin(), more.end());
  };
  add(of_shard.host, wanted.host);
  add(of_shard.device, in_host_memory() ? wanted.host : wanted.device);
  RETURN_IF_ERROR(Allocate(wanted));
  for (const auto& read : reads_) read->FindStaged(packed_reads_.data);
  for (const auto& update : updates_) update->FindStaged(packed_updates_.data);
  return absl::OkStatus();
}

absl::Status ParameterServer::Allocate(Wanted& wanted) {
  const auto allocate = [&](MemoryKind kind, const std::vector<Tensor*>& tensors, Buffer& memory) {
    size_t bytes = 0;
    for (const Tensor* const tensor : tensors) bytes += RoundUp(tensor->bytes(), kServerAlignment);
    absl::StatusOr<Buffer> allocated = Buffer::Allocate(device_, kind, bytes);
    if (!allocated.ok()) return allocated.status();
    memory = *std::move(allocated);
    size_t at = 0;
    for (Tensor* const tensor : tensors) {
      tensor->data = memory.data() + at;
      at += RoundUp(tensor->bytes(), kServerAlignment);
    }
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(allocate(MemoryKind::kDevice, wanted.device, device_memory_));
  RETURN_IF_ERROR(allocate(MemoryKind::kPinnedHost, wanted.host, host_memory_));
  device_bytes_ = device_memory_.bytes();
  return shard_->Clear();
}

}  // namespace gyre
