// train: trains the net of a trainer file; under mpirun, on several ranks.

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/transport/launcher.h"
#include "engine/data/atomic_file.h"
#include "engine/runtime/timeline.h"
#include "engine/training/sent_data.h"
#include "engine/training/trainer.h"
#include "tools/command_line.h"
#include "tools/process.h"

ABSL_FLAG(std::string, trainer, "", "The trainer's text file; it names the net and the data.");
ABSL_FLAG(bool, send_data, false,
          "Rank 0's host alone has the data's files: the others are sent them, to a temporary "
          "folder (TMPDIR) while they read them.");
ABSL_FLAG(std::string, device, "cpu",
          "cpu, cuda (a GPU), or sim (a CPU with separate, bounded memory).");
ABSL_FLAG(std::string, autotune, "on",
          "on: a GPU's algorithms are the fastest of a few, measured at the start; off: those that "
          "its libraries recommend.");
ABSL_FLAG(std::string, device_memory, "", "Bytes of device memory (cuda, sim), such as 64M.");
ABSL_FLAG(std::string, host_memory, "",
          "Bytes of host memory for what --device_memory does not hold, of each rank, such as 1G; "
          "what is beyond waits on disk.  Default: as many as that takes.");
ABSL_FLAG(std::string, page_folder, "",
          "Folder on a fast disk for a file of what --host_memory does not hold; it goes when the "
          "run ends, however that does.  Default: where --out is.");
ABSL_FLAG(std::string, planner, "auto",
          "Of what moves when where --device_memory does not hold all: auto, geeps (as GeePS did), "
          "naive (nothing while a layer works), or none: that is an error.");
ABSL_FLAG(std::string, page_activations, "",
          "F32, F16 or BF16: as what activations of F32 leave the device and come back where "
          "--device_memory does not hold all.  16 bits halve the bytes and round them.");
ABSL_FLAG(std::string, precision, "",
          "F32, F64, F16 or BF16; default: the trainer file's, or the net's.");
ABSL_FLAG(std::string, wire, "",
          "F32, F16 or BF16: as what gradients travel between ranks, by \"direct\" or a server.  "
          "Default: the trainer file's, or F32.");
ABSL_FLAG(
    std::string, sync, "",
    "allreduce: gradients are summed over ranks; else owners of a parameter server apply them: "
    "bsp once a step, ssp each rank's as it comes, within --staleness, async without bound.  "
    "Default: the trainer file's, or allreduce.");
ABSL_FLAG(std::string, staleness, "",
          "Of ssp: by how many steps what a rank reads may lack what others have sent.  Default: "
          "the trainer file's, or 0.");
ABSL_FLAG(
    std::string, servers, "",
    "Of a parameter server: so many ranks, the last ones, own parts of the weights and train on "
    "nothing.  Default: 0, all ranks do both.");
ABSL_FLAG(std::string, server_memory, "",
          "Of a parameter server: device, or host: owners have their parts and update them in host "
          "memory, and the device waits for its copies; to compare with.  Default: device.");
namespace {
int shard_optimizer_values = 0;  // that the flag has had: its default, and what a user gives
}
ABSL_FLAG(bool, shard_optimizer, false,
          "Each rank updates 1/N of the weights, and has the optimizer's state of these alone.")
    .OnUpdate([] { ++shard_optimizer_values; });
ABSL_FLAG(std::string, out, "",
          "Folder for metrics.jsonl and checkpoints/; default: runs/NET-TIME.");
ABSL_FLAG(
    std::string, resume, "",
    "latest of --out; auto: that, or, where --out has none, a new run; or a checkpoint's folder.");
ABSL_FLAG(
    std::string, weights, "",
    "A run's folder, a checkpoint's, or a safetensors file to start from: its tensors replace the "
    "first values of the parameters of the same names, the others keep theirs.");
ABSL_FLAG(std::string, weights_map, "",
          "OLD=NEW,...: the tensor OLD of --weights, and each whose name begins with \"OLD.\" or "
          "\"OLD-\" (a layer's, a block's), gets NEW in that place; OLD= leaves them out; the "
          "longer OLD counts.");
ABSL_FLAG(std::string, checkpoint_every, "", "Steps from one checkpoint to the next.");
ABSL_FLAG(std::string, steps, "", "Length of the run in steps.");
ABSL_FLAG(std::string, epochs, "", "Length of the run in passes over the training data.");
ABSL_FLAG(
    std::string, batch, "",
    "Samples a step, over all ranks; auto: as many as the device's memory has room for without "
    "paging, or, where there is none for any, with it.");
ABSL_FLAG(std::string, seed, "", "All random numbers follow from it.");
ABSL_FLAG(int, ranks, 1, "Ranks that are threads of this process, in place of mpirun's or srun's.");
ABSL_FLAG(int, stall_timeout_s, gyre::kStallTimeoutS,
          "Seconds that ranks wait for one that is silent; then the run ends, and names it.");
ABSL_FLAG(int, threads, 0, "Threads of each rank; 0: cores / ranks on this host.");
ABSL_FLAG(std::string, timeline, "",
          "A file, such as timeline.json, for what each rank computed, sent and waited for, and "
          "when: a Chrome trace, for ui.perfetto.dev.  Under mpirun one a rank: "
          "timeline.rank0.json.");
ABSL_FLAG(bool, plan, false,
          "Print layers, shapes, FLOPs, memory, paging and communication; train nothing.");
ABSL_FLAG(
    std::string, plan_picture, "",
    "With --plan: a file, such as plan.html, for a picture of an iteration's memory, steps and "
    "copies as they are planned, and for what is printed; plan.svg: the picture alone.");
ABSL_FLAG(std::string, set, "",
          "path=value for any field of the trainer (optimizer.sgd.momentum=0.5) or the net "
          "(net.layer.conv1.conv2d.filters=32); may be repeated.");

namespace gyre {
namespace {

constexpr char kUsage[] =
    "trains a net.\n\n"
    "  train --trainer=models/lenet/trainer.textproto\n"
    "  mpirun -np 2 train --trainer=models/lenet/trainer.textproto --out=runs/a\n"
    "  train --trainer=... --ranks=2                         # the same without mpirun\n"
    "  train --trainer=... --out=runs/a --resume=latest      # after an interruption\n"
    "  train --trainer=... --plan                            # what it would do\n\n"
    "The last line is `weights sha256 HEX`: equal runs give equal digests.\n"
    "SIGUSR1 makes a checkpoint.  SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR2, SIGALRM, SIGXCPU and\n"
    "SIGPWR make one and stop.  mpirun passes SIGINT, SIGTERM, SIGUSR1 and SIGUSR2 on, and kills "
    "a\n"
    "second after the first two: --mca odls_base_sigkill_timeout 30 gives it longer.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags, 130 stopped with a checkpoint.";

std::atomic<bool> stop_requested = false, save_requested = false;
std::atomic<bool> training = false;      // there is something to save
std::atomic<const char*> stopping = "";  // what this rank says of a signal that stops

void Print(const char* line) {
  if (write(STDERR_FILENO, line, std::strlen(line)) < 0) return;  // as a handler may
}

// The first signal that stops asks for a checkpoint and a clean end; the second one kills.  A
// reader of stdout that went away is no reason to lose the run, either; nor is a limit of CPU time,
// which comes again each second.
void OnSignal(int signal) {
  if (signal == SIGUSR1) {
    save_requested = true;
    return;
  }
  stop_requested = true;
  const bool repeats = signal == SIGPIPE || (signal == SIGXCPU && training);
  std::signal(signal, repeats ? SIG_IGN : SIG_DFL);
  if (training) return Print(stopping);
  Print("stopped before training began\n");
  raise(signal);  // once this handler is left
}

void HandleSignals() {
  if (Launcher() == "mpirun" && AnnouncedRank().rank == 0) {
    stopping =
        "stopping with a checkpoint; if mpirun kills first, start it with --mca "
        "odls_base_sigkill_timeout 30\n";
  }
  // What people, batch systems and limits end a program by, or warn it with.
  for (const int signal :
       {SIGINT, SIGTERM, SIGQUIT, SIGUSR1, SIGUSR2, SIGALRM, SIGXCPU, SIGPWR, SIGPIPE}) {
    std::signal(signal, OnSignal);
  }
  // A closed terminal; under nohup it stays ignored.
  if (std::signal(SIGHUP, OnSignal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
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
  add("distributed.wire", absl::GetFlag(FLAGS_wire));
  add("distributed.sync", absl::GetFlag(FLAGS_sync), /*upper=*/true);
  add("distributed.staleness", absl::GetFlag(FLAGS_staleness));
  add("distributed.servers", absl::GetFlag(FLAGS_servers));
  add("distributed.server_memory", absl::GetFlag(FLAGS_server_memory), /*upper=*/true);
  if (shard_optimizer_values > 1) {
    add("distributed.shard_optimizer", absl::GetFlag(FLAGS_shard_optimizer) ? "true" : "false");
  }
  add("checkpoint_every", absl::GetFlag(FLAGS_checkpoint_every));
  add("epochs", absl::GetFlag(FLAGS_epochs));
  add("steps", absl::GetFlag(FLAGS_steps));
  if (const std::string batch = absl::GetFlag(FLAGS_batch); batch != "auto") add("batch", batch);
  add("seed", absl::GetFlag(FLAGS_seed));
  return overrides;
}

std::string OutFolder(const NetConfig& net) {
  const std::string out = absl::GetFlag(FLAGS_out);
  if (!out.empty()) return out;
  return absl::StrCat("runs/", net.name(), "-",
                      absl::FormatTime("%Y%m%d-%H%M%S", absl::Now(), absl::LocalTimeZone()));
}

// All but what a rank's device decides; the same for the ranks of this process.
absl::StatusOr<TrainingOptions> OptionsOf(const Files& files) {
  const std::string resume = absl::GetFlag(FLAGS_resume);
  if ((resume == "latest" || resume == "auto") && absl::GetFlag(FLAGS_out).empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--resume=", resume, " needs --out, the folder to resume in"));
  }
  const std::string device = absl::GetFlag(FLAGS_device);
  ASSIGN_OR_RETURN(const PlannerKind planner, PlannerNamed(absl::GetFlag(FLAGS_planner)));
  if (planner != PlannerKind::kAuto) RETURN_IF_ERROR(CheckPages("--planner", device));
  if (!absl::GetFlag(FLAGS_page_activations).empty()) {
    RETURN_IF_ERROR(CheckPages("--page_activations", device));
  }
  const std::string out = OutFolder(*files.net.message);
  ASSIGN_OR_RETURN(const PagePlaces pages, ParsePagePlaces(device, absl::GetFlag(FLAGS_host_memory),
                                                           absl::GetFlag(FLAGS_page_folder), out));
  return TrainingOptions{.out = out,
                         .resume = resume,
                         .weights = absl::GetFlag(FLAGS_weights),
                         .weights_map = absl::GetFlag(FLAGS_weights_map),
                         .net_text = files.net.message->DebugString(),
                         .trainer_text = files.trainer.message->DebugString(),
                         .planner = planner,
                         .host_bytes = pages.host_bytes,
                         .page_folder = pages.folder,
                         .largest_batch = absl::GetFlag(FLAGS_batch) == "auto",
                         .stop = &stop_requested,
                         .save = &save_requested};
}

absl::Status CheckPicture(const std::string& path, bool plan) {
  if (path.empty()) return absl::OkStatus();
  if (!plan) return absl::InvalidArgumentError("--plan_picture needs --plan");
  if (absl::EndsWith(path, ".svg") || absl::EndsWith(path, ".html")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--plan_picture=", path, ": expected a name that ends in .svg or .html"));
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

// What ranks go through together by; where their files are is each host's own.
std::string CommandOf(const TrainingOptions& options, bool plan) {
  const bool named = options.resume != "" && options.resume != "latest" && options.resume != "auto";
  return absl::StrCat("--device=", absl::GetFlag(FLAGS_device), plan ? "\n--plan" : "",
                      absl::GetFlag(FLAGS_send_data) ? "\n--send_data" : "",
                      options.largest_batch ? "\n--batch=auto" : "",
                      "\n--resume=", named ? "DIR" : options.resume,
                      options.weights.empty() ? "" : "\n--weights");
}

absl::StatusOr<RunData> Open(const Files& files, ProcessGroup& communication) {
  if (!absl::GetFlag(FLAGS_send_data)) return OpenData(files.trainer, files.net, /*train=*/true);
  ASSIGN_OR_RETURN(SentData sent, OpenSentData(files.trainer, files.net, communication));
  if (communication.rank() == 0) {
    std::printf("data: %lld files of %.1f MiB sent to %d hosts\n",
                static_cast<long long>(sent.files), static_cast<double>(sent.bytes) / (1 << 20),
                sent.folders);
  }
  return std::move(sent.data);
}

absl::Status Train(const Files& files, TrainingOptions options, bool plan,
                   ProcessGroup& communication, const DeviceChoice& choice) {
  Timeline::SetRow(Timeline::NewRow(communication.rank(), "training"));
  options.choices["threads"] = absl::StrCat(choice.threads);
  options.threads = choice.threads;
  options.choices["ranks"] = absl::StrCat(communication.size());
  RETURN_IF_ERROR(communication.CheckEqual("the command", CommandOf(options, plan)));
  ASSIGN_OR_RETURN(RunData data, Open(files, communication));
  ASSIGN_OR_RETURN(const auto run,
                   Trainer::Prepare(files.trainer, files.net, std::move(data), *choice.device,
                                    *choice.primitives, communication, options));
  const bool leader = communication.rank() == 0;
  if (plan) {
    if (!leader) return absl::OkStatus();
    const std::string text = run->DescribePlan(files.net);
    std::fputs(text.c_str(), stdout);
    const std::string picture = absl::GetFlag(FLAGS_plan_picture);
    if (picture.empty()) return absl::OkStatus();
    const bool page = !absl::EndsWith(picture, ".svg");
    return WriteFileAtomically(
        picture, [&](const FileSink& sink) { return sink(run->DrawPlan(files.net, page, text)); });
  }
  if (leader) {
    std::printf("training %s: %d ranks, %d threads each, output in %s\n",
                files.net.message->name().c_str(), communication.size(), choice.threads,
                options.out.c_str());
  }
  if (leader && files.trainer.message->distributed().allreduce() == "auto") {
    std::printf("allreduce %s\n", communication.DescribeAllreduce().c_str());
  }
  training = true;
  const absl::StatusOr<std::string> digest = run->Run();
  stopping = "";  // mpirun may signal this rank because another has ended before it
  if (absl::IsCancelled(digest.status())) {  // on all ranks: they leave as they do after success
    // At once: mpirun, if it was signalled too, leaves a rank no more than a second.
    if (leader) std::fprintf(stderr, "%s\n", std::string(digest.status().message()).c_str());
    return digest.status();
  }
  // Here, while the run's memory lives: the communication thread may be summing gradients in it.
  if (!digest.ok()) Fail(&communication, digest.status());
  if (leader) std::printf("weights sha256 %s\n", digest->c_str());
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage);
  HandleSignals();
  Spellings spellings;
  const std::vector<std::string> overrides = Overrides(spellings);
  const auto files =
      ReadFiles(absl::GetFlag(FLAGS_trainer), overrides, absl::GetFlag(FLAGS_device), spellings);
  auto ranks = JoinRanks(files.ok() ? files->allreduce : AllreduceChoice{"ring"},
                         absl::GetFlag(FLAGS_ranks), absl::GetFlag(FLAGS_stall_timeout_s));
  if (!ranks.ok()) Fail(nullptr, ranks.status());
  if (!files.ok()) Fail(ranks->front().get(), files.status());
  const std::string autotune = absl::GetFlag(FLAGS_autotune);
  if (autotune != "on" && autotune != "off") {
    Fail(ranks->front().get(),
         absl::InvalidArgumentError(absl::StrCat("--autotune=", autotune, ": expected on or off")));
  }
  const absl::StatusOr<TrainingOptions> options = OptionsOf(*files);
  if (!options.ok()) Fail(ranks->front().get(), options.status());
  const bool plan = absl::GetFlag(FLAGS_plan);
  if (const absl::Status picture = CheckPicture(absl::GetFlag(FLAGS_plan_picture), plan);
      !picture.ok()) {
    Fail(ranks->front().get(), picture);
  }
  if (const absl::Status opened = plan ? absl::OkStatus() : OpenTimeline(); !opened.ok()) {
    Fail(ranks->front().get(), opened);
  }
  const absl::Status status =
      RunRanks(*std::move(ranks),
               {.kind = absl::GetFlag(FLAGS_device),
                .memory = absl::GetFlag(FLAGS_device_memory),
                .threads = absl::GetFlag(FLAGS_threads),
                .tf32 = files->trainer.message->tf32(),
                .autotune = autotune == "on" && !plan},
               [&](ProcessGroup& communication, const DeviceChoice& choice) {
                 return Train(*files, *options, plan, communication, choice);
               });
  if (const absl::Status end = Timeline::Close(); !end.ok()) Fail(nullptr, end);
  return FinishOutput(status.ok() ? 0 : kExitStopped);
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
