// naive_allreduce.h: every rank sends to rank 0, which adds in rank order and sends back.
//
// The plainest sum: an oracle for the other algorithms and the peer they are measured against.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "distributed/allreduce.h"
#include "distributed/communicator.h"
#include "distributed/reduction.h"

namespace gyre {

// One segment after the other goes to the root and back; after them its sum of squares comes back.
// Cost: 2(n-1) S bytes through the root's link; (n-1) segments of memory there.
class NaiveAllreduce final : public Allreduce {
 public:
  explicit NaiveAllreduce(Communicator& communicator);

  absl::Status Start(Tensor inout) override;
  absl::StatusOr<Advance> Progress(double* sum_of_squares) override;

 private:
  // Of one segment: its values travel to the root, its sum travels back.
  enum class Stage { kBegin, kToRoot, kFromRoot };

  bool is_root() const { return communicator_.rank() == 0; }
  // The last "segment" is the sum of squares, which only travels back.
  bool IsPartial() const { return segment_ == segments_; }
  void* Address();
  size_t Bytes() const;
  absl::StatusOr<Advance> Begin();
  absl::StatusOr<Advance> Collect();
  absl::Status StartReturn();
  absl::StatusOr<Advance> Return(double* sum_of_squares);

  Communicator& communicator_;
  const int ranks_;

  Tensor tensor_;
  int64_t segment_elements_ = 0, segments_ = 0;
  int64_t segment_ = 0;  // under way
  ElementRange elements_;
  Stage stage_ = Stage::kBegin;
  bool running_ = false;
  double partial_ = 0;
  // Under way, oldest first: at the root one a rank, in rank order; elsewhere one.
  std::vector<Request> requests_;
  size_t requests_done_ = 0;
  std::unique_ptr<std::byte[]> staging_;  // at the root: ranks 1, 2, ...
  size_t staging_bytes_ = 0;
};

}  // namespace gyre
