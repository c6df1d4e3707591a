#include "distributed/parameter_server/shard.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

class Addition final : public TableUpdate {
 public:
  explicit Addition(double factor) : factor_(factor) {}
  absl::Status Apply(Stream& stream, const OwnedRows& rows, RowIndices places, Tensor sent,
                     int64_t) const override {
    return AddScaledRows(stream, places, rows.width, factor_, sent, rows.values);
  }

 private:
  const double factor_;
};

}  // namespace

std::unique_ptr<TableUpdate> NewAddition(double factor) {
  return std::make_unique<Addition>(factor);
}

absl::StatusOr<std::unique_ptr<Shard>> Shard::Create(Communicator& communicator, Device& device,
                                                     const ServerOptions& options) {
  std::unique_ptr<Shard> shard(new Shard(communicator, device, options));
  for (std::unique_ptr<Stream>* const stream : {&shard->in_, &shard->work_, &shard->out_}) {
    ASSIGN_OR_RETURN(*stream, device.NewStream());
  }
  return shard;
}

int Shard::AddTable(const TableSpec& spec, std::span<const ElementRange> chunks,
                    const TableUpdate& update) {
  Table& table = tables_.emplace_back();
  table.spec = spec;
  table.update = &update;
  const auto owned = [&](ElementRange range) {
    const Tensor rows{nullptr, Shape({range.count(), spec.width}), spec.dtype};
    Tensor slot = rows;
    slot.dtype = AccumulateDType(spec.dtype);
    return OwnedRows{.values = rows,
                     .slots = std::vector<Tensor>(static_cast<size_t>(update.slots()), slot),
                     .first = range.begin,
                     .width = spec.width};
  };
  table.rows = owned({chunks.front().begin, chunks.back().end});
  const int first = static_cast<int>(chunks_.size());
  for (const ElementRange& range : chunks) {
    TableChunk& chunk = chunks_.emplace_back();
    chunk.table = &table;
    chunk.rows = owned(range);
    chunk.rows.chunk = static_cast<int>(chunks_.size()) - 1 - first;
  }
  return first;
}

int Shard::AddSlice(bool update, int worker, int chunk, const RowSelection& slice, int tag,
                    Tensor* staged) {
  WorkerSlice& added = update ? static_cast<WorkerSlice&>(updates_.emplace_back())
                              : static_cast<WorkerSlice&>(reads_.emplace_back());
  added.worker = worker;
  added.chunk = chunk;
  added.tag = tag;
  added.rows = slice.rows;
  added.staged = staged;
  const int number = static_cast<int>(update ? updates_.size() : reads_.size()) - 1;
  (update ? chunks_[chunk].updates : chunks_[chunk].reads).push_back(number);
  return number;
}

void Shard::Want(WorkerSlice& slice, DType dtype, Wanted& wanted) {
  slice.places = index_.Add(slice.rows);
  const bool own = slice.staged != nullptr;
  if (!own) {
    slice.own_host = {nullptr, Shape({slice.rows.count(), TableOf(slice).spec.width}), dtype};
    slice.staged = &slice.own_host;
  }
  (own && options_.background ? wanted.device : wanted.host).push_back(slice.staged);
}

template <typename Slices>
absl::Status Shard::MakeCopies(const Slices& slices, Copies& copies, Wanted& wanted) {
  size_t largest = 0;
  for (const WorkerSlice& slice : slices) {
    if (IsCopied(slice)) largest = std::max(largest, slice.bytes());
  }
  for (Copy& copy : copies.all) {
    copy.memory = {nullptr, Shape({static_cast<int64_t>(largest)}), DType::kU8};
    wanted.device.push_back(&copy.memory);
    ASSIGN_OR_RETURN(copy.filled, device_.NewEvent());
    ASSIGN_OR_RETURN(copy.free, device_.NewEvent());
  }
  return absl::OkStatus();
}

// Chunks by what is read first there; a chunk's reads with the next rank's first, so that not all
// owners begin with one worker's.
void Shard::OrderByUrgency() {
  const int size = communicator_.size();
  for (TableChunk& chunk : chunks_) {
    urgent_first_.push_back(&chunk);
    for (const int read : chunk.reads) {
      chunk.first_read = std::min(chunk.first_read, reads_[read].tag);
    }
    std::ranges::stable_sort(chunk.reads, {}, [&](int read) {
      return (reads_[read].worker - communicator_.rank() - 1 + size) % size;
    });
  }
  std::ranges::stable_sort(urgent_first_, {}, &TableChunk::first_read);
}

absl::Status Shard::Prepare(Wanted& wanted) {
  const bool sums = options_.sync == Sync::kBsp;
  for (TableChunk& chunk : chunks_) {
    std::vector<RowList> updated;
    for (const int update : chunk.updates) updated.push_back(updates_[update].rows);
    chunk.touched = Union(updated);
    chunk.touched_places = index_.Add(chunk.touched);
    chunk.sum = chunk.rows.values;
    chunk.sum.shape = Shape({chunk.touched.count(), chunk.rows.width});
    chunk.adding = chunk.sum;
    chunk.adding.dtype = AccumulateDType(chunk.sum.dtype);
  }
  size_t chunk = 0;
  for (Table& table : tables_) {
    wanted.device.push_back(&table.rows.values);
    for (Tensor& slot : table.rows.slots) wanted.device.push_back(&slot);
    int64_t touched = 0;
    for (; chunk < chunks_.size() && chunks_[chunk].table == &table; ++chunk) {
      touched += chunks_[chunk].touched.count();
    }
    table.sum = {nullptr, Shape({touched, table.spec.width}), table.spec.dtype};
    table.adding = table.sum;
    table.adding.dtype = AccumulateDType(table.spec.dtype);
    if (sums) wanted.device.push_back(&table.sum);
    if (sums && table.rounds()) wanted.device.push_back(&table.adding);
  }
  size_t together = 0;
  for (UpdateSlice& slice : updates_) {
    const TableSpec& table = TableOf(slice).spec;
    Want(slice, table.wire_type(), wanted);
    slice.sum_places = index_.Add(PlacesIn(chunks_[slice.chunk].touched, slice.rows));
    ASSIGN_OR_RETURN(slice.used, device_.NewEvent());
    const size_t bytes = static_cast<size_t>(slice.rows.count()) * table.row_bytes();
    if (!sums && table.wire) together = std::max(together, bytes);
  }
  together_ = {nullptr, Shape({static_cast<int64_t>(together)}), DType::kU8};
  wanted.device.push_back(&together_);
  for (ReadSlice& slice : reads_) {
    Want(slice, TableOf(slice).spec.dtype, wanted);
    ASSIGN_OR_RETURN(slice.ready, device_.NewEvent());
  }
  OrderByUrgency();
  answers_.resize(communicator_.size());
  for (const ReadSlice& slice : reads_) answers_[slice.worker].slices += slice.travels() ? 1 : 0;
  leaving_.reserve(reads_.size());
  for (size_t update = 0; update < updates_.size(); ++update) {
    if (updates_[update].travels()) awaited_.push_back(static_cast<int>(update));
  }
  RETURN_IF_ERROR(MakeCopies(updates_, uploads_, wanted));
  RETURN_IF_ERROR(MakeCopies(reads_, downloads_, wanted));
  return index_.Upload(device_, *work_);
}

absl::Status Shard::Clear() {
  // A chunk's memory follows that of the one before.
  const Table* table = nullptr;
  int64_t row = 0, summed = 0;
  const auto part = [](const Tensor& of, int64_t first, Tensor& to) {
    if (of.data == nullptr) return;
    const auto skipped = static_cast<size_t>(first * of.shape[1]) * SizeOf(of.dtype);
    to.data = static_cast<std::byte*>(of.data) + skipped;
  };
  for (TableChunk& chunk : chunks_) {
    if (table != chunk.table) row = summed = 0;
    table = chunk.table;
    part(table->rows.values, row, chunk.rows.values);
    for (size_t slot = 0; slot < chunk.rows.slots.size(); ++slot) {
      part(table->rows.slots[slot], row, chunk.rows.slots[slot]);
    }
    part(table->sum, summed, chunk.sum);
    part(table->rounds() ? table->adding : table->sum, summed, chunk.adding);
    row += chunk.rows.values.shape[0];
    summed += chunk.touched.count();
  }
  for (const Table& cleared : tables_) {
    RETURN_IF_ERROR(FillWithZeros(*work_, cleared.rows.values));
    for (const Tensor& slot : cleared.rows.slots) RETURN_IF_ERROR(FillWithZeros(*work_, slot));
  }
  return work_->Synchronize();
}

absl::Status Shard::Apply(TableChunk& chunk, UpdateSlice& slice) {
  RETURN_IF_ERROR(options_.sync == Sync::kBsp ? AddToSum(chunk, slice) : ApplyAlone(chunk, slice));
  RETURN_IF_ERROR((IsCopied(slice) ? *in_ : *work_).Record(*slice.used));
  ++slice.applied;
  if (options_.sync != Sync::kBsp || chunk.next > 0) return absl::OkStatus();
  ++chunk.summed;  // who waits for it may use work_ from here on
  return options_.gated ? absl::OkStatus() : ApplySum(chunk);
}

template <typename Use>
absl::Status Shard::Receive(UpdateSlice& slice, const Use& use) {
  if (!IsCopied(slice)) return use(*slice.staged);
  Copy& copy = uploads_.Next();
  Tensor sent = *slice.staged;
  sent.data = copy.memory.data;
  RETURN_IF_ERROR(in_->Wait(*copy.free));
  RETURN_IF_ERROR(in_->Copy(sent.data, slice.staged->data, sent.bytes()));
  RETURN_IF_ERROR(in_->Record(*copy.filled));
  RETURN_IF_ERROR(work_->Wait(*copy.filled));
  RETURN_IF_ERROR(use(sent));
  return work_->Record(*copy.free);
}

absl::Status Shard::AddToSum(TableChunk& chunk, UpdateSlice& slice) {
  const int64_t width = chunk.rows.width;
  const RowIndices all = {.count = chunk.touched.count()};
  const RowIndices places = index_[slice.sum_places];
  // So that a sum of one is that one, to the last bit.
  const bool is_first = chunk.next == 0, is_all = slice.rows.count() == all.count;
  if (is_first && !is_all) RETURN_IF_ERROR(FillWithZeros(*work_, chunk.adding));
  RETURN_IF_ERROR(Receive(slice, [&](const Tensor& sent) {
    return is_first && is_all
               ? ScatterRows(*work_, places, width, sent, chunk.adding)
               : AddScaledRows(*work_, places, width, /*factor=*/1, sent, chunk.adding);
  }));
  if (++chunk.next < chunk.updates.size()) return absl::OkStatus();
  const Table& table = *chunk.table;
  if (table.rounds()) RETURN_IF_ERROR(GatherRows(*work_, all, width, chunk.adding, chunk.sum));
  if (table.spec.wire) RETURN_IF_ERROR(RoundTo(*work_, *table.spec.wire, chunk.sum));
  chunk.next = 0;
  return absl::OkStatus();
}

absl::Status Shard::ApplyAlone(TableChunk& chunk, UpdateSlice& slice) {
  if (slice.rows.count() == 0) return absl::OkStatus();
  const RowIndices all = {.count = slice.rows.count()};
  const auto apply = [&](const Tensor& sent) {
    return chunk.table->update->Apply(*work_, chunk.rows, index_[slice.places], sent,
                                      slice.applied);
  };
  return Receive(slice, [&](const Tensor& sent) -> absl::Status {
    if (!chunk.table->spec.wire) return apply(sent);
    const Tensor wide{together_.data, sent.shape, chunk.rows.values.dtype};
    RETURN_IF_ERROR(ScatterRows(*work_, all, chunk.rows.width, sent, wide));
    return apply(wide);
  });
}

absl::Status Shard::ApplySum(TableChunk& chunk) {
  const int64_t iteration = chunk.applied++;
  if (chunk.sum.elements() == 0) return absl::OkStatus();
  return chunk.table->update->Apply(*work_, chunk.rows, index_[chunk.touched_places], chunk.sum,
                                    iteration);
}

absl::Status Shard::Gather(TableChunk& chunk, ReadSlice& slice) {
  const RowIndices places = index_[slice.places];
  const int64_t width = chunk.rows.width;
  const Tensor& values = chunk.rows.values;
  if (!IsCopied(slice)) {
    RETURN_IF_ERROR(GatherRows(*work_, places, width, values, *slice.staged));
    RETURN_IF_ERROR(work_->Record(*slice.ready));
  } else {
    Copy& copy = downloads_.Next();
    Tensor gathered = *slice.staged;
    gathered.data = copy.memory.data;
    RETURN_IF_ERROR(work_->Wait(*copy.free));
    RETURN_IF_ERROR(GatherRows(*work_, places, width, values, gathered));
    RETURN_IF_ERROR(work_->Record(*copy.filled));
    RETURN_IF_ERROR(out_->Wait(*copy.filled));
    RETURN_IF_ERROR(out_->Copy(slice.staged->data, gathered.data, gathered.bytes()));
    RETURN_IF_ERROR(out_->Record(*copy.free));
    RETURN_IF_ERROR(out_->Record(*slice.ready));
  }
  ++slice.gathered;
  chunk.ready += slice.travels() ? 1 : 0;
  return absl::OkStatus();
}

absl::StatusOr<bool> Shard::HasConsumed(int update, int64_t iterations) const {
  if (updates_[update].applied < iterations) return false;
  return updates_[update].used->Done();
}

absl::StatusOr<bool> Shard::HasGathered(int read, int64_t iterations) const {
  if (reads_[read].gathered < iterations) return false;
  return reads_[read].ready->Done();
}

// Of another rank's worker: whether the slice has come.
absl::StatusOr<bool> Shard::Await(UpdateSlice& slice) {
  if (!slice.transfer.under_way()) {
    ASSIGN_OR_RETURN(const bool used, slice.used->Done());
    if (!used) return false;
    RETURN_IF_ERROR(slice.transfer.Begin(communicator_, RequestKind::kExpect,
                                         static_cast<std::byte*>(slice.staged->data), slice.bytes(),
                                         slice.worker, slice.tag));
  }
  ASSIGN_OR_RETURN(const bool done, slice.transfer.Progress(communicator_));
  if (done) Count(slice, slice.received);
  return done;
}

// To another rank's worker: whether something was done.
absl::StatusOr<bool> Shard::Send(ReadSlice& slice) {
  ASSIGN_OR_RETURN(const bool ready, slice.ready->Done());
  if (!ready) return false;
  bytes_sent_ += static_cast<int64_t>(slice.bytes());
  RETURN_IF_ERROR(slice.transfer.Begin(communicator_, RequestKind::kSend,
                                       static_cast<std::byte*>(slice.staged->data), slice.bytes(),
                                       slice.worker, slice.tag));
  return true;
}

absl::StatusOr<bool> Shard::SendAnswers() {
  bool moved = false;
  for (Answers& to_worker : answers_) to_worker.under_way = 0;
  size_t left = 0;
  for (const int read : leaving_) {
    ReadSlice& slice = reads_[read];
    ASSIGN_OR_RETURN(const bool sent, slice.transfer.Progress(communicator_));
    moved = moved || sent;
    if (sent) {
      Count(slice, slice.sent);
    } else {
      answers_[slice.worker].under_way += slice.transfer.left();
      leaving_[left++] = read;
    }
  }
  leaving_.resize(left);
  for (TableChunk* const chunk : urgent_first_) {
    if (chunk->ready == 0) continue;
    for (const int read : chunk->reads) {
      ReadSlice& slice = reads_[read];
      Answers& to_worker = answers_[slice.worker];
      if (!slice.travels() || slice.transfer.under_way() || slice.gathered == slice.sent ||
          slice.sent != to_worker.iteration || to_worker.under_way >= options_.chunk_bytes) {
        continue;
      }
      ASSIGN_OR_RETURN(const bool begun, Send(slice));
      if (!begun) continue;
      moved = true;
      --chunk->ready;
      leaving_.push_back(read);
      to_worker.under_way += slice.bytes();
      if (++to_worker.begun < to_worker.slices) continue;
      to_worker.begun = 0;
      ++to_worker.iteration;
    }
  }
  return moved;
}

absl::StatusOr<size_t> Shard::Work(TableChunk& chunk) {
  size_t bytes = 0;
  chunk.due = false;
  if (chunk.applied < chunk.summed && chunk.applied < released_) {
    RETURN_IF_ERROR(ApplySum(chunk));
    bytes += 1 + chunk.sum.bytes();
  }
  for (const int read : chunk.reads) {
    if (!MayAnswer(chunk, reads_[read])) continue;
    RETURN_IF_ERROR(Gather(chunk, reads_[read]));
    bytes += 1 + reads_[read].bytes();
  }
  for (const int update : chunk.updates) {
    if (!MayApply(chunk, updates_[update])) continue;
    RETURN_IF_ERROR(Apply(chunk, updates_[update]));
    if (updates_[update].travels()) awaited_.push_back(update);
    bytes += 1 + updates_[update].bytes();
  }
  if (bytes > 0) chunk.due = true;  // by what was done more may be
  return bytes;
}

absl::StatusOr<Advance> Shard::Progress() {
  size_t left = 0;
  const size_t awaited = awaited_.size();
  for (const int update : awaited_) {
    ASSIGN_OR_RETURN(const bool received, Await(updates_[update]));
    if (!received) awaited_[left++] = update;
  }
  awaited_.resize(left);
  const bool moved = left < awaited;
  if (const int64_t released = released_; released != std::exchange(seen_released_, released)) {
    for (TableChunk& chunk : chunks_) chunk.due = true;
  }
  // On the host it takes this thread: messages are looked at again before there is more.
  const bool on_host = device_.kind() == DeviceKind::kCpu;
  size_t worked = 0;
  for (TableChunk* const chunk : urgent_first_) {
    if (on_host && worked >= options_.chunk_bytes) break;
    if (!chunk->due) continue;
    ASSIGN_OR_RETURN(const size_t bytes, Work(*chunk));
    worked += bytes;
  }
  ASSIGN_OR_RETURN(const bool sent, SendAnswers());
  return moved || worked > 0 || sent ? Advance::kMoved : Advance::kWaiting;
}

bool Shard::summed(int64_t clock) const {
  return std::ranges::all_of(chunks_, [&](const TableChunk& chunk) {
    return chunk.updates.empty() || chunk.summed >= clock;
  });
}

int Shard::AwaitedForSums(int64_t clock) const {
  for (const TableChunk& chunk : chunks_) {
    if (chunk.updates.empty() || chunk.summed >= clock) continue;
    const UpdateSlice& slice = updates_[chunk.updates[chunk.next]];
    if (slice.received == slice.applied) return slice.worker;
  }
  return kNobody;
}

bool Shard::settled(int64_t clock) const {
  return std::ranges::all_of(chunks_, [](const TableChunk& b) { return b.applied == b.summed; }) &&
         std::ranges::all_of(updates_, [&](const auto& slice) { return slice.applied == clock; }) &&
         std::ranges::all_of(reads_, [&](const auto& slice) {
           return (slice.travels() ? slice.sent : slice.gathered) == clock + 1;
         });
}

int Shard::AwaitedWorker() const {
  for (const TableChunk& chunk : chunks_) {
    if (chunk.reads.empty()) continue;
    const int64_t slowest = Clock(chunk, kNobody);
    const bool waits = std::ranges::any_of(
        chunk.reads, [&](int read) { return Clock(chunk, reads_[read].worker) > slowest; });
    if (!waits) continue;
    const auto of = std::ranges::find_if(
        chunk.updates, [&](int update) { return updates_[update].applied == slowest; });
    return updates_[*of].worker;
  }
  return kNobody;
}

absl::Status Shard::Withdraw() {
  for (UpdateSlice& slice : updates_) {
    if (slice.transfer.under_way()) RETURN_IF_ERROR(slice.transfer.Withdraw(communicator_));
  }
  return absl::OkStatus();
}

}  // namespace gyre
