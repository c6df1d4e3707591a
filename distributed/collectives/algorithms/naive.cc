// naive.cc: every rank sends to rank 0, which adds in rank order and sends back.
//
// The plainest sum: an oracle for the other algorithms and the peer they are measured against.  One
// segment after the other goes to the root and back; after them its sum of squares comes back.
// Halves are added in F32 and rounded once.

#include <algorithm>

#include "distributed/collectives/algorithms/algorithms.h"

namespace gyre {
namespace {

class Naive final : public Collective {
 public:
  using Collective::Collective;

 private:
  bool is_root() const { return rank_ == 0; }
  std::byte* Slot(int from) { return Staging(0) + (from - 1) * kSegmentBytes; }

  absl::Status Begin() override {
    if (operation_ != Operation::kAllreduce) return Lacks();
    if (is_root()) Staging((ranks_ - 1) * kSegmentBytes);
    begin_ = 0;
    handed_in_ = squares_told_ = false;
    return absl::OkStatus();
  }

  absl::StatusOr<Advance> Step() override {
    ASSIGN_OR_RETURN(const bool quiet, Quiet());
    if (!quiet) return Advance::kWaiting;
    if (squares_told_) return Advance::kDone;
    const int64_t count = std::min<int64_t>(kSegmentBytes / size_, tensor_.elements() - begin_);
    const size_t bytes = count * size_;
    if (count == 0) {
      RETURN_IF_ERROR(Return(&squares_, sizeof(squares_)));
      squares_told_ = true;
    } else if (!handed_in_) {
      if (!is_root()) RETURN_IF_ERROR(Send(At(begin_), bytes, 0));
      for (int from = 1; is_root() && from < ranks_; ++from) {
        RETURN_IF_ERROR(Receive(Slot(from), bytes, from));
      }
      handed_in_ = true;
    } else {
      if (is_root()) Add(count);
      RETURN_IF_ERROR(Return(At(begin_), bytes));
      begin_ += count;
      handed_in_ = false;
    }
    return Advance::kMoved;
  }

  void Add(int64_t count) {
    inputs_.assign(1, At(begin_));
    for (int from = 1; from < ranks_; ++from) inputs_.push_back(Slot(from));
    void* const output = At(begin_);
    squares_ += AddAll(tensor_.dtype, inputs_, {&output, 1}, count);
  }

  absl::Status Return(void* data, size_t bytes) {
    if (!is_root()) return Receive(data, bytes, 0);
    for (int to = 1; to < ranks_; ++to) RETURN_IF_ERROR(Send(data, bytes, to));
    return absl::OkStatus();
  }

  int64_t begin_ = 0;       // of the segment
  bool handed_in_ = false;  // the segment, to the root
  bool squares_told_ = false;
  std::vector<const void*> inputs_;
};

}  // namespace

std::unique_ptr<Collective> NewNaive(Communicator& communicator, int tag) {
  return std::make_unique<Naive>(communicator, tag);
}

}  // namespace gyre
