// shared.cc: the ranks of a host add where their tensors lie, in memory that all of them see.
//
// In place (the tensor lies in SharedMemory): each rank says that its values are there, waits for
// the others, adds its part of all tensors, writes it into all of them, says so, and waits again:
// two waits, and S bytes read and written by a rank, whatever n.
// Staged (anywhere else): the same in slices of kStageBytes, copied into shared memory and back.
// Inline (small): every rank copies its tensor there and adds up all of them: one wait.
//
// An operation is one round or several, counted from 1.  What a rank publishes for a round is in
// the record of its parity.  It may be written again two rounds later: by then all ranks have come
// to the round between, and so have left this one.
//
// Every element is summed in rank order, halves in F32 and rounded once.

#include <algorithm>
#include <atomic>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "distributed/collectives/algorithms/algorithms.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Up to here every rank adds all, in memory that is copied and in an arena: a second wait would
// take as long (2 ranks, us: 1 KB .9 so or so; 4 KB in an arena 1.9 against .9).
constexpr size_t kInlineBytes = 8 << 10, kInlineArenaBytes = 1 << 10;
// Of a slice: half a core's L2 cache with what it is copied from, and two of them in each window.
constexpr size_t kStageBytes = 256 << 10;

constexpr size_t kLine = 64;  // a cache line

// What a rank publishes for a round; each line is written by its owner alone.
struct RoundRecord {
  alignas(kLine) std::atomic<int64_t> arrived;   // the round; what follows is set before
  InArena location;                              // in none: staged
  Claim claim;                                   // its label, on further lines, is seldom read
  alignas(kLine) std::atomic<int64_t> finished;  // the round: this rank reads and writes no more
  double squares;                                // of what this rank has added
};

struct SharedWindow {
  RoundRecord records[2];
  alignas(kLine) std::byte staging[2][kStageBytes];
};
static_assert(std::atomic<int64_t>::is_always_lock_free && kInlineBytes <= kStageBytes);

class Shared final : public Collective {
 public:
  Shared(Communicator& communicator, int tag, std::unique_ptr<SharedMemory> memory,
         const SharedArenas& arenas)
      : Collective(communicator, tag, RanksOfHost(communicator)),
        memory_(std::move(memory)),
        arenas_(arenas) {
    inputs_.reserve(ranks_);
    outputs_.reserve(ranks_);
  }

 private:
  enum class SharedStage { kCopyIn, kArrive, kAdd, kFinish };
  enum class SharedMode { kInline, kInPlace, kStaged };

  SharedWindow& Of(int rank) { return *reinterpret_cast<SharedWindow*>(memory_->of(rank)); }
  RoundRecord& RecordOf(int rank) { return Of(rank).records[round_ & 1]; }

  absl::Status Begin() override;
  absl::StatusOr<Advance> Step() override;
  void BeginRound();
  void CopyIn();
  void CopyOut();
  absl::StatusOr<bool> AllHave(std::atomic<int64_t> RoundRecord::*reached);
  absl::Status CheckClaim(int rank);
  void AddInline();
  bool AddSegment();
  bool Gather();

  // The part of the tensor that is `rank`'s to add: whole cache lines where nobody is to have a
  // part of given bounds.
  ElementRange Mine(int rank) const;
  // What of it is in this round.
  ElementRange SliceOf(int rank) const;
  // Where element `element`, of `part`'s slice of this round, lies in the memory of `rank`.
  std::byte* Where(int rank, int part, int64_t element);

  const std::unique_ptr<SharedMemory> memory_;
  const SharedArenas& arenas_;

  SharedStage stage_ = SharedStage::kCopyIn;
  SharedMode mode_ = SharedMode::kInline;
  InArena location_;
  int64_t round_ = 0;               // since the start
  int64_t slice_ = 0, slices_ = 0;  // of this operation: which, and how many
  int64_t slice_elements_ = 0;      // of a rank's part
  int64_t done_ = 0;                // elements of this rank's work in the stage
  int waiting_for_ = 0;             // ranks below it have come
  PolledWait wait_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

absl::Status Shared::Begin() {
  if (operation_ == Operation::kBroadcast) return Lacks();
  location_ = Locate(arenas_, rank_, tensor_.data);
  slices_ = 1;
  const size_t most_inline = location_.arena < 0 ? kInlineBytes : kInlineArenaBytes;
  if (operation_ == Operation::kAllreduce && tensor_.bytes() <= most_inline) {
    mode_ = SharedMode::kInline;
    location_ = {};
  } else if (location_.arena >= 0) {
    mode_ = SharedMode::kInPlace;
  } else {
    mode_ = SharedMode::kStaged;
    const int64_t lines = static_cast<int64_t>(kStageBytes / kLine / ranks_);
    slice_elements_ = lines * static_cast<int64_t>(kLine) / size_;
    const int64_t longest = Mine(0).count();
    slices_ = std::max<int64_t>(1, (longest + slice_elements_ - 1) / slice_elements_);
  }
  slice_ = 0;
  BeginRound();
  return absl::OkStatus();
}

void Shared::BeginRound() {
  ++round_;
  stage_ = SharedStage::kCopyIn;
}

ElementRange Shared::Mine(int rank) const {
  const int64_t elements = tensor_.elements();
  if (operation_ != Operation::kAllreduce) return Part(rank);
  const int64_t line = static_cast<int64_t>(kLine) / size_;
  const ElementRange lines = EqualPart((elements + line - 1) / line, ranks_, rank);
  return {std::min(lines.begin * line, elements), std::min(lines.end * line, elements)};
}

ElementRange Shared::SliceOf(int rank) const {
  const ElementRange whole = Mine(rank);
  return mode_ == SharedMode::kStaged ? FixedPart(whole, slice_elements_, slice_) : whole;
}

std::byte* Shared::Where(int rank, int part, int64_t element) {
  if (mode_ == SharedMode::kInPlace) {
    const RoundRecord& record = RecordOf(rank);
    return arenas_[record.location.arena]->of(rank) + record.location.offset + element * size_;
  }
  const int64_t first = SliceOf(part).begin;
  return Of(rank).staging[round_ & 1] + (part * slice_elements_ + element - first) * size_;
}

void Shared::CopyIn() {
  if (mode_ == SharedMode::kInline) {
    if (tensor_.bytes() > 0)
      std::memcpy(Of(rank_).staging[round_ & 1], tensor_.data, tensor_.bytes());
  } else if (mode_ == SharedMode::kStaged) {
    const bool gathers = operation_ == Operation::kAllgather;
    for (int part = gathers ? rank_ : 0; part < (gathers ? rank_ + 1 : ranks_); ++part) {
      const ElementRange range = SliceOf(part);
      if (range.count() == 0) continue;
      std::memcpy(Where(rank_, part, range.begin), At(range.begin), range.count() * size_);
    }
  }
  RoundRecord& record = RecordOf(rank_);
  record.location = location_;
  record.claim = claim_;
  record.arrived.store(round_, std::memory_order_release);
}

// Of a staged allreduce; the halves write to the tensor itself.
void Shared::CopyOut() {
  for (int part = 0; part < ranks_; ++part) {
    const ElementRange range = SliceOf(part);
    if (range.count() == 0) continue;
    std::memcpy(At(range.begin), Where(rank_, part, range.begin), range.count() * size_);
  }
}

absl::Status Shared::CheckClaim(int rank) {
  const RoundRecord& record = RecordOf(rank);
  absl::Status status = Compare(claim_, InJob(rank_), record.claim, InJob(rank));
  if (status.ok() && record.location.arena != location_.arena) {
    status = absl::FailedPreconditionError(
        absl::StrCat("ranks disagree: the memory of ", claim_.what.data(), " is shared on rank ",
                     InJob(record.location.arena < 0 ? rank_ : rank), " and not on rank ",
                     InJob(record.location.arena < 0 ? rank : rank_)));
  }
  if (!status.ok()) communicator_.Tell(status);
  return status;
}

absl::StatusOr<bool> Shared::AllHave(std::atomic<int64_t> RoundRecord::*reached) {
  const bool arriving = reached == &RoundRecord::arrived;
  for (; waiting_for_ < ranks_; ++waiting_for_) {
    if ((RecordOf(waiting_for_).*reached).load(std::memory_order_acquire) < round_) break;
    if (arriving && waiting_for_ != rank_) RETURN_IF_ERROR(CheckClaim(waiting_for_));
    wait_.Reset();
  }
  if (waiting_for_ < ranks_) {
    RETURN_IF_ERROR(wait_.Look(communicator_, InJob(waiting_for_)));
    return false;
  }
  waiting_for_ = 0;  // in the next wait
  return true;
}

void Shared::AddInline() {
  inputs_.clear();
  for (int rank = 0; rank < ranks_; ++rank) inputs_.push_back(Of(rank).staging[round_ & 1]);
  void* const output = tensor_.data;
  squares_ = AddAll(tensor_.dtype, inputs_, {&output, 1}, tensor_.elements());
}

// False once this rank's part of the round is added.
bool Shared::AddSegment() {
  if (operation_ == Operation::kAllgather) return Gather();
  const ElementRange slice = SliceOf(rank_);
  const ElementRange now = FixedPart({slice.begin + done_, slice.end}, kSegmentBytes / size_, 0);
  if (now.count() <= 0) return false;
  inputs_.clear();
  outputs_.clear();
  for (int rank = 0; rank < ranks_; ++rank) {
    std::byte* const data = Where(rank, rank_, now.begin);
    inputs_.push_back(data);
    if (operation_ == Operation::kAllreduce) outputs_.push_back(data);
  }
  if (operation_ == Operation::kReduceScatter) outputs_.push_back(At(now.begin));
  RecordOf(rank_).squares += AddAll(tensor_.dtype, inputs_, outputs_, now.count());
  done_ += now.count();
  return true;
}

// The others' parts, a segment a pass; done_ counts through all of them.
bool Shared::Gather() {
  int64_t before = 0;
  for (int part = 0; part < ranks_; ++part) {
    if (part == rank_) continue;
    const ElementRange slice = SliceOf(part);
    if (done_ < before + slice.count()) {
      const ElementRange now =
          FixedPart({slice.begin + done_ - before, slice.end}, kSegmentBytes / size_, 0);
      std::memcpy(At(now.begin), Where(part, part, now.begin), now.count() * size_);
      done_ += now.count();
      return true;
    }
    before += slice.count();
  }
  return false;
}

absl::StatusOr<Advance> Shared::Step() {
  switch (stage_) {
    case SharedStage::kCopyIn:
      RecordOf(rank_).squares = 0;
      CopyIn();
      stage_ = SharedStage::kArrive;
      [[fallthrough]];
    case SharedStage::kArrive: {
      ASSIGN_OR_RETURN(const bool all, AllHave(&RoundRecord::arrived));
      if (!all) return Advance::kWaiting;
      if (mode_ == SharedMode::kInline) {
        AddInline();
        return Advance::kDone;
      }
      done_ = 0;
      stage_ = SharedStage::kAdd;
      [[fallthrough]];
    }
    case SharedStage::kAdd:
      if (AddSegment()) return Advance::kMoved;
      RecordOf(rank_).finished.store(round_, std::memory_order_release);
      stage_ = SharedStage::kFinish;
      [[fallthrough]];
    case SharedStage::kFinish: {
      ASSIGN_OR_RETURN(const bool all, AllHave(&RoundRecord::finished));
      if (!all) return Advance::kWaiting;
      for (int rank = 0; rank < ranks_; ++rank) {
        const bool counts = operation_ == Operation::kAllreduce || rank == rank_;
        if (counts) squares_ += RecordOf(rank).squares;
      }
      if (mode_ == SharedMode::kStaged && operation_ == Operation::kAllreduce) CopyOut();
      if (++slice_ == slices_) break;
      BeginRound();
      return Advance::kMoved;
    }
  }
  return Advance::kDone;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewShared(Communicator& communicator, int tag,
                                                      const SharedArenas& arenas) {
  if (static_cast<int>(RanksOfHost(communicator).size()) != communicator.size()) {
    return absl::InvalidArgumentError(
        "allreduce \"shared\" sums the ranks of one host, and these are on several; use \"ring\"");
  }
  return NewSharedOfHost(communicator, tag, arenas);
}

absl::StatusOr<std::unique_ptr<Collective>> NewSharedOfHost(Communicator& communicator, int tag,
                                                            const SharedArenas& arenas) {
  auto memory = SharedMemory::Create(communicator, sizeof(SharedWindow));
  if (absl::IsResourceExhausted(memory.status())) {
    return NewDirect(communicator, tag, RanksOfHost(communicator));
  }
  RETURN_IF_ERROR(memory.status());
  return std::make_unique<Shared>(communicator, tag, *std::move(memory), arenas);
}

}  // namespace gyre
