// gradient_order.h: in which order backward finishes the gradients of a net's parameters, and where
// they lie in the buckets that they travel in.
#pragma once

#include <vector>

#include "distributed/collectives/reduction.h"
#include "distributed/gradient_bucket.h"
#include "engine/training/net/plan/touched_tables.h"

namespace gyre {

// The piece of a node's backward (LayerSpec::pieces) that is the last to assign the gradient of a
// state of it.
inline int LastPiece(const LayerSpec& spec, size_t state) {
  return spec.states[state].piece ? spec.states[state].piece->phase : spec.pieces - 1;
}
// Whether a piece of it is handed the gradient of a state: of a parameter that one alone.
inline bool Assigns(const LayerSpec& spec, size_t state, int piece) {
  return spec.states[state].kind != StateKind::kParameter || LastPiece(spec, state) == piece;
}

// A trained parameter's gradient and the bucket it travels in, in the order backward finishes them.
struct BucketedGradient {
  int parameter = 0;  // index into the ParameterSet
  int node = 0;       // after whose backward it is complete, after this piece of it
  int piece = 0;
  int64_t at = 0;  // its first element in the bucket
  int bucket = 0;
};

// The gradients of a training net in completion order, and their buckets: by FitBuckets, or by
// AssignBuckets, each of gradients of one type; a table's has a bucket to itself.
struct GradientOrder {
  std::vector<BucketedGradient> gradients;
  std::vector<GradientBucket> buckets;
  std::vector<int64_t> elements;  // by bucket, the padding between gradients included
  std::vector<DType> dtypes;      // by bucket
};
// The first node that reads a parameter of a bucket in forward: the one after whose backward the
// bucket is complete, as a gradient is after its parameter's first user.
inline int FirstUser(const GradientOrder& order, size_t bucket) {
  return order.gradients[order.buckets[bucket].last - 1].node;
}
GradientOrder OrderGradients(const NetSpec& net, const ParameterSet& parameters,
                             std::span<const TouchedTable> tables, size_t bucket_bytes,
                             bool fit_buckets);

// Elements of a flat tensor.
inline Tensor Slice(const Tensor& flat, int64_t begin, int64_t count) {
  return {static_cast<std::byte*>(flat.data) + begin * static_cast<int64_t>(SizeOf(flat.dtype)),
          Shape({count}), flat.dtype};
}

// What of a parameter lies in a part of a bucket: `count` elements, from `begin` on of the
// parameter's and `at` of the bucket's.
struct ParameterRange {
  int parameter = 0;
  int64_t begin = 0, at = 0, count = 0;
};
std::vector<ParameterRange> PiecesIn(const GradientOrder& order, const ParameterSet& parameters,
                                     int bucket, ElementRange part);

}  // namespace gyre
