// evaluate: a net's metrics over the whole test set.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/bad_samples.h"
#include "engine/training/model/fold_batch_norm.h"
#include "engine/training/model/weights.h"
#include "engine/training/step/evaluation.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"

ABSL_FLAG(std::string, trainer, "", "Text file of the trainer, which names the net and the data.");
ABSL_FLAG(std::string, weights, "",
          "A run's folder (its newest checkpoint), a checkpoint's, or a safetensors file.");
ABSL_FLAG(std::string, set, "",
          "PATH=VALUE of a field of the trainer or, as net.PATH, of the net.  Repeatable.");
ABSL_FLAG(std::string, precision, "",
          "F32, F64, F16 or BF16.  Default: the trainer's, or the net's.");
ABSL_FLAG(bool, json, false, "Print one JSON object in place of lines.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda (a GPU) or sim (a CPU with bounded memory).");
ABSL_FLAG(std::string, device_memory, "", "Bytes of device memory (cuda, sim), such as 64M.");
ABSL_FLAG(std::string, host_memory, "",
          "Bytes of each rank's host memory for pages, such as 1G.  Pages beyond go to disk.  "
          "Default: no limit.");
ABSL_FLAG(std::string, page_folder, "",
          "Folder on a fast disk for pages beyond --host_memory.  Default: the working folder, if "
          "that is a disk of this host; else TMPDIR, /var/tmp or /tmp.");
ABSL_FLAG(int, threads, 0, "Threads of each rank.  0: cores / ranks on this host.");
ABSL_FLAG(int, data_threads, 0,
          "Threads of each rank that decode samples.  0: as --threads for pictures, else 1.");
ABSL_FLAG(int, ranks, 1, "Ranks as threads of this process, without mpirun or srun.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "measures a trained net on the whole test set.\n"
    "\n"
    "  evaluate --trainer=models/lenet/trainer.textproto --weights=runs/a\n"
    "  mpirun -np 2 evaluate --trainer=... --weights=model.safetensors\n"
    "\n"
    "Prints `test loss TOTAL`, the sum of all losses times their weights, and a line\n"
    "`test METRIC VALUE` for each other loss and metric, or why it has no value.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Data and net", {"trainer", "weights", "set", "precision", "json"}},
    {"Devices and memory",
     {"device", "threads", "data_threads", "device_memory", "host_memory", "page_folder"}},
    {"Ranks", {"ranks"}},
};

// folded: what `files` no longer holds of the net that the weights are of.
absl::Status EvaluateFiles(const ConfigFiles& files, const std::vector<FoldedNorm>& folded,
                           const std::string& weights_path, const PageStorage& pages,
                           ProcessGroup& communication, const DeviceChoice& choice) {
  const TrainerConfig& config = *files.trainer.message;
  if (!config.data().has_test() && !config.data().has_split()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.trainer.source->Where(config, "data"), ": has no test data"));
  }
  ASSIGN_OR_RETURN(auto weights, ReadWeights(weights_path));
  auto tensors = FoldTensors(folded, weights.tensors);
  if (!tensors.ok()) return Annotate(tensors.status(), weights.path);
  weights.tensors = *std::move(tensors);
  ASSIGN_OR_RETURN(RunData data, OpenData(files.trainer, files.net, /*train=*/false, weights.fit));
  SetWorkers(absl::GetFlag(FLAGS_data_threads), choice.threads, data);
  const int64_t test_batch = TestBatchOf(config, *data.test);
  auto plan = PlanModel(files.net, {.train = false,
                                    .shape = ShapeOf(config, *files.net.message,
                                                     communication.rank(), communication.size()),
                                    .test_batch = test_batch,
                                    .test_samples = TestSamplesOf(config, *data.test),
                                    .feed = FeedOn(choice.device->kind(), data.feed),
                                    .capacity_bytes = choice.device->capacity_bytes(),
                                    .pages = {.planner = PlannerOn(choice.device->kind()),
                                              .host_bytes = pages.host_bytes,
                                              .folder = pages.folder},
                                    .primitives = choice.primitives.get()});
  if (absl::IsResourceExhausted(plan.status())) {
    return absl::ResourceExhaustedError(absl::StrCat(plan.status().message(),
                                                     "; lower test_batch, which is ", test_batch,
                                                     " (--set test_batch=...)"));
  }
  RETURN_IF_ERROR(plan.status());
  RETURN_IF_ERROR(Annotate(CheckLoad(*plan, weights.tensors, nullptr), weights.path));
  ASSIGN_OR_RETURN(const auto stream, choice.device->NewStream());
  ASSIGN_OR_RETURN(const auto model, Model::Create(*std::move(plan), *choice.device, *stream));
  RETURN_IF_ERROR(Annotate(model->Load(*stream, weights.tensors, nullptr), weights.path));
  ASSIGN_OR_RETURN(const std::string digest, model->Sha256OfWeights(*stream));
  RETURN_IF_ERROR(communication.CheckEqual("the weights", digest));
  const std::string unknown = model->Unknown(weights.tensors);
  if (!unknown.empty() && communication.rank() == 0) {
    const std::string text = absl::StrCat(weights.path, ": ", unknown);
    std::fprintf(stderr, "%s\n", Wrapped("warning: ", text).c_str());
  }
  if (communication.rank() == 0) {
    for (const std::string& note : LeftOut(config, data)) {
      std::fprintf(stderr, "%s\n", Wrapped("", note).c_str());
    }
  }
  ASSIGN_OR_RETURN(const TestResult result,
                   Evaluate(*model, *data.test, *choice.device, *stream, communication, nullptr));
  const std::vector<Metric>& metrics = result.metrics;
  BadSamples bad(config.data().max_bad_samples());
  for (const std::string& fault : bad.New(result.faults)) {
    std::fprintf(stderr, "%s\n",
                 Wrapped("warning: ", absl::StrCat(fault, "; the sample has weight 0")).c_str());
  }
  bad.Count(/*epoch=*/0, result.bad_samples);
  RETURN_IF_ERROR(Annotate(bad.status(), "test data"));
  if (metrics.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(files.net.source->file(),
                     ": the net has no loss or metric to test; add one without "
                     "`phase: TRAIN`"));
  }
  RETURN_IF_ERROR(Annotate(CheckFiniteMetrics(metrics), "test"));
  if (communication.rank() != 0) return absl::OkStatus();
  if (absl::GetFlag(FLAGS_json)) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    for (const auto& [name, value] : NamedValues(metrics)) json[name] = value;
    for (const Metric& metric : metrics) {
      if (!metric.undefined.empty()) json[metric.name] = nullptr;
    }
    std::printf("%s\n", json.dump().c_str());
    return absl::OkStatus();
  }
  for (const auto& [name, value] : NamedValues(metrics)) {
    std::printf("test %s %.6f\n", name.c_str(), value);
  }
  for (const Metric& metric : metrics) {
    if (metric.undefined.empty()) continue;
    std::printf("test %s undefined: %s\n", metric.name.c_str(), metric.undefined.c_str());
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage, kGroups);
  std::vector<std::string> overrides = SplitSet(absl::GetFlag(FLAGS_set));
  Spellings spellings;
  if (const std::string precision = absl::GetFlag(FLAGS_precision); !precision.empty()) {
    overrides.push_back(absl::StrCat("precision=", precision));
    spellings[overrides.back()] = absl::StrCat("--precision=", precision);
  }
  auto files = ReadFiles(absl::GetFlag(FLAGS_trainer), overrides, /*device=*/"", spellings,
                         absl::GetFlag(FLAGS_ranks));
  auto ranks = JoinRanks(files.ok() ? files->allreduce : AllreduceChoice{"auto"},
                         absl::GetFlag(FLAGS_ranks));
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  if (!files.ok()) Fail(ranks->front().get(), files.status());
  const auto folded = FoldBatchNorms(files->net);
  if (!folded.ok()) Fail(ranks->front().get(), folded.status());
  const std::string weights_path = absl::GetFlag(FLAGS_weights);
  const auto pages = ParsePageStorage(absl::GetFlag(FLAGS_device), absl::GetFlag(FLAGS_host_memory),
                                      absl::GetFlag(FLAGS_page_folder), /*default_folder=*/".");
  if (!pages.ok()) Fail(ranks->front().get(), pages.status());
  const absl::Status status =
      RunRanks(*std::move(ranks),
               {.kind = absl::GetFlag(FLAGS_device),
                .memory = absl::GetFlag(FLAGS_device_memory),
                .threads = absl::GetFlag(FLAGS_threads),
                .tf32 = files->trainer.message->tf32()},
               [&](ProcessGroup& communication, const DeviceChoice& choice) {
                 return EvaluateFiles(*files, *folded, weights_path, *pages, communication, choice);
               });
  return FinishOutput(status.ok() ? 0 : kExitFailed);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
