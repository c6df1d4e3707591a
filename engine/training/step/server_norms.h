// server_norms.h: sums of squares of the gradients of a parameter server in bsp.  Used by the
// stream's thread.  Owners measure their ranges (RunShape::MeasuredRanges) between a step's sums
// and their updates.  All ranks add up all ranges, with the bits of `direct`.
#pragma once

#include <memory>
#include <vector>

#include "distributed/parameter_server/parameter_server.h"
#include "engine/training/net/plan/net_plan.h"

namespace gyre {

class ServerNorms {
 public:
  // The server's rows are on `device`, and `stream` is one of its streams.  All arguments outlive
  // the result.  Precondition: the server is gated, and its tables are the plan's buckets.
  // Errors: those of allocation.
  static absl::StatusOr<std::unique_ptr<ServerNorms>> Create(const NetPlan& plan, Device& device,
                                                             Stream& stream,
                                                             ProcessGroup& communication,
                                                             ParameterServer& server);

  // Blocks until all ranks know the sums of squares.  Precondition: all ranks call it, after all
  // gradients of the step were sent.  Errors: those of ranks.
  absl::Status AddUp();
  // The result, F64 in pinned host memory, by bucket.
  const double* sums() const { return reinterpret_cast<const double*>(sums_.data()); }

 private:
  ServerNorms(const NetPlan& plan, Stream& stream, ProcessGroup& communication,
              ParameterServer& server)
      : plan_(plan), stream_(stream), communication_(communication), server_(server) {}
  absl::Status Measure();

  const NetPlan& plan_;
  Stream& stream_;
  ProcessGroup& communication_;
  ParameterServer& server_;
  struct MeasuredBucket {
    size_t first = 0, count = 0;          // of all ranges: the bucket's
    size_t first_own = 0, count_own = 0;  // and those that this rank owns
  };
  std::vector<MeasuredBucket> buckets_;
  std::vector<double> all_;                    // sums of squares of all ranges
  Buffer ranges_, lanes_, squares_, scratch_;  // device memory, for those that this rank owns
  Buffer sums_;
};

}  // namespace gyre
