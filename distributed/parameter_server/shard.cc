#include "distributed/parameter_server/shard.h"

#include <algorithm>
#include <limits>

#include "engine/runtime/check.h"

namespace gyre {

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(Communicator& communicator, Device& device,
                                                     const Options& options) {
  std::unique_ptr<Shard> shard(new Shard(communicator, device, options));
  for (std::unique_ptr<Stream>* const stream : {&shard->in_, &shard->work_, &shard->out_}) {
    ASSIGN_OR_RETURN(*stream, device.NewStream());
  }
  return shard;
}

void Shard::AddTable(const TableSpec& spec, ElementRange part, const TableUpdate& update) {
  Table& table = tables_.emplace_back();
  table.spec = spec;
  table.update = &update;
  const Tensor rows{nullptr, Shape({part.count(), spec.width}), spec.dtype};
  Tensor slot = rows;
  slot.dtype = AccumulateDType(spec.dtype);
  table.rows = {.values = rows,
                .slots = std::vector<Tensor>(static_cast<size_t>(update.slots()), slot),
                .first = part.begin,
                .width = spec.width};
}

void Shard::Describe(Piece& added, int worker, int table, const RowPiece& piece, int tag,
                     Tensor* staged) {
  added.worker = worker;
  added.table = table;
  added.tag = tag;
  added.rows = RowsOf(piece);
  added.staged = staged;
}

int Shard::AddUpdate(int worker, int table, const RowPiece& piece, int tag, Tensor* staged) {
  Describe(updates_.emplace_back(), worker, table, piece, tag, staged);
  const int number = static_cast<int>(updates_.size()) - 1;
  tables_[table].updates.push_back(number);
  return number;
}

int Shard::AddRead(int worker, int table, const RowPiece& piece, int tag, Tensor* staged) {
  Describe(reads_.emplace_back(), worker, table, piece, tag, staged);
  const int number = static_cast<int>(reads_.size()) - 1;
  tables_[table].reads.push_back(number);
  return number;
}

Tensor Shard::Piece::Part(ElementRange rows) const {
  const int64_t width = staged->shape[1];
  auto* const at = static_cast<std::byte*>(staged->data) +
                   static_cast<size_t>(rows.begin * width) * SizeOf(staged->dtype);
  return {at, Shape({rows.count(), width}), staged->dtype};
}

void Shard::Want(Piece& piece, DType dtype, Wanted& wanted) {
  piece.places = index_.Add(piece.rows);
  const bool own = piece.staged != nullptr;
  if (!own) {
    const int64_t width = tables_[piece.table].spec.width;
    piece.own_host = {nullptr, Shape({piece.rows.count(), width}), dtype};
    piece.staged = &piece.own_host;
  }
  (own && !options_.stages_own ? wanted.device : wanted.host).push_back(piece.staged);
}

template <typename Pieces>
absl::Status Shard::MakeCopies(const Pieces& pieces, Copies& copies, Wanted& wanted) {
  size_t largest = 0;
  for (const Piece& piece : pieces) {
    if (!IsCopied(piece) || piece.rows.count() == 0) continue;
    const size_t row_bytes = piece.bytes() / static_cast<size_t>(piece.rows.count());
    const int64_t rows = std::min(piece.rows.count(), RowsOfServerCopy(row_bytes));
    largest = std::max(largest, static_cast<size_t>(rows) * row_bytes);
  }
  for (Copy& copy : copies.all) {
    copy.memory = {nullptr, Shape({static_cast<int64_t>(largest)}), DType::kU8};
    wanted.device.push_back(&copy.memory);
    ASSIGN_OR_RETURN(copy.filled, device_.NewEvent());
    ASSIGN_OR_RETURN(copy.free, device_.NewEvent());
  }
  return absl::OkStatus();
}

absl::Status Shard::Prepare(Wanted& wanted) {
  for (Table& table : tables_) {
    wanted.device.push_back(&table.rows.values);
    for (Tensor& slot : table.rows.slots) wanted.device.push_back(&slot);
    std::vector<RowList> updated;
    for (const int update : table.updates) updated.push_back(updates_[update].rows);
    table.touched = Union(updated);
    table.touched_places = index_.Add(table.touched);
    table.sum = {nullptr, Shape({table.touched.count(), table.spec.width}), table.spec.dtype};
    if (options_.sync == Sync::kBsp) wanted.device.push_back(&table.sum);
    table.adding = table.sum;
    table.adding.dtype = AccumulateDType(table.spec.dtype);
    if (options_.sync == Sync::kBsp && table.rounds()) wanted.device.push_back(&table.adding);
  }
  size_t together = 0;
  for (UpdatePiece& piece : updates_) {
    const Table& table = tables_[piece.table];
    Want(piece, table.spec.sent_as(), wanted);
    piece.sum_places = index_.Add(PlacesIn(table.touched, piece.rows));
    ASSIGN_OR_RETURN(piece.used, device_.NewEvent());
    const size_t bytes = static_cast<size_t>(piece.rows.count()) * table.spec.row_bytes();
    if (options_.sync != Sync::kBsp && Gathers(piece)) together = std::max(together, bytes);
  }
  together_ = {nullptr, Shape({static_cast<int64_t>(together)}), DType::kU8};
  wanted.device.push_back(&together_);
  for (ReadPiece& piece : reads_) {
    Want(piece, tables_[piece.table].spec.dtype, wanted);
    ASSIGN_OR_RETURN(piece.ready, device_.NewEvent());
  }
  RETURN_IF_ERROR(MakeCopies(updates_, uploads_, wanted));
  RETURN_IF_ERROR(MakeCopies(reads_, downloads_, wanted));
  return index_.Upload(device_, *work_);
}

absl::Status Shard::Clear() {
  for (const Table& table : tables_) {
    const RowPlaces all = {.count = table.rows.values.shape[0]};
    RETURN_IF_ERROR(ClearRows(*work_, all, table.rows.width, table.rows.values));
    for (const Tensor& slot : table.rows.slots) {
      RETURN_IF_ERROR(ClearRows(*work_, all, table.rows.width, slot));
    }
  }
  return work_->Synchronize();
}

// Of a worker without updates here: it has none to come.
int64_t Shard::Clock(const Table& table, int worker) const {
  int64_t clock = std::numeric_limits<int64_t>::max();
  for (const int update : table.updates) {
    const UpdatePiece& piece = updates_[update];
    if (worker == kNobody || piece.worker == worker) clock = std::min(clock, piece.applied);
  }
  return clock;
}

bool Shard::MayApply(const Table& table, const UpdatePiece& piece) const {
  if (piece.received == piece.applied) return false;
  if (options_.sync != Sync::kBsp) return true;
  if (&updates_[table.updates[table.next]] != &piece) return false;
  if (table.applied < table.summed) return false;  // the sum's memory is in use
  // Nobody may read what is of this iteration in this iteration.
  return table.next + 1 < table.updates.size() || std::ranges::all_of(table.reads, [&](int read) {
           return reads_[read].gathered > piece.applied;
         });
}

bool Shard::MayAnswer(const Table& table, const ReadPiece& piece) const {
  if (piece.gathered > piece.sent) return false;  // its memory is in use
  const int64_t clock = piece.gathered;           // of the iteration that reads
  if (Clock(table, piece.worker) < clock) return false;
  if (options_.gated && !table.updates.empty() && table.applied < clock) return false;
  if (options_.sync == Sync::kAsync) return true;
  return Clock(table, kNobody) >= clock - (options_.sync == Sync::kSsp ? options_.staleness : 0);
}

absl::Status Shard::Apply(Table& table, UpdatePiece& piece) {
  RETURN_IF_ERROR(options_.sync == Sync::kBsp ? AddToSum(table, piece) : ApplyAlone(table, piece));
  RETURN_IF_ERROR((IsCopied(piece) ? *in_ : *work_).Record(*piece.used));
  ++piece.applied;
  return absl::OkStatus();
}

template <typename Use>
absl::Status Shard::Receive(UpdatePiece& piece, const Use& use) {
  const int64_t count = piece.rows.count();
  if (!IsCopied(piece)) return use(ElementRange{0, count}, *piece.staged);
  const int64_t most =
      count == 0 ? 1 : RowsOfServerCopy(piece.bytes() / static_cast<size_t>(count));
  for (int64_t first = 0; first < count; first += most) {
    const ElementRange rows = {first, std::min(count, first + most)};
    Copy& copy = uploads_.Next();
    Tensor sent = piece.Part(rows);
    RETURN_IF_ERROR(in_->Wait(*copy.free));
    RETURN_IF_ERROR(in_->Copy(copy.memory.data, sent.data, sent.bytes()));
    RETURN_IF_ERROR(in_->Record(*copy.filled));
    RETURN_IF_ERROR(work_->Wait(*copy.filled));
    sent.data = copy.memory.data;
    RETURN_IF_ERROR(use(rows, sent));
    RETURN_IF_ERROR(work_->Record(*copy.free));
  }
  return absl::OkStatus();
}

absl::Status Shard::AddToSum(Table& table, UpdatePiece& piece) {
  const int64_t width = table.spec.width;
  const RowPlaces all = {.count = table.touched.count()};
  const RowPlaces places = index_[piece.sum_places];
  const Tensor& adding = table.rounds() ? table.adding : table.sum;
  // So that a sum of one is that one, to the last bit.
  const bool is_first = table.next == 0, is_all = piece.rows.count() == all.count;
  if (is_first && !is_all) RETURN_IF_ERROR(ClearRows(*work_, all, width, adding));
  RETURN_IF_ERROR(Receive(piece, [&](ElementRange rows, const Tensor& sent) {
    return (is_first && is_all ? ScatterRows(*work_, PartOf(places, rows), width, sent, adding)
                               : AddRows(*work_, PartOf(places, rows), width, sent, adding));
  }));
  if (++table.next < table.updates.size()) return absl::OkStatus();
  if (table.rounds()) RETURN_IF_ERROR(GatherRows(*work_, all, width, adding, table.sum));
  if (table.spec.wire) RETURN_IF_ERROR(RoundTo(*work_, *table.spec.wire, table.sum));
  table.next = 0;
  ++table.summed;
  return options_.gated ? absl::OkStatus() : ApplySum(table);
}

absl::Status Shard::ApplyAlone(Table& table, UpdatePiece& piece) {
  if (piece.staged->elements() == 0) return absl::OkStatus();
  Tensor sent = *piece.staged;
  if (Gathers(piece)) {
    sent = {together_.data, piece.staged->shape, table.spec.dtype};
    RETURN_IF_ERROR(Receive(piece, [&](ElementRange rows, const Tensor& some) {
      const RowPlaces places = {.first = rows.begin, .count = rows.count()};
      return ScatterRows(*work_, places, table.spec.width, some, sent);
    }));
  }
  return table.update->Apply(*work_, table.rows, index_[piece.places], sent, piece.applied);
}

absl::Status Shard::ApplySum(Table& table) {
  const int64_t iteration = table.applied++;
  if (table.sum.elements() == 0) return absl::OkStatus();
  return table.update->Apply(*work_, table.rows, index_[table.touched_places], table.sum,
                             iteration);
}

absl::Status Shard::Gather(const Table& table, ReadPiece& piece) {
  const RowPlaces places = index_[piece.places];
  const int64_t width = table.spec.width, count = piece.rows.count();
  const Tensor& values = table.rows.values;
  const bool copied = IsCopied(piece);
  if (!copied) RETURN_IF_ERROR(GatherRows(*work_, places, width, values, *piece.staged));
  const int64_t most = RowsOfServerCopy(table.spec.row_bytes());
  for (int64_t first = 0; copied && first < count; first += most) {
    const ElementRange rows = {first, std::min(count, first + most)};
    Copy& copy = downloads_.Next();
    const Tensor to = piece.Part(rows);
    RETURN_IF_ERROR(work_->Wait(*copy.free));
    RETURN_IF_ERROR(GatherRows(*work_, PartOf(places, rows), width, values,
                               {copy.memory.data, to.shape, to.dtype}));
    RETURN_IF_ERROR(work_->Record(*copy.filled));
    RETURN_IF_ERROR(out_->Wait(*copy.filled));
    RETURN_IF_ERROR(out_->Copy(to.data, copy.memory.data, to.bytes()));
    RETURN_IF_ERROR(out_->Record(*copy.free));
  }
  RETURN_IF_ERROR((copied ? *out_ : *work_).Record(*piece.ready));
  ++piece.gathered;
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Shard::consumed(int update) const {
  const UpdatePiece& piece = updates_[update];
  ASSIGN_OR_RETURN(const bool used, piece.used->Done());
  return used ? piece.applied : piece.applied - 1;
}

absl::StatusOr<int64_t> Shard::gathered(int read) const {
  const ReadPiece& piece = reads_[read];
  ASSIGN_OR_RETURN(const bool ready, piece.ready->Done());
  return ready ? piece.gathered : piece.gathered - 1;
}

// Of another rank's worker: whether something has come.
absl::StatusOr<bool> Shard::Await(UpdatePiece& piece) {
  if (!piece.travels()) return false;
  if (!piece.transfer.under_way()) {
    if (piece.received > piece.applied) return false;
    ASSIGN_OR_RETURN(const bool used, piece.used->Done());
    if (!used) return false;
    RETURN_IF_ERROR(piece.transfer.Begin(communicator_, Transfer::Way::kExpect,
                                         static_cast<std::byte*>(piece.staged->data), piece.bytes(),
                                         piece.worker, piece.tag));
  }
  ASSIGN_OR_RETURN(const bool done, piece.transfer.Progress(communicator_));
  piece.received += done ? 1 : 0;
  return done;
}

absl::StatusOr<bool> Shard::Send(ReadPiece& piece) {
  if (!piece.travels() || piece.gathered == piece.sent) return false;
  if (!piece.transfer.under_way()) {
    ASSIGN_OR_RETURN(const bool ready, piece.ready->Done());
    if (!ready) return false;
    bytes_sent_ += static_cast<int64_t>(piece.bytes());
    RETURN_IF_ERROR(piece.transfer.Begin(communicator_, Transfer::Way::kSend,
                                         static_cast<std::byte*>(piece.staged->data), piece.bytes(),
                                         piece.worker, piece.tag));
  }
  ASSIGN_OR_RETURN(const bool done, piece.transfer.Progress(communicator_));
  piece.sent += done ? 1 : 0;
  return done;
}

absl::StatusOr<Advance> Shard::Progress() {
  bool moved = false;
  for (UpdatePiece& piece : updates_) {
    ASSIGN_OR_RETURN(const bool received, Await(piece));
    moved = moved || received;
  }
  for (Table& table : tables_) {
    if (table.applied < table.summed && table.applied < released_) {
      RETURN_IF_ERROR(ApplySum(table));
      moved = true;
    }
    for (const int read : table.reads) {
      ReadPiece& piece = reads_[read];
      if (MayAnswer(table, piece)) {
        RETURN_IF_ERROR(Gather(table, piece));
        moved = true;
      }
      ASSIGN_OR_RETURN(const bool sent, Send(piece));
      moved = moved || sent;
    }
    for (const int update : table.updates) {
      if (!MayApply(table, updates_[update])) continue;
      RETURN_IF_ERROR(Apply(table, updates_[update]));
      moved = true;
    }
  }
  return moved ? Advance::kMoved : Advance::kWaiting;
}

bool Shard::summed(int64_t clock) const {
  return std::ranges::all_of(
      tables_, [&](const Table& table) { return table.updates.empty() || table.summed >= clock; });
}

int Shard::AwaitedForSums(int64_t clock) const {
  for (const Table& table : tables_) {
    if (table.updates.empty() || table.summed >= clock) continue;
    const UpdatePiece& piece = updates_[table.updates[table.next]];
    if (piece.received == piece.applied) return piece.worker;
  }
  return kNobody;
}

bool Shard::settled(int64_t clock) const {
  return std::ranges::all_of(tables_, [](const Table& t) { return t.applied == t.summed; }) &&
         std::ranges::all_of(updates_, [&](const auto& piece) { return piece.applied == clock; }) &&
         std::ranges::all_of(reads_, [&](const auto& piece) {
           return (piece.travels() ? piece.sent : piece.gathered) == clock + 1;
         });
}

int Shard::AwaitedWorker() const {
  for (const Table& table : tables_) {
    if (table.updates.empty() || table.reads.empty()) continue;
    const int64_t slowest = Clock(table, kNobody);
    for (const int update : table.updates) {
      if (updates_[update].applied != slowest) continue;
      const bool behind = std::ranges::any_of(
          table.reads, [&](int read) { return Clock(table, reads_[read].worker) > slowest; });
      if (behind) return updates_[update].worker;
    }
  }
  return kNobody;
}

absl::Status Shard::Withdraw() {
  for (UpdatePiece& piece : updates_) {
    if (piece.transfer.under_way()) RETURN_IF_ERROR(piece.transfer.Withdraw(communicator_));
  }
  return absl::OkStatus();
}

}  // namespace gyre
