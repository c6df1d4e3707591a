// shared.cc: the ranks of a host add where their tensors lie, in memory that all of them see.
//
// In place (the tensor lies in SharedMemory): each rank says that its values are there, waits for
// the others, adds its part of all tensors, writes it into all of them, says so, and waits again:
// two waits, and S bytes read and written by a rank, whatever n.
// Staged (anywhere else): the same in pieces of kStageBytes, copied into shared memory and back.
// Inline (small): every rank copies its tensor there and adds up all of them: one wait.
//
// An operation is one round or several, counted from 1.  What a rank publishes for a round is in
// the place of its parity.  It may be written again two rounds later: by then all ranks have come
// to the round between, and so have left this one.
//
// Every element is summed in rank order, halves in F32 and rounded once.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "distributed/collectives/algorithms/algorithms.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

// Up to here every rank adds all, in memory that is copied and in an arena: a second wait would
// take as long (2 ranks, us: 1 KB .9 so or so; 4 KB in an arena 1.9 against .9).
constexpr size_t kInlineBytes = 8 << 10, kInlineArenaBytes = 1 << 10;
// Of a piece: half a core's L2 cache with what it is copied from, and two of them in each place.
constexpr size_t kStageBytes = 256 << 10;
// How often a waiting rank, which has only memory to look at, looks at the clock and hears others.
constexpr int kPassesBetweenLooks = 64;

constexpr size_t kLine = 64;  // a cache line

// What a rank publishes for a round; each line is written by its owner alone.
struct Place {
  alignas(kLine) std::atomic<int64_t> arrived;  // the round; what follows is set before
  int64_t sequence;
  uint64_t hash;
  InArena lies;                                  // in none: staged
  alignas(kLine) std::atomic<int64_t> finished;  // the round: this rank reads and writes no more
  double squares;                                // of what this rank has added
  alignas(kLine) Claim claim;                    // read where hashes differ
};

struct Window {
  Place places[2];
  alignas(kLine) std::byte staging[2][kStageBytes];
};
static_assert(std::atomic<int64_t>::is_always_lock_free && kInlineBytes <= kStageBytes);

class Shared final : public Collective {
 public:
  Shared(Communicator& communicator, int tag, std::unique_ptr<SharedMemory> memory,
         const SharedArenas& arenas)
      : Collective(communicator, tag),
        memory_(std::move(memory)),
        arenas_(arenas),
        timeout_(communicator.timeout_ms()) {
    inputs_.reserve(ranks_);
    outputs_.reserve(ranks_);
  }

 private:
  enum class Stage { kCopyIn, kArrive, kAdd, kFinish, kCopyOut, kDone };
  enum class Way { kInline, kInPlace, kStaged };

  Window& Of(int rank) { return *reinterpret_cast<Window*>(memory_->of(rank)); }
  Place& PlaceOf(int rank) { return Of(rank).places[round_ & 1]; }

  absl::Status Begin() override;
  absl::StatusOr<Advance> Step() override;
  void BeginRound();
  void CopyIn();
  void CopyOut();
  absl::StatusOr<bool> AllHave(std::atomic<int64_t> Place::*reached);
  absl::Status CheckClaim(int rank);
  void AddInline();
  bool AddSegment();
  bool Gather();

  // The part of the tensor that is `rank`'s to add: whole cache lines where nobody is to have a
  // part of given bounds.
  ElementRange Mine(int rank) const;
  // What of it is in this round.
  ElementRange Piece(int rank) const;
  // Where element `element`, of `part`'s piece of this round, lies in the memory of `rank`.
  std::byte* Where(int rank, int part, int64_t element);

  const std::unique_ptr<SharedMemory> memory_;
  const SharedArenas& arenas_;
  const std::chrono::milliseconds timeout_;

  Stage stage_ = Stage::kDone;
  Way way_ = Way::kInline;
  InArena lies_;
  int64_t round_ = 0;               // since the start
  int64_t piece_ = 0, pieces_ = 0;  // of this operation: which, and how many
  int64_t piece_elements_ = 0;      // of a rank's part
  int64_t done_ = 0;                // elements of this rank's work in the stage
  int waiting_for_ = 0;             // ranks below it have come
  int passes_ = 0;
  Clock::time_point deadline_;
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
};

absl::Status Shared::Begin() {
  if (operation_ == Operation::kBroadcast) return Lacks();
  lies_ = Locate(arenas_, rank_, tensor_.data);
  pieces_ = 1;
  const size_t most_inline = lies_.arena < 0 ? kInlineBytes : kInlineArenaBytes;
  if (operation_ == Operation::kAllreduce && tensor_.bytes() <= most_inline) {
    way_ = Way::kInline;
    lies_ = {};
  } else if (lies_.arena >= 0) {
    way_ = Way::kInPlace;
  } else {
    way_ = Way::kStaged;
    const int64_t lines = static_cast<int64_t>(kStageBytes / kLine / ranks_);
    piece_elements_ = lines * static_cast<int64_t>(kLine) / size_;
    const int64_t longest = Mine(0).count();
    pieces_ = std::max<int64_t>(1, (longest + piece_elements_ - 1) / piece_elements_);
  }
  piece_ = 0;
  BeginRound();
  return absl::OkStatus();
}

void Shared::BeginRound() {
  ++round_;
  stage_ = Stage::kCopyIn;
}

ElementRange Shared::Mine(int rank) const {
  const int64_t elements = tensor_.elements();
  if (operation_ != Operation::kAllreduce) return Part(rank);
  const int64_t line = static_cast<int64_t>(kLine) / size_;
  const ElementRange lines = EqualPart((elements + line - 1) / line, ranks_, rank);
  return {std::min(lines.begin * line, elements), std::min(lines.end * line, elements)};
}

ElementRange Shared::Piece(int rank) const {
  const ElementRange whole = Mine(rank);
  return way_ == Way::kStaged ? FixedPart(whole, piece_elements_, piece_) : whole;
}

std::byte* Shared::Where(int rank, int part, int64_t element) {
  if (way_ == Way::kInPlace) {
    const Place& place = PlaceOf(rank);
    return arenas_[place.lies.arena]->of(rank) + place.lies.offset + element * size_;
  }
  const int64_t first = Piece(part).begin;
  return Of(rank).staging[round_ & 1] + (part * piece_elements_ + element - first) * size_;
}

void Shared::CopyIn() {
  if (way_ == Way::kInline) {
    if (tensor_.bytes() > 0)
      std::memcpy(Of(rank_).staging[round_ & 1], tensor_.data, tensor_.bytes());
  } else if (way_ == Way::kStaged) {
    const bool gathers = operation_ == Operation::kAllgather;
    for (int part = gathers ? rank_ : 0; part < (gathers ? rank_ + 1 : ranks_); ++part) {
      const ElementRange range = Piece(part);
      if (range.count() == 0) continue;
      std::memcpy(Where(rank_, part, range.begin), At(range.begin), range.count() * size_);
    }
  }
  Place& place = PlaceOf(rank_);
  place.sequence = channel_.claim().sequence;
  place.hash = channel_.claim().hash;
  place.lies = lies_;
  place.claim = channel_.claim();
  place.arrived.store(round_, std::memory_order_release);
}

// Of a staged allreduce; the halves write to the tensor itself.
void Shared::CopyOut() {
  for (int part = 0; part < ranks_; ++part) {
    const ElementRange range = Piece(part);
    if (range.count() == 0) continue;
    std::memcpy(At(range.begin), Where(rank_, part, range.begin), range.count() * size_);
  }
}

absl::Status Shared::CheckClaim(int rank) {
  const Place& place = PlaceOf(rank);
  Communicator& communicator = channel_.communicator();
  const Claim& mine = channel_.claim();
  absl::Status status;
  if (place.sequence != mine.sequence || place.hash != mine.hash) {
    status = Compare(mine, communicator.in_job(rank_), place.claim, communicator.in_job(rank));
  } else if (place.lies.arena != lies_.arena) {
    status = absl::FailedPreconditionError(
        absl::StrCat("ranks disagree: the memory of ", mine.what.data(), " is shared on rank ",
                     communicator.in_job(place.lies.arena < 0 ? rank_ : rank), " and not on rank ",
                     communicator.in_job(place.lies.arena < 0 ? rank : rank_)));
  }
  if (!status.ok()) communicator.Tell(status);
  return status;
}

absl::StatusOr<bool> Shared::AllHave(std::atomic<int64_t> Place::*reached) {
  const bool arriving = reached == &Place::arrived;
  for (; waiting_for_ < ranks_; ++waiting_for_) {
    if ((PlaceOf(waiting_for_).*reached).load(std::memory_order_acquire) < round_) break;
    if (arriving && waiting_for_ != rank_) RETURN_IF_ERROR(CheckClaim(waiting_for_));
    passes_ = 0;
  }
  if (waiting_for_ == ranks_) return true;
  if (++passes_ % kPassesBetweenLooks != 0) return false;
  RETURN_IF_ERROR(channel_.communicator().Poke(waiting_for_));
  const Clock::time_point now = Clock::now();
  if (passes_ == kPassesBetweenLooks) deadline_ = now + timeout_;
  return now < deadline_ ? absl::StatusOr<bool>(false)
                         : channel_.communicator().Overdue(waiting_for_);
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
  const ElementRange piece = Piece(rank_);
  const ElementRange now = FixedPart({piece.begin + done_, piece.end}, kSegmentBytes / size_, 0);
  if (now.count() <= 0) return false;
  inputs_.clear();
  outputs_.clear();
  for (int rank = 0; rank < ranks_; ++rank) {
    std::byte* const data = Where(rank, rank_, now.begin);
    inputs_.push_back(data);
    if (operation_ == Operation::kAllreduce) outputs_.push_back(data);
  }
  if (operation_ == Operation::kReduceScatter) outputs_.push_back(At(now.begin));
  PlaceOf(rank_).squares += AddAll(tensor_.dtype, inputs_, outputs_, now.count());
  done_ += now.count();
  return true;
}

// The others' parts, a segment a pass; done_ counts through all of them.
bool Shared::Gather() {
  int64_t before = 0;
  for (int part = 0; part < ranks_; ++part) {
    if (part == rank_) continue;
    const ElementRange piece = Piece(part);
    if (done_ < before + piece.count()) {
      const ElementRange now =
          FixedPart({piece.begin + done_ - before, piece.end}, kSegmentBytes / size_, 0);
      std::memcpy(At(now.begin), Where(part, part, now.begin), now.count() * size_);
      done_ += now.count();
      return true;
    }
    before += piece.count();
  }
  return false;
}

absl::StatusOr<Advance> Shared::Step() {
  switch (stage_) {
    case Stage::kCopyIn:
      PlaceOf(rank_).squares = 0;
      CopyIn();
      waiting_for_ = passes_ = 0;
      stage_ = Stage::kArrive;
      [[fallthrough]];
    case Stage::kArrive: {
      ASSIGN_OR_RETURN(const bool all, AllHave(&Place::arrived));
      if (!all) return Advance::kWaiting;
      if (way_ == Way::kInline) {
        AddInline();
        return Advance::kDone;
      }
      done_ = 0;
      stage_ = Stage::kAdd;
      [[fallthrough]];
    }
    case Stage::kAdd:
      if (AddSegment()) return Advance::kMoved;
      PlaceOf(rank_).finished.store(round_, std::memory_order_release);
      waiting_for_ = passes_ = 0;
      stage_ = Stage::kFinish;
      [[fallthrough]];
    case Stage::kFinish: {
      ASSIGN_OR_RETURN(const bool all, AllHave(&Place::finished));
      if (!all) return Advance::kWaiting;
      for (int rank = 0; rank < ranks_; ++rank) {
        const bool counts = operation_ == Operation::kAllreduce || rank == rank_;
        if (counts) squares_ += PlaceOf(rank).squares;
      }
      stage_ = Stage::kCopyOut;
      [[fallthrough]];
    }
    case Stage::kCopyOut:
      if (way_ == Way::kStaged && operation_ == Operation::kAllreduce) CopyOut();
      if (++piece_ == pieces_) break;
      BeginRound();
      return Advance::kMoved;
    case Stage::kDone:
      break;
  }
  stage_ = Stage::kDone;
  return Advance::kDone;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewShared(Communicator& communicator, int tag,
                                                      const SharedArenas& arenas) {
  if (static_cast<int>(RanksOfHost(communicator).size()) != communicator.size()) {
    return absl::InvalidArgumentError(
        "allreduce \"shared\" sums the ranks of one host, and these are on several; use \"ring\"");
  }
  auto memory = SharedMemory::Create(communicator, sizeof(Window));
  if (absl::IsResourceExhausted(memory.status())) return NewDirect(communicator, tag);
  RETURN_IF_ERROR(memory.status());
  return std::make_unique<Shared>(communicator, tag, *std::move(memory), arenas);
}

}  // namespace gyre
