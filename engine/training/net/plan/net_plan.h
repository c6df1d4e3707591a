// net_plan.h: all that is known about a net before memory exists.  Plain data and pure functions.
// It has the net's spec, the order of its gradients, the access trace and the memory plan.
#pragma once

#include <functional>
#include <optional>

#include "engine/training/net/infer/shape_inference.h"
#include "engine/training/net/plan/net_trace.h"
#include "memory/planner/paging_plan.h"
#include "memory/resident/memory_plan.h"

namespace gyre {

struct NetPlan : TraceInput {
  NetTrace trace;
  MemoryPlan memory;
  std::optional<PagingPlan> paging;  // none if the device can hold all of it at once

  size_t device_bytes() const { return paging ? paging->device_bytes : memory.device_bytes; }
  size_t page_bytes() const { return paging ? paging->page_bytes : 0; }
  size_t disk_bytes() const { return paging ? paging->disk_bytes : 0; }
  size_t disk_home_bytes() const { return paging ? paging->disk_home_bytes : 0; }
};

struct NetPlanOptions {
  InferNetOptions infer;
  OptimizerSlots slots;            // elements: empty for the training net, its own for others
  std::vector<CarriedHome> homes;  // the run's first net's; empty for that net
  size_t bucket_bytes = 1 << 20;
  bool fit_buckets = false;
  bool can_send_rows = false;  // see TouchedTables
  bool cut_updates = false;    // one rank that may page: CutUpdates
  // Of a turn (RunShape::players): the plan of the whole net, which no iteration runs, with the
  // buckets and slots of all players.
  const NetPlan* whole = nullptr;
  Feed feed;
};

// Plans for unbounded device memory, as the nets' shares are known once all nets are planned.
// Errors: those of InferNet and PlanMemory.
absl::StatusOr<NetPlan> PlanNet(const Parsed<NetConfig>& config, const NetPlanOptions& options,
                                ParameterSet& parameters);

// The plan for nets that page, with `sent` as NetPlan's.  Errors: those of PlanMemory.
absl::StatusOr<NetPlan> PagedPlan(const NetPlan& plan, const ParameterSet& parameters,
                                  std::vector<int64_t> sent);

// The largest NetPlan::sent of a training net.  Tables are not sent unless there is a server, as
// their rows are exchanged in place.
std::vector<int64_t> CanBeSent(const NetPlan& plan);

// The plan of an iteration that only accumulates.  It has the same states, and no steps of updates.
// Precondition: a training net, and several batches a step.
NetPlan AccumulatingPlan(const NetPlan& plan, const ParameterSet& parameters);

// The arrays of a batch, without memory.
std::vector<Tensor> BatchArrays(const NetPlan& plan);

// The range of a bucket that this rank updates.  It is whole unless the optimizer is sharded.
ElementRange UpdatedShard(const NetPlan& plan, int bucket);

// A parameter server's tables, one for each bucket.
std::vector<TableSpec> ServerTables(const NetPlan& plan);

// The table whose gradient is the bucket, or null.
const TouchedTable* TableOf(const NetPlan& plan, int bucket);

// Bytes of pinned host memory in which ranks exchange tables' rows.
size_t RowBytes(const NetPlan& plan);

// The bytes that a sum of `bytes` sends from the rank that sends most.
using BytesOfSum = std::function<double(size_t bytes, DType dtype)>;

// Bytes sent a step for gradients by the rank that sends most, or to a server by this rank.
double BytesSent(const NetPlan& plan, const BytesOfSum& sum);

// The states carried between steps, in a text that is the same on all ranks, or "".
std::string DescribeCarried(const NetSpec& net);

// Bytes of the carried states' homes.
size_t CarriedBytes(const NetPlan& plan);

}  // namespace gyre
