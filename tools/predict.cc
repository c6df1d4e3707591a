// predict: what a trained net says of files, or of a run's own data.

#include "engine/training/predict/predict.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <optional>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/transport/launcher.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/files/private_folder.h"
#include "engine/data/sets/fit.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/feed/feed_of.h"
#include "engine/training/model/fold_batch_norm.h"
#include "engine/training/model/weights.h"
#include "engine/training/predict/prediction_net.h"
#include "engine/training/predict/prediction_writer.h"
#include "engine/training/predict/stream_net.h"
#include "engine/training/predict/trained_net.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/progress.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"

ABSL_FLAG(std::string, run, "",
          "A run's folder (its newest checkpoint), a checkpoint's, or a .gyre or .safetensors file "
          "that `export` wrote.");
ABSL_FLAG(std::string, trainer, "",
          "In place of --run: text file of the trainer, which names the net and the data.");
ABSL_FLAG(std::string, weights, "",
          "With --trainer: as --run, without the texts, or an .npz file.");
ABSL_FLAG(std::string, weights_map, "",
          "OLD=NEW,...: renames tensors of the weights, or all under \"OLD.\" or \"OLD-\".");
ABSL_FLAG(bool, last_weights, false,
          "Of a run with `ema`: the weights as they were last, in place of their averages.");
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
ABSL_FLAG(bool, stream, false,
          "A recurrent net step by step: a line of standard input is a step, whose prediction is "
          "written at once.  An empty line begins another sequence.");
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
    "  tail -f signals.txt | predict --run=runs/frnn --stream\n"
    "\n"
    "Files are read as the run read its training data, and need no label.\n"
    "Without files the run's own test data are predicted.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Net and data",
     {"run", "trainer", "weights", "weights_map", "last_weights", "data", "set", "batch",
      "stream"}},
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

// Checks of what --stream has no use for.
absl::Status CheckStream(const std::vector<std::string>& paths, PredictionFormat format) {
  const char* other = nullptr;
  if (!paths.empty() && paths != std::vector<std::string>{"-"}) other = "files";
  if (!absl::GetFlag(FLAGS_out).empty()) other = "--out";
  if (format == PredictionFormat::kNpy) other = "--format=npy";
  if (absl::GetFlag(FLAGS_ranks) > 1 || AnnouncedRank().size > 1) other = "several ranks";
  if (other == nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--stream: goes from standard input to standard output, on one rank; leave out ", other));
}

// All that is known before ranks and devices are.
struct PredictRequest {
  ConfigFiles files;
  Weights weights;
  std::vector<Prediction> predictions;
  PredictionText text;
  StreamInputs stream;                       // with --stream
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
    RETURN_IF_ERROR(WriteFileAtomically(path, text));
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
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_top}));
  RETURN_IF_ERROR(CheckLeast(0, {FLAGS_batch}));
  RETURN_IF_ERROR(CheckThreads(absl::GetFlag(FLAGS_data_threads), "data_threads"));
  PredictRequest wanted;
  ASSIGN_OR_RETURN(wanted.text.format,
                   FormatOf(absl::GetFlag(FLAGS_format), absl::GetFlag(FLAGS_out)));
  wanted.text.top = absl::GetFlag(FLAGS_top);
  const std::string out = absl::GetFlag(FLAGS_out);
  RETURN_IF_ERROR(CheckWritten("out", out));
  if (absl::GetFlag(FLAGS_stream)) {
    RETURN_IF_ERROR(CheckStream(paths, wanted.text.format));
    RETURN_IF_ERROR(CheckUnused({"batch", "data", "data_threads"}, "--stream"));
  } else if (!paths.empty()) {
    RETURN_IF_ERROR(CheckUnused({"data"}, paths[0]));
  }
  if (wanted.text.format == PredictionFormat::kCsv ||
      wanted.text.format == PredictionFormat::kNpy) {
    const std::string format = absl::GetFlag(FLAGS_format);
    RETURN_IF_ERROR(CheckUnused(
        {"top"}, format.empty() ? absl::StrCat("--out=", out) : absl::StrCat("--format=", format)));
  }
  if (wanted.text.format == PredictionFormat::kNpy && out.empty()) {
    return absl::InvalidArgumentError("--format=npy: an array goes to a file; give --out");
  }
  ASSIGN_OR_RETURN(
      TrainedFiles trained,
      ReadTrainedFiles({.run = absl::GetFlag(FLAGS_run),
                        .trainer = absl::GetFlag(FLAGS_trainer),
                        .weights = absl::GetFlag(FLAGS_weights),
                        .weights_map = absl::GetFlag(FLAGS_weights_map),
                        .last_weights = absl::GetFlag(FLAGS_last_weights)},
                       SplitSet(absl::GetFlag(FLAGS_set)), {}, absl::GetFlag(FLAGS_ranks)));
  wanted.files = std::move(trained.files);
  wanted.weights = std::move(trained.weights);
  Parsed<NetConfig>& net = wanted.files.net;
  const TrainerConfig& config = *wanted.files.trainer.message;
  // What is predicted must not make the numbers that it is normalized by.
  if (wanted.weights.fit.empty() &&
      std::ranges::any_of(config.data().normalization(), &NormalizationConfig::auto_)) {
    return absl::InvalidArgumentError(
        absl::StrCat(wanted.weights.path,
                     ": holds no normalization, which the trainer's data need; name the "
                     "run, or what `export` wrote of it: NAME.gyre or NAME.safetensors"));
  }
  // A split by class reads the classes.
  const bool by_class = paths.empty() && config.data().split().by() == HoldOutConfig::CLASS;
  ASSIGN_OR_RETURN(
      wanted.predictions,
      PreparePrediction(absl::GetFlag(FLAGS_outputs), by_class ? config.data().label_input() : "",
                        wanted.weights.fit, *wanted.files.trainer.message->mutable_data(), net));
  RETURN_IF_ERROR(FoldBatchNorms(net, wanted.weights));
  wanted.text.classes = ClassNamesOf(wanted.weights.fit);
  wanted.text.dtype = AccumulateDType(PrecisionOf(config, *net.message));
  if (absl::GetFlag(FLAGS_stream)) {
    ASSIGN_OR_RETURN(wanted.stream, CutToStep(config.data(), wanted.weights.fit, net));
    return wanted;
  }
  RETURN_IF_ERROR(TakeData(paths, wanted));
  return wanted;
}

// What a rank has done.
struct Predicted {
  int64_t samples = 0, bad = 0;  // over all ranks
  std::string begin = {};        // PredictionWriter::Finish's, on rank 0
};

// Rank 0 writes to `sink`.
absl::StatusOr<Predicted> Predict(const PredictRequest& wanted, ProcessGroup& communication,
                                  const DeviceChoice& choice, const FileSink& sink) {
  const auto& [trainer, net, allreduce] = wanted.files;
  ASSIGN_OR_RETURN(RunData data, OpenData(trainer, net, /*train=*/false, wanted.weights.fit));
  SetWorkers(absl::GetFlag(FLAGS_data_threads), choice.threads, data);
  const Dataset& dataset = *data.test;
  const bool first = communication.rank() == 0;
  for (const std::string& note : dataset.notes()) {
    if (first) PrintNote("", note);
  }
  data.feed.max_bad_samples = dataset.size();  // one is told, and the others are predicted
  TrainerConfig config = *trainer.message;
  // What contiguous rows carry depends on their number, which is that of `evaluate` here.
  if (const int batch = absl::GetFlag(FLAGS_batch); batch > 0) {
    config.set_test_batch(batch);
  } else if (config.data().order() != DataConfig::CONTIGUOUS) {
    config.set_test_batch(kBatch);
  }
  const int64_t samples = TestSamplesOf(config, dataset);
  ASSIGN_OR_RETURN(const TrainedNet trained,
                   LoadTrained(net,
                               {.train = false,
                                .shape = ShapeOf(*trainer.message, *net.message,
                                                 communication.rank(), communication.size()),
                                .test_batch = TestBatchOf(config, dataset),
                                .test_samples = samples,
                                .feed = FeedOn(choice.device->kind(), data.feed),
                                .capacity_bytes = choice.device->capacity_bytes(),
                                .pages = {.planner = PlannerOn(choice.device->kind())},
                                .primitives = choice.primitives.get()},
                               wanted.weights.tensors, wanted.weights.path, *choice.device,
                               communication, "--batch"));
  ASSIGN_OR_RETURN(const auto writer,
                   PredictionWriter::Create(sink, wanted.text, wanted.predictions));
  InDataOrder ordered(dataset.size(), [&](int64_t sample, std::span<const Tensor> values) {
    if (values.empty()) return writer->Skip();
    return writer->Write(dataset.Describe(sample), values);
  });
  std::optional<Progress> progress;
  if (first && samples > 0) progress.emplace("predicted", samples);
  const PredictionSink order = [&](int64_t sample, std::span<const Tensor> values) {
    return ordered.Add(sample, values);
  };
  const TestSink predict = PredictionsTo(wanted.predictions, communication, order);
  std::vector<double> bad = {0};
  RETURN_IF_ERROR(RunTest(*trained.model, dataset, *choice.device, *trained.stream, communication,
                          [&](const TestedBatch& tested) {
                            for (const Batch::FaultySample& fault : tested.batch.faults) {
                              ++bad[0];
                              PrintNote("warning: ", fault.message);
                            }
                            if (progress) progress->Add(tested.net.plan().spec.shape.global, 0);
                            return predict(tested);
                          }));
  progress.reset();
  RETURN_IF_ERROR(communication.Sum("samples that could not be read", bad));
  Predicted done{.samples = samples, .bad = static_cast<int64_t>(bad[0])};
  if (!first) return done;
  RETURN_IF_ERROR(ordered.Finish());
  ASSIGN_OR_RETURN(done.begin, writer->Finish());
  return done;
}

absl::Status ToStdout(std::string_view bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size()) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "stdout");
}

// Flushed at once.
absl::Status PredictStream(const PredictRequest& wanted, ProcessGroup& communication,
                           const DeviceChoice& choice) {
  const auto& [trainer, net, allreduce] = wanted.files;
  ASSIGN_OR_RETURN(
      const TrainedNet trained,
      LoadTrained(net,
                  {.train = false,
                   .shape = ShapeOf(*trainer.message, *net.message, /*rank=*/0, /*ranks=*/1),
                   .test_batch = 1,
                   .test_samples = 1,
                   .feed = FeedOn(choice.device->kind(), FeedOfValues(*net.message)),
                   .capacity_bytes = choice.device->capacity_bytes(),
                   .pages = {.planner = PlannerOn(choice.device->kind())},
                   .primitives = choice.primitives.get()},
                  wanted.weights.tensors, wanted.weights.path, *choice.device, communication));
  ASSIGN_OR_RETURN(const auto stream,
                   StreamNet::Create(trained, wanted.stream, wanted.predictions, *choice.device));
  ASSIGN_OR_RETURN(const auto writer,
                   PredictionWriter::Create(ToStdout, wanted.text, wanted.predictions));
  int64_t number = 0;
  for (std::string line; std::getline(std::cin, line);) {
    ++number;
    if (line.empty() && !wanted.stream.characters()) {
      RETURN_IF_ERROR(stream->Begin());
      continue;
    }
    const auto values = stream->Step(line);
    if (!values.ok()) {
      std::fflush(stdout);  // before what stderr says
      return Annotate(values.status(), absl::StrCat("standard input:", number));
    }
    RETURN_IF_ERROR(writer->Write(absl::StrCat(number), *values));
    if (std::fflush(stdout) != 0) return absl::ErrnoToStatus(errno, "stdout");
  }
  return writer->Finish().status();
}

absl::Status PredictAll(const PredictRequest& wanted, ProcessGroup& communication,
                        const DeviceChoice& choice) {
  const std::string out = communication.rank() == 0 ? absl::GetFlag(FLAGS_out) : "";
  Predicted done;
  const auto predict = [&](const FileSink& sink) -> absl::Status {
    ASSIGN_OR_RETURN(done, Predict(wanted, communication, choice, sink));
    return absl::OkStatus();
  };
  // The file is opened before the data, so that a folder that is not there is told at once.
  RETURN_IF_ERROR(out.empty() ? predict(ToStdout) : WriteFileAtomically(out, predict, &done.begin));
  if (done.bad == 0) return absl::OkStatus();
  if (communication.rank() == 0) std::fflush(stdout);  // before what stderr says
  return absl::FailedPreconditionError(
      done.bad == done.samples
          ? absl::StrFormat("no sample of %d could be read", done.samples)
          : absl::StrFormat("%d of %s could not be read; the others are predicted", done.bad,
                            Counted(done.samples, "sample")));
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  const std::vector<std::string> paths =
      ParseFlags(argc, argv, kUsage, kGroups, /*takes_arguments=*/true);
  auto wanted = Read(paths);
  if (wanted.ok()) BeforeFailing([&] { wanted->folder.reset(); });
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
                 return absl::GetFlag(FLAGS_stream) ? PredictStream(*wanted, communication, choice)
                                                    : PredictAll(*wanted, communication, choice);
               });
  return FinishOutput(status.ok() ? 0 : kExitFailed);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
