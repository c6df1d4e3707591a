// attention_plan.h: what attention works on at a time: where query, key, value and output lie, how
// many rows, heads and samples make a part of the work, and the products of each.  Made once a
// shape, apart from the layer, which runs it.
#pragma once

#include <memory>
#include <vector>

#include "layers/attention/attention_rows.h"
#include "layers/interface/infer.h"

namespace gyre {

// The products of a block of rows with so many keys, for all heads and samples of a group.
struct AttentionTile {
  int64_t rows = 0, keys = 0;
  std::unique_ptr<Gemm> scores, output;   // Q K^T, P V
  std::unique_ptr<Gemm> dscores, dquery;  // dY V^T, dS K
  // P^T dY, dS^T Q: added but for the first block of a group.
  std::unique_ptr<Gemm> dvalue, dkey;
};

struct AttentionPlan {
  // Query, key and value are inputs, or parts of one.
  enum Role { kQuery, kKey, kValue, kOutput };
  struct HeadLayout {
    int state;
    int64_t column;  // of the state's, the first
    int64_t rows;    // of a sample
    HeadStrides whole;
    HeadStrides of_group;  // as the products have them: the same, or those of a copy
  };

  DType compute = DType::kF32;
  bool is_packed = false, has_lengths = false, causal = false;
  int axis = 0;                                                                   // of the samples
  int64_t samples = 0, queries = 0, keys = 0, columns = 0, heads = 0, width = 0;  // width: a head's
  bool gradient[3] = {};  // of query, key, value: wanted
  // A group is so many heads of so many samples.
  int64_t group_heads = 0, group_samples = 0, block_rows = 0;
  bool copies = false;  // the products have copies of the group's parts
  // For a GPU: copies, as they are stored, in which the group's matrices are evenly spaced, so that
  // a product is one launch; products of 16 bits have results of F32.
  bool merged = false;
  HeadLayout layouts[4] = {};
  // The last block of rows, then one for each number of keys; width_blocks share one of these.
  std::vector<AttentionTile> blocks;
  int64_t width_blocks = 1;

  // States.
  int lengths() const { return is_packed ? 1 : 3; }
  int output() const { return lengths() + has_lengths; }

  // Whether the gradient of the scores is wanted; of anything.
  bool of_scores() const { return gradient[kQuery] || gradient[kKey]; }
  bool backward() const { return of_scores() || gradient[kValue]; }

  // Bytes of scratch that a product wants.
  size_t product_scratch() const;
};

// Elements that rows and matrices in scratch are rounded up to: 64 bytes of float.
inline constexpr int64_t kAttentionAligned = 16;

// Errors: InvalidArgument where the inputs are none of attention's; the primitives'.
absl::StatusOr<AttentionPlan> PlanAttention(const AttentionConfig& config, const InferInput& input);

}  // namespace gyre
