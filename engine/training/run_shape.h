// run_shape.h: what every part of a run agrees on: how many samples, whose, in which type, and how
// they reach its nets.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "distributed/collectives/algorithms/direct_ranges.h"
#include "distributed/parameter_server/tables.h"
#include "distributed/server_shards.h"
#include "engine/data/batches/decoder.h"
#include "engine/runtime/dtype.h"
#include "models/schema/layer.pb.h"

namespace gyre {

// By which the loss's gradient is multiplied and each update divided.
struct LossScale {
  double initial = 1;
  int64_t growth_interval = 0;  // good steps ahead of a doubling; 0: it stays as it is
  bool dynamic() const { return growth_interval > 0; }
};

inline DType DTypeOf(LayerConfig::Precision precision) {
  switch (precision) {
    case LayerConfig::F64:
      return DType::kF64;
    case LayerConfig::F16:
      return DType::kF16;
    case LayerConfig::BF16:
      return DType::kBF16;
    case LayerConfig::F32:
      break;
  }
  return DType::kF32;
}

struct RunShape {
  int64_t local = 0, global = 0;  // samples a batch: this rank's, and over all ranks
  int rank = 0, ranks = 1;
  int64_t accumulate = 1;       // batches a step: their gradients' mean is one update's
  DType compute = DType::kF32;  // what layers that say nothing store values and parameters in
  DType page_activations = DType::kF32;  // as what activations of F32 are paged out
  uint64_t seed = 1;                     // all random numbers follow from it
  // Of several ranks: each updates a part of each bucket, and has the optimizer's state of it
  // alone.
  bool shard_optimizer = false;
  // Of several ranks: gradients go to a parameter server's owners, who have such a part each, in
  // place of sums (step/server_sync.h); then shard_optimizer is set, too.
  struct Server {
    Sync sync = Sync::kBsp;
    int staleness = 0;            // of ssp
    int dedicated = 0;            // the last so many ranks own parts and run no training batch
    bool in_host_memory = false;  // owners' parts, which they update there
  };
  std::optional<Server> server = {};
  DType wire = DType::kF32;  // of a server: as what gradients of F32 travel
  LossScale loss_scale = {};
  std::optional<double> clip_norm = {};  // the most that the norm of all gradients may be

  // The ranks that share out training batches: the first ones.
  int workers() const { return ranks - (server ? server->dedicated : 0); }
  bool works() const { return rank < workers(); }
  // By how many of a rank's gradients a step updates one after the other, not by their sum.
  int shares() const { return server && server->sync != Sync::kBsp ? workers() : 1; }

  // Of a bucket those elements that each rank updates.
  std::vector<ElementRange> PartsOf(int64_t elements, DType dtype) const {
    if (!shard_optimizer) return std::vector<ElementRange>(ranks, {0, elements});
    std::vector<ElementRange> parts;
    for (int of_rank = 0; of_rank < ranks; ++of_rank) {
      parts.push_back(ServerShard(elements, workers(), ranks - workers(), of_rank));
    }
    if (workers() == ranks || !gated() || server->sync != Sync::kBsp) return parts;
    const std::vector<ElementRange> pieces = MeasuredRanges(elements, dtype);
    for (ElementRange& part : parts) {
      part = {NearestEnd(pieces, part.begin), NearestEnd(pieces, part.end)};
    }
    return parts;
  }

  // Whether no update may begin before all gradients are known.
  bool gated() const { return clip_norm.has_value() || loss_scale.dynamic(); }
  // Of a server: whether each rank clips and skips its own, before it sends them.
  bool gates_alone() const { return server && server->sync != Sync::kBsp && gated(); }
  // Of a server: whether iterations that update, or those that do not, are the first of a step,
  // which takes what the owners have made of the one before.
  bool takes(bool updates) const { return server && updates == (accumulate == 1); }
  // Of a server's bucket of this type: as what its gradients travel.  One rank alone rounds
  // nothing.
  DType SentAs(DType dtype) const { return dtype == DType::kF32 && workers() > 1 ? wire : dtype; }
  // Its sum of squares is that of these, each of which one owner has.
  std::vector<ElementRange> MeasuredRanges(int64_t elements, DType dtype) const {
    if (workers() == 1) return {{0, elements}};
    return DirectRanges(elements, SizeOf(SentAs(dtype)), workers());
  }

 private:
  static int64_t NearestEnd(const std::vector<ElementRange>& pieces, int64_t at) {
    int64_t nearest = 0;
    for (const ElementRange& piece : pieces) {
      if (std::abs(piece.end - at) < std::abs(nearest - at)) nearest = piece.end;
    }
    return nearest;
  }
};

// Of one rank: whether each update comes right behind the backward that completes its gradients.
inline bool UpdatesAtOnce(const RunShape& shape) { return shape.ranks == 1 && !shape.gated(); }

// How an array of a data set reaches the net's input of its name.
struct FedInput {
  std::string name;
  bool label = false;  // I32; else of AccumulateDType of the run's
  Normalization normalization = {};
  std::vector<double> pixel_values = {};  // of an array of bytes: PixelValues of it; else none
  bool augmented = false;                 // in training
};

// How batches reach a net's inputs: array i of a batch is for input i.
struct Feed {
  std::vector<FedInput> inputs;
  Augmentation augmentation = {};  // of those that are augmented, together
  // Samples in contiguous rows (SampleOrder); else shuffled to train, and as they lie to test.
  bool contiguous = false;
  bool bucketed = false;  // shuffled, with samples of like length in a batch
  // Bytes as such, on a stream of their own into device memory of their own, while the step before
  // computes, and from there normalised into the inputs; else as values, straight into the inputs,
  // which is best where the device has the host's memory.
  bool ahead = false;

  // The type of a batch's array.
  DType type(size_t input, DType compute) const {
    if (inputs[input].label) return DType::kI32;
    return ahead && !inputs[input].pixel_values.empty() ? DType::kU8 : AccumulateDType(compute);
  }
};

}  // namespace gyre
