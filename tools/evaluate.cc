// evaluate: a net's metrics over the whole test set.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/batches/sample_classes.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/bad_samples.h"
#include "engine/training/model/fold_batch_norm.h"
#include "engine/training/model/weights.h"
#include "engine/training/predict/class_report.h"
#include "engine/training/predict/predict.h"
#include "engine/training/predict/trained_net.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"

ABSL_FLAG(
    std::string, run, "",
    "A run's folder (its newest checkpoint), a checkpoint's, or a file that `export` wrote, with "
    "the texts of its net and trainer.");
ABSL_FLAG(std::string, trainer, "",
          "In place of --run: text file of the trainer, which names the net and the data.");
ABSL_FLAG(std::string, weights, "",
          "With --trainer: as --run, without the texts, or an .npz file.");
ABSL_FLAG(std::string, weights_map, "",
          "OLD=NEW,...: renames tensors of the weights, or all under \"OLD.\" or \"OLD-\".");
ABSL_FLAG(bool, last_weights, false,
          "Of a run with `ema`: the weights as they were last, in place of their averages.");
ABSL_FLAG(std::string, report, "",
          "Folder to write, of a classifier: classes.csv, confusion.csv and .png, worst.csv.  With "
          "--json also printed, as \"report\".");
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
    "  evaluate --run=runs/a\n"
    "  evaluate --run=runs/a --report=runs/a/report\n"
    "  mpirun -np 2 evaluate --trainer=... --weights=model.safetensors\n"
    "\n"
    "Prints `test loss TOTAL`, the sum of all losses times their weights, and a line\n"
    "`test METRIC VALUE` for each other loss and metric, or why it has no value.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Data and net",
     {"run", "trainer", "weights", "weights_map", "last_weights", "set", "precision"}},
    {"Output", {"report", "json"}},
    {"Devices and memory",
     {"device", "threads", "data_threads", "device_memory", "host_memory", "page_folder"}},
    {"Ranks", {"ranks"}},
};

// What is evaluated.
struct Evaluated {
  ConfigFiles files;  // without norms that are folded
  Weights weights;
  std::optional<Prediction> shares = {};  // of a report
};

// Before the work that it reports.
absl::Status CheckReportFolder(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  std::error_code ignored;
  auto there = std::filesystem::absolute(path, ignored);
  while (!std::filesystem::exists(there, ignored) && there.has_relative_path()) {
    there = there.parent_path();
  }
  const bool folder = std::filesystem::is_directory(there, ignored);
  return CheckValue(folder && access(there.c_str(), W_OK | X_OK) == 0, "report", path,
                    absl::StrCat("a folder to write, but ", there.string(),
                                 folder ? " cannot be written" : " is none"));
}

absl::StatusOr<Evaluated> Read() {
  RETURN_IF_ERROR(CheckThreads(absl::GetFlag(FLAGS_data_threads), "data_threads"));
  std::vector<std::string> overrides = SplitSet(absl::GetFlag(FLAGS_set));
  Spellings spellings;
  if (const std::string precision = absl::GetFlag(FLAGS_precision); !precision.empty()) {
    overrides.push_back(absl::StrCat("precision=", precision));
    spellings[overrides.back()] = absl::StrCat("--precision=", precision);
  }
  RETURN_IF_ERROR(CheckReportFolder(absl::GetFlag(FLAGS_report)));
  ASSIGN_OR_RETURN(TrainedFiles trained,
                   ReadTrainedFiles({.run = absl::GetFlag(FLAGS_run),
                                     .trainer = absl::GetFlag(FLAGS_trainer),
                                     .weights = absl::GetFlag(FLAGS_weights),
                                     .weights_map = absl::GetFlag(FLAGS_weights_map),
                                     .last_weights = absl::GetFlag(FLAGS_last_weights)},
                                    overrides, spellings, absl::GetFlag(FLAGS_ranks)));
  Evaluated subject{.files = std::move(trained.files), .weights = std::move(trained.weights)};
  Parsed<NetConfig>& net = subject.files.net;
  RETURN_IF_ERROR(FoldBatchNorms(net, subject.weights));
  const TrainerConfig& config = *subject.files.trainer.message;
  if (!config.data().has_test() && !config.data().has_split()) {
    return absl::InvalidArgumentError(
        absl::StrCat(subject.files.trainer.source->Where(config, "data"), ": has no test data"));
  }
  if (absl::GetFlag(FLAGS_report).empty()) return subject;
  ASSIGN_OR_RETURN(subject.shares, AddClassShares(config.data().label_input(), net));
  if (subject.shares) return subject;
  return absl::InvalidArgumentError(
      absl::StrFormat("--report: is of a net with softmax_cross_entropy of scores [N, classes] and "
                      "classes, an input "
                      "\"%s\" of type LABEL without dims, or REAL with dims: CLASSES",
                      config.data().label_input()));
}

// Counts each sample's class and shares.
class Reporter {
 public:
  Reporter(const Dataset& dataset, const std::string& label_input, const Fit& fit)
      : dataset_(dataset), label_(ArrayOf(dataset, label_input)), names_(ClassNamesOf(fit)) {}

  absl::Status Add(int64_t sample, const Tensor& shares) {
    const auto classes = static_cast<size_t>(shares.elements());
    if (!report_) {
      RETURN_IF_ERROR(Annotate(ClassReport::CheckClasses(shares.elements()), "--report"));
      std::vector<std::string> names;
      for (int64_t c = 0; c < shares.elements(); ++c) names.push_back(NameOfClass(c, names_));
      constexpr int kTop = 5;
      report_.emplace(std::move(names), kTop);
    }
    ASSIGN_OR_RETURN(const Tensor label, dataset_.Read(sample, label_, memory_, std::nullopt));
    const int64_t number = ClassOf(label);
    if (number < 0 || number >= shares.elements()) return absl::OkStatus();  // it is ignored
    report_->Add(dataset_.Describe(sample), number, {shares.as<double>(), classes});
    return absl::OkStatus();
  }
  const std::optional<ClassReport>& report() const { return report_; }

 private:
  // Of a distribution the likeliest, as `accuracy` counts it.
  static int64_t ClassOf(const Tensor& label) {
    if (label.dtype == DType::kU8 || label.dtype == DType::kI32) return ClassIn(label);
    const auto likeliest = [&](const auto* shares) {
      return std::max_element(shares, shares + label.elements()) - shares;
    };
    return label.dtype == DType::kF64 ? likeliest(label.as<double>())
                                      : likeliest(label.as<float>());
  }

  const Dataset& dataset_;
  const size_t label_;
  const std::vector<std::string> names_;  // of classes
  SampleMemory memory_;
  std::optional<ClassReport> report_;
};

absl::Status EvaluateFiles(const Evaluated& subject, const PageStorage& pages,
                           ProcessGroup& communication, const DeviceChoice& choice) {
  const auto& [files, weights, shares] = subject;
  const TrainerConfig& config = *files.trainer.message;
  ASSIGN_OR_RETURN(RunData data, OpenData(files.trainer, files.net, /*train=*/false, weights.fit));
  SetWorkers(absl::GetFlag(FLAGS_data_threads), choice.threads, data);
  const int64_t test_batch = TestBatchOf(config, *data.test);
  ASSIGN_OR_RETURN(const TrainedNet trained,
                   LoadTrained(files.net,
                               {.train = false,
                                .shape = ShapeOf(config, *files.net.message, communication.rank(),
                                                 communication.size()),
                                .test_batch = test_batch,
                                .test_samples = TestSamplesOf(config, *data.test),
                                .feed = FeedOn(choice.device->kind(), data.feed),
                                .capacity_bytes = choice.device->capacity_bytes(),
                                .pages = {.planner = PlannerOn(choice.device->kind()),
                                          .host_bytes = pages.host_bytes,
                                          .folder = pages.folder},
                                .primitives = choice.primitives.get()},
                               weights.tensors, weights.path, *choice.device, communication));
  if (!trained.unknown.empty() && communication.rank() == 0) {
    const std::string text = absl::StrCat(weights.path, ": ", trained.unknown);
    PrintNote("warning: ", text);
  }
  if (communication.rank() == 0) {
    for (const std::string& note : LeftOut(config, data)) {
      PrintNote("", note);
    }
  }
  Reporter reporter(*data.test, config.data().label_input(), weights.fit);
  const PredictionSink count = [&](int64_t sample, std::span<const Tensor> values) {
    return values.empty() ? absl::OkStatus() : reporter.Add(sample, values[0]);
  };
  const std::vector<Prediction> wanted(shares ? 1 : 0, shares.value_or(Prediction()));
  ASSIGN_OR_RETURN(
      const TestResult result,
      Evaluate(*trained.model, *data.test, *choice.device, *trained.stream, communication, nullptr,
               shares ? PredictionsTo(wanted, communication, count) : nullptr));
  const std::vector<Metric>& metrics = result.metrics;
  BadSamples bad(config.data().max_bad_samples(), TestSamplesOf(config, *data.test));
  for (const std::string& fault : bad.New(result.faults)) {
    PrintNote("warning: ", absl::StrCat(fault, "; the sample has weight 0"));
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
  if (reporter.report()) RETURN_IF_ERROR(reporter.report()->Write(absl::GetFlag(FLAGS_report)));
  if (absl::GetFlag(FLAGS_json)) {
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    for (const auto& [name, value] : NamedValues(metrics)) json[name] = value;
    for (const Metric& metric : metrics) {
      if (!metric.undefined.empty()) json[metric.name] = nullptr;
    }
    if (reporter.report()) {
      json["report"] = nlohmann::ordered_json::parse(reporter.report()->Json());
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
  if (reporter.report()) std::fputs(reporter.report()->Text().c_str(), stdout);
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage, kGroups);
  auto subject = Read();
  auto ranks = JoinRanks(subject.ok() ? subject->files.allreduce : AllreduceChoice{"auto"},
                         absl::GetFlag(FLAGS_ranks));
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  if (!subject.ok()) Fail(ranks->front().get(), subject.status());
  const auto pages = ParsePageStorage(absl::GetFlag(FLAGS_device), absl::GetFlag(FLAGS_host_memory),
                                      absl::GetFlag(FLAGS_page_folder), /*default_folder=*/".");
  if (!pages.ok()) Fail(ranks->front().get(), pages.status());
  const absl::Status status =
      RunRanks(*std::move(ranks),
               {.kind = absl::GetFlag(FLAGS_device),
                .memory = absl::GetFlag(FLAGS_device_memory),
                .threads = absl::GetFlag(FLAGS_threads),
                .tf32 = subject->files.trainer.message->tf32()},
               [&](ProcessGroup& communication, const DeviceChoice& choice) {
                 return EvaluateFiles(*subject, *pages, communication, choice);
               });
  return FinishOutput(status.ok() ? 0 : kExitFailed);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
