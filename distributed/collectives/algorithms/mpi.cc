// mpi.cc: MPI_Iallreduce, the library's own sum, on a duplicate of the communicator for each lane:
// MPI matches the sums of a communicator by their order, which lanes do not have among each other.
//
// The library chooses algorithm and order of additions; halves are rounded at each.  Claims go
// round a ring of all ranks first, because what means different things must not meet in MPI's sum.

#include <mpi.h>

#include <algorithm>

#include "distributed/collectives/algorithms/algorithms.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "distributed/transport/open_mpi.h"

namespace gyre {
namespace {

// MPI counts in int; far beyond any bucket.
constexpr int64_t kMostElements = 1 << 28;

template <DType dtype>
void AddHalves(void* addend, void* sum, int* count, MPI_Datatype*) {
  AddTo(dtype, sum, addend, *count);
}

class Mpi final : public Collective {
 public:
  using Collective::Collective;

  // Blocks until all ranks have come here, or for the communicator's time limit.  `all`: null if
  // there is one rank, which sums nothing.  What is made here goes with MPI_Finalize.
  absl::Status Open(const MPI_Comm* all) {
    if (ranks_ == 1) return absl::OkStatus();
    RETURN_IF_ERROR(
        CheckMpi(MPI_Op_create(AddHalves<DType::kF16>, /*commute=*/1, &add_f16_), "MPI_Op_create"));
    RETURN_IF_ERROR(CheckMpi(MPI_Op_create(AddHalves<DType::kBF16>, /*commute=*/1, &add_bf16_),
                             "MPI_Op_create"));
    RETURN_IF_ERROR(CheckMpi(MPI_Comm_idup(*all, &all_, &request_), "MPI_Comm_idup"));
    wait_.Reset();
    for (Backoff backoff;; backoff.Pause()) {
      ASSIGN_OR_RETURN(const bool done, IsDone());
      if (done) return absl::OkStatus();
    }
  }

 private:
  absl::Status Begin() override {
    if (operation_ != Operation::kAllreduce) return Lacks();
    summed_ = ranks_ == 1 ? tensor_.elements() : 0;
    asked_ = summed_;
    measured_ = 0;
    agreed_ = false;
    return Announce();
  }

  absl::StatusOr<Advance> Step() override {
    if (!agreed_) {
      ASSIGN_OR_RETURN(agreed_, Settled());
      if (!agreed_) return Advance::kWaiting;
    }
    if (asked_ > summed_) {
      ASSIGN_OR_RETURN(const bool done, IsDone());
      if (!done) return Advance::kWaiting;
      summed_ = asked_;
      return Advance::kMoved;
    }
    if (summed_ < tensor_.elements()) {
      RETURN_IF_ERROR(Sum(std::min(kMostElements, tensor_.elements() - summed_)));
      return Advance::kMoved;
    }
    const ElementRange now = FixedPart({measured_, tensor_.elements()}, kSegmentBytes / size_, 0);
    if (now.count() == 0) return Advance::kDone;
    squares_ += Measure(tensor_.dtype, At(now.begin), now.count());
    measured_ = now.end;
    return Advance::kMoved;
  }

  absl::Status Sum(int64_t count) {
    MPI_Datatype type = MPI_UINT16_T;
    MPI_Op op = tensor_.dtype == DType::kF16 ? add_f16_ : add_bf16_;
    if (IsComputeType(tensor_.dtype)) {
      type = tensor_.dtype == DType::kF64 ? MPI_DOUBLE : MPI_FLOAT;
      op = MPI_SUM;
    }
    RETURN_IF_ERROR(CheckMpi(MPI_Iallreduce(MPI_IN_PLACE, At(summed_), static_cast<int>(count),
                                            type, op, all_, &request_),
                             "MPI_Iallreduce"));
    asked_ = summed_ + count;
    wait_.Reset();
    return absl::OkStatus();
  }

  // Of request_.
  absl::StatusOr<bool> IsDone() {
    int done = 0;
    RETURN_IF_ERROR(CheckMpi(MPI_Test(&request_, &done, MPI_STATUS_IGNORE), "MPI_Test"));
    if (done) return true;
    RETURN_IF_ERROR(wait_.Look(communicator_, kNobody));
    return false;
  }

  MPI_Comm all_ = MPI_COMM_NULL;
  MPI_Op add_f16_ = MPI_OP_NULL, add_bf16_ = MPI_OP_NULL;
  MPI_Request request_ = MPI_REQUEST_NULL;
  bool agreed_ = false;
  int64_t asked_ = 0, summed_ = 0, measured_ = 0;  // elements
  PolledWait wait_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewMpi(Communicator& communicator, int tag) {
  const auto* const all = static_cast<const MPI_Comm*>(communicator.native());
  if (all == nullptr && communicator.size() > 1) {
    return CheckAllreduce("mpi", std::nullopt, /*threads=*/true);
  }
  auto mpi = std::make_unique<Mpi>(communicator, tag);
  if (absl::Status status = mpi->Open(all); !status.ok()) {
    static_cast<void>(mpi.release());  // the library may still write to it
    return status;
  }
  return mpi;
}

}  // namespace gyre
