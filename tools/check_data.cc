// check_data: reads all samples of a trainer's data once, and tells what they are and which are
// bad.

#include <cstdio>
#include <optional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "engine/data/survey/survey_text.h"
#include "engine/runtime/machine.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_feed.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/progress.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"

ABSL_FLAG(std::string, trainer, "", "Text file of the trainer, which names the net and the data.");
ABSL_FLAG(std::string, set, "",
          "PATH=VALUE of a field of the trainer or, as net.PATH, of the net.  Repeatable.");
ABSL_FLAG(int, threads, 0, "Threads that read samples.  0: one a core.");
ABSL_FLAG(bool, json, false, "Print one JSON object in place of tables.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "reads all samples of a trainer's data once, and says what they are.\n"
    "\n"
    "  check_data --trainer=models/photos/trainer.textproto\n"
    "\n"
    "Prints for training and test data: samples, classes, kinds and sizes of\n"
    "pictures, ranges of reals, samples that cannot be read, and samples that are\n"
    "there twice: pictures of the same bytes, or else the same values.\n"
    "A sample that cannot be read, or is in both sets, is a failure.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Flags", {"trainer", "set", "threads", "json"}},
};

absl::Status Check() {
  const int threads = absl::GetFlag(FLAGS_threads);
  RETURN_IF_ERROR(CheckThreads(threads));
  ASSIGN_OR_RETURN(const ConfigFiles files,
                   ReadFiles(absl::GetFlag(FLAGS_trainer), SplitSet(absl::GetFlag(FLAGS_set)),
                             /*device=*/"", /*spellings=*/{}, /*ranks=*/1));
  TrainerConfig& config = *files.trainer.message;
  // To find means of the samples would end at the first that cannot be read.
  config.mutable_data()->clear_normalization();
  ASSIGN_OR_RETURN(const RunData data, OpenData(files.trainer, files.net, /*train=*/true));
  for (const std::string& note : LeftOut(config, data)) {
    PrintNote("", note);
  }
  std::vector<SurveyedSet> sets = {{"training", data.train.get()}};
  if (data.test) sets.push_back({"test", data.test.get()});
  std::optional<Progress> progress;
  const Survey survey = SurveyOf(sets, {.label_input = config.data().label_input(),
                                        .threads = threads > 0 ? threads : Cores(),
                                        .progress = [&](int64_t done, int64_t samples) {
                                          if (!progress) progress.emplace("checked", samples);
                                          progress->Add(done - progress->samples(), 0);
                                        }});
  progress.reset();
  const std::vector<std::string> classes = ClassNamesOf(data.fit);
  const std::string text = absl::GetFlag(FLAGS_json) ? SurveyJson(survey, sets, classes) + "\n"
                                                     : SurveyText(survey, sets, classes);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);  // before what stderr says
  if (survey.sound()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(FaultsOf(survey, sets), "; correct the data"));
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage, kGroups);
  if (const absl::Status status = Check(); !status.ok()) Fail(nullptr, status);
  return FinishOutput(0);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
