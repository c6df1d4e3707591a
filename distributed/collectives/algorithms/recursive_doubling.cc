// recursive_doubling.cc: each rank swaps its whole tensor with partners 1, 2, 4, ... away and adds.
//
// Of n ranks, p = the largest power of two take part; rank p + r hands its values to rank r first
// and gets the result last.  lg p (+ 2) latencies, S bytes sent each time: for what is small.  A
// tensor longer than a segment goes segment by segment.
// Source: Thakur, Rabenseifner & Gropp 2005, "Optimization of collective communication operations
// in MPICH", section 4.4.

#include <algorithm>
#include <bit>

#include "distributed/collectives/algorithms/algorithms.h"

namespace gyre {
namespace {

class RecursiveDoubling final : public Collective {
 public:
  RecursiveDoubling(Communicator& communicator, int tag)
      : Collective(communicator, tag),
        whole_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks_)))),
        rounds_(std::countr_zero(static_cast<unsigned>(whole_))) {}

 private:
  absl::Status Begin() override {
    if (operation_ != Operation::kAllreduce) return Lacks();
    begin_ = 0;
    round_ = 0;
    adds_ = false;
    Staging(std::min(kSegmentBytes, tensor_.bytes()));
    return absl::OkStatus();
  }

  // Rounds of a segment: 0 hands in, 1 to rounds_ double, the next hands back.
  absl::StatusOr<Advance> Step() override {
    ASSIGN_OR_RETURN(const bool quiet, Quiet());
    if (!quiet) return Advance::kWaiting;
    const int64_t count = std::min<int64_t>(kSegmentBytes / size_, tensor_.elements() - begin_);
    if (count == 0) return Advance::kDone;
    if (adds_) AddTo(tensor_.dtype, At(begin_), Staging(0), count);
    adds_ = false;
    const size_t bytes = count * size_;
    const int round = round_++;
    if (round == rounds_ + 2) {
      squares_ += Measure(tensor_.dtype, At(begin_), count);
      begin_ += count;
      round_ = 0;
    } else if (round == 0 || round == rounds_ + 1) {
      const bool beyond = rank_ >= whole_;
      if (!beyond && rank_ + whole_ >= ranks_) return Advance::kMoved;  // no partner
      const int partner = beyond ? rank_ - whole_ : rank_ + whole_;
      if (beyond == (round == 0)) {
        RETURN_IF_ERROR(Send(At(begin_), bytes, partner));
      } else {
        adds_ = round == 0;
        RETURN_IF_ERROR(Receive(adds_ ? Staging(0) : At(begin_), bytes, partner));
      }
    } else if (rank_ < whole_) {
      const int partner = rank_ ^ 1 << (round - 1);
      RETURN_IF_ERROR(Receive(Staging(0), bytes, partner));
      RETURN_IF_ERROR(Send(At(begin_), bytes, partner));
      adds_ = true;
    }
    return Advance::kMoved;
  }

  const int whole_, rounds_;
  int64_t begin_ = 0;  // of the segment
  int round_ = 0;
  bool adds_ = false;  // what was received
};

}  // namespace

std::unique_ptr<Collective> NewRecursiveDoubling(Communicator& communicator, int tag) {
  return std::make_unique<RecursiveDoubling>(communicator, tag);
}

}  // namespace gyre
