// bench_server: what a parameter server costs an iteration that trains by it.  A net of layers,
// each with a table of its own, on `sim`, whose copies are throttled; the layers' work is slept, so
// that it and the copies do not take each other's core.

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "distributed/parameter_server/parameter_server.h"
#include "engine/runtime/device/buffer.h"
#include "tools/command_line.h"
#include "tools/median.h"
#include "tools/slept_work.h"

ABSL_FLAG(int, ranks, 1, "Threads of this process that are ranks, without mpirun.");
ABSL_FLAG(std::string, device, "sim", "cpu or sim.");
ABSL_FLAG(int, servers, 0, "The last so many ranks only serve.");
ABSL_FLAG(bool, host_memory, false, "Whether tables lie in host memory and are updated there.");
ABSL_FLAG(std::vector<std::string>, sync, (std::vector<std::string>{"bsp", "ssp", "async"}),
          "bsp, ssp (of a staleness of 1), async.");
ABSL_FLAG(std::vector<std::string>, layers, (std::vector<std::string>{"8", "24", "96"}),
          "Of nets: each has a table.");
ABSL_FLAG(std::vector<std::string>, ratio, {"0.5"},
          "Times that copying all tables once takes of an iteration's compute.");
ABSL_FLAG(int, table_kib, 256, "KiB of a table.");
ABSL_FLAG(double, compute_ms, 300,
          "Of an iteration: layers' forward takes a third, in equal parts, and backward the rest.");
ABSL_FLAG(int, rounds, 5, "Each times both in turn: with the server and without.");
ABSL_FLAG(int, steps, 4, "Iterations a round.");

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr char kUsage[] =
    "measures how long an iteration waits for a parameter server.\n\n"
    "  bench_server --ranks=2 --layers=24 --ratio=0.1,0.5\n"
    "  mpirun -np 2 bench_server\n\n"
    "All ranks that do not only serve read and update all tables as training does: forward reads a "
    "layer's table, copies\n"
    "it, gives it back and works; backward works from the last layer to the first, and each sends\n"
    "its update.  Prints a JSON line for each net, ratio and mode, medians over rounds on rank 0:\n"
    "milliseconds of an iteration, of one without a server (`compute_ms`), and the share of the\n"
    "former that it waits (`stall`).\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

struct Setting {
  ParameterServer::Options options = {};
  std::string sync;
  int layers = 0;
  double ratio = 0;
};

// A rank's worker.
class Worker {
 public:
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const Setting& setting, ProcessGroup& group,
                                                        Device& device) {
    const bool works = group.rank() < group.size() - setting.options.servers;
    std::unique_ptr<Worker> worker(new Worker(setting, works));
    ASSIGN_OR_RETURN(worker->stream_, device.NewStream());
    ASSIGN_OR_RETURN(worker->server_,
                     ParameterServer::Create(group, device, *worker->stream_, setting.options));
    const int64_t elements = int64_t{absl::GetFlag(FLAGS_table_kib)} * 1024 / 4;
    const size_t bytes = static_cast<size_t>(elements) * 4;
    ASSIGN_OR_RETURN(worker->memory_,
                     Buffer::Allocate(device, MemoryKind::kDevice, 2 * bytes * setting.layers));
    // In the order in which backward has them, as a net's buckets are.
    for (int table = 0; table < setting.layers; ++table) {
      ParameterServer& server = *worker->server_;
      RETURN_IF_ERROR(server
                          .AddTable({.name = absl::StrCat("layer ", setting.layers - 1 - table),
                                     .rows = elements,
                                     .width = 1},
                                    *worker->update_)
                          .status());
      if (!works) continue;
      const Tensor bucket{worker->memory_.data() + 2 * table * bytes, Shape({elements}),
                          DType::kF32};
      worker->buckets_.push_back(bucket);
      const RowList all = RowList::All(elements);
      RETURN_IF_ERROR(server.AddRead(table, all, bucket).status());
      RETURN_IF_ERROR(server.AddUpdate(table, all, bucket).status());
    }
    RETURN_IF_ERROR(worker->server_->Prepare());
    RETURN_IF_ERROR(worker->server_->Start());
    return worker;
  }

  absl::Status Step() {
    if (!works_) return server_->Clock();
    for (int table = setting_.layers - 1; table >= 0; --table) {
      const Tensor& bucket = buckets_[table];
      RETURN_IF_ERROR(server_->Read(table));
      auto* const at = static_cast<std::byte*>(bucket.data);
      RETURN_IF_ERROR(stream_->Copy(at + bucket.bytes(), at, bucket.bytes()));
      RETURN_IF_ERROR(server_->PostRead(table));
      RETURN_IF_ERROR(server_->PreUpdate(table));
      RETURN_IF_ERROR(Work(forward_));
    }
    for (int table = 0; table < setting_.layers; ++table) {
      RETURN_IF_ERROR(Work(2 * forward_));
      RETURN_IF_ERROR(server_->Update(table));
    }
    return server_->Clock();
  }

  absl::Status StepAlone() {
    if (!works_) return absl::OkStatus();
    for (int i = 0; i < setting_.layers; ++i) RETURN_IF_ERROR(Work(forward_));
    for (int i = 0; i < setting_.layers; ++i) RETURN_IF_ERROR(Work(2 * forward_));
    return absl::OkStatus();
  }

  absl::Status Finish() { return stream_->Synchronize(); }
  absl::Status Stop() { return server_->Stop(); }

 private:
  Worker(const Setting& setting, bool works) : setting_(setting), works_(works) {}

  absl::Status Work(Seconds work) { return stream_->Call(SleptWork(work)); }

  const Setting& setting_;
  const bool works_;
  const Seconds forward_{absl::GetFlag(FLAGS_compute_ms) / 3000 / setting_.layers};  // a layer's
  const std::unique_ptr<TableUpdate> update_ = NewAddition(-0.01);
  std::unique_ptr<Stream> stream_;
  Buffer memory_;  // by table: the bucket, and where it is copied
  std::vector<Tensor> buckets_;
  std::unique_ptr<ParameterServer> server_;
};

absl::Status Measure(Setting setting, ProcessGroup& group) {
  const std::unique_ptr<Device> host = NewCpuDevice({});
  if (absl::GetFlag(FLAGS_host_memory)) setting.options.in_host_memory = host.get();
  const double table_bytes = 1024.0 * absl::GetFlag(FLAGS_table_kib);
  const double transfer_s = setting.ratio * absl::GetFlag(FLAGS_compute_ms) / 1000;
  const std::unique_ptr<Device> device =
      absl::GetFlag(FLAGS_device) == "cpu"
          ? NewCpuDevice({})
          : NewSimDevice({.copy_bytes_per_s = table_bytes * setting.layers / transfer_s});
  ASSIGN_OR_RETURN(const auto worker, Worker::Create(setting, group, *device));
  const int steps = absl::GetFlag(FLAGS_steps);
  const auto milliseconds = [&](auto&& step, std::vector<double>& to) {
    RETURN_IF_ERROR(group.Barrier());
    // As much is under way then as will be in the end.
    RETURN_IF_ERROR(step());
    RETURN_IF_ERROR(worker->Finish());
    const Clock::time_point start = Clock::now();
    for (int s = 0; s < steps; ++s) RETURN_IF_ERROR(step());
    RETURN_IF_ERROR(worker->Finish());
    to.push_back(Seconds(Clock::now() - start).count() * 1000 / steps);
    return absl::OkStatus();
  };
  std::vector<double> step_ms, compute_ms;
  for (int round = -1; round < absl::GetFlag(FLAGS_rounds); ++round) {
    RETURN_IF_ERROR(milliseconds([&] { return worker->StepAlone(); }, compute_ms));
    RETURN_IF_ERROR(milliseconds([&] { return worker->Step(); }, step_ms));
    if (round < 0) step_ms = compute_ms = {};  // a warm-up
  }
  RETURN_IF_ERROR(worker->Stop());
  if (group.rank() != 0) return absl::OkStatus();
  const double step = Median(step_ms), compute = Median(compute_ms);
  const nlohmann::ordered_json report = {{"device", absl::GetFlag(FLAGS_device)},
                                         {"host_memory", absl::GetFlag(FLAGS_host_memory)},
                                         {"ranks", group.size()},
                                         {"servers", setting.options.servers},
                                         {"sync", setting.sync},
                                         {"layers", setting.layers},
                                         {"ratio", setting.ratio},
                                         {"step_ms", step},
                                         {"compute_ms", compute},
                                         {"stall", (step - compute) / step}};
  std::printf("%s\n", report.dump().c_str());
  std::fflush(stdout);
  return absl::OkStatus();
}

absl::StatusOr<ParameterServer::Options> OptionsOf(const std::string& sync) {
  if (sync == "bsp") return ParameterServer::Options{.sync = Sync::kBsp};
  if (sync == "ssp") return ParameterServer::Options{.sync = Sync::kSsp, .staleness = 1};
  if (sync == "async") return ParameterServer::Options{.sync = Sync::kAsync};
  return absl::InvalidArgumentError(absl::StrCat("--sync=", sync, ": expected bsp, ssp or async"));
}

absl::StatusOr<std::vector<Setting>> Settings() {
  ASSIGN_OR_RETURN(const auto layers, PositiveNumbers("layers", absl::GetFlag(FLAGS_layers)));
  ASSIGN_OR_RETURN(const auto ratios, PositiveNumbers("ratio", absl::GetFlag(FLAGS_ratio)));
  std::vector<Setting> settings;
  for (const double count : layers) {
    for (const double ratio : ratios) {
      for (const std::string& sync : absl::GetFlag(FLAGS_sync)) {
        ASSIGN_OR_RETURN(auto options, OptionsOf(sync));
        options.servers = absl::GetFlag(FLAGS_servers);
        settings.push_back({options, sync, static_cast<int>(count), ratio});
      }
    }
  }
  return settings;
}

absl::Status Run() {
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device != "cpu" && device != "sim") {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", device, ": expected cpu or sim, whose work can be slept"));
  }
  if (absl::GetFlag(FLAGS_table_kib) < 1 || !(absl::GetFlag(FLAGS_compute_ms) > 0) ||
      absl::GetFlag(FLAGS_rounds) < 1 || absl::GetFlag(FLAGS_steps) < 1) {
    return absl::InvalidArgumentError(
        "expected --compute_ms above 0, and 1 or more of --table_kib, --rounds and --steps");
  }
  ASSIGN_OR_RETURN(const std::vector<Setting> settings, Settings());
  ASSIGN_OR_RETURN(Ranks ranks, JoinRanks({"ring"}, absl::GetFlag(FLAGS_ranks)));
  return RunRanks(std::move(ranks), {.threads = 1},
                  [&](ProcessGroup& group, const DeviceChoice&) -> absl::Status {
                    for (const Setting& setting : settings) {
                      RETURN_IF_ERROR(Measure(setting, group));
                    }
                    return absl::OkStatus();
                  });
}

int Main(int argc, char** argv) {
  LetWaitingThreadsSleep(argv);
  ParseFlags(argc, argv, kUsage);
  if (const absl::Status status = Run(); !status.ok()) Fail(nullptr, status);
  return 0;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) { return gyre::Main(argc, argv); }
