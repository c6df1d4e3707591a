// attention_plan.h: how attention splits its work.  Made once for a shape.  The layer runs it.
//
// Terms:
//   group  some heads of some samples
//   tile   some query rows (tile_rows) and the keys that they see, for all matrices of a group
#pragma once

#include <memory>
#include <vector>

#include "layers/attention/attention_rows.h"
#include "layers/interface/infer.h"

namespace gyre {

struct AttentionTile {
  int64_t rows = 0, keys = 0;
  std::unique_ptr<Gemm> scores, output;   // Q K^T, P V
  std::unique_ptr<Gemm> dscores, dquery;  // dY V^T, dS K
  std::unique_ptr<Gemm> dvalue, dkey;  // P^T dY, dS^T Q; a group's first tile assigns, others add
};

struct AttentionPlan {
  // Query, key and value are inputs, or slices of one.
  enum Role { kQuery, kKey, kValue, kOutput };
  struct HeadLayout {
    int state;
    int64_t column;  // first column in the state
    int64_t rows;    // of a sample
    HeadStrides whole;
    HeadStrides of_group;  // for the products; equal to `whole` unless they use a copy
  };

  DType compute = DType::kF32;
  bool is_packed = false, has_lengths = false, causal = false;
  int axis = 0;                                                                   // of the samples
  int64_t samples = 0, queries = 0, keys = 0, columns = 0, heads = 0, width = 0;  // width: a head's
  bool gradient[3] = {};  // needed, of query, key and value
  int64_t group_heads = 0, group_samples = 0, tile_rows = 0;
  bool copies = false;  // the products use copies of the group's slices
  // For a GPU.  Copies have the stored type, and a group's matrices are evenly spaced in them, so a
  // product is one launch.  Products of 16 bits have results of F32.
  bool merged = false;
  HeadLayout layouts[4] = {};
  std::vector<AttentionTile> tiles;  // the last rows' tile, then one for each number of keys
  int64_t width_tiles = 1;           // consecutive tiles that share a number of keys

  // States.
  int lengths() const { return is_packed ? 1 : 3; }
  int output() const { return lengths() + has_lengths; }

  // Whether the gradient of the scores, or any gradient, is needed.
  bool of_scores() const { return gradient[kQuery] || gradient[kKey]; }
  bool backward() const { return of_scores() || gradient[kValue]; }

  size_t product_scratch() const;  // most bytes of a product
};

// Elements (64 bytes of float) of which rows and matrices in scratch are a multiple.
inline constexpr int64_t kAttentionAligned = 16;

// Errors: InvalidArgument for inputs that attention does not take, and the primitives'.
absl::StatusOr<AttentionPlan> PlanAttention(const AttentionConfig& config, const InferInput& input);

}  // namespace gyre
