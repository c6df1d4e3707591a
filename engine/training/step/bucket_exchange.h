// bucket_exchange.h: the seam between a step's program and what exchanges its buckets.  Each
// function does what the instruction of its name says.  Of these a program has only those that its
// exchange knows (InstructionKind).  Used by the compute stream's thread.  What blocks returns the
// errors of ranks.
//
// In every exchange a gradient goes to who updates (a sum, its first half, or a push), the owners
// update, and new values come back (nothing, the second half, or a pull):
//   one rank           this class
//   sum over ranks     each rank owns all
//   sharded optimizer  each rank owns its shard
//   parameter server   owners have the shards of workers, and perhaps no batch (ServerSync)
#pragma once

#include <functional>
#include <memory>

#include "distributed/process_group.h"
#include "engine/training/model/model.h"
#include "engine/training/optimizers/optimizer.h"

namespace gyre {

class BucketExchange {
 public:
  virtual ~BucketExchange() = default;

  // Called before each iteration, with its step's number.  May block at the first.
  virtual absl::Status Start(int64_t) { return absl::OkStatus(); }
  // Precondition: the bucket's gradients are on the compute stream.
  virtual absl::Status Begin(int) { return Unknown(); }
  virtual absl::Status Await(int) { return Unknown(); }
  virtual absl::Status Poll() { return Unknown(); }
  virtual absl::Status Finish(int) { return Unknown(); }
  // Enqueues the copy of a finished sum to where the update reads it, the same each time.
  virtual absl::Status Bring(int, const Tensor&) { return absl::OkStatus(); }
  virtual absl::Status Gather(int) { return Unknown(); }
  virtual absl::Status Receive(int) { return Unknown(); }
  virtual absl::Status AddNorms() { return Unknown(); }
  virtual absl::Status UploadNorms() { return Unknown(); }
  // The gate's results, in device memory.
  virtual absl::Status Clock(const UpdateScalars*, const GradientReport*) { return Unknown(); }

  // Takes in the sums that are under way, on which an iteration's result depends.
  virtual absl::Status TakeSums() { return absl::OkStatus(); }
  // The range of a bucket whose parameters this rank's update has made new.
  virtual ElementRange updated(int) const { return {}; }

  // Sets a dynamic loss scale where a run resumes, before Start.
  virtual void SetLossScale(const LossScaleState&) {}
  // Likewise, the groups of parameters.
  virtual void SetGroups(const UpdateGroups&) {}
  // After the same step on all ranks, with nothing in flight.  Gives all ranks all parameters.
  virtual absl::Status Settle() { return absl::OkStatus(); }
  // Ends the exchange, after Settle.
  virtual absl::Status Stop() { return absl::OkStatus(); }
  // Replaces both if all ranks found that nothing can follow, some a step later than others.
  virtual absl::Status Abandon() { return absl::OkStatus(); }

 private:
  static absl::Status Unknown() { return absl::InternalError("no instruction of this exchange"); }
};

// Called where a bucket's exchange has come: enqueues what NetTrace::on_arrival says.  `squares` is
// not finite if its sum is not.
using TakeIn = std::function<absl::Status(int bucket, double squares)>;
// The learning rate of a step.  Only a server's owners use it, as another rank may be ahead.
using RateOfStep = std::function<double(int64_t step)>;

// The exchange of the model's shape, for a player's steps.  All arguments outlive the result.
// Errors: those of allocation.
absl::StatusOr<std::unique_ptr<BucketExchange>> NewExchange(
    const Model& model, int player, const Optimizer& optimizer, RateOfStep learning_rate,
    Device& device, Stream& compute, ProcessGroup& communication, TakeIn take_in);

// Sums numbers of pieces (ParameterPieces) over ranks, as many for each piece.  A rank's count
// where its shard has the piece, and others are taken for 0, so that all get the bits that the
// owner has.  Without shards each rank tells of an equal part of every bucket.  Blocks on all
// ranks. Errors: those of ranks.
absl::Status SumOwnPieces(std::string_view what, const NetPlan& net, ProcessGroup& communication,
                          std::span<double> numbers);

// Likewise the PieceSquares in `norms`, the stream's memory of NormsBytes.
absl::Status SumOwnChanges(const NetPlan& net, ProcessGroup& communication, Stream& stream,
                           std::byte* norms);

}  // namespace gyre
