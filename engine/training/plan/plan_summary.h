// plan_summary.h: a run's plan in numbers, as text for people and as JSON for programs.
// Pure functions of values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/training/model/model_plan.h"

namespace gyre {

// A layer's row of --plan's table.
struct LayerRow {
  std::string layer, type, output;  // output: shapes, with spaces between
  int64_t parameters = 0;           // a shared one counts at its first layer
  double forward_flops = 0, backward_flops = 0;
};
// Of the training net.
std::vector<LayerRow> LayerRows(const ModelPlan& plan);
// A row with the sums of the numbers of these.
LayerRow Total(const std::vector<LayerRow>& rows);
// The elements of the parameters that train.
int64_t TrainedElements(const ModelPlan& plan);

struct PlanSummary {
  std::string net, device;
  int64_t ranks = 1, rank = 0;
  int64_t batch = 0, accumulate = 1;  // samples of a batch over all ranks; batches of a step
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
  // On this rank.
  struct Bytes {
    // Device memory.  Collectives or the parameter server use `exchange`.
    size_t nets = 0, gradients = 0, exchange = 0, capacity = 0;
    // Host memory, pinned except for `test`.
    size_t batches = 0, checkpoint = 0, rows = 0, server = 0, pages = 0, test = 0;
    size_t disk = 0;                    // pages in a file
    size_t optimizer = 0, carried = 0;  // within `nets`: this rank's optimizer state, carried rows
    size_t device() const { return nets + gradients + exchange; }
    size_t host() const { return batches + checkpoint + rows + server + pages; }
  } bytes;
  bool host_is_device = false;  // they are one memory
  bool shares_optimizer = false;
  std::string page_folder = {};  // folder of the page file
  // Expected seconds of an iteration, by FLOPs.  0 if nothing pages.
  double paged_seconds = 0, resident_seconds = 0;
  std::vector<PrecisionBytes> precisions = {};
  struct PlannedPhase {
    int64_t first_step = 0, parameters = 0;  // parameters: elements of those that train
    Communication communication = {};
    Bytes bytes = {};
  };
  std::vector<PlannedPhase> phases = {};   // from that in which the run starts on
  std::vector<std::string> notes = {};     // about the data and the batch
  std::vector<std::string> warnings = {};  // Lint's and others
};

// The table of layers, a line for each of parameters, steps, memory and the like, `details`, then
// notes and warnings.
std::string PlanText(const PlanSummary& plan, const std::string& details);
std::string PrecisionsText(const PlanSummary& plan);
// One JSON object in a line, with the keys of docs/plan.md.
std::string PlanJson(const PlanSummary& plan);

}  // namespace gyre
