// net_plan.h: all that is known about a net before memory exists.  Plain data and pure functions.
// It has the net's spec, the order of its gradients, the access trace and the memory plan.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "engine/training/net/plan/net_trace.h"
#include "memory/planner/paging_plan.h"
#include "memory/resident/memory_plan.h"

namespace gyre {

struct NetPlan : TraceInput {
  NetTrace trace;
  MemoryPlan memory;
  std::optional<PagingPlan> paging;  // none if the device can hold all of it at once

  size_t device_bytes() const { return paging ? paging->device_bytes : memory.device_bytes; }
  size_t communication_bytes() const { return memory.communication_bytes; }
  size_t page_bytes() const { return paging ? paging->page_bytes : 0; }
  size_t disk_bytes() const { return paging ? paging->disk_bytes : 0; }
  size_t disk_home_bytes() const { return paging ? paging->disk_home_bytes : 0; }
};

// How nets larger than the device's memory page.
struct PagingOptions {
  PlannerKind planner = PlannerKind::kAuto;  // kNone: such a net is an error
  size_t host_bytes = ~size_t{0};            // of a rank's pages; further pages are in a file
  std::string folder = {};                   // of that file
  int threads = 1;                           // for updates on the host
};

struct ModelOptions {
  bool train = true;                    // false: only testing nets
  RunShape shape;                       // PlanModel computes `local`
  int64_t test_batch = 0;               // over all ranks; at most test_samples, if there are any
  int64_t test_samples = 0;             // 0: no testing nets
  std::vector<std::string> slots = {};  // the optimizer's, by name
  size_t bucket_bytes = 1 << 20;
  bool fit_buckets = false;  // bucket_bytes is the worthwhile size (FitBuckets), else the largest
  // The allreduce has halves (AlgorithmProperties), which send the touched rows of tables.
  bool can_send_rows = false;
  // Cheap outputs are computed again for backward.  False: only where the nets do not fit
  // otherwise.
  bool recompute = true;
  Feed feed = {};
  size_t capacity_bytes = ~size_t{0};
  PagingOptions pages = {.planner = PlannerKind::kNone};
  PagingCosts paging = {};
  std::string device_allreduce = {};       // algorithm in device memory; "": none
  const Primitives* primitives = nullptr;  // outlives the model
};

// Plans for unbounded device memory, as the nets' shares are known once all nets are planned.
// `first` is the run's first net, of all that trains in a run that does, or null for that net.  It
// gives the others' parameters, homes and, to turns and testing nets, slots.
// Errors: those of InferNet and PlanMemory.
absl::StatusOr<std::unique_ptr<NetPlan>> PlanNet(const Parsed<NetConfig>& config,
                                                 const ModelOptions& options, const NetPlan* first,
                                                 ParameterSet& parameters);

// The plan for nets that page, with `sent` as NetPlan's.  Errors: those of PlanMemory.
absl::StatusOr<std::unique_ptr<NetPlan>> PagedPlan(const NetPlan& plan,
                                                   const ParameterSet& parameters,
                                                   std::vector<int64_t> sent);

// The plan of an iteration that only accumulates, or null if a step has one batch.  It has the same
// states, and no steps of updates.  Precondition: a training net.
std::unique_ptr<NetPlan> AccumulatingPlan(const NetPlan& plan, const ParameterSet& parameters);

// The arrays of a batch, without memory.
std::vector<Tensor> BatchArrays(const NetPlan& plan);

// The range of a bucket that this rank updates.  It is whole unless the optimizer is sharded.
ElementRange UpdatedShard(const NetPlan& plan, int bucket);

// A parameter server's tables, one for each bucket.
std::vector<TableSpec> ServerTables(const NetPlan& plan);

// Bytes of pinned host memory in which ranks exchange tables' rows.
size_t RowBytes(const NetPlan& plan);

// The bytes that a sum of `bytes` sends from the rank that sends most.
using BytesOfSum = std::function<double(size_t bytes, DType dtype)>;

// Bytes sent a step for gradients by the rank that sends most, or to a server by this rank.
double BytesSent(const NetPlan& plan, const BytesOfSum& sum);

// Bytes of the carried states' homes.
size_t CarriedBytes(const NetPlan& plan);

}  // namespace gyre
