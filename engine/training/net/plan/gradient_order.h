// gradient_order.h: in which order backward completes gradients, and their ranges in buckets.  Also
// the embedding tables of whose gradient a step touches few rows.  Only these rows may be sent.  If
// the table is lazy or the optimizer has no state, only they are updated.  Pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "distributed/collectives/reduction.h"
#include "distributed/gradient_bucket.h"
#include "engine/training/net/infer/net_spec.h"
#include "engine/training/step_scalars.h"

namespace gyre {

// The first and the last node that use a parameter.  Backward reaches the first one last.
struct ParameterUsers {
  int first = -1, last = -1;
};
std::vector<ParameterUsers> UsersOfParameters(const NetSpec& net, size_t parameters);

struct TouchedTable {
  int parameter = 0;          // index into the ParameterSet
  int node = 0, indices = 0;  // the node and its state that names rows
  DType dtype = DType::kF32;
  int64_t rows = 0, width = 0;  // of the table
  int64_t batch_indices = 0;    // of a batch, on the rank with most samples
  int64_t step_indices = 0;     // of all batches of a step
  bool sent_by_rows = false;    // else the whole gradient is summed
};

// Rows are sent if all ranks', with repetitions, are at most 1/kWorthwhilePart of the table.  On
// one host, rows take some eight passes (to pinned memory, to all ranks, added, and back).  A
// shared sum takes three over the table.  Between hosts, rows send an eighth of its bytes.
inline constexpr int64_t kWorthwhilePart = 4;

// Returns tables that are lazy, or sent by rows if `can_send_rows` says that ranks can.  Without
// optimizer slots, also tables with more rows than a step can touch, as others may not change.
// Tables that several layers use are left out.
// Errors: InvalidArgument, at the layer, for a lazy table that other layers use too.
absl::StatusOr<std::vector<TouchedTable>> TouchedTables(const Parsed<NetConfig>& config,
                                                        const NetSpec& net,
                                                        const ParameterSet& parameters,
                                                        bool can_send_rows, bool has_slots);

// The last slice of a node's backward (LayerSpec::slices) that assigns the gradient of `state`.
inline int LastSlice(const LayerSpec& spec, size_t state) {
  return spec.states[state].slice ? spec.states[state].slice->phase : spec.slices - 1;
}
// Whether a slice of backward is handed a state's gradient.  A parameter's has only LastSlice.
inline bool Assigns(const LayerSpec& spec, size_t state, int slice) {
  return spec.states[state].kind != StateKind::kParameter || LastSlice(spec, state) == slice;
}

// A trained parameter's gradient and its bucket.  Slice `slice` of `node`'s backward completes it.
struct BucketedGradient {
  int parameter = 0;  // index into the ParameterSet
  int node = 0;
  int slice = 0;
  int64_t count = 0;  // elements of the parameter's storage
  int64_t at = 0;     // the first one in the bucket
  int bucket = 0;
};

// A bucket has a range of gradients, and in a turn of another player none.
struct PlannedBucket : GradientBucket {
  bool trains() const { return first < last; }
  DType dtype = DType::kF32;
  // The slice of a node's backward that completes it.  No node before reads its parameters.
  int node = -1, slice = 0;
  int64_t elements = 0;                  // the padding between gradients included
  std::vector<ElementRange> parts = {};  // by rank: the shard that it updates
};

// A training net's gradients in the order of completion, in buckets of one type, by FitBuckets or
// AssignBuckets.  A table's gradient has a bucket of its own.
struct GradientOrder {
  std::vector<BucketedGradient> gradients;
  std::vector<PlannedBucket> buckets;
};
// The gradient of a trained parameter.
const BucketedGradient& GradientOf(const GradientOrder& order, int parameter);
GradientOrder OrderGradients(const NetSpec& net, const ParameterSet& parameters,
                             std::span<const TouchedTable> tables, size_t bucket_bytes,
                             bool fit_buckets);

// What of `all`, the order of the whole net, trains in the net of a turn.  Buckets and places stay.
GradientOrder OrderOfTurn(const NetSpec& turn, const ParameterSet& parameters,
                          const GradientOrder& all);

inline Tensor Slice(const Tensor& flat, int64_t begin, int64_t count) {
  return {static_cast<std::byte*>(flat.data) + begin * static_cast<int64_t>(SizeOf(flat.dtype)),
          Shape({count}), flat.dtype};
}

// `count` elements of a parameter, from `begin` on in the parameter and `at` in the bucket.
struct ParameterRange {
  int parameter = 0;
  int64_t begin = 0, at = 0, count = 0;
};
// The names of a bucket's parameters.
std::vector<std::string> NamesIn(const GradientOrder& order, const ParameterSet& parameters,
                                 int bucket);
// The ranges of parameters in the range `part` of a bucket.
std::vector<ParameterRange> RangesIn(const GradientOrder& order, int bucket, ElementRange part);

// A range of a parameter within one EqualPart of its bucket.  It is cut from its beginning into
// pieces, in which whole parameters are measured.  Cells, pieces and `before` are ParameterNorms'.
struct MeasuredPart : ParameterRange {
  int64_t before = 0, columns = 0;
  int64_t piece = 0;  // number of the first one, of all parameters
  int gradient = 0;   // index into the order's
};

// Pieces follow from the number of workers alone.  A shard, an owner's part and a tile hold whole
// pieces, so every way to cut an update has the same bits.
struct ParameterPieces {
  std::vector<std::vector<MeasuredPart>> parts = {};  // by bucket, in order
  std::vector<ElementRange> of_gradient = {};         // by gradient: its parameter's pieces
  int64_t count = 0;                                  // of all
};

// Without parts unless the shape measures.
ParameterPieces CutIntoPieces(const GradientOrder& order, const RunShape& shape);

// The elements of a piece that is not a part's last.
int64_t PieceElements(const RunShape& shape, DType dtype);

// The ranges of parameters in a range of a bucket, each of one of its parts if it has parts.  What
// is measured must cut no piece.
std::vector<MeasuredPart> PartsIn(const GradientOrder& order, const ParameterPieces& pieces,
                                  int bucket, ElementRange range);

// The numbers of the pieces that a range of a bucket has, which cuts none.
std::vector<ElementRange> PiecesIn(const GradientOrder& order, const ParameterPieces& pieces,
                                   int bucket, ElementRange range);

// Where a part is measured and finds its parameter's norms, in `memory` of NormsBytes.
ParameterNorms NormsOf(const ParameterPieces& pieces, const MeasuredPart& part, std::byte* memory);

// In `memory` of NormsBytes, by piece: the squares of gradients for the log.
double* LoggedSquares(const ParameterPieces& pieces, std::byte* memory);

// Device memory for all PieceSquares, a ratio of each gradient's parameter, and what is logged.
inline size_t NormsBytes(const ParameterPieces& pieces) {
  return static_cast<size_t>(pieces.count) * (sizeof(PieceSquares) + sizeof(double)) +
         pieces.of_gradient.size() * sizeof(double);
}

}  // namespace gyre
