// record_metrics.h: metrics of a whole test set that are no means: the host keeps what layers
// record of each sample (LayerSpec::records), the ranks add theirs up, and what is told is a
// function of all samples in their order, whatever the ranks and whatever the batches.
//
// Pure functions of numbers, but for TestRecords, which one thread uses.
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

// The area under the ROC curve: of all pairs of a positive and another, the share in which the
// positive's score is higher; equal ones count one half.  Exact up to one rounding; NaN where a
// score is; none where there is no such pair.  O(n log n).
std::optional<double> RocAuc(std::vector<Scored> scored);

// A step of a sequence.
struct AlarmStep {
  double score;
  double time;  // until the event, seconds; below 0: the step does not count
};

// What came of an alarm, of sequences with an event and without.
struct AlarmCounts {
  int64_t in_time = 0, early = 0, late = 0, missed = 0;
  int64_t false_alarms = 0, quiet = 0;
  bool operator==(const AlarmCounts&) const = default;
};

// The metrics of layer `alarm` over whole sequences, of which those without a step that counts are
// left out.
AlarmCounts CountAlarms(const AlarmConfig& config,
                        std::span<const std::vector<AlarmStep>> sequences);
// Over all thresholds: of a sequence with an event the highest score at least `before` seconds
// before it, of others the highest, stand against each other (RocAuc).
std::optional<double> AlarmArea(const AlarmConfig& config, double before,
                                std::span<const std::vector<AlarmStep>> sequences);

// Consecutive samples of a test: `batches` of `batch`, of which a row goes on in the next.
struct TestRun {
  int64_t batch, batches;
};

// Steps of each sequence: `records` are [samples, steps, 3], as layer `alarm` writes them.
std::vector<std::vector<AlarmStep>> SequencesOf(std::span<const double> records, int64_t steps,
                                                std::span<const TestRun> runs);

// Bytes of host memory that a test of so many samples keeps for records.
int64_t RecordBytes(const NetSpec& net, int64_t samples);

// What a test's layers have recorded: zeros at first, on each rank its own samples.
class TestRecords {
 public:
  // net: of the test's first batch; it must outlive this.
  TestRecords(const NetSpec& net, int64_t samples);

  // Records of consecutive samples, from `first` on, of node `node`.
  void Put(int node, int64_t first, const Tensor& records);
  // The batches so far since the one before were of one net.
  void EndRun(int64_t batch, int64_t batches) { runs_.push_back({batch, batches}); }
  // For each node that records: what ranks have to sum.
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
