// halving_doubling.cc: halves are swapped and added with partners p/2, ..., 2, 1 away, until each
// rank has a part of the sum; then parts are swapped in the other direction.
//
// Of n ranks, p = the largest power of two take part; rank p + r hands its values to rank r first
// and gets the result last.  2 lg p (+ 2) latencies, 2(p-1)/p S bytes (+ S): few messages of the
// least bytes, where the links between all ranks are equal.
// Source: Rabenseifner 2004, "Optimization of collective reduction operations".

#include <algorithm>
#include <bit>

#include "distributed/collectives/algorithms/algorithms.h"

namespace gyre {
namespace {

class HalvingDoubling final : public Collective {
 public:
  HalvingDoubling(Communicator& communicator, int tag)
      : Collective(communicator, tag),
        whole_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks_)))),
        rounds_(std::countr_zero(static_cast<unsigned>(whole_))) {}

 private:
  // Parts [first, last) of whole_.
  ElementRange Parts(int first, int last) const {
    return {EqualPart(tensor_.elements(), whole_, first).begin,
            EqualPart(tensor_.elements(), whole_, last - 1).end};
  }
  size_t Bytes(ElementRange range) const { return range.count() * size_; }

  absl::Status Begin() override {
    if (operation_ != Operation::kAllreduce) return Lacks();
    Staging(tensor_.bytes());
    partials_.assign(whole_, 0);
    round_ = 0;
    first_ = 0;
    last_ = whole_;
    adding_ = {};
    if (rank_ < whole_) measuring_ = Parts(rank_, rank_ + 1);
    return absl::OkStatus();
  }

  // Round 0 hands in, rounds_ halve, one measures, rounds_ double, and the last hands back.
  absl::StatusOr<Advance> Step() override {
    ASSIGN_OR_RETURN(const bool quiet, Quiet());
    if (!quiet) return Advance::kWaiting;
    if (adding_.count() > 0) {  // a segment a pass
      const ElementRange now = FixedPart(adding_, kSegmentBytes / size_, 0);
      AddTo(tensor_.dtype, At(now.begin), Staging(0) + now.begin * size_, now.count());
      adding_.begin = now.end;
      return Advance::kMoved;
    }
    const int round = round_++, measuring = rounds_ + 1, last = 2 * rounds_ + 2;
    if (round > last) {
      for (const double partial : partials_) squares_ += partial;
      return Advance::kDone;
    }
    if (round == 0 || round == last) {
      RETURN_IF_ERROR(HandOver(/*in=*/round == 0));
    } else if (rank_ >= whole_) {
      return Advance::kMoved;
    } else if (round < measuring) {
      RETURN_IF_ERROR(Halve(whole_ >> round));
    } else if (round > measuring) {
      RETURN_IF_ERROR(Double(1 << (round - measuring - 1)));
    } else {
      const ElementRange now = FixedPart(measuring_, kSegmentBytes / size_, 0);
      partials_[rank_] += Measure(tensor_.dtype, At(now.begin), now.count());
      measuring_.begin = now.end;
      if (measuring_.count() > 0) round_ = round;
    }
    return Advance::kMoved;
  }

  absl::Status HandOver(bool in) {
    const bool beyond = rank_ >= whole_;
    if (!beyond && rank_ + whole_ >= ranks_) return absl::OkStatus();
    const int partner = beyond ? rank_ - whole_ : rank_ + whole_;
    const size_t partials = partials_.size() * sizeof(double);
    if (beyond == in) {
      RETURN_IF_ERROR(Send(At(0), tensor_.bytes(), partner));
      return in ? absl::OkStatus() : Send(partials_.data(), partials, partner);
    }
    RETURN_IF_ERROR(Receive(in ? Staging(0) : At(0), tensor_.bytes(), partner));
    if (!in) return Receive(partials_.data(), partials, partner);
    adding_ = {0, tensor_.elements()};
    return absl::OkStatus();
  }

  // Gives away the half in which this rank's part is not.
  absl::Status Halve(int distance) {
    const int partner = rank_ ^ distance, middle = first_ + distance;
    const bool upper = (rank_ & distance) != 0;
    const ElementRange low = Parts(first_, middle), high = Parts(middle, last_);
    adding_ = upper ? high : low;
    const ElementRange given = upper ? low : high;
    RETURN_IF_ERROR(Receive(Staging(0) + adding_.begin * size_, Bytes(adding_), partner));
    RETURN_IF_ERROR(Send(At(given.begin), Bytes(given), partner));
    (upper ? first_ : last_) = middle;
    return absl::OkStatus();
  }

  // Swaps all that this rank has of the sum, which is `distance` parts.
  absl::Status Double(int distance) {
    const int partner = rank_ ^ distance;
    const bool upper = (rank_ & distance) != 0;
    const int theirs = upper ? first_ - distance : last_;
    const ElementRange mine = Parts(first_, last_);
    const ElementRange other = Parts(theirs, theirs + distance);
    const size_t partials = distance * sizeof(double);
    RETURN_IF_ERROR(Receive(At(other.begin), Bytes(other), partner));
    RETURN_IF_ERROR(Receive(&partials_[theirs], partials, partner));
    RETURN_IF_ERROR(Send(At(mine.begin), Bytes(mine), partner));
    RETURN_IF_ERROR(Send(&partials_[first_], partials, partner));
    first_ = std::min(first_, theirs);
    last_ = first_ + 2 * distance;
    return absl::OkStatus();
  }

  const int whole_, rounds_;
  int round_ = 0;
  int first_ = 0, last_ = 0;         // the parts that this rank adds up, or has
  ElementRange adding_, measuring_;  // what is left to do
  std::vector<double> partials_;     // by part
};

}  // namespace

std::unique_ptr<Collective> NewHalvingDoubling(Communicator& communicator, int tag) {
  return std::make_unique<HalvingDoubling>(communicator, tag);
}

}  // namespace gyre
