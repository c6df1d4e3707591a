// training_folder.h: a folder with a data set, a net and a trainer, and the runs made of them.
#pragma once

#include <string>
#include <vector>

#include "tests/data/temp_folder.h"
#include "tests/end_to_end/run_tool.h"

namespace gyre {

// On a simulated device of so much memory.
std::vector<std::string> OnSim(int64_t bytes, const std::vector<std::string>& more = {});

class TrainingFolder {
 public:
  // Writes data sets "train" (of `data`) and "test" (likewise, of test_samples and another seed).
  explicit TrainingFolder(const SyntheticData& data, int64_t test_samples = 17);

  const SyntheticData& data() const { return data_; }
  std::string operator/(const std::string& name) const { return folder_ / name; }

  // The elements of a data set's images and labels: bytes.
  std::string Images(const std::string& set) const;
  std::string Labels(const std::string& set) const;

  // The command line of a training run into FOLDER/out, one thread a rank.
  std::vector<std::string> TrainArguments(const std::string& out,
                                          const std::vector<std::string>& more = {}) const;
  ToolResult Train(const std::string& out, const std::vector<std::string>& more = {},
                   const ToolOptions& options = {}) const;
  // Trains to the end and returns the digest; a failure fails the test.
  std::string Digest(const std::string& out, const std::vector<std::string>& more = {},
                     const ToolOptions& options = {}) const;
  // Kills a run at some moment after the checkpoint of `step`; one that is through before it can be
  // killed is made again.
  void TrainAndKill(const std::string& out, int64_t step,
                    const std::vector<std::string>& more = {}) const;
  // Block until the run has saved a step of `step` or later, or has told of its first one.  False
  // if it ends before.
  bool AwaitCheckpoint(Tool& tool, const std::string& out, int64_t step) const;
  bool AwaitMetrics(Tool& tool, const std::string& out) const;
  // The lines `test METRIC VALUE` of evaluate.
  std::string Evaluate(const std::string& weights, const std::vector<std::string>& more = {},
                       const ToolOptions& options = {}) const;

  // metrics.jsonl of FOLDER/out, without what a clock tells.
  std::vector<std::string> MetricLines(const std::string& out) const;
  // MetricsIn of FOLDER/out.
  std::vector<double> Metrics(const std::string& out, const std::string& key) const;
  // The step of the newest checkpoint in FOLDER/out; 0 if there is none.
  int64_t NewestCheckpoint(const std::string& out) const;

 private:
  SyntheticData data_;
  TempFolder folder_;
};

// The values of `key` in a metrics.jsonl, step after step: of training's lines, each step from 1 on
// exactly once, or of the lines about the test set.
std::vector<double> MetricsIn(const std::string& path, const std::string& key);

// The number that `pattern` finds in a tool's words; -1 and a failed test if it does not.
int64_t NumberIn(const std::string& words, const char* pattern);
// Of an error: the bytes of device memory that would do.
inline constexpr char kLeastDeviceMemory[] = "device memory: expected at least ([0-9]+) bytes";

// The digest on a run's last line; "" and a failed test if the run failed.
std::string DigestOf(const ToolResult& result);

// The largest |a - b| / |b|, of sequences of one length; a failed test otherwise.
double LargestRelativeDifference(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace gyre
