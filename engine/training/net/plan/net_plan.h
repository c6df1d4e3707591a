// net_plan.h: all that is known about a net before any memory exists: its spec, the order of its
// gradients, the access trace, and the memory plan.
#pragma once

#include <functional>
#include <optional>

#include "engine/training/net/infer/shape_inference.h"
#include "engine/training/net/plan/net_trace.h"
#include "memory/planner/paging_plan.h"
#include "memory/resident/memory_plan.h"

namespace gyre {

struct NetPlan {
  NetSpec spec;
  Feed feed;
  std::vector<TouchedTable> tables;  // of one that trains
  GradientOrder order;
  std::vector<std::vector<ElementRange>> parts;  // by bucket, then rank: what that updates of it
  OptimizerSlots slots;
  std::vector<CarriedHome> homes;
  // Of several ranks whose nets page, by bucket of the one that trains: the elements of a bucket
  // that is sent from the device arena, where it lies from its first gradient until then, and comes
  // back, summed, for its update, or as new parameters; 0: it stays in the communication arena.
  // Else empty.
  std::vector<int64_t> sent;
  NetTrace trace;
  MemoryPlan memory;
  std::optional<PagingPlan> paging;  // if the device cannot hold all of it at once

  size_t device_bytes() const { return paging ? paging->device_bytes : memory.device_bytes; }
  size_t page_bytes() const { return paging ? paging->page_bytes : 0; }
  size_t disk_bytes() const { return paging ? paging->disk_bytes : 0; }
  size_t disk_home_bytes() const { return paging ? paging->disk_home_bytes : 0; }
};

struct NetPlanOptions {
  InferNetOptions infer;
  OptimizerSlots slots;  // elements: of the net that trains, for one that does not; else empty
  std::vector<CarriedHome> homes;  // of the first net of the run; empty for that one
  size_t bucket_bytes = 1 << 20;
  bool fit_buckets = false;
  bool can_send_rows = false;  // of tables (TouchedTables)
  bool cut_updates = false;    // of one rank, that may page: UpdateTiles
  Feed feed;
};

// Device memory is taken to be boundless: what nets share is known once all are planned.
// Errors: those of InferNet and PlanMemory.
absl::StatusOr<NetPlan> PlanNet(const Parsed<NetConfig>& config, const NetPlanOptions& options,
                                ParameterSet& parameters);

// As it is where nets page, and so much of buckets is sent.  Errors: those of PlanMemory.
absl::StatusOr<NetPlan> PagedPlan(const NetPlan& plan, const ParameterSet& parameters,
                                  std::vector<int64_t> sent);

// What of a training net's buckets can be: all but tables', whose rows are exchanged where they
// are, unless a server's owners have them.
std::vector<int64_t> CanBeSent(const NetPlan& plan);

// Of a training net whose steps are several batches: as an iteration has it that only accumulates.
// Its states are those of `plan`, its steps these without those of updates.
NetPlan AccumulatingPlan(const NetPlan& plan, const ParameterSet& parameters);

// The arrays of a batch as the net takes it, unbound.
std::vector<Tensor> BatchArrays(const NetPlan& plan);

// The part of a bucket's elements that this rank updates: all of them, unless ranks share out the
// optimizer.
ElementRange UpdatedPart(const NetPlan& plan, int bucket);

// Of a parameter server: the buckets.
std::vector<TableSpec> ServerTables(const NetPlan& plan);

// The table whose gradient a bucket is; null: of none.
const TouchedTable* TableOf(const NetPlan& plan, int bucket);

// Pinned host memory in which ranks exchange tables' rows.
size_t RowBytes(const NetPlan& plan);

// What is sent to sum so many bytes of this type, by the rank that sends most.
using BytesOfSum = std::function<double(size_t bytes, DType dtype)>;

// What is sent a step for gradients: of sums, by the rank that sends most; of a parameter server,
// by this rank.
double BytesSent(const NetPlan& plan, const BytesOfSum& sum);

// What is carried from step to step, the same text on all ranks; "" if nothing is.
std::string DescribeCarried(const NetSpec& net);

// A layer as a plan has it.
struct LayerRow {
  std::string layer, type, output;  // output: shapes, with spaces between
  int64_t parameters = 0;           // shared ones count at the first layer that has them
  double forward_flops = 0, backward_flops = 0;
};
std::vector<LayerRow> LayerRows(const NetPlan& plan, const ParameterSet& parameters);
// Bytes that are carried from step to step.
size_t CarriedBytes(const NetPlan& plan);
// For people: where states lie, and when memory is fullest.
std::string DescribeMemory(const NetPlan& plan);

}  // namespace gyre
