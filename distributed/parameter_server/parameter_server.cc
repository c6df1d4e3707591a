#include "distributed/parameter_server/parameter_server.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

ParameterServer::ParameterServer(ProcessGroup& group, Device& device, Stream& compute,
                                 const Options& options)
    : group_(group), device_(device), compute_(compute), options_(options) {}

absl::StatusOr<std::unique_ptr<ParameterServer>> ParameterServer::Create(ProcessGroup& group,
                                                                         Device& device,
                                                                         Stream& compute,
                                                                         const Options& options) {
  if (options.servers < 0 || options.servers >= group.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected 0 to ", group.size() - 1,
                                                   " servers of ", group.size(), " ranks, got ",
                                                   options.servers));
  }
  if (options.staleness < 0 || (options.staleness > 0 && options.sync != Sync::kSsp)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a staleness of 0 or more, and above 0 with ssp alone; got ",
                     options.staleness, " with ", std::string(SyncName(options.sync))));
  }
  if (options.chunk_bytes == 0) {
    return absl::InvalidArgumentError("expected chunks of more than 0 bytes");
  }
  if (options.in_host_memory && options.in_host_memory->kind() != DeviceKind::kCpu) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a cpu device for rows in host memory, got ",
                     std::string(DeviceKindName(options.in_host_memory->kind()))));
  }
  if (options.gated && options.sync != Sync::kBsp) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected a gate with bsp alone; got ", std::string(SyncName(options.sync))));
  }
  std::unique_ptr<ParameterServer> server(new ParameterServer(group, device, compute, options));
  if (!server->in_background()) return server;
  ASSIGN_OR_RETURN(server->out_, device.NewStream());
  ASSIGN_OR_RETURN(server->in_, device.NewStream());
  return server;
}

ParameterServer::~ParameterServer() {
  if (serving_) static_cast<void>(group_.StopServing());
}

absl::StatusOr<int> ParameterServer::AddTable(const TableSpec& table, const TableUpdate& update) {
  GYRE_CHECK(!prepared_);
  const bool sizes = table.rows >= 0 && table.rows < (int64_t{1} << 31) && table.width >= 0;
  if (!sizes || !IsReal(table.dtype)) {
    return absl::InvalidArgumentError(
        absl::StrCat("table \"", table.name, "\": expected 0 to 2^31 rows of 0 or more reals, got ",
                     table.rows, " of ", table.width, " ", std::string(DTypeName(table.dtype))));
  }
  if (table.wire && (table.dtype != DType::kF32 || SizeOf(*table.wire) != 2)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "table \"", table.name,
        "\": expected updates of F32 to travel as F16 or BF16, "
        "got ",
        std::string(DTypeName(table.dtype)), " as ", std::string(DTypeName(*table.wire))));
  }
  if (!table.parts.empty() && !AreParts(table.parts, table.rows, group_.size())) {
    return absl::InvalidArgumentError(absl::StrCat("table \"", table.name,
                                                   "\": expected a part of its rows for each of ",
                                                   group_.size(), " ranks, in order"));
  }
  tables_.push_back(table);
  table_updates_.push_back(&update);
  return static_cast<int>(tables_.size()) - 1;
}

absl::Status ParameterServer::CheckAccess(const char* kind, int table, const RowList& rows,
                                          Tensor memory) const {
  GYRE_CHECK(!prepared_);
  GYRE_CHECK(table >= 0 && table < static_cast<int>(tables_.size()));
  const TableSpec& spec = tables_[table];
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat(kind, " of table \"", spec.name, "\": ", what...));
  };
  if (serves_only()) return error("rank ", group_.rank(), " only serves");
  if (!rows.Within(spec.rows)) return error("expected rows in [0, ", spec.rows, ")");
  if (memory.dtype != spec.dtype || memory.elements() != rows.count() * spec.width) {
    return error("expected memory for ", rows.count(), " rows of ", spec.width, " ",
                 std::string(DTypeName(spec.dtype)), ", got ", memory.elements(), " ",
                 std::string(DTypeName(memory.dtype)));
  }
  return absl::OkStatus();
}

template <typename Access>
absl::StatusOr<int> ParameterServer::Declare(std::vector<std::unique_ptr<Access>>& accesses,
                                             int table, const RowList& rows, void* memory) {
  auto access = std::make_unique<Access>();
  access->table = table;
  access->rows = rows;
  access->memory = {memory, Shape({rows.count(), tables_[table].width}), tables_[table].dtype};
  ASSIGN_OR_RETURN(access->used, device_.NewEvent());
  accesses.push_back(std::move(access));
  return static_cast<int>(accesses.size()) - 1;
}

absl::StatusOr<int> ParameterServer::AddRead(int table, const RowList& rows, Tensor to) {
  RETURN_IF_ERROR(CheckAccess("read", table, rows, to));
  return Declare(reads_, table, rows, to.data);
}

absl::StatusOr<int> ParameterServer::AddUpdate(int table, const RowList& rows, Tensor from) {
  RETURN_IF_ERROR(CheckAccess("update", table, rows, from));
  if (rows.HasDuplicates()) {
    return absl::InvalidArgumentError(
        absl::StrCat("update of table \"", tables_[table].name, "\": expected each row once"));
  }
  return Declare(updates_, table, rows, from.data);
}

absl::Status ParameterServer::Start() {
  GYRE_CHECK(prepared_ && !serving_);
  RETURN_IF_ERROR(compute_.Synchronize());
  serving_ = true;
  return group_.Serve(*this);
}

absl::Status ParameterServer::Due(const RowAccess& access, const char* call, bool due) const {
  if (serving_ && due) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "expected between Start and Stop, in each iteration, Read and PostRead of each read, "
      "PreUpdate and Update of each update, once, and then Clock; got ",
      call, " of access ", access.number, ", of table \"", tables_[access.table].name,
      "\", in iteration ", clock_, serving_ ? "" : ", when not started"));
}

absl::Status ParameterServer::Await(const std::function<bool()>& holds) {
  awaited_since_ms_ = NowMs();
  const absl::Status status = group_.AwaitService(holds);
  awaited_since_ms_ = -1;
  return status;
}

absl::Status ParameterServer::Read(int number) {
  ReadAccess& read = *reads_[number];
  RETURN_IF_ERROR(Due(read, "Read", read.opened == clock_));
  RETURN_IF_ERROR(Await([&] { return read.has_arrived(clock_); }));
  for (ReadChunk& chunk : read.chunks) {
    if (!in_background()) RETURN_IF_ERROR(chunk.Upload(compute_, read, index_));
    RETURN_IF_ERROR(compute_.Wait(*chunk.copied));
  }
  ++read.opened;
  return absl::OkStatus();
}

absl::Status ParameterServer::PostRead(int number) {
  ReadAccess& read = *reads_[number];
  RETURN_IF_ERROR(Due(read, "PostRead", read.opened > clock_ && read.released == clock_));
  RETURN_IF_ERROR(compute_.Record(*read.used));
  ++read.released;
  return absl::OkStatus();
}

absl::Status ParameterServer::PreUpdate(int number) {
  UpdateAccess& update = *updates_[number];
  RETURN_IF_ERROR(Due(update, "PreUpdate", update.opened == clock_));
  ++update.opened;
  return compute_.Wait(*update.chunks.back().copied);  // of one stream
}

absl::Status ParameterServer::Update(int number) {
  UpdateAccess& update = *updates_[number];
  RETURN_IF_ERROR(Due(update, "Update", update.opened > clock_ && update.posted == clock_));
  return Push(update);
}

absl::Status ParameterServer::Push(UpdateAccess& update) {
  RETURN_IF_ERROR(Await([&] { return update.sent(); }));
  return update.Post(compute_, in_background() ? *out_ : compute_, index_);
}

absl::Status ParameterServer::Clock() {
  for (const auto& read : reads_) {
    RETURN_IF_ERROR(Due(*read, "Clock without PostRead", read->released > clock_));
  }
  RETURN_IF_ERROR(SendAll("Clock without Update"));
  if (options_.gated && applied_ == clock_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "expected AwaitSums and Apply ahead of Clock; got Clock in iteration ", clock_));
  }
  ++clock_;
  return group_.status();
}

// Of tables that this rank reads, and of which it updates nothing, goes the clock alone.
absl::Status ParameterServer::SendAll(const char* call) {
  for (size_t u = 0; u < declared_updates_; ++u) {
    RETURN_IF_ERROR(Due(*updates_[u], call, updates_[u]->posted > clock_));
  }
  for (size_t u = declared_updates_; u < updates_.size(); ++u) {
    if (updates_[u]->posted == clock_) RETURN_IF_ERROR(Push(*updates_[u]));
  }
  return absl::OkStatus();
}

absl::Status ParameterServer::AwaitSums() {
  GYRE_CHECK(options_.gated);
  RETURN_IF_ERROR(SendAll("AwaitSums without Update"));
  sums_awaited_ = clock_ + 1;
  const absl::Status status = Await([&] { return shard_->summed(clock_ + 1); });
  sums_awaited_ = -1;
  RETURN_IF_ERROR(status);
  return shard_->Synchronize();
}

absl::Status ParameterServer::Apply() {
  GYRE_CHECK(options_.gated && applied_ == clock_);
  ++applied_;
  shard_->Release();
  return group_.status();
}

// Whether something was done.  What is to leave begins in the order of iterations: an owner takes a
// slice once it has used that of the iteration before, so that what is taken depends on iterations
// before alone, and nobody waits in a circle.  And then as it was declared, in which all workers
// are alike, however far they are, so that owners have chunks of all soon; but once an iteration
// has posted all, what the next reads first.
absl::StatusOr<bool> ParameterServer::SendUpdates(Communicator& communicator) {
  bool moved = false;
  size_t under_way = 0;
  int64_t iteration = std::numeric_limits<int64_t>::max();  // of the first that has not begun
  for (const auto& [access, chunk] : leaving_) {
    ASSIGN_OR_RETURN(const bool sent, chunk->Progress(communicator, *shard_));
    moved = moved || sent;
    under_way += chunk->bytes_under_way();
    if (!chunk->has_begun(access->posted)) iteration = std::min<int64_t>(iteration, chunk->sent);
  }
  const bool all_posted =
      std::ranges::all_of(updates_, [&](const auto& update) { return update->posted > iteration; });
  for (const auto& [access, chunk] : all_posted ? urgent_first_ : leaving_) {
    if (under_way >= options_.chunk_bytes) break;
    if (chunk->has_begun(access->posted) || chunk->sent != iteration) continue;
    ASSIGN_OR_RETURN(const bool begun, chunk->Begin(communicator, *shard_));
    moved = moved || begun;
    under_way += chunk->bytes_under_way();
  }
  return moved;
}

absl::StatusOr<Advance> ParameterServer::Progress(Communicator& communicator) {
  ASSIGN_OR_RETURN(bool moved, SendUpdates(communicator));
  for (const auto& read : reads_) {
    for (ReadChunk& chunk : read->chunks) {
      ASSIGN_OR_RETURN(const bool some,
                       chunk.Progress(communicator, *shard_, *read, in_.get(), index_));
      moved = moved || some;
    }
  }
  ASSIGN_OR_RETURN(const Advance advance, shard_->Progress());
  if (const int64_t drain = drain_; drain > drained_ && Settled(drain)) drained_ = drain;
  if (moved || advance == Advance::kMoved) return Advance::kMoved;
  const int64_t since = awaited_since_ms_, now = NowMs();
  if (since >= 0 && now - since > communicator.timeout_ms()) {
    return communicator.Overdue(Awaited());
  }
  // It takes a look at all slices: a millisecond's passes have one answer to who asks.
  if (now != std::exchange(awaited_at_ms_, now)) awaited_ = Awaited();
  RETURN_IF_ERROR(communicator.Poke(awaited_));
  return Advance::kWaiting;
}

bool ParameterServer::Settled(int64_t clock) const {
  return std::ranges::all_of(leaving_, [&](const auto& of) { return of.chunk->sent == clock; }) &&
         std::ranges::all_of(reads_,
                             [&](const auto& read) {
                               return std::ranges::all_of(read->chunks, [&](const auto& chunk) {
                                 return chunk.settled(clock, /*uploads=*/in_background());
                               });
                             }) &&
         shard_->settled(clock);
}

// The rank that this one waits for: an owner that has not answered, or a worker.
int ParameterServer::Awaited() const {
  if (const int64_t clock = sums_awaited_; clock >= 0) {
    const int sender = shard_->AwaitedForSums(clock);
    return sender == group_.rank() ? kNobody : sender;
  }
  for (const auto& read : reads_) {
    for (const ReadChunk& chunk : read->chunks) {
      const int owner = chunk.AwaitedOwner();
      if (awaited_since_ms_ >= 0 && owner != kNobody) return owner;
    }
  }
  const int worker = shard_->AwaitedWorker();
  return worker == group_.rank() ? kNobody : worker;
}

absl::Status ParameterServer::Drain() {
  GYRE_CHECK(serving_);
  drain_ = clock_;
  RETURN_IF_ERROR(Await([&] { return drained_ == clock_; }));
  RETURN_IF_ERROR(shard_->Synchronize());
  return group_.Barrier();
}

absl::Status ParameterServer::Get(int table, void* to) {
  RETURN_IF_ERROR(Drain());
  const OwnedRows& owned = shard_->owned(table);
  const TableSpec& spec = tables_[table];
  const std::vector<ElementRange> parts = Parts(spec);
  auto* const bytes = static_cast<char*>(to);
  const auto at = [&](int rank) {
    return std::span(bytes + parts[rank].begin * static_cast<int64_t>(spec.row_bytes()),
                     parts[rank].count() * spec.row_bytes());
  };
  const std::span<char> own = at(group_.rank());
  if (!own.empty()) {
    RETURN_IF_ERROR(compute_.Copy(own.data(), owned.values.data, own.size()));
    RETURN_IF_ERROR(compute_.Synchronize());
  }
  Mail mail;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.rank()) continue;
    mail.outgoing.push_back({rank, {own.data(), own.size()}});
    mail.incoming.push_back({.from = rank, .into = at(rank)});
  }
  return group_.Wait(group_.Submit("the values of a table", &mail)).status();
}

absl::Status ParameterServer::Stop() {
  RETURN_IF_ERROR(Drain());
  serving_ = false;
  RETURN_IF_ERROR(group_.StopServing());  // what is withdrawn would be expected anew
  return group_.Call("the end of a parameter server",
                     [&](Communicator&) { return shard_->Withdraw(); });
}

absl::Status ParameterServer::Abandon() {
  RETURN_IF_ERROR(group_.Barrier());  // nobody waits for another's service
  serving_ = false;
  RETURN_IF_ERROR(group_.StopServing());
  return group_.Barrier();
}

int64_t ParameterServer::bytes_sent() const {
  int64_t bytes = shard_->bytes_sent();
  for (const auto& [access, chunk] : leaving_) {
    bytes += chunk->sent * static_cast<int64_t>(chunk->host.bytes());
  }
  return bytes;
}

}  // namespace gyre
