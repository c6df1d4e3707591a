// record_metrics.h: metrics of a whole test set that are no means.  The host stores the records of
// each sample (LayerSpec::records).  Ranks sum them.  A metric is a function of all samples in
// order, whatever the ranks and batches.
// Pure functions of numbers, except TestRecords, which one thread uses.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/runtime/tensor.h"
#include "engine/training/metrics/metrics.h"

namespace gyre {

struct Scored {
  double score;
  bool positive;
};

// The area under the ROC curve.  It is the share of pairs of a positive and a negative in which the
// positive has the higher score.  Equal scores count one half.  Exact up to one rounding.
// NaN if a score is NaN, and none if there is no pair.  O(n log n).
std::optional<double> RocAuc(std::vector<Scored> scored);

// A step of a sequence.
struct AlarmStep {
  double score;
  double time;  // seconds until the event; below 0: the step does not count
};

// Outcomes of alarms, for sequences with an event and for those without.
struct AlarmCounts {
  int64_t in_time = 0, early = 0, late = 0, missed = 0;
  int64_t false_alarms = 0, quiet = 0;
  bool operator==(const AlarmCounts&) const = default;
};

// The metrics of layer `alarm` over whole sequences.  Skips sequences without a step that counts.
AlarmCounts CountAlarms(const AlarmConfig& config,
                        std::span<const std::vector<AlarmStep>> sequences);
// The area over all thresholds (RocAuc).  A sequence with an event is a positive.  Its score is its
// highest at least `before` seconds ahead of the event.  The others have their highest score.
std::optional<double> AlarmArea(const AlarmConfig& config, double before,
                                std::span<const std::vector<AlarmStep>> sequences);

// Consecutive samples of a test, `batches` of `batch`.  A row continues in the next batch.
struct TestRun {
  int64_t batch, batches;
};

// The steps of each sequence.  `records` are [samples, steps, 3], as layer `alarm` writes them.
std::vector<std::vector<AlarmStep>> SequencesOf(std::span<const double> records, int64_t steps,
                                                std::span<const TestRun> runs);

int64_t RecordBytes(const NetSpec& net, int64_t samples);

// The records of a test's layers.  They start as zeros.  Each rank puts those of its own samples.
class TestRecords {
 public:
  // `net` is that of the test's first batch.  It must outlive this.
  TestRecords(const NetSpec& net, int64_t samples);

  // Stores node `node`'s records of consecutive samples, from `first` on.
  void Put(int node, int64_t first, const Tensor& records);
  // Ends a run of batches of one net.
  void EndRun(int64_t batch, int64_t batches) { runs_.push_back({batch, batches}); }
  // The tensors that ranks must sum, one for each node that records.
  std::vector<Tensor> all();
  // Appends the metrics.  Precondition: all() is summed.
  void Tell(std::vector<Metric>& metrics) const;

 private:
  struct OfNode {
    int node;
    int64_t steps, columns;
    std::vector<double> values;
  };
  const NetSpec& net_;
  std::vector<OfNode> nodes_;
  std::vector<TestRun> runs_;
};

}  // namespace gyre
