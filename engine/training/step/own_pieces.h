// own_pieces.h: what each rank has measured of its shards becomes known to all.
#pragma once

#include "distributed/process_group.h"
#include "engine/training/net/plan/net_plan.h"

namespace gyre {

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
