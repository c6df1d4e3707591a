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
        whole_(static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks_)))) {}

 private:
  enum class HalvingDoublingStage { kHandIn, kHalve, kMeasure, kDouble, kHandBack, kTotal };

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
    stage_ = HalvingDoublingStage::kHandIn;
    distance_ = whole_ / 2;
    first_ = 0;
    last_ = whole_;
    adding_ = {};
    return absl::OkStatus();
  }

  absl::StatusOr<Advance> Step() override {
    ASSIGN_OR_RETURN(const bool quiet, Quiet());
    if (!quiet) return Advance::kWaiting;
    if (adding_.count() > 0) {  // a segment a pass
      const ElementRange now = FixedPart(adding_, kSegmentBytes / size_, 0);
      AddTo(tensor_.dtype, At(now.begin), Staging(0) + now.begin * size_, now.count());
      adding_.begin = now.end;
      return Advance::kMoved;
    }
    switch (stage_) {
      case HalvingDoublingStage::kHandIn:
        RETURN_IF_ERROR(HandOver(/*in=*/true));
        stage_ = HalvingDoublingStage::kHalve;
        return Advance::kMoved;
      case HalvingDoublingStage::kHalve:
        if (rank_ >= whole_) {
          stage_ = HalvingDoublingStage::kHandBack;
        } else if (distance_ == 0) {
          measuring_ = Parts(rank_, rank_ + 1);
          stage_ = HalvingDoublingStage::kMeasure;
        } else {
          RETURN_IF_ERROR(Halve());
        }
        return Advance::kMoved;
      case HalvingDoublingStage::kMeasure: {
        const ElementRange now = FixedPart(measuring_, kSegmentBytes / size_, 0);
        partials_[rank_] += Measure(tensor_.dtype, At(now.begin), now.count());
        measuring_.begin = now.end;
        distance_ = 1;
        if (measuring_.count() == 0) stage_ = HalvingDoublingStage::kDouble;
        return Advance::kMoved;
      }
      case HalvingDoublingStage::kDouble:
        if (distance_ < whole_) {
          RETURN_IF_ERROR(Double());
        } else {
          stage_ = HalvingDoublingStage::kHandBack;
        }
        return Advance::kMoved;
      case HalvingDoublingStage::kHandBack:
        RETURN_IF_ERROR(HandOver(/*in=*/false));
        stage_ = HalvingDoublingStage::kTotal;
        return Advance::kMoved;
      case HalvingDoublingStage::kTotal:
        break;
    }
    for (const double partial : partials_) squares_ += partial;
    return Advance::kDone;
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
  absl::Status Halve() {
    const int partner = rank_ ^ distance_, middle = first_ + distance_;
    const bool upper = (rank_ & distance_) != 0;
    const ElementRange low = Parts(first_, middle), high = Parts(middle, last_);
    adding_ = upper ? high : low;
    const ElementRange given = upper ? low : high;
    RETURN_IF_ERROR(Receive(Staging(0) + adding_.begin * size_, Bytes(adding_), partner));
    RETURN_IF_ERROR(Send(At(given.begin), Bytes(given), partner));
    (upper ? first_ : last_) = middle;
    distance_ /= 2;
    return absl::OkStatus();
  }

  // Swaps all that this rank has of the sum, which is `distance_` parts.
  absl::Status Double() {
    const int partner = rank_ ^ distance_;
    const bool upper = (rank_ & distance_) != 0;
    const int theirs = upper ? first_ - distance_ : last_;
    const ElementRange mine = Parts(first_, last_);
    const ElementRange other = Parts(theirs, theirs + distance_);
    const size_t partials = distance_ * sizeof(double);
    RETURN_IF_ERROR(Receive(At(other.begin), Bytes(other), partner));
    RETURN_IF_ERROR(Receive(&partials_[theirs], partials, partner));
    RETURN_IF_ERROR(Send(At(mine.begin), Bytes(mine), partner));
    RETURN_IF_ERROR(Send(&partials_[first_], partials, partner));
    first_ = std::min(first_, theirs);
    last_ = first_ + 2 * distance_;
    distance_ *= 2;
    return absl::OkStatus();
  }

  const int whole_;
  HalvingDoublingStage stage_ = HalvingDoublingStage::kTotal;
  int distance_ = 0;
  int first_ = 0, last_ = 0;         // the parts that this rank adds up, or has
  ElementRange adding_, measuring_;  // what is left to do
  std::vector<double> partials_;     // by part
};

}  // namespace

std::unique_ptr<Collective> NewHalvingDoubling(Communicator& communicator, int tag) {
  return std::make_unique<HalvingDoubling>(communicator, tag);
}

}  // namespace gyre
