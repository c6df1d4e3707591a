// prepare.cc: how the two ends of a parameter server meet: ranks tell each other what they access,
// and each finds which of it is whose, and takes memory for it.

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "distributed/parameter_server/parameter_server.h"
#include "distributed/server_shards.h"
#include "engine/runtime/check.h"
#include "engine/runtime/math.h"

namespace gyre {
namespace {

constexpr size_t kNumberBytes = sizeof(int64_t);

}  // namespace

std::vector<ElementRange> ParameterServer::Parts(const TableSpec& table) const {
  if (!table.parts.empty()) return table.parts;
  std::vector<ElementRange> parts;
  for (int rank = 0; rank < group_.size(); ++rank) {
    parts.push_back(
        ServerShard(table.rows, group_.size() - options_.servers, options_.servers, rank));
  }
  return parts;
}

// All ranks hear of all accesses: a shard must know who comes.
absl::Status ParameterServer::Agree(DeclaredByRank& declared) {
  std::string text =
      absl::StrCat("sync ", std::string(SyncName(options_.sync)), " staleness ", options_.staleness,
                   " servers ", options_.servers, options_.gated ? " gated" : "",
                   in_host_memory() ? " in host memory" : "", " chunks ", options_.chunk_bytes);
  for (const TableSpec& table : tables_) {
    absl::StrAppend(&text, "\n", table.name, " ", table.rows, " ", table.width, " ",
                    std::string(DTypeName(table.dtype)), " sent as ",
                    std::string(DTypeName(table.wire_type())));
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
  constexpr char kWhat[] = "the parameter server's accesses";
  const std::string_view bytes(reinterpret_cast<const char*>(own.data()),
                               own.size() * kNumberBytes);
  Mail mail;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.rank()) continue;
    mail.outgoing.push_back({rank, bytes});
    mail.incoming.push_back({rank});
  }
  RETURN_IF_ERROR(group_.Wait(group_.Submit(kWhat, &mail)).status());
  mail.incoming.push_back({group_.rank(), std::string(bytes)});
  declared.assign(group_.size(), {});
  for (const auto& [rank, told, into] : mail.incoming) {
    RETURN_IF_ERROR(
        Annotate(ReadDeclared(told, declared[rank]), absl::StrCat(kWhat, " of rank ", rank)));
  }
  return absl::OkStatus();
}

// As Agree tells them.  Nothing of another rank's is taken for sound.
absl::Status ParameterServer::ReadDeclared(std::string_view bytes,
                                           std::vector<Declared>& declared) const {
  if (bytes.size() % kNumberBytes != 0) {
    return absl::InternalError(
        absl::StrCat("expected numbers of ", kNumberBytes, " bytes, got ", bytes.size(), " bytes"));
  }
  std::vector<int64_t> told(bytes.size() / kNumberBytes);
  std::copy_n(bytes.data(), told.size() * kNumberBytes, reinterpret_cast<char*>(told.data()));
  const auto wrong = [](const char* what, int64_t expected, int64_t got) {
    return absl::InternalError(
        absl::StrCat("the ", what, ": expected 0 to ", expected, ", got ", got));
  };
  size_t at = 0;
  while (at < told.size()) {
    if (told.size() - at < 3) {
      return absl::InternalError(
          absl::StrCat("an access: expected 3 numbers, got ", told.size() - at));
    }
    const int64_t update = told[at], table = told[at + 1], runs = told[at + 2];
    at += 3;
    const auto tables = static_cast<int64_t>(tables_.size());
    const int64_t most_runs = static_cast<int64_t>(told.size() - at) / 2;
    if (update < 0 || update > 1) return wrong("kind", 1, update);
    if (table < 0 || table >= tables) return wrong("table", tables - 1, table);
    if (runs < 0 || runs > most_runs) return wrong("number of runs of rows", most_runs, runs);
    Declared& access = declared.emplace_back();
    access.update = update == 1;
    access.table = static_cast<int>(table);
    for (int64_t i = 0; i < runs; ++i, at += 2) {
      const int64_t begin = told[at], end = told[at + 1], rows = tables_[table].rows;
      if (end < 0 || end > rows) return wrong("end of a run of rows", rows, end);
      if (begin < 0 || begin >= end) return wrong("begin of a run of rows", end - 1, begin);
      access.rows.Append({begin, end});
    }
    if (access.update && access.rows.HasDuplicates()) {
      return absl::InternalError("an update names a row twice");
    }
  }
  for (const Declared& read : declared) {
    const auto updates = [&](const Declared& other) {
      return other.update && other.table == read.table;
    };
    if (std::ranges::none_of(declared, updates)) {
      return absl::InternalError(absl::StrCat("table ", read.table, " is read and not updated"));
    }
  }
  return absl::OkStatus();
}

absl::Status ParameterServer::Prepare() {
  GYRE_CHECK(!prepared_);
  declared_updates_ = updates_.size();
  for (int table = 0; table < static_cast<int>(tables_.size()); ++table) {
    const auto touches = [&](const auto& access) { return access->table == table; };
    if (std::ranges::none_of(reads_, touches) || std::ranges::any_of(updates_, touches)) continue;
    const Tensor nothing{nullptr, Shape({0}), tables_[table].dtype};
    RETURN_IF_ERROR(AddUpdate(table, RowList(), nothing).status());
  }
  prepared_ = true;
  int number = 0;
  for (const auto& read : reads_) read->number = number++;
  for (const auto& update : updates_) update->number = number++;
  DeclaredByRank declared;
  RETURN_IF_ERROR(Agree(declared));
  RETURN_IF_ERROR(group_.Call("the parameter server's shards", [&](Communicator& communicator) {
    auto shard = Shard::Create(communicator, in_host_memory() ? *options_.in_host_memory : device_,
                               options_);
    if (shard.ok()) shard_ = *std::move(shard);
    max_tag_ = communicator.max_tag();
    return shard.status();
  }));
  return MeetShard(declared);
}

// By what all ranks access: so all cut alike.
ParameterServer::TableChunks ParameterServer::ChunksOf(int table,
                                                       const DeclaredByRank& declared) const {
  const std::vector<ElementRange> parts = Parts(tables_[table]);
  std::vector<RowList> lists;
  for (const std::vector<Declared>& accesses : declared) {
    for (const Declared& access : accesses) {
      if (access.table == table) lists.push_back(access.rows);
    }
  }
  TableChunks chunks;
  const std::vector<RowSelection> accessed = CutRows(Union(lists), parts);
  for (size_t owner = 0; owner < parts.size(); ++owner) {
    const RowList& rows = accessed[owner].rows;
    const std::vector<ElementRange> cut =
        CutIntoChunks(parts[owner], rows,
                      ServerChunks(rows.count(), tables_[table].row_bytes(), options_.chunk_bytes));
    chunks.first.push_back(chunks.all.size());
    chunks.most = std::max(chunks.most, static_cast<int>(cut.size()));
    chunks.all.insert(chunks.all.end(), cut.begin(), cut.end());
  }
  chunks.first.push_back(chunks.all.size());
  return chunks;
}

// Both ends of each slice of the worker's.
absl::Status ParameterServer::MeetWorker(int worker, const std::vector<Declared>& accesses,
                                         std::span<const TableChunks> tables,
                                         std::vector<Tensor*>& on_host) {
  const int rank = group_.rank();
  std::vector<std::vector<RowSelection>> slices;  // by access and chunk
  // By table and chunk: whether the worker accesses a row there.
  std::vector<std::vector<bool>> meets;
  for (const TableChunks& chunks : tables) meets.emplace_back(chunks.all.size());
  for (const auto& [update, table, rows] : accesses) {
    slices.push_back(CutRows(rows, tables[table].all));
    for (size_t chunk = 0; chunk < slices.back().size(); ++chunk) {
      if (slices.back()[chunk].count() > 0) meets[table][chunk] = true;
    }
  }
  int number = 0;
  for (size_t a = 0; a < accesses.size(); ++a) {
    const bool update = accesses[a].update;
    const int table = accesses[a].table;
    for (int b = 0; b < tables[table].most; ++b, ++number) {
      // An owner's slice, and whether the two meet.
      const auto of = [&](int owner) -> std::pair<RowSelection, bool> {
        const size_t chunk = tables[table].first[owner] + static_cast<size_t>(b);
        if (chunk >= tables[table].first[owner + 1]) return {};
        const RowSelection& slice = slices[a][chunk];
        return {slice, update ? meets[table][chunk] : slice.count() > 0};
      };
      RowChunk* own = nullptr;
      if (worker == rank) {
        own = update ? static_cast<RowChunk*>(&updates_[a - reads_.size()]->chunks.emplace_back())
                     : &reads_[a]->chunks.emplace_back();
        ASSIGN_OR_RETURN(own->copied, device_.NewEvent());
        own->number = number;
        const Tensor& memory = update ? updates_[a - reads_.size()]->memory : reads_[a]->memory;
        const DType wire_type = update ? tables_[table].wire_type() : tables_[table].dtype;
        int64_t others = 0;  // rows
        for (int owner = 0; owner < group_.size(); ++owner) {
          const auto [slice, meets_owner] = of(owner);
          own->AddSlice(slice, meets_owner, memory, wire_type, index_);
          if (owner != rank) others += slice.count();
        }
        own->host = {nullptr, Shape({others, tables_[table].width}), wire_type};
        on_host.push_back(&own->host);
      }
      const auto [slice, meets_here] = of(rank);
      if (!meets_here) continue;
      const int chunk = tables[table].of_shard + b, tag = TagOf(update, number);
      Tensor* const staged = own ? &own->slices[rank].staged : nullptr;
      const int at = shard_->AddSlice(update, worker, chunk, slice, tag, staged);
      if (own) own->own = at;
    }
  }
  return absl::OkStatus();
}

// Each chunk of a worker's has tags of its own.
absl::Status ParameterServer::CheckTags(const DeclaredByRank& declared,
                                        std::span<const TableChunks> tables) const {
  for (int worker = 0; worker < group_.size(); ++worker) {
    int64_t chunks = 0;
    for (const Declared& access : declared[worker]) chunks += tables[access.table].most;
    const int64_t most = (int64_t{max_tag_} - TagOf(/*update=*/false, 0) + 1) / 2;
    if (chunks <= most) continue;
    return absl::ResourceExhaustedError(
        absl::StrCat("the parameter server: what rank ", worker, " reads and updates moves in ",
                     chunks, " chunks, and the messages' tags, up to ", max_tag_,
                     ", are enough for ", most, "; use larger chunks, or more owners"));
  }
  return absl::OkStatus();
}

void ParameterServer::OrderUpdates() {
  for (const auto& update : updates_) {
    for (UpdateChunk& chunk : update->chunks) leaving_.push_back({update.get(), &chunk});
  }
  std::vector<size_t> first_read(tables_.size(), reads_.size());
  for (size_t r = reads_.size(); r-- > 0;) first_read[reads_[r]->table] = r;
  urgent_first_ = leaving_;
  std::ranges::stable_sort(urgent_first_, {},
                           [&](const Leaving& of) { return first_read[of.access->table]; });
}

// Both ends of each slice.
absl::Status ParameterServer::MeetShard(const DeclaredByRank& declared) {
  const int rank = group_.rank();
  std::vector<TableChunks> tables;
  for (int t = 0; t < static_cast<int>(tables_.size()); ++t) {
    TableChunks& chunks = tables.emplace_back(ChunksOf(t, declared));
    const auto own = std::span(chunks.all)
                         .subspan(chunks.first[rank], chunks.first[rank + 1] - chunks.first[rank]);
    chunks.of_shard = shard_->AddTable(tables_[t], own, *table_updates_[t]);
  }
  RETURN_IF_ERROR(CheckTags(declared, tables));
  std::vector<Tensor*> on_device = {&packed_reads_, &packed_updates_}, on_host;
  for (int worker = 0; worker < group_.size(); ++worker) {
    RETURN_IF_ERROR(MeetWorker(worker, declared[worker], tables, on_host));
  }
  OrderUpdates();
  RETURN_IF_ERROR(index_.Upload(device_, compute_));
  const auto most_packed = [](const auto& accesses) {
    size_t most = 0;
    for (const auto& access : accesses) {
      for (const auto& chunk : access->chunks) most = std::max(most, chunk.packed_bytes());
    }
    return Tensor{nullptr, Shape({static_cast<int64_t>(most)}), DType::kU8};
  };
  packed_reads_ = most_packed(reads_);
  packed_updates_ = most_packed(updates_);
  // What a shard has in its device's memory lies where the device's copies reach it.
  Wanted of_shard{in_host_memory() ? on_host : on_device, on_host};
  RETURN_IF_ERROR(shard_->Prepare(of_shard));
  RETURN_IF_ERROR(Allocate(MemoryKind::kDevice, on_device, device_memory_));
  RETURN_IF_ERROR(Allocate(MemoryKind::kPinnedHost, on_host, host_memory_));
  RETURN_IF_ERROR(shard_->Clear());
  for (const auto& read : reads_) {
    for (ReadChunk& chunk : read->chunks) chunk.FindStaged(rank, packed_reads_.data);
  }
  for (const auto& update : updates_) {
    for (UpdateChunk& chunk : update->chunks) chunk.FindStaged(rank, packed_updates_.data);
  }
  return absl::OkStatus();
}

absl::Status ParameterServer::Allocate(MemoryKind kind, std::span<Tensor* const> tensors,
                                       Buffer& memory) {
  size_t bytes = 0;
  for (const Tensor* const tensor : tensors) bytes += RoundUp(tensor->bytes(), kServerAlignment);
  ASSIGN_OR_RETURN(memory, Buffer::Allocate(device_, kind, bytes));
  size_t at = 0;
  for (Tensor* const tensor : tensors) {
    tensor->data = memory.data() + at;
    at += RoundUp(tensor->bytes(), kServerAlignment);
  }
  return absl::OkStatus();
}

}  // namespace gyre
