// predict: what a trained net says of files, or of a run's own data.

#include "engine/training/predict/predict.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "distributed/transport/launcher.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/private_folder.h"
#include "engine/data/sets/fit.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/model/weights.h"
#include "engine/training/predict/given_data.h"
#include "engine/training/predict/prediction_writer.h"
#include "engine/training/predict/prepared_prediction.h"
#include "engine/training/predict/target_unit.h"
#include "engine/training/predict/trained_net.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"

ABSL_FLAG(std::string, run, "",
          "A run's folder (its newest checkpoint), a checkpoint's, or a .gyre or .safetensors file "
          "that `export` wrote.");
ABSL_FLAG(std::string, data, "test", "Without files: test or train, of the run's own data.");
ABSL_FLAG(
    std::vector<std::string>, outputs, {},
    "Layers whose output is wanted, such as fc1,fc2.  Default: what the losses read, as shares "
    "behind a cross-entropy.");
ABSL_FLAG(int, top, 5, "Classes of a sample, the likeliest first.");
ABSL_FLAG(
    std::string, format, "",
    "table (for people), json (a line a sample), csv, or npy.  Default: by --out's ending, else "
    "table.");
ABSL_FLAG(std::string, out, "",
          "File to write, such as predictions.csv.  Default: standard output.");
ABSL_FLAG(std::string, set, "",
          "PATH=VALUE of a field of the trainer or, as net.PATH, of the net.  Repeatable.");
ABSL_FLAG(int, batch, 0,
          "Samples that run through the net at once, over all ranks.  0: at most 32.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda (a GPU) or sim (a CPU with bounded memory).");
ABSL_FLAG(std::string, device_memory, "", "Bytes of device memory (cuda, sim), such as 64M.");
ABSL_FLAG(int, threads, 0, "Threads of each rank.  0: cores / ranks on this host.");
ABSL_FLAG(int, data_threads, 0,
          "Threads of each rank that decode samples.  0: as --threads for pictures, else 1.");
ABSL_FLAG(int, ranks, 1, "Ranks as threads of this process, without mpirun or srun.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "says what a trained net makes of files.\n"
    "\n"
    "  predict --run=runs/photos cat.jpg dog.png holidays/\n"
    "  predict --run=runs/houses new_houses.csv --out=prices.csv\n"
    "  predict --run=lenet.gyre --outputs=fc1 --out=features.npy\n"
    "  echo 'a fine film' | predict --run=runs/imdb -\n"
    "\n"
    "Files are read as the run read its training data, and need no label.\n"
    "Without files the run's own test data are predicted.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Net and data", {"run", "data", "set", "batch"}},
    {"Output", {"outputs", "top", "format", "out"}},
    {"Devices and memory", {"device", "threads", "data_threads", "device_memory"}},
    {"Ranks", {"ranks"}},
};

constexpr int64_t kBatch = 32;

absl::StatusOr<PredictionFormat> FormatOf(std::string name, const std::string& out) {
  const bool by_ending = name.empty() && !out.empty();
  if (by_ending) {
    name = absl::AsciiStrToLower(std::filesystem::path(out).extension().string());
    if (name == ".jsonl") name = ".json";
    if (name == ".txt") name = ".table";
    if (!name.empty()) name.erase(0, 1);
  }
  if (name.empty() || name == "table") return PredictionFormat::kTable;
  if (name == "json") return PredictionFormat::kJson;
  if (name == "csv") return PredictionFormat::kCsv;
  if (name == "npy") return PredictionFormat::kNpy;
  return WrongValue(by_ending ? "out" : "format", by_ending ? out : name,
                    by_ending ? "a name that ends in .txt, .jsonl, .csv or .npy, or --format"
                              : "table, json, csv or npy");
}

// All that is known before ranks and devices are.
struct PredictRequest {
  ConfigFiles files;
  Weights weights;
  PreparedPrediction prepared;
  PredictionText text;
  std::optional<PrivateFolder> folder = {};  // of what is given
};

// Standard input as a file of texts, a line each.
absl::Status TakeStandardInput(const std::string& folder, std::vector<std::string>& paths) {
  for (std::string& path : paths) {
    if (path != "-") continue;
    if (AnnouncedRank().size > 1) {
      return absl::InvalidArgumentError(
          "standard input reaches one rank alone; name a file, or start without mpirun");
    }
    path = folder + "/standard-input.tsv";
    const std::string text(std::istreambuf_iterator<char>(std::cin), {});
    RETURN_IF_ERROR(WriteFileAtomically(path, [&](const FileSink& sink) { return sink(text); }));
  }
  return absl::OkStatus();
}

absl::Status TakeData(std::vector<std::string> paths, PredictRequest& wanted) {
  TrainerConfig& config = *wanted.files.trainer.message;
  DataConfig& data = *config.mutable_data();
  const std::string which = absl::GetFlag(FLAGS_data);
  RETURN_IF_ERROR(CheckValue(which == "test" || which == "train", "data", which, "test or train"));
  if (paths.empty()) {
    if (which == "train") {
      *data.mutable_test() = data.train();
      data.clear_split();
    }
    if (data.has_test() || data.has_split()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(wanted.weights.path, ": its run has no test data; name files to predict"));
  }
  ASSIGN_OR_RETURN(PrivateFolder folder,
                   PrivateFolder::Make(std::filesystem::temp_directory_path().string(),
                                       "gyre_predict", std::to_string(getpid())));
  wanted.folder.emplace(std::move(folder));
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!std::filesystem::equivalent(path, absl::GetFlag(FLAGS_out), ignored)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--out=", path, ": is also what is predicted; name another file"));
  }
  RETURN_IF_ERROR(TakeStandardInput(wanted.folder->path(), paths));
  return TakeAsTestData(paths, wanted.folder->path(), *wanted.files.net.message, config);
}

absl::StatusOr<PredictRequest> Read(const std::vector<std::string>& paths) {
  if (absl::GetFlag(FLAGS_run).empty()) {
    return absl::InvalidArgumentError("--run is missing; see --help");
  }
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_top}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_batch}));
  PredictRequest wanted;
  ASSIGN_OR_RETURN(wanted.text.format,
                   FormatOf(absl::GetFlag(FLAGS_format), absl::GetFlag(FLAGS_out)));
  wanted.text.top = absl::GetFlag(FLAGS_top);
  ASSIGN_OR_RETURN(wanted.weights, ReadTrained(absl::GetFlag(FLAGS_run)));
  ASSIGN_OR_RETURN(wanted.files,
                   FilesOfRun(wanted.weights.texts, wanted.weights.path,
                              SplitSet(absl::GetFlag(FLAGS_set)), {}, absl::GetFlag(FLAGS_ranks)));
  Parsed<NetConfig>& net = wanted.files.net;
  const TrainerConfig& config = *wanted.files.trainer.message;
  // A split by class reads the classes.
  const bool by_class = paths.empty() && config.data().split().by() == HoldOutConfig::CLASS;
  ASSIGN_OR_RETURN(
      wanted.prepared,
      PreparePrediction(absl::GetFlag(FLAGS_outputs), by_class ? config.data().label_input() : "",
                        wanted.weights, *wanted.files.trainer.message, net));
  wanted.text.classes = ClassNamesOf(wanted.weights.fit);
  wanted.text.dtype = AccumulateDType(PrecisionOf(config, *net.message));
  RETURN_IF_ERROR(TakeData(paths, wanted));
  return wanted;
}

absl::Status PredictAll(const PredictRequest& wanted, ProcessGroup& communication,
                        const DeviceChoice& choice) {
  const auto& [trainer, net, allreduce] = wanted.files;
  ASSIGN_OR_RETURN(RunData data, OpenData(trainer, net, /*train=*/false, wanted.weights.fit));
  SetWorkers(absl::GetFlag(FLAGS_data_threads), choice.threads, data);
  TrainerConfig config = *trainer.message;
  config.set_test_batch(absl::GetFlag(FLAGS_batch) > 0 ? absl::GetFlag(FLAGS_batch) : kBatch);
  const int64_t samples = TestSamplesOf(*trainer.message, *data.test);
  ASSIGN_OR_RETURN(
      const TrainedNet trained,
      LoadTrained(net,
                  {.train = false,
                   .shape = ShapeOf(*trainer.message, *net.message, communication.rank(),
                                    communication.size()),
                   .test_batch = TestBatchOf(config, *data.test),
                   .test_samples = samples,
                   .feed = FeedOn(choice.device->kind(), data.feed),
                   .capacity_bytes = choice.device->capacity_bytes(),
                   .pages = {.planner = PlannerOn(choice.device->kind())},
                   .primitives = choice.primitives.get()},
                  wanted.weights.tensors, wanted.weights.path, *choice.device, communication));
  ASSIGN_OR_RETURN(const auto writer, PredictionWriter::Open(absl::GetFlag(FLAGS_out), wanted.text,
                                                             wanted.prepared.predictions));
  const PredictionSink write = [&](int64_t sample, std::span<const Tensor> values) {
    for (size_t i = 0; i < values.size(); ++i) {
      Unnormalize(wanted.prepared.units[i],
                  {values[i].as<double>(), static_cast<size_t>(values[i].elements())});
    }
    return writer->Write(data.test->Describe(sample), values);
  };
  const TestSink join = PredictionsTo(wanted.prepared.predictions, communication, write);
  const TestSink predict = [&](const TestedBatch& tested) {
    const auto& faults = tested.batch.faults;
    if (faults.empty()) return join(tested);
    return absl::Status(absl::DataLossError(absl::StrCat("test data: ", faults[0].message)));
  };
  RETURN_IF_ERROR(
      RunTest(*trained.model, *data.test, *choice.device, *trained.stream, communication, predict));
  return communication.rank() == 0 ? writer->Finish() : absl::OkStatus();
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  const std::vector<std::string> paths =
      ParseFlags(argc, argv, kUsage, kGroups, /*takes_arguments=*/true);
  auto wanted = Read(paths);
  auto ranks = JoinRanks(wanted.ok() ? wanted->files.allreduce : AllreduceChoice{"auto"},
                         absl::GetFlag(FLAGS_ranks));
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  if (!wanted.ok()) Fail(ranks->front().get(), wanted.status());
  const absl::Status status =
      RunRanks(*std::move(ranks),
               {.kind = absl::GetFlag(FLAGS_device),
                .memory = absl::GetFlag(FLAGS_device_memory),
                .threads = absl::GetFlag(FLAGS_threads),
                .tf32 = wanted->files.trainer.message->tf32()},
               [&](ProcessGroup& communication, const DeviceChoice& choice) {
                 return PredictAll(*wanted, communication, choice);
               });
  return FinishOutput(status.ok() ? 0 : kExitFailed);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
