// bench_server: what a parameter server costs an iteration that trains by it.  Layers, each with a
// table of its own, or a net's layers and buckets, on `sim`, whose copies are throttled; the
// layers' work is slept, so that it and the copies do not take each other's core.

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "distributed/parameter_server/parameter_server.h"
#include "distributed/scaling/workload.h"
#include "engine/runtime/device/buffer.h"
#include "tools/bench/bench.h"
#include "tools/command_line/devices.h"
#include "tools/command_line/process.h"
#include "tools/scaling/net_workload.h"

ABSL_FLAG(std::string, net, "",
          "Text file of a net, in place of --layer_counts and --table_kib.  Its FLOPs and buckets "
          "count.");
ABSL_FLAG(std::vector<std::string>, layer_counts, {},
          "Numbers of layers, one a net.  Each layer has a table.  Default: 8,24,96.");
ABSL_FLAG(int, table_kib, 256, "KiB of a table.");
ABSL_FLAG(int, chunk_kib, static_cast<int>(gyre::kServerChunkBytes >> 10),
          "KiB of a chunk, which moves at once.");
ABSL_FLAG(std::vector<std::string>, ratio, {"0.5"},
          "Time to copy all tables once, over an iteration's compute.");
ABSL_FLAG(double, compute_ms, 300,
          "Milliseconds of an iteration's layers: a third forward, the rest backward.");
ABSL_FLAG(std::vector<std::string>, syncs, (std::vector<std::string>{"bsp", "ssp", "async"}),
          "Modes, with commas: bsp, ssp (staleness 1), async, allreduce (ring, on cpu).");
ABSL_FLAG(int, ranks, 1, "Ranks as threads of this process, without mpirun.");
ABSL_FLAG(int, servers, 0, "Ranks, the last ones, that only serve.");
ABSL_FLAG(std::string, server_memory, "device",
          "Memory in which owners hold and update their shards: device or host.");
ABSL_FLAG(std::string, device, "sim", "cpu or sim.");
ABSL_FLAG(int, rounds, 5, "Rounds.  Each times iterations with and without the server.");
ABSL_FLAG(int, steps, 4, "Iterations a round.");

namespace gyre {
namespace {

using Seconds = std::chrono::duration<double>;

constexpr int kMostMs = 1'000'000,
              kMostRatio = 1'000'000;  // whose product a clock's nanoseconds hold

constexpr char kUsage[] =
    "measures how long an iteration waits for a parameter server.\n"
    "\n"
    "  bench_server --ranks=2 --layer_counts=24 --ratio=0.1,0.5\n"
    "  mpirun -np 2 bench_server\n"
    "\n"
    "Ranks that do not only serve read and update all tables as training does.\n"
    "Forward reads a layer's table, copies it, releases it and works. Backward works\n"
    "from the last layer to the first, and each layer sends its update. A net's\n"
    "layers read and update their own buckets.\n"
    "Prints a JSON line for each net, ratio and mode, of medians over rounds on\n"
    "rank 0. It has milliseconds of an iteration, of one without a server\n"
    "(`compute_ms`), and the share of the former that it waits (`stall`).\n"
    "Exit codes: 0 done, 1 failed, 2 wrong flags.";

const std::vector<FlagGroup> kGroups = {
    {"Work", {"net", "layer_counts", "table_kib", "ratio", "compute_ms"}},
    {"Servers", {"syncs", "ranks", "servers", "server_memory", "device", "chunk_kib"}},
    {"Measuring", {"rounds", "steps"}},
};

struct Setting {
  ParameterServer::Options options = {};
  std::string sync;
  Workload workload;
  double ratio = 0;
  bool sums() const { return sync == "allreduce"; }
  double bytes() const { return workload.gradient_bytes(); }
};

// In the order in which backward has them.
std::vector<WorkloadGradient> TablesOf(const Workload& workload, const ProcessGroup& group) {
  return absl::GetFlag(FLAGS_net).empty() ? workload.gradients
                                          : FitBuckets(workload, group.WorthwhileBytes());
}

// A rank's worker.
class Worker {
 public:
  static absl::StatusOr<std::unique_ptr<Worker>> Create(const Setting& setting, ProcessGroup& group,
                                                        Device& device) {
    const bool works = group.rank() < group.size() - setting.options.servers;
    std::unique_ptr<Worker> worker(new Worker(setting, group, works));
    ASSIGN_OR_RETURN(worker->stream_, device.NewStream());
    ASSIGN_OR_RETURN(worker->memory_,
                     Buffer::Allocate(device, MemoryKind::kDevice,
                                      2 * static_cast<size_t>(works ? setting.bytes() : 0)));
    std::byte* at = worker->memory_.data();
    for (const WorkloadGradient& table : worker->tables_) {
      const int64_t elements = static_cast<int64_t>(table.bytes) / 4;
      const Tensor bucket{at, Shape({elements}), DType::kF32};
      worker->buckets_.push_back(bucket);
      ASSIGN_OR_RETURN(worker->written_.emplace_back(), device.NewEvent());
      if (works) at += 2 * bucket.bytes();
    }
    worker->tickets_.resize(worker->tables_.size());
    if (!setting.sums()) RETURN_IF_ERROR(worker->Serve(device));
    return worker;
  }

  absl::Status Step() {
    for (int layer = 0; works_ && layer < layers(); ++layer) {
      RETURN_IF_ERROR(
          OfLayer(&WorkloadGradient::first_reader, layer, [&](int table) { return Take(table); }));
      RETURN_IF_ERROR(Work(setting_.workload.layers[layer].forward_s));
    }
    for (int layer = layers() - 1; works_ && layer >= 0; --layer) {
      RETURN_IF_ERROR(Work(setting_.workload.layers[layer].backward_s));
      RETURN_IF_ERROR(
          OfLayer(&WorkloadGradient::layer, layer, [&](int table) { return Give(table); }));
    }
    given_ = true;
    return server_ ? server_->Clock() : absl::OkStatus();
  }

  absl::Status StepAlone() {
    for (const WorkloadLayer& layer : setting_.workload.layers) {
      if (works_) RETURN_IF_ERROR(Work(layer.forward_s));
      if (works_) RETURN_IF_ERROR(Work(layer.backward_s));
    }
    return absl::OkStatus();
  }

  size_t tables() const { return tables_.size(); }
  absl::Status Finish() { return stream_->Synchronize(); }
  absl::Status Stop() {
    if (server_) return server_->Stop();
    for (const auto ticket : tickets_) RETURN_IF_ERROR(group_.Wait(ticket).status());
    return absl::OkStatus();
  }

 private:
  Worker(const Setting& setting, ProcessGroup& group, bool works)
      : setting_(setting),
        tables_(TablesOf(setting.workload, group)),
        group_(group),
        works_(works) {}

  int layers() const { return static_cast<int>(setting_.workload.layers.size()); }
  absl::Status Work(double seconds) { return stream_->Call(SleptWork(Seconds(seconds))); }

  absl::Status Serve(Device& device) {
    ASSIGN_OR_RETURN(server_, ParameterServer::Create(group_, device, *stream_, setting_.options));
    for (size_t table = 0; table < buckets_.size(); ++table) {
      const TableSpec spec = {
          .name = absl::StrCat("table ", table), .rows = buckets_[table].elements(), .width = 1};
      RETURN_IF_ERROR(server_->AddTable(spec, *update_).status());
    }
    reads_.resize(buckets_.size());
    updates_.resize(buckets_.size());
    const auto all = [&](size_t table) { return RowList::All(buckets_[table].elements()); };
    for (size_t t = buckets_.size(); works_ && t-- > 0;) {  // as forward takes them
      const int table = static_cast<int>(t);
      ASSIGN_OR_RETURN(reads_[t], server_->AddRead(table, all(t), buckets_[t]));
    }
    for (size_t t = 0; works_ && t < buckets_.size(); ++t) {
      const int table = static_cast<int>(t);
      ASSIGN_OR_RETURN(updates_[t], server_->AddUpdate(table, all(t), buckets_[t]));
    }
    RETURN_IF_ERROR(server_->Prepare());
    return server_->Start();
  }

  template <typename Do>
  absl::Status OfLayer(int WorkloadGradient::*of, int layer, const Do& what) {
    for (size_t table = 0; table < tables_.size(); ++table) {
      if (tables_[table].*of != layer) continue;
      RETURN_IF_ERROR(what(static_cast<int>(table)));
    }
    return absl::OkStatus();
  }

  // What the layer's forward needs.
  absl::Status Take(int table) {
    const Tensor& bucket = buckets_[table];
    if (server_) RETURN_IF_ERROR(server_->Read(reads_[table]));
    if (!server_ && given_) RETURN_IF_ERROR(group_.Wait(tickets_[table]).status());
    auto* const at = static_cast<std::byte*>(bucket.data);
    RETURN_IF_ERROR(stream_->Copy(at + bucket.bytes(), at, bucket.bytes()));
    if (!server_) return absl::OkStatus();
    RETURN_IF_ERROR(server_->PostRead(reads_[table]));
    return server_->PreUpdate(updates_[table]);
  }

  // What the layer's backward has made.
  absl::Status Give(int table) {
    if (server_) return server_->Update(updates_[table]);
    RETURN_IF_ERROR(stream_->Record(*written_[table]));
    tickets_[table] =
        group_.Submit(absl::StrCat("table ", table), buckets_[table], written_[table].get());
    return absl::OkStatus();
  }

  const Setting& setting_;
  const std::vector<WorkloadGradient> tables_;
  ProcessGroup& group_;
  const bool works_;
  const std::unique_ptr<TableUpdate> update_ = NewAddition(-0.01);
  std::unique_ptr<Stream> stream_;
  Buffer memory_;  // by table: the bucket, and where it is copied
  std::vector<Tensor> buckets_;
  std::unique_ptr<ParameterServer> server_;  // null: sums
  std::vector<int> reads_, updates_;         // by table
  std::vector<std::unique_ptr<Event>> written_;
  std::vector<ProcessGroup::Ticket> tickets_;
  bool given_ = false;  // once
};

absl::Status Measure(Setting setting, ProcessGroup& group) {
  const std::unique_ptr<Device> host = NewCpuDevice({});
  const bool in_host = absl::GetFlag(FLAGS_server_memory) == "host";
  if (in_host) setting.options.in_host_memory = host.get();
  const double transfer_s = setting.ratio * absl::GetFlag(FLAGS_compute_ms) / 1000;
  const std::unique_ptr<Device> device =
      absl::GetFlag(FLAGS_device) == "cpu"
          ? NewCpuDevice({})
          : NewSimDevice({.copy_bytes_per_s = setting.bytes() / transfer_s});
  ASSIGN_OR_RETURN(const auto worker, Worker::Create(setting, group, *device));
  const int steps = absl::GetFlag(FLAGS_steps);
  const auto milliseconds = [&](auto&& step, std::vector<double>& to) {
    RETURN_IF_ERROR(group.Barrier());
    // As much is under way then as will be in the end.
    RETURN_IF_ERROR(step());
    RETURN_IF_ERROR(worker->Finish());
    const BenchClock::time_point start = BenchClock::now();
    for (int s = 0; s < steps; ++s) RETURN_IF_ERROR(step());
    RETURN_IF_ERROR(worker->Finish());
    to.push_back(SecondsSince(start) * 1000 / steps);
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
  PrintRow({{"device", absl::GetFlag(FLAGS_device)},
            {"host_memory", in_host},
            {"ranks", group.size()},
            {"servers", setting.options.servers},
            {"sync", setting.sync},
            {"net", setting.workload.name},
            {"layers", setting.workload.layers.size()},
            {"tables", worker->tables()},
            {"ratio", setting.ratio},
            {"step_ms", step},
            {"compute_ms", compute},
            {"stall", (step - compute) / step}});
  return absl::OkStatus();
}

absl::StatusOr<ParameterServer::Options> OptionsOf(const std::string& sync) {
  if (sync == "bsp") return ParameterServer::Options{.sync = Sync::kBsp};
  if (sync == "ssp") return ParameterServer::Options{.sync = Sync::kSsp, .staleness = 1};
  if (sync == "async") return ParameterServer::Options{.sync = Sync::kAsync};
  if (sync == "allreduce") return ParameterServer::Options{};
  return WrongValue("syncs", sync, "bsp, ssp, async or allreduce");
}

absl::StatusOr<std::vector<Workload>> Workloads() {
  const double step_s = absl::GetFlag(FLAGS_compute_ms) / 1000;
  std::vector<Workload> workloads;
  std::vector<std::string> layers = absl::GetFlag(FLAGS_layer_counts);
  if (const std::string path = absl::GetFlag(FLAGS_net); !path.empty()) {
    if (!layers.empty()) {
      return absl::InvalidArgumentError(
          "--net and --layer_counts: expected one of them; see --help");
    }
    ASSIGN_OR_RETURN(const Parsed<NetConfig> net, ParseNet(path));
    ASSIGN_OR_RETURN(workloads.emplace_back(), WorkloadOf(net, {.step_s = step_s}));
    return workloads;
  }
  if (layers.empty()) layers = {"8", "24", "96"};
  for (const std::string& text : layers) {
    int count = 0;
    const bool good = absl::SimpleAtoi(text, &count) && count >= 1;
    RETURN_IF_ERROR(CheckValue(good, "layer_counts", text, "a whole number of 1 or more"));
    workloads.push_back(
        EqualLayers(count, step_s, 0, 1024.0 * absl::GetFlag(FLAGS_table_kib) * count));
  }
  return workloads;
}

absl::StatusOr<std::vector<Setting>> Settings() {
  const std::string memory = absl::GetFlag(FLAGS_server_memory);
  RETURN_IF_ERROR(CheckValue(memory == "device" || memory == "host", "server_memory", memory,
                             "device or host"));
  ASSIGN_OR_RETURN(const auto ratios, PositiveNumbers("ratio", absl::GetFlag(FLAGS_ratio)));
  for (const double ratio : ratios) {
    RETURN_IF_ERROR(
        CheckValue(ratio <= kMostRatio, "ratio", ratio, absl::StrCat("at most ", kMostRatio)));
  }
  ASSIGN_OR_RETURN(const std::vector<Workload> workloads, Workloads());
  std::vector<Setting> settings;
  for (const Workload& workload : workloads) {
    for (const double ratio : ratios) {
      for (const std::string& sync : absl::GetFlag(FLAGS_syncs)) {
        ASSIGN_OR_RETURN(auto options, OptionsOf(sync));
        options.servers = absl::GetFlag(FLAGS_servers);
        options.chunk_bytes = static_cast<size_t>(absl::GetFlag(FLAGS_chunk_kib)) << 10;
        settings.push_back({options, sync, workload, ratio});
        if (settings.back().sums() &&
            (options.servers > 0 || absl::GetFlag(FLAGS_device) != "cpu")) {
          return absl::InvalidArgumentError(
              "--syncs=allreduce: expected --device=cpu, and no --servers");
        }
      }
    }
  }
  return settings;
}

absl::Status Run() {
  const std::string device = absl::GetFlag(FLAGS_device);
  RETURN_IF_ERROR(CheckValue(device == "cpu" || device == "sim", "device", device,
                             "cpu or sim, whose work can be slept"));
  const double compute_ms = absl::GetFlag(FLAGS_compute_ms);
  RETURN_IF_ERROR(CheckValue(compute_ms > 0 && compute_ms <= kMostMs, "compute_ms", compute_ms,
                             absl::StrCat("above 0, and at most ", kMostMs)));
  RETURN_IF_ERROR(CheckLeast(1, {FLAGS_table_kib, FLAGS_chunk_kib, FLAGS_rounds, FLAGS_steps}));
  ASSIGN_OR_RETURN(const std::vector<Setting> settings, Settings());
  ASSIGN_OR_RETURN(Ranks ranks, JoinRanks({"ring"}, absl::GetFlag(FLAGS_ranks)));
  return RunRanks(std::move(ranks), {.threads = 1},
                  [&](ProcessGroup& group, const DeviceChoice&) -> absl::Status {
                    const int servers = absl::GetFlag(FLAGS_servers);
                    RETURN_IF_ERROR(CheckValue(
                        servers >= 0 && servers < group.size(), "servers", servers,
                        absl::StrCat("0 to ", group.size() - 1, ", fewer than the ranks")));
                    for (const Setting& setting : settings) {
                      RETURN_IF_ERROR(Measure(setting, group));
                    }
                    return absl::OkStatus();
                  });
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  gyre::LetWaitingThreadsSleep(argv);
  return gyre::RunBench(argc, argv, gyre::kUsage, gyre::kGroups, gyre::Run);
}
