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
  static constexpr int64_t kWindow = MessageWindow::kMost;  // of notes, in each direction

  absl::Status Begin() override {
    if (operation_ == Operation::kBroadcast) return Lacks();
    mine_ = Locate(arenas_, rank_, tensor_.data);
    if (mine_.arena < 0) return by_messages_->Start(claim_, operation_, tensor_);
    claim_ = claim_.By("the ring in shared memory");
    segment_elements_ = static_cast<int64_t>(kSegmentBytes) / size_;
    const int64_t longest = EqualPart(tensor_.elements(), ranks_, 0).count();
    segments_ = std::max<int64_t>(1, (longest + segment_elements_ - 1) / segment_elements_);
    gather_begin_ = (ranks_ - 1) * segments_;
    begin_ = operation_ == Operation::kAllgather ? gather_begin_ : 0;
    end_ = gather_begin_;
    if (operation_ == Operation::kAllreduce) end_ += (ranks_ - 2) * segments_;
    if (operation_ == Operation::kAllgather) end_ += gather_begin_;
    tells_ = hears_ = {begin_, begin_};
    partials_.assign(ranks_, 0);
    theirs_ = nullptr;
    RETURN_IF_ERROR(Receive(&offered_, sizeof(offered_), next_));
    return Send(&mine_, sizeof(mine_), before_);
  }

  absl::StatusOr<Advance> Step() override {
    if (mine_.arena < 0) return by_messages_->Progress(&squares_);
    ASSIGN_OR_RETURN(const bool told, EndDone(tells_));
    ASSIGN_OR_RETURN(const bool heard, Hear());
    bool moved = told || heard;
    if (theirs_ == nullptr) {
      ASSIGN_OR_RETURN(const bool offered, Quiet());
      if (!offered) return moved ? Advance::kMoved : Advance::kWaiting;
      theirs_ = arenas_[offered_.arena]->of(next_) + offered_.offset;
    }
    // One segment a pass, which the rank before has noted.
    const int64_t now = tells_.posted;
    if (now < begin_ + segments_ || hears_.done > now - segments_) {
      ASSIGN_OR_RETURN(
          const bool worked, BeginNext(tells_, std::min(end_, now + 1), [&](int64_t position) {
            Work(position);
            return Post(RequestKind::kSend, &notes_[position % kWindow], sizeof(double), next_);
          }));
      moved |= worked;
    }
    if (tells_.done < end_ || hears_.done < end_) {
      return moved ? Advance::kMoved : Advance::kWaiting;
    }
    squares_ = operation_ == Operation::kReduceScatter
                   ? partials_[rank_]
                   : std::accumulate(partials_.begin(), partials_.end(), 0.0);
    return Advance::kDone;
  }

  // Whether it did anything.
  absl::StatusOr<bool> Hear() {
    RETURN_IF_ERROR(BeginNext(hears_, end_, [&](int64_t position) {
                      return Post(RequestKind::kReceive, &heard_[position % kWindow],
                                  sizeof(double), before_);
                    }).status());
    int64_t noted = hears_.done;
    ASSIGN_OR_RETURN(const bool moved, EndDone(hears_));
    for (; noted < hears_.done; ++noted) {
      if (IsFinal(noted)) partials_[ChunkOf(before_, noted)] = heard_[noted % kWindow];
    }
    return moved;
  }

  // Of the segment at `position`; its note is what is known of its chunk.
  void Work(int64_t position) {
    const int chunk = ChunkOf(rank_, position);
    const ElementRange range = FixedPart(EqualPart(tensor_.elements(), ranks_, chunk),
                                         segment_elements_, position % segments_);
    void* const own = At(range.begin);
    void* const next = theirs_ + range.begin * size_;
    if (position >= gather_begin_) {
      std::memcpy(next, own, range.count() * size_);
    } else if (!IsFinal(position)) {
      AddTo(tensor_.dtype, next, own, range.count());
    } else {
      const void* const inputs[] = {next, own};
      void* const outputs[] = {next, own};
      const size_t kept = operation_ == Operation::kAllreduce ? 2 : 1;
      partials_[chunk] += AddAll(tensor_.dtype, inputs, {outputs, kept}, range.count());
    }
    notes_[position % kWindow] = partials_[chunk];
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
  MessageWindow tells_, hears_;                     // by position: what this rank has done; is told
  InArena mine_, offered_;                          // the tensor; the next rank's
  std::byte* theirs_ = nullptr;                     // once it is offered
  std::array<double, kWindow> notes_{}, heard_{};   // by position % kWindow
  std::vector<double> partials_;                    // by chunk
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
