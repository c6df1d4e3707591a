// run_shape.h: the numbers, ranks and types that all parts of a run agree on, and how samples reach
// its nets.  Values.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "distributed/collectives/reduction.h"
#include "distributed/parameter_server/tables.h"
#include "engine/data/batches/batch_loader_options.h"
#include "engine/runtime/dtype.h"
#include "models/schema/layer.pb.h"

namespace gyre {

class NetConfig;
class TrainerConfig;

// The factor of the loss's gradient.  Updates divide by it.
struct LossScale {
  double initial = 1;
  int64_t growth_interval = 0;  // good steps before it doubles; 0: it is fixed
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
  int64_t local = 0, global = 0;  // samples of a batch, on this rank and over all
  int rank = 0, ranks = 1;
  int64_t accumulate = 1;       // batches of a step; an update uses their mean gradient
  DType compute = DType::kF32;  // type of values and parameters, unless a layer has its own
  DType page_activations = DType::kF32;  // type of paged-out activations of F32
  uint64_t seed = 1;                     // all random numbers follow from it
  // With several ranks, each updates a shard of each bucket and has only its optimizer state.
  bool shard_optimizer = false;
  // With several ranks, gradients are sent to the owners of a parameter server instead of summed
  // (step/server_sync.h).  Each owner has such a shard, and shard_optimizer is set too.
  struct Server {
    Sync sync = Sync::kBsp;
    int staleness = 0;            // for ssp
    int dedicated = 0;            // the number of servers, which are the last ranks
    bool in_host_memory = false;  // owners hold and update their shards there
  };
  std::optional<Server> server = {};
  DType wire = DType::kF32;  // wire type of F32 gradients to a server
  LossScale loss_scale = {};
  std::optional<double> clip_norm = {};  // bound of the norm of all gradients
  bool scales_by_norms = false;          // the optimizer does (Optimizer)
  int64_t log_norms_every = 0;           // steps; 0: never
  // Whose turns steps are, one after another.  Empty: all that trains does so in each step.
  struct Player {
    std::string name;
    std::vector<std::string> layers, losses;  // PlayerConfig
    int64_t steps = 1;
    static bool Matches(absl::string_view pattern, absl::string_view layer);
    bool trains(absl::string_view layer) const;
  };
  std::vector<Player> players = {};
  int turn = -1;  // the player whose net it is; -1: of all
  // The steps from which parameters train in this phase of a run (StateSpec::trainable_from): 0
  // and, ascending, those done by its first step, which the last of them is.
  std::vector<int64_t> trainable_from = {0};

  int64_t first_step() const { return trainable_from.back(); }
  // The group of a parameter that trains, an index into trainable_from.
  int GroupOf(int64_t from) const;

  // The ranks that train, which are the first ones.
  int workers() const { return ranks - (server ? server->dedicated : 0); }
  bool works() const { return rank < workers(); }
  // The number of updates in a step.  With ssp and async each worker's gradients are an update.
  int shares() const { return server && server->sync != Sync::kBsp ? workers() : 1; }

  // By rank, the range of a bucket that it updates.
  std::vector<ElementRange> ShardsOf(int64_t elements, DType dtype) const;
  // Whether updates must wait for all gradients.
  bool gated() const {
    return clip_norm.has_value() || loss_scale.dynamic() || (scales_by_norms && shard_optimizer) ||
           (server && LogsGradients());
  }
  // The player whose turn a step is, or 0 without players, and the step's number among the
  // player's.
  struct PlayerTurn {
    int player;
    int64_t step;  // from 0
  };
  PlayerTurn TurnAt(int64_t step) const;
  // The player that trains a layer, or -1 if none does.
  int PlayerOf(absl::string_view layer) const;
  // Whether norms are logged after so many steps.
  bool LogsNorms(int64_t steps) const {
    return log_norms_every > 0 && steps % log_norms_every == 0;
  }
  // Whether norms of gradients may be: a stale server adds no gradients of a step.
  bool LogsGradients() const { return log_norms_every > 0 && StepTogether(); }
  // Whether whole parameters or their gradients are measured in pieces.
  bool measures() const { return scales_by_norms || LogsGradients(); }
  // Whether all ranks are in the same step, or the next.
  bool StepTogether() const { return !server || server->sync == Sync::kBsp; }
  // Whether each worker of a server clips and skips its own gradients before it sends them.
  bool gates_alone() const { return server && server->sync != Sync::kBsp && gated(); }
  // The wire type of a server's bucket.  A single worker rounds nothing.
  DType WireType(DType dtype) const { return dtype == DType::kF32 && workers() > 1 ? wire : dtype; }
  // A bucket's sum of squares is the sum over these ranges.  Each has one owner.
  std::vector<ElementRange> MeasuredRanges(int64_t elements, DType dtype) const;
};

// The trainer's settings.  The planner sets `local`.
RunShape ShapeOf(const TrainerConfig& config, const NetConfig& net, int rank, int ranks);
// The precision of layers without one of their own.
DType PrecisionOf(const TrainerConfig& config, const NetConfig& net);
// The wire type that the text names.
DType WireOf(const TrainerConfig& config);

// Whether an update follows the backward step that completes its gradients.  One rank only.
inline bool UpdatesAtOnce(const RunShape& shape) { return shape.ranks == 1 && !shape.gated(); }

// How an array of a data set becomes the net's input of its name.
struct FedInput {
  std::string name;
  bool label = false;  // I32; else AccumulateDType of the run's type
  Normalization normalization = {};
  std::vector<double> pixel_values = {};  // PixelValues of an array of bytes; else none
  bool augmented = false;                 // in training
  bool mixed = false;                     // likewise, with another sample
  int64_t classes = 0;  // reals of which one is 1, where the array has classes.  0: of other kinds
  bool weight = false;  // 1 where no array feeds it
};

// How batches become a net's inputs.  Array i of a batch is for input i.
struct Feed {
  std::vector<FedInput> inputs;
  Augmentation augmentation = {};  // one for all augmented inputs
  PixelChanges changes = {};       // of those of bytes
  Mixing mixing = {};
  int workers = 1;  // threads that decode a rank's samples
  // Contiguous rows (SampleOrder).  Otherwise shuffled for training, in file order for tests.
  bool contiguous = false;
  bool bucketed = false;  // shuffled, with samples of similar length in a batch
  bool balanced = false;  // all classes equally often
  int64_t repeated = 1;   // positions of a training sample in a row
  bool weighs_classes = false;
  // Of the training samples, if the order or weights depend on them.
  std::shared_ptr<const SampleClasses> classes = {};
  int64_t max_bad_samples = 0;  // that may be zeros of weight 0, in an epoch or a test
  // Bytes are copied unconverted to device memory of their own, on a stream of their own, while the
  // step before computes.  From there they are normalised into the inputs.  Otherwise values are
  // copied straight into the inputs, which is best if the device has the host's memory.
  bool ahead = false;

  // The type of a batch's array.
  DType type(size_t input, DType compute) const {
    if (inputs[input].label) return DType::kI32;
    return ahead && !inputs[input].pixel_values.empty() ? DType::kU8 : AccumulateDType(compute);
  }
};

}  // namespace gyre
