// bad_input.h: a mistake of a user of the tools, and what has to come of it: within seconds one
// line that says what is wrong, where, and what was expected; nothing that was there before
// changes, and nothing half-written stays behind.  So it is under mpirun, too, which a case or two
// of each part of a run shows: an mpirun whose ranks fail takes more than a second.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "tests/data/temp_folder.h"
#include "tests/end_to_end/run_tool.h"

namespace gyre {

// Replaces `from`, where it is first, by `to`.
struct Edit {
  std::string from = {}, to = {};
};

// Holds train-images.idx, train-labels.idx, test-..., net.textproto, trainer.textproto, and run/,
// the
// --out of a good run with the checkpoints of steps 2 and 4.
class GoodFolder : public TempFolder {
 public:
  GoodFolder();
  // Runs train or evaluate with its trainer, which any argument may replace, or export.  '@' in an
  // argument stands for the folder.
  ToolResult Run(const std::string& tool, const std::vector<std::string>& arguments,
                 const ToolOptions& options = {}) const;
};

// '@' in arguments and in the message stands for the test's folder, which is a GoodFolder.
struct BadInput {
  std::string name = {};
  std::string message = {};  // what follows "error: "; all of it, or up to "..."
  // After --trainer=@/trainer.textproto (train and evaluate) and --out=@/out (train alone).
  std::vector<std::string> arguments = {};
  Edit net = {}, trainer = {};  // of the text files
  std::function<void(const std::string& folder)> prepare = {};
  int exit_code = 1;
  bool begins = false;  // training begins, so that --out is there
  std::vector<int> ranks = {1};
  std::string tool = "train";
  std::map<std::string, std::string> env = {};
};

// Mistakes that a flag alone shows: the exit code of each is 2.
std::vector<BadInput> OfFlags(std::span<const BadInput> inputs);

void PrintTo(const BadInput& input, std::ostream* out);
std::string NameOf(const testing::TestParamInfo<BadInput>& info);

// Runs the tool as the case says and expects what has to come of it.
void ExpectOneMessage(const BadInput& input);

// Expects that the tool said `message`, as in BadInput but without '@', and no other "error: ".
void ExpectMessage(const ToolResult& result, std::string message);

}  // namespace gyre
