// run_tool.h: runs Gyre's tools as a user does, alone or under mpirun, on small synthetic data.
//
// A test that uses it lists the tools it runs (//tools:train ...) in its `data`.  Nothing here is
// thread-safe.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace gyre {

struct ToolOptions {
  int ranks = 1;  // 1: without mpirun
  std::map<std::string, std::string> env = {};
  int timeout_s = 120;  // then it is killed, and timed_out is true
  // Where it starts, and under mpirun what follows ":"; "": where the test does.
  std::string folder = {}, other_folder = {};
  std::string in = {};  // a file as standard input; "": none
};

struct ToolResult {
  int exit_code = -1;  // 128 + the signal that ended it
  bool timed_out = false;
  double seconds = 0;
  size_t peak_bytes = 0;  // resident, of the tool or under mpirun of its largest rank
  std::string out, err;

  // For failure messages.
  std::string ToString() const;
};

// A tool under way; destroyed before Wait, it is killed with all its ranks.
class Tool {
 public:
  // tool: "train", "evaluate", "export".  Under mpirun, what follows an argument ":" are those of
  // one rank more.
  Tool(const std::string& tool, const std::vector<std::string>& arguments,
       const ToolOptions& options = {});
  Tool(const Tool&) = delete;
  Tool& operator=(const Tool&) = delete;
  ~Tool();

  // Blocks until it ends, at most options.timeout_s after its start.  Once.
  ToolResult Wait();
  bool Running();
  // Blocks until `holds`.  False if the tool ends first.
  bool Await(const std::function<bool()>& holds);
  // To the tool, or to mpirun.
  void Signal(int signal);
  // Of the tool, or of mpirun; 0 once it has ended.
  pid_t Pid() const { return pid_; }
  // The process of a rank under mpirun; 0 until it has started.
  pid_t PidOfRank(int rank) const;
  // What it has written so far.
  std::string Out() const;

 private:
  bool Ended(double deadline_s);
  double Seconds() const;

  pid_t pid_ = 0;  // 0: waited for
  int status_ = 0;
  size_t peak_bytes_ = 0;
  double start_s_ = 0;
  int timeout_s_ = 0;
  std::FILE *out_ = nullptr, *err_ = nullptr;
  std::string scratch_;  // Open MPI's TMPDIR
};

// Starts it and waits.
ToolResult RunTool(const std::string& tool, const std::vector<std::string>& arguments,
                   const ToolOptions& options = {});

// The result.  Throws if the tool failed.
ToolResult Succeeded(ToolResult result);

// All of `flags` and then all of `more`, which win.
std::vector<std::string> Joined(std::vector<std::string> flags,
                                const std::vector<std::string>& more);

// Lines that were too long for a terminal, whole again.
std::string Unwrapped(const std::string& text);

// A learnable data set of u8 images: a bright patch whose place tells the class, and noise.
struct SyntheticData {
  int64_t samples = 64;
  int64_t height = 12, width = 12, channels = 1;
  int classes = 10;
  uint64_t seed = 1;
  std::map<int64_t, uint8_t> labels = {};  // overrides: sample -> label
};
// Writes FOLDER/NAME-images.idx and FOLDER/NAME-labels.idx.
void WriteIdx(const std::string& folder, const std::string& name, const SyntheticData& data);

// Two convolutions with pooling, dropout and two dense layers; images of 8x8 or more.
std::string ConvNetText(const SyntheticData& data);
// Two dense layers with dropout.
std::string MlpNetText(const SyntheticData& data);
// A dense layer whose loss reads a copy of the labels: a bad one is found by the step that reads
// it, not before the run.
std::string CopiedLabelNetText(const SyntheticData& data);

// A trainer of its own folder.  The texts go in as they are.
struct TrainerText {
  std::string optimizer = "sgd { momentum: 0.9 }";
  std::string learning_rate = "base: 0.05";
  std::string rest = "batch: 8 steps: 10";  // batch, length and any other field
  // With SET for train and test.
  std::string source = "idx { images: \"SET-images.idx\" labels: \"SET-labels.idx\" }";
  std::string test = "";                                      // in place of source
  std::string data = "normalization { mean: 0.3 std: 0.3 }";  // the data's other fields
};
// Writes FOLDER/net.textproto and FOLDER/trainer.textproto; returns the latter's path.
std::string WriteTrainer(const std::string& folder, const std::string& net,
                         const TrainerText& trainer = {});

}  // namespace gyre
