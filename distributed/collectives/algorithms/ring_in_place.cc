// ring_in_place.cc: the ring of ranks that share a host, where the tensor lies in memory that all
// of them see: no bytes travel.  Each rank adds its values to those of the next rank, where they
// lie, and says so.
//
// n ranks, n chunks, a chunk of m segments.  In step s rank r works on chunk r-1-s (mod n), in its
// own memory and in that of rank r+1:
//
//   scatter  s <  n-1: it adds its chunk to the next rank's.  In step n-2 that is the whole sum,
//                      which it takes as its own, too: a step of the gather less than by messages.
//   gather   s >= n-1: it copies its chunk, which is final, to the next rank.
//
// What it works on in step s the rank before has left there in step s-1, and noted, segment by
// segment.  With a note travels the sum of squares of what is final of the chunk.
//
// Who writes where another may still read?  A rank writes to the next one's memory once that has
// offered it, so has ended what came before.  Of chunk c, rank k adds its values to rank k+1's once
// those of rank k-1 have been added to its own, and reads them no more: when c is final, in ranks
// c-1 and c, every rank has done so, and c may be written everywhere.  A rank has ended when all
// that is written to its memory has been noted; what it reads is its own.
//
// Cost: 2n-3 steps; per rank (n-1)/n S read twice and written, and (n-1)/n S copied, but for what
// the last addition saves: for 2 ranks S read and S written, as by `shared`.  The order of
// additions is that of ring.cc.

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "distributed/collectives/algorithms/algorithms.h"

namespace gyre {
namespace {

// The ranks, more than one, share a host.  A tensor lies in the arenas on all of them, or on none,
// so that it goes by messages: the claim says which.
class RingInPlace final : public Collective {
 public:
  RingInPlace(Communicator& communicator, int tag, const SharedArenas& arenas,
              std::unique_ptr<Collective> by_messages)
      : Collective(communicator, tag),
        arenas_(arenas),
        by_messages_(std::move(by_messages)),
        next_((rank_ + 1) % ranks_),
        before_((rank_ + ranks_ - 1) % ranks_) {}

 private:
  // Notes under way in each direction.
  static constexpr int kWindow = 4;

  absl::Status Begin() override {
    if (operation_ == Operation::kBroadcast) return Lacks();
    mine_ = Locate(arenas_, rank_, tensor_.data);
    if (mine_.arena < 0) return by_messages_->Start(channel_.claim(), operation_, tensor_);
    const Claim claim = channel_.claim();
    channel_.Open(claim.By("the ring in shared memory"));
    segment_elements_ = static_cast<int64_t>(kSegmentBytes) / size_;
    const int64_t longest = EqualPart(tensor_.elements(), ranks_, 0).count();
    segments_ = std::max<int64_t>(1, (longest + segment_elements_ - 1) / segment_elements_);
    gather_begin_ = (ranks_ - 1) * segments_;
    begin_ = operation_ == Operation::kAllgather ? gather_begin_ : 0;
    end_ = gather_begin_;
    if (operation_ == Operation::kAllreduce) end_ += (ranks_ - 2) * segments_;
    if (operation_ == Operation::kAllgather) end_ += gather_begin_;
    posted_ = noted_ = done_ = told_ = begin_;
    partials_.assign(ranks_, 0);
    theirs_ = nullptr;
    RETURN_IF_ERROR(Receive(&offered_, sizeof(offered_), next_));
    return Send(&mine_, sizeof(mine_), before_);
  }

  absl::StatusOr<Advance> Step() override {
    if (mine_.arena < 0) return by_messages_->Progress(&squares_);
    ASSIGN_OR_RETURN(bool moved, Hear());
    if (theirs_ == nullptr) {
      ASSIGN_OR_RETURN(const bool offered, Quiet());
      if (!offered) return moved ? Advance::kMoved : Advance::kWaiting;
      theirs_ = arenas_[offered_.arena]->of(next_) + offered_.offset;
    }
    const bool noted = done_ < begin_ + segments_ || noted_ > done_ - segments_;
    if (done_ < end_ && noted && done_ < told_ + kWindow) {
      Work();
      ASSIGN_OR_RETURN(sends_[done_ % kWindow],
                       channel_.Send(&notes_[done_ % kWindow], sizeof(double), next_));
      ++done_;
      moved = true;
    }
    if (told_ < end_ || noted_ < end_) return moved ? Advance::kMoved : Advance::kWaiting;
    squares_ = operation_ == Operation::kReduceScatter
                   ? partials_[rank_]
                   : std::accumulate(partials_.begin(), partials_.end(), 0.0);
    return Advance::kDone;
  }

  // Whether it did anything.
  absl::StatusOr<bool> Hear() {
    bool moved = false;
    for (; posted_ < end_ && posted_ < noted_ + kWindow; ++posted_) {
      const int64_t slot = posted_ % kWindow;
      ASSIGN_OR_RETURN(receives_[slot], channel_.Receive(&heard_[slot], sizeof(double), before_));
    }
    for (; noted_ < posted_; ++noted_) {
      ASSIGN_OR_RETURN(const bool done, channel_.Test(receives_[noted_ % kWindow]));
      if (!done) break;
      if (IsFinal(noted_)) partials_[ChunkOf(before_, noted_)] = heard_[noted_ % kWindow];
      moved = true;
    }
    for (; told_ < done_; ++told_) {
      ASSIGN_OR_RETURN(const bool done, channel_.Test(sends_[told_ % kWindow]));
      if (!done) break;
      moved = true;
    }
    return moved;
  }

  // Of the segment at done_; its note is what is known of its chunk.
  void Work() {
    const int chunk = ChunkOf(rank_, done_);
    const ElementRange range = FixedPart(EqualPart(tensor_.elements(), ranks_, chunk),
                                         segment_elements_, done_ % segments_);
    void* const own = At(range.begin);
    void* const next = theirs_ + range.begin * size_;
    if (done_ >= gather_begin_) {
      std::memcpy(next, own, range.count() * size_);
    } else if (!IsFinal(done_)) {
      AddTo(tensor_.dtype, next, own, range.count());
    } else {
      const void* const inputs[] = {next, own};
      void* const outputs[] = {next, own};
      const size_t kept = operation_ == Operation::kAllreduce ? 2 : 1;
      partials_[chunk] += AddAll(tensor_.dtype, inputs, {outputs, kept}, range.count());
    }
    notes_[done_ % kWindow] = partials_[chunk];
  }

  // Whether what that step leaves is.
  bool IsFinal(int64_t position) const { return position >= gather_begin_ - segments_; }
  // That `rank` works on at `position`: step * m + segment.
  int ChunkOf(int rank, int64_t position) const {
    const auto step = static_cast<int>(position / segments_);
    return (rank - 1 - step + 2 * ranks_) % ranks_;
  }

  const SharedArenas& arenas_;
  const std::unique_ptr<Collective> by_messages_;
  const int next_, before_;
  int64_t segment_elements_ = 0, segments_ = 0;     // of a full segment; m
  int64_t begin_ = 0, gather_begin_ = 0, end_ = 0;  // positions
  int64_t done_ = 0, told_ = 0;                     // what this rank does, and has told
  int64_t posted_ = 0, noted_ = 0;                  // what it is told
  InArena mine_, offered_;                          // the tensor; the next rank's
  std::byte* theirs_ = nullptr;                     // once it is offered
  std::array<double, kWindow> notes_{}, heard_{};   // by position % kWindow
  std::array<Request, kWindow> sends_{}, receives_{};
  std::vector<double> partials_;  // by chunk
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewRing(Communicator& communicator, int tag,
                                                    const SharedArenas& arenas) {
  auto by_messages = NewMessageRing(communicator, tag);
  const int ranks = communicator.size();
  if (ranks == 1 || static_cast<int>(RanksOfHost(communicator).size()) < ranks) return by_messages;
  return std::make_unique<RingInPlace>(communicator, tag, arenas, std::move(by_messages));
}

}  // namespace gyre
