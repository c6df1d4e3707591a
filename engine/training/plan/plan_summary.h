// plan_summary.h: a run's plan in numbers, as people read it and as programs do.  Pure functions of
// values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/training/model/model.h"

namespace gyre {

struct PlanSummary {
  std::string net, device;
  int64_t ranks = 1, rank = 0;
  int64_t batch = 0, accumulate = 1;  // samples over all ranks, and batches, a step
  int64_t rank_samples = 0;           // of a batch on this rank
  int64_t steps = -1;                 // of the run; -1: unknown without the data
  int64_t samples = -1;               // of the training data; -1: unknown
  std::vector<LayerRow> layers = {};
  struct Communication {
    int64_t buckets = 0;
    size_t gradient_bytes = 0;
    double sent_bytes = 0;  // a step, by the rank that sends most
    std::string how = {};   // "ring allreduce"; "": there is one rank
  } communication;
  // On this rank.  host: pinned, but for `test`.
  struct Bytes {
    // Of the device; `exchange` is what sums or serves.
    size_t nets = 0, gradients = 0, exchange = 0, capacity = 0;
    size_t batches = 0, checkpoint = 0, rows = 0, server = 0, pages = 0, test = 0;  // of the host
    size_t disk = 0;                                                                // in a file
    size_t optimizer = 0, carried = 0;  // of `nets`: its state on this rank; rows from step to step
    size_t device() const { return nets + gradients + exchange; }
    size_t host() const { return batches + checkpoint + rows + server + pages; }
  } bytes;
  bool host_is_device = false;  // there is one memory
  bool shares_optimizer = false;
  std::string page_folder = {};  // of the file
  // An iteration as it is expected by FLOPs; 0: nothing pages.
  double paged_seconds = 0, resident_seconds = 0;
  std::vector<PrecisionBytes> precisions = {};
  std::vector<std::string> notes = {};     // of the data and the batch
  std::vector<std::string> warnings = {};  // of Lint
};

// The layers' table, then a line of each: parameters, steps, memory, communication; of a run that
// pages what that costs; then `details`; then notes and warnings, a line each.  At most 80 columns
// but for those.
std::string PlanText(const PlanSummary& plan, const std::string& details);
// The bytes in each precision as a table.
std::string PrecisionsText(const PlanSummary& plan);
// One JSON object in a line; docs/formats.md has its keys.
std::string PlanJson(const PlanSummary& plan);

}  // namespace gyre
