// instruction.h: what an iteration does, step by step.  The trace says what each step touches, and
// the program what it does: NetTrace::program[i] is trace.steps[i].  The planner alone knows modes,
// such as a sharded optimizer: it emits other instructions.  One loop executes them (Net::Run).
#pragma once

#include <cstdint>

namespace gyre {

enum class InstructionKind : uint8_t {
  // Of the net.  `of` is a node, and `piece` a slice of it.
  kForward,
  kForwardAgain,  // its outputs, for backward
  kBackward,
  kCarry,       // of: index into NetSpec::carried.  Its rows go on to the next batch.
  kSumTerms,    // of: NetTrace::gradient_sums' index
  kSeedLosses,  // the gradients of losses

  // Of a step.  `of` is a bucket, where one is told.
  kUpload,           // the step's scalars and its batch come to the device
  kAwait,            // blocks until the values that the next layer reads have come
  kMeasure,          // the sum of squares of its gradients
  kScale,            // clips its gradients, or marks them as not to be used, before they are sent
  kBegin,            // its exchange begins: a sum over ranks, or sending it to a server's owners
  kPoll,             // applies what has come of all exchanges
  kFinish,           // blocks until its sum, or this rank's shard of it, has come
  kMeasureGradient,  // the pieces that a tile has of whole gradients' norms, for the log
  kMeasureChange,    // the pieces that a tile has of whole parameters' norms
  kUpdate,           // piece: a tile
  kGather,           // this rank's shard of new values begins to go to all ranks
  kReceive,          // blocks until all ranks' new values of it have come, and takes them
  kTakeValues,       // copies values that have come to the parameters
  kAddNorms,    // tells all ranks the sums of squares of all shards
  kAddChanges,  // tells all ranks the pieces of all shards
  kUploadNorms,
  kGate,   // decides whether to clip or skip
  kClock,  // ends a server's step; its owners update as the gate says, where there is one
  kReport,
};

struct Instruction {
  InstructionKind kind;
  int of = -1;
  int piece = 0;
};

inline bool IsOfNet(InstructionKind kind) { return kind <= InstructionKind::kSeedLosses; }

}  // namespace gyre
