// train: trains the net of a trainer file; under mpirun, on several ranks.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <mutex>
#include <optional>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/transport/launcher.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/sets/data_memory.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/timeline.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_feed.h"
#include "engine/training/feed/sent_data.h"
#include "engine/training/feed/shown_batch.h"
#include "engine/training/run/trainer.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/flag_values.h"
#include "tools/command_line/flags.h"
#include "tools/command_line/process.h"
#include "tools/command_line/ranks.h"
#include "tools/command_line/run_files.h"
#include "tools/command_line/signals.h"

ABSL_FLAG(std::string, trainer, "", "Text file of the trainer, which names the net and the data.");
ABSL_FLAG(std::string, set, "",
          "PATH=VALUE of a field of the trainer or, as net.PATH, of the net.  Repeatable.");
ABSL_FLAG(std::string, precision, "",
          "F32, F64, F16 or BF16.  Default: the trainer's, or the net's.");
ABSL_FLAG(std::string, weights, "",
          "Initial weights, by name: a run's folder, a checkpoint's, a safetensors or npz file.");
ABSL_FLAG(std::string, weights_map, "",
          "OLD=NEW,...: renames tensors of --weights, or all under \"OLD.\" or \"OLD-\".  OLD= "
          "leaves them out.  The longest OLD counts.");
ABSL_FLAG(bool, weights_partial, false,
          "Take --weights that have less than half of the net's tensors.");
ABSL_FLAG(std::string, out, "",
          "Folder for metrics.jsonl and checkpoints/.  Default: runs/NET-TIME.");
ABSL_FLAG(std::string, resume, "",
          "latest (checkpoint of --out), auto (that, or a new run), or a checkpoint's folder.");
ABSL_FLAG(std::string, checkpoint_every, "",
          "Steps between checkpoints.  Default: the trainer's, or an epoch.");
ABSL_FLAG(std::string, epochs, "", "Passes over the training data.  Default: the trainer's.");
ABSL_FLAG(std::string, steps, "", "Steps of the run, in place of --epochs.");
ABSL_FLAG(std::string, batch, "",
          "Samples a step, over all ranks.  auto: as many as fit without paging, else with it.  "
          "Default: the trainer's.");
ABSL_FLAG(std::string, seed, "", "Seed of all random numbers.  Default: the trainer's.");
ABSL_FLAG(std::string, device, "cpu", "cpu, cuda (a GPU) or sim (a CPU with bounded memory).");
ABSL_FLAG(int, threads, 0, "Threads of each rank.  0: cores / ranks on this host.");
ABSL_FLAG(std::string, device_memory, "", "Bytes of device memory (cuda, sim), such as 64M.");
ABSL_FLAG(std::string, host_memory, "",
          "Bytes of each rank's host memory for pages, such as 1G.  Pages beyond go to disk.  "
          "Default: no limit.");
ABSL_FLAG(std::string, page_folder, "",
          "Folder on a fast disk for pages beyond --host_memory.  Default: where --out is, if that "
          "is a disk of this host; else TMPDIR, /var/tmp or /tmp.");
ABSL_FLAG(std::string, page_activations, "",
          "Type of F32 activations while paged: F32, or F16 or BF16, which round.  Default: the "
          "trainer's, or F32.");
ABSL_FLAG(std::string, planner, "auto",
          "Paging planner for nets larger than --device_memory: auto (fastest predicted plan), "
          "geeps (GeePS's algorithm), none (too large a net is an error).");
ABSL_FLAG(bool, autotune, true,
          "Measure a GPU's algorithms at the start.  Off: use its libraries' recommendations.");
ABSL_FLAG(int, data_threads, 0,
          "Threads of each rank that decode samples.  0: as --threads for pictures, else 1.");
ABSL_FLAG(std::string, data_memory, "0",
          "Bytes of each process in which decoded pictures stay, such as 4G.  --ranks share them.");
ABSL_FLAG(int, ranks, 1, "Ranks as threads of this process, without mpirun or srun.");
ABSL_FLAG(std::string, allreduce, "",
          "Algorithm by which ranks sum gradients: auto, ring, direct, halving_doubling, "
          "recursive_doubling, shared, hierarchical, mpi (under mpirun), naive, nccl (GPUs).  "
          "Default: the trainer's, or auto; of a resumed run its checkpoint's.");
ABSL_FLAG(std::string, wire, "",
          "Type of gradients between ranks, by --allreduce=direct or a parameter server: F32, F16 "
          "or BF16.  Default: the trainer's, or F32.");
namespace {
int shard_optimizer_values = 0;  // that the flag has had: its default, and what a user gives
}
ABSL_FLAG(bool, shard_optimizer, false,
          "Each of N ranks updates 1/N of the weights and holds 1/N of the optimizer's state.")
    .OnUpdate([] { ++shard_optimizer_values; });
ABSL_FLAG(std::string, sync, "",
          "allreduce (ranks sum gradients), or a parameter server: bsp (all wait each step), ssp "
          "(within --staleness), async.  Default: the trainer's, or allreduce.");
ABSL_FLAG(std::string, staleness, "", "Steps that ssp may lag.  Default: the trainer's, or 0.");
ABSL_FLAG(
    std::string, servers, "",
    "Ranks of a parameter server, the last ones, that only serve.  Default: the trainer's, or 0.");
ABSL_FLAG(std::string, server_memory, "",
          "Memory in which owners hold and update their shards: device or host.  Default: the "
          "trainer's, or device.");
ABSL_FLAG(bool, send_data, false,
          "Only rank 0's host has the data.  Others receive it into a temporary folder.");
ABSL_FLAG(int, stall_timeout_s, gyre::kStallTimeoutS,
          "Seconds that ranks wait for a silent one before the run ends.");
ABSL_FLAG(bool, plan, false, "Print layers, memory and communication.  Train nothing.");
ABSL_FLAG(bool, verbose, false, "With --plan: also steps, states' places, costs of less memory.");
ABSL_FLAG(bool, json, false, "With --plan: print one JSON object.");
ABSL_FLAG(std::string, plan_picture, "",
          "With --plan: draw memory and copies over time.  NAME.html or NAME.svg.");
ABSL_FLAG(std::string, show_batch, "",
          "Write the first batch's pictures, as the net gets them, with labels: NAME.png.  Train "
          "nothing.");
ABSL_FLAG(std::string, timeline, "",
          "File for a Chrome trace of work and waits, such as timeline.json.  Under mpirun, one a "
          "rank: timeline.rank0.json, ...");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "trains a net.\n"
    "\n"
    "  train --trainer=models/lenet/trainer.textproto\n"
    "  mpirun -np 2 train --trainer=models/lenet/trainer.textproto --out=runs/a\n"
    "  train --trainer=... --ranks=2                    # the same without mpirun\n"
    "  train --trainer=... --out=runs/a --resume=latest # after an interruption\n"
    "  train --trainer=... --plan                       # what it would do\n"
    "  train --trainer=... --show_batch=batch.png       # what the net would see\n"
    "\n"
    "The last line is `weights sha256 HEX`: equal runs give equal digests.\n"
    "\n"
    "SIGUSR1 makes a checkpoint. SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR2, SIGALRM,\n"
    "SIGXCPU and SIGPWR make one and stop. mpirun passes SIGINT, SIGTERM, SIGUSR1 and\n"
    "SIGUSR2 on. It kills a second after SIGINT or SIGTERM, or later with\n"
    "--mca odls_base_sigkill_timeout 30.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags, 130 stopped with a checkpoint.\n"
    "Before training a signal kills. A shell's code is then 128 and its number, 130\n"
    "of Ctrl-C.";

const std::vector<FlagGroup> kGroups = {
    {"Data and net", {"trainer", "set", "precision", "weights", "weights_map", "weights_partial"}},
    {"Output and resuming", {"out", "resume", "checkpoint_every"}},
    {"Length", {"epochs", "steps", "batch", "seed"}},
    {"Devices and memory",
     {"device", "threads", "data_threads", "data_memory", "device_memory", "host_memory",
      "page_folder", "page_activations", "planner", "autotune"}},
    {"Ranks",
     {"ranks", "allreduce", "wire", "shard_optimizer", "sync", "staleness", "servers",
      "server_memory", "send_data", "stall_timeout_s"}},
    {"Looking", {"plan", "verbose", "json", "plan_picture", "show_batch", "timeline"}},
};

// Of flags whose words a file has in capitals, in which an error of the field would name them.
absl::Status CheckWords() {
  const std::string sync = absl::GetFlag(FLAGS_sync), place = absl::GetFlag(FLAGS_server_memory);
  constexpr std::string_view kSyncs[] = {"", "allreduce", "bsp", "ssp", "async"};
  constexpr std::string_view kPlaces[] = {"", "device", "host"};
  if (std::ranges::count(kSyncs, absl::AsciiStrToLower(sync)) == 0) {
    return WrongValue("sync", sync, "allreduce, bsp, ssp or async");
  }
  if (std::ranges::count(kPlaces, absl::AsciiStrToLower(place)) == 0) {
    return WrongValue("server_memory", place, "device or host");
  }
  return absl::OkStatus();
}

// Short flags are overrides of trainer fields; they win over --set.
// spellings: how the user wrote them.
std::vector<std::string> Overrides(Spellings& spellings) {
  std::vector<std::string> overrides = SplitSet(absl::GetFlag(FLAGS_set));
  // A flag is called as its field is, which is the last part of its path.
  const auto add = [&](const std::string& path, const std::string& typed, bool upper = false) {
    if (typed.empty()) return;
    overrides.push_back(absl::StrCat(path, "=", upper ? absl::AsciiStrToUpper(typed) : typed));
    spellings[overrides.back()] = absl::StrCat("--", path.substr(path.rfind('.') + 1), "=", typed);
  };
  add("precision", absl::GetFlag(FLAGS_precision));
  add("page_activations", absl::GetFlag(FLAGS_page_activations));
  add("distributed.allreduce", absl::GetFlag(FLAGS_allreduce));
  add("distributed.wire", absl::GetFlag(FLAGS_wire));
  add("distributed.sync", absl::GetFlag(FLAGS_sync), /*upper=*/true);
  add("distributed.staleness", absl::GetFlag(FLAGS_staleness));
  add("distributed.servers", absl::GetFlag(FLAGS_servers));
  add("distributed.server_memory", absl::GetFlag(FLAGS_server_memory), /*upper=*/true);
  if (shard_optimizer_values > 1) {
    const bool on = absl::GetFlag(FLAGS_shard_optimizer);
    add("distributed.shard_optimizer", on ? "true" : "false");
    spellings[overrides.back()] = on ? "--shard_optimizer" : "--noshard_optimizer";
  }
  add("checkpoint_every", absl::GetFlag(FLAGS_checkpoint_every));
  add("epochs", absl::GetFlag(FLAGS_epochs));
  add("steps", absl::GetFlag(FLAGS_steps));
  if (const std::string batch = absl::GetFlag(FLAGS_batch); batch != "auto") add("batch", batch);
  add("seed", absl::GetFlag(FLAGS_seed));
  return overrides;
}

// Makes the folder of a run without --out: runs that start in one second have one each.
absl::StatusOr<std::string> MakeOutFolder(const NetConfig& net) {
  const std::string name =
      absl::StrCat("runs/", net.name(), "-",
                   absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()));
  std::error_code error;
  std::filesystem::create_directories("runs", error);
  for (int number = 1; !error; ++number) {
    const std::string path = number == 1 ? name : absl::StrCat(name, "-", number);
    if (!std::filesystem::create_directory(path, error)) continue;
    // On the disk as well, in case of a power cut.
    for (const char* const holder : {".", "runs"}) {
      const int fd = open(holder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
      if (fd < 0) continue;
      fsync(fd);
      close(fd);
    }
    return path;
  }
  return absl::ErrnoToStatus(error.value(), absl::StrCat("cannot create ", name));
}

absl::StatusOr<size_t> DataMemoryBytes() {
  const std::string bytes = absl::GetFlag(FLAGS_data_memory);
  if (bytes == "0") return 0;
  return ParseBytes("--data_memory", bytes);
}

// All but what a rank's device decides; the same for the ranks of this process.
absl::StatusOr<TrainingOptions> OptionsOf(const ConfigFiles& files) {
  RETURN_IF_ERROR(CheckThreads(absl::GetFlag(FLAGS_data_threads), "data_threads"));
  if (!absl::GetFlag(FLAGS_epochs).empty() && !absl::GetFlag(FLAGS_steps).empty()) {
    return absl::InvalidArgumentError("--steps: is in place of --epochs; leave one out");
  }
  const std::string resume = absl::GetFlag(FLAGS_resume);
  if ((resume == "latest" || resume == "auto") && absl::GetFlag(FLAGS_out).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume=", resume, " needs --out, the folder to resume in"));
  }
  const std::string device = absl::GetFlag(FLAGS_device), by = absl::GetFlag(FLAGS_planner);
  ASSIGN_OR_RETURN(const PlannerKind planner, PlannerNamed("planner", by));
  if (planner != PlannerKind::kAuto) RETURN_IF_ERROR(CheckPages("--planner", device));
  if (!absl::GetFlag(FLAGS_page_activations).empty()) {
    RETURN_IF_ERROR(CheckPages("--page_activations", device));
  }
  RETURN_IF_ERROR(DataMemoryBytes().status());
  const std::string out = absl::GetFlag(FLAGS_out);
  ASSIGN_OR_RETURN(const PageStorage pages,
                   ParsePageStorage(device, absl::GetFlag(FLAGS_host_memory),
                                    absl::GetFlag(FLAGS_page_folder), out.empty() ? "runs" : out));
  return TrainingOptions{
      .out = out,
      .resume = resume,
      .weights = absl::GetFlag(FLAGS_weights),
      .weights_map = absl::GetFlag(FLAGS_weights_map),
      .weights_partial = absl::GetFlag(FLAGS_weights_partial),
      .net_text = files.net.message->DebugString(),
      .trainer_text = files.trainer.message->DebugString(),
      .trainer_file = std::filesystem::absolute(files.trainer.source->file()).string(),
      .pages = {.planner = planner, .host_bytes = pages.host_bytes, .folder = pages.folder},
      .largest_batch = absl::GetFlag(FLAGS_batch) == "auto",
      .stop = &Signals().stop,
      .save = &Signals().save};
}

absl::Status CheckLooks(const std::string& path, bool plan) {
  const std::string batch = absl::GetFlag(FLAGS_show_batch);
  if (!batch.empty() && plan) {
    return absl::InvalidArgumentError("--show_batch: plans nothing; leave out --plan");
  }
  if (!batch.empty()) RETURN_IF_ERROR(CheckEnding("show_batch", batch, {".png"}));
  RETURN_IF_ERROR(CheckWritten("show_batch", batch));
  if (!plan && absl::GetFlag(FLAGS_json)) {
    return absl::InvalidArgumentError("--json needs --plan");
  }
  if (!plan && absl::GetFlag(FLAGS_verbose)) {
    return absl::InvalidArgumentError("--verbose needs --plan");
  }
  if (absl::GetFlag(FLAGS_json) && absl::GetFlag(FLAGS_verbose)) {
    return absl::InvalidArgumentError("--verbose: of --plan without --json; leave one out");
  }
  if (path.empty()) return absl::OkStatus();
  if (!plan) return absl::InvalidArgumentError("--plan_picture needs --plan");
  return CheckEnding("plan_picture", path, {".svg", ".html"});
}

absl::Status OpenTimeline() {
  std::filesystem::path path = absl::GetFlag(FLAGS_timeline);
  if (path.empty()) return absl::OkStatus();
  const RankAndSize self = AnnouncedRank();
  if (self.size > 1) {
    const std::string extension = path.extension();
    path.replace_extension(absl::StrCat("rank", self.rank, extension));
  }
  return Timeline::Open(path);
}

// The flags by which ranks go through the same together, a line each: "--sync=bsp" or "no --sync".
// Where the files are that they read is each host's own.
std::string CommandOf() {
  std::string command;
  const auto add = [&](const char* flag, const std::string& value) {
    absl::StrAppend(&command, value.empty() ? "no --" : "--", flag, value.empty() ? "" : "=", value,
                    "\n");
  };
  const auto add_switch = [&](const char* flag, bool on) {
    absl::StrAppend(&command, on ? "--" : "no --", flag, "\n");
  };
  add("device", absl::GetFlag(FLAGS_device));
  add("out", absl::GetFlag(FLAGS_out));
  add_switch("plan", absl::GetFlag(FLAGS_plan));
  add_switch("show_batch", !absl::GetFlag(FLAGS_show_batch).empty());
  add_switch("send_data", absl::GetFlag(FLAGS_send_data));
  add_switch("batch=auto", absl::GetFlag(FLAGS_batch) == "auto");
  const std::string resume = absl::GetFlag(FLAGS_resume);
  const bool named = resume != "" && resume != "latest" && resume != "auto";
  add("resume", named ? "DIR" : resume);
  add_switch("weights", !absl::GetFlag(FLAGS_weights).empty());
  add_switch("weights_partial", absl::GetFlag(FLAGS_weights_partial));
  add("sync", absl::AsciiStrToLower(absl::GetFlag(FLAGS_sync)));
  add("staleness", absl::GetFlag(FLAGS_staleness));
  add("servers", absl::GetFlag(FLAGS_servers));
  add("server_memory", absl::AsciiStrToLower(absl::GetFlag(FLAGS_server_memory)));
  add("allreduce", absl::GetFlag(FLAGS_allreduce));
  add("wire", absl::GetFlag(FLAGS_wire));
  add_switch("shard_optimizer", absl::GetFlag(FLAGS_shard_optimizer));
  add("stall_timeout_s", absl::StrCat(absl::GetFlag(FLAGS_stall_timeout_s)));
  return command;
}

// The data, which ranks that are threads of this process share.
struct SharedRunData {
  std::mutex mutex;
  std::optional<absl::StatusOr<RunData>> data;
  std::string note;  // what a plan assumes
};

absl::StatusOr<RunData> OpenOnce(const ConfigFiles& files, const Fit& fit, bool plan,
                                 SharedRunData& shared) {
  std::lock_guard lock(shared.mutex);
  if (shared.data) return *shared.data;
  ASSIGN_OR_RETURN(const size_t memory, DataMemoryBytes());
  shared.data = OpenData(files.trainer, files.net, /*train=*/true, fit, /*path_of=*/{}, memory);
  if (!plan || !absl::IsNotFound(shared.data->status())) return *shared.data;
  shared.note =
      absl::StrCat("planned without data, by the net's inputs: ", shared.data->status().message());
  shared.data = AssumeData(files.trainer, files.net);
  return *shared.data;
}

absl::StatusOr<RunData> Open(const ConfigFiles& files, const TrainingOptions& options, bool plan,
                             ProcessGroup& communication, SharedRunData& shared) {
  ASSIGN_OR_RETURN(const Fit fit,
                   NormalizationOfStart(*files.trainer.message, options, communication));
  if (!absl::GetFlag(FLAGS_send_data)) return OpenOnce(files, fit, plan, shared);
  ASSIGN_OR_RETURN(const size_t memory, DataMemoryBytes());
  ASSIGN_OR_RETURN(SentData sent,
                   OpenSentData(files.trainer, files.net, fit, communication, memory));
  if (communication.rank() == 0) {
    if (sent.folders == 0) {
      std::printf("data: nothing sent, because all ranks are on one host\n");
    } else {
      std::printf("data: %s of %.1f MiB sent to %s\n", Counted(sent.files, "file").c_str(),
                  static_cast<double>(sent.bytes) / (1 << 20),
                  Counted(sent.folders, "host").c_str());
    }
  }
  return std::move(sent.data);
}

absl::Status Train(const ConfigFiles& files, TrainingOptions options, bool plan,
                   ProcessGroup& communication, const DeviceChoice& choice, SharedRunData& shared) {
  Timeline::SetRow(Timeline::NewRow(communication.rank(), "training"));
  options.choices["threads"] = absl::StrCat(choice.threads);
  options.pages.threads = choice.threads;
  options.choices["ranks"] = absl::StrCat(communication.size());
  const auto open = [&]() -> absl::StatusOr<RunData> {
    ASSIGN_OR_RETURN(RunData data, Open(files, options, plan, communication, shared));
    SetWorkers(absl::GetFlag(FLAGS_data_threads), choice.threads, data);
    return data;
  };
  if (const std::string path = absl::GetFlag(FLAGS_show_batch); !path.empty()) {
    if (communication.rank() != 0) return open().status();
    ASSIGN_OR_RETURN(const ShownBatch shown,
                     WriteFirstBatch(path, files.trainer, files.net, open, *choice.device));
    for (const std::string& fault : shown.left_out) PrintNote("warning: ", fault + "; not shown");
    std::printf("%s: %s\n", path.c_str(), shown.title.c_str());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(RunData data, open());
  options.tune = choice.tune;
  const bool leader = communication.rank() == 0, makes_folder = options.out.empty() && !plan;
  if (makes_folder) {
    if (leader) {
      ASSIGN_OR_RETURN(options.out, MakeOutFolder(*files.net.message));
    }
    ASSIGN_OR_RETURN(options.out, communication.TextOfLeader("the folder of the run", options.out));
  }
  const std::shared_ptr<DataMemory> memory = data.memory;
  const auto prepared = Trainer::Prepare(files.trainer, files.net, std::move(data), *choice.device,
                                         *choice.primitives, communication, options);
  std::error_code not_empty;  // or nothing has been written
  if (!prepared.ok()) {
    if (makes_folder && leader) std::filesystem::remove(options.out, not_empty);
    return prepared.status();
  }
  const auto& run = *prepared;
  if (plan) {
    if (!leader) return absl::OkStatus();
    PlanSummary summary = run->Summary();
    if (!shared.note.empty()) summary.notes.push_back(shared.note);
    const std::string picture = absl::GetFlag(FLAGS_plan_picture);
    const bool verbose = absl::GetFlag(FLAGS_verbose);
    const std::string text =
        PlanText(summary, verbose || !picture.empty() ? run->plan().DescribeDetails(summary)
                                                      : std::string());
    const std::string shown = absl::GetFlag(FLAGS_json) ? PlanJson(summary) + "\n"
                              : verbose                 ? text
                                                        : PlanText(summary, "");
    std::fputs(shown.c_str(), stdout);
    if (picture.empty()) return absl::OkStatus();
    const bool page = !absl::EndsWith(picture, ".svg");
    return WriteFileAtomically(picture,
                               DrawPlan(run->plan().nets, files.net.message->name(), page, text));
  }
  if (leader) {
    std::fputs(run->plan().DescribeStart().c_str(), stdout);
    std::fflush(stdout);  // a file has them before what stderr says
  }
  const DistributedConfig& distributed = files.trainer.message->distributed();
  const bool sums = communication.size() > 1 && distributed.sync() == DistributedConfig::ALLREDUCE;
  if (leader && communication.algorithm() == "auto" && (sums || distributed.has_allreduce())) {
    std::printf("allreduce %s\n", communication.DescribeAllreduce().c_str());
  }
  Signals().training = true;
  const absl::StatusOr<std::string> digest = run->Run();
  if (!digest.ok() && makes_folder && leader) std::filesystem::remove(options.out, not_empty);
  Signals().said = "";  // mpirun may signal this rank because another has ended before it
  if (absl::IsCancelled(digest.status())) {  // on all ranks: they leave as they do after success
    // At once: mpirun, if it was signalled too, leaves a rank no more than a second.
    if (leader) std::fprintf(stderr, "%s\n", std::string(digest.status().message()).c_str());
    return digest.status();
  }
  // Here, while the run's memory lives: the communication thread may be summing gradients in it.
  if (!digest.ok()) Fail(&communication, digest.status());
  if (leader && memory != nullptr) {
    std::printf("data memory: %s of %.1f MiB kept\n",
                Counted(memory->pictures(), "picture").c_str(),
                static_cast<double>(memory->taken()) / (1 << 20));
  }
  if (leader) std::printf("weights sha256 %s\n", digest->c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage, kGroups);
  HandleSignals();
  Spellings spellings;
  const std::vector<std::string> overrides = Overrides(spellings);
  const absl::Status words = CheckWords();
  const absl::StatusOr<ConfigFiles> files =
      words.ok() ? ReadFiles(absl::GetFlag(FLAGS_trainer), overrides, absl::GetFlag(FLAGS_device),
                             spellings, absl::GetFlag(FLAGS_ranks))
                 : absl::StatusOr<ConfigFiles>(words);
  AllreduceChoice allreduce = files.ok() ? files->allreduce : AllreduceChoice{"auto"};
  allreduce.command = CommandOf();
  auto ranks = JoinRanks(std::move(allreduce), absl::GetFlag(FLAGS_ranks),
                         absl::GetFlag(FLAGS_stall_timeout_s));
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  if (!files.ok()) Fail(ranks->front().get(), files.status());
  const absl::StatusOr<TrainingOptions> options = OptionsOf(*files);
  if (!options.ok()) Fail(ranks->front().get(), options.status());
  const bool plan = absl::GetFlag(FLAGS_plan);
  if (const absl::Status looks = CheckLooks(absl::GetFlag(FLAGS_plan_picture), plan); !looks.ok()) {
    Fail(ranks->front().get(), looks);
  }
  if (const absl::Status opened = plan ? absl::OkStatus() : OpenTimeline(); !opened.ok()) {
    Fail(ranks->front().get(), opened);
  }
  SharedRunData shared;
  const absl::Status status =
      RunRanks(*std::move(ranks),
               {.kind = absl::GetFlag(FLAGS_device),
                .memory = absl::GetFlag(FLAGS_device_memory),
                .threads = absl::GetFlag(FLAGS_threads),
                .tf32 = files->trainer.message->tf32(),
                .autotune = absl::GetFlag(FLAGS_autotune) && !plan},
               [&](ProcessGroup& communication, const DeviceChoice& choice) {
                 return Train(*files, *options, plan, communication, choice, shared);
               });
  if (const absl::Status end = Timeline::Close(); !end.ok()) Fail(nullptr, end);
  return FinishOutput(status.ok() ? 0 : kExitStopped);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
