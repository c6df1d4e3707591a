#include "engine/training/run/run_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "distributed/server_shards.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_check.h"
#include "engine/training/metrics/record_metrics.h"
#include "engine/training/plan/plan_report.h"
#include "engine/training/plan/planning.h"
#include "engine/training/run/lint.h"
#include "engine/training/trainable_from.h"
#include "memory/report/paging_text.h"

namespace gyre {
namespace {

// As that of an allreduce.
std::string DescribeWire(const RunShape& shape) {
  return shape.wire == DType::kF32 ? "" : absl::StrCat(", as ", std::string(DTypeName(shape.wire)));
}

std::string DescribeServer(const RunShape& shape) {
  const RunShape::Server& server = *shape.server;
  const std::string more = absl::StrCat(
      server.dedicated == 1  ? ", 1 rank only serves"
      : server.dedicated > 1 ? absl::StrCat(", ", server.dedicated, " ranks only serve")
                             : "",
      server.in_host_memory ? ", in host memory" : "", DescribeWire(shape));
  if (server.sync == Sync::kBsp) return "parameter server, bsp" + more;
  if (server.sync == Sync::kAsync) return "parameter server, async" + more;
  return absl::StrCat("parameter server, ssp ", server.staleness, more);
}

std::string TextOf(const Fit& fit) { return absl::StrJoin(fit, "\n", absl::PairFormatter("\n")); }

}  // namespace

absl::StatusOr<std::unique_ptr<RunPlan>> RunPlan::Make(const Parsed<TrainerConfig>& trainer,
                                                       const Parsed<NetConfig>& net, RunData data,
                                                       Device& device, const Primitives& primitives,
                                                       ProcessGroup& communication,
                                                       TrainingOptions& options) {
  RETURN_IF_ERROR(CheckTrainableFrom(*net.message, *net.source));
  TrainerConfig config = *trainer.message;
  const int64_t servers = config.distributed().servers();
  const int64_t workers = communication.size() - servers;
  if (workers < 1) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected fewer than the ranks, which are %d, so that one is left to train, got %d; "
        "lower servers or start more ranks",
        trainer.source->Where(trainer.message->distributed(), "servers"), communication.size(),
        servers));
  }
  if (communication.size() > 1) {
    RETURN_IF_ERROR(KeepAllreduce(config, options, device.kind(), communication));
    RETURN_IF_ERROR(communication.UseDevice(device));
  }
  std::string batch_text;
  Planning planning{net, data, device, primitives, communication, options.pages};
  const std::vector<int64_t> phases = PhasesOf(*net.message);
  if (options.largest_batch) {
    // The last phase needs most.  Whether it is one of this run may depend on the batch.
    planning.first_step = phases.back();
    if (config.has_steps()) {
      planning.first_step = *std::prev(std::ranges::lower_bound(phases, config.steps()));
    }
    ASSIGN_OR_RETURN(batch_text, planning.ChooseBatch(config));
    options.trainer_text = config.DebugString();
  }
  const auto error = [&](const char* field, const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat(trainer.source->Where(*trainer.message, field), ": ", what...));
  };
  const int64_t samples = data.train->size();
  if (config.batch() < workers) {
    return error("batch", "batch ", config.batch(), " is smaller than the ", workers, " ranks",
                 servers > 0 ? " that train" : "",
                 "; each rank needs a sample: raise batch or start fewer ranks");
  }
  if (config.batch() > samples) {
    return error("batch", "batch ", config.batch(), " is more than the ", samples,
                 " samples of data.train; lower batch to ", samples, " or less");
  }
  if (config.accumulate() > samples / config.batch()) {
    return error("accumulate", config.accumulate(), " batches of ", config.batch(),
                 " samples are more than the ", samples, " of data.train; lower accumulate to ",
                 samples / config.batch(), " or less");
  }
  // Its batch is all ranks' by now.
  const int64_t end = data.assumed && config.has_epochs()
                          ? std::numeric_limits<int64_t>::max()
                          : RunLength(config, TrainSamplesOf(config, *data.train)).total_steps();
  const auto prepare = [&]() -> absl::Status {
    for (const int64_t first : phases) {
      planning.first_step = first;
      if (first < end) RETURN_IF_ERROR(planning.PrepareAll(config));
    }
    return absl::OkStatus();
  };
  if (options.tune) RETURN_IF_ERROR(options.tune(prepare));
  planning.first_step = 0;
  ASSIGN_OR_RETURN(ModelPlan nets, planning.Plan(config));
  std::unique_ptr<RunPlan> plan(new RunPlan(std::move(config), std::move(data), std::move(nets),
                                            std::move(batch_text), trainer, planning));
  RETURN_IF_ERROR(
      CheckMetricKeys(net, plan->nets.train->spec,
                      plan->nets.test.empty() ? nullptr : &plan->nets.test.front()->spec));
  RETURN_IF_ERROR(plan->CheckServer(plan->nets));
  plan->warnings = Lint(trainer, net, plan->nets);
  plan->WarnOfLatePhases();
  RETURN_IF_ERROR(plan->CheckSequences());
  RETURN_IF_ERROR(plan->Agree(options));
  RETURN_IF_ERROR(plan->PlanPhases(end, options));
  return plan;
}

RunPlan::RunPlan(TrainerConfig config_of_run, RunData data_of_run, ModelPlan nets_of_run,
                 std::string batch, const Parsed<TrainerConfig>& trainer, const Planning& planning)
    : config(std::move(config_of_run)),
      data(std::move(data_of_run)),
      nets(std::move(nets_of_run)),
      length(config, TrainSamplesOf(config, *data.train)),
      batch_text(std::move(batch)),
      trainer_(trainer),
      net_(planning.net),
      device_(planning.device),
      primitives_(planning.primitives),
      communication_(planning.communication),
      pages_(planning.pages),
      phases_(PhasesOf(*net_.message)) {}

// What a parameter server does not do.
absl::Status RunPlan::CheckServer(const ModelPlan& nets_of_phase) const {
  const RunShape& shape = nets_of_phase.options.shape;
  if (!shape.server) return absl::OkStatus();
  const DistributedConfig& distributed = trainer_.message->distributed();
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat(trainer_.source->Where(distributed, "sync"), ": ", DescribeServer(shape), ": ",
                     what..., "; train with sync allreduce (shard_optimizer shares out the same)"));
  };
  if (shape.scales_by_norms && !shape.StepTogether()) {
    return error("its owners update parts of parameters as gradients come, and lars and lamb need ",
                 "norms of the whole; bsp knows them");
  }
  for (const PlannedBucket& bucket : nets_of_phase.train->order.buckets) {
    if (shape.WireType(bucket.dtype) != DType::kF16 || !shape.gates_alone()) continue;
    return error("gradients that a rank clips or skips itself travel without the loss's scale, in ",
                 "which those of F16 would be lost; BF16, bsp and loss_scale.fixed lose none");
  }
  if (shape.server->dedicated > 0) {
    const NetSpec& spec = nets_of_phase.train->spec;
    if (!spec.carried.empty()) {
      return error("with servers no rows are carried from step to step, as those of \"",
                   NameOf(spec, spec.carried.front()), "\" are");
    }
    for (const auto& node : spec.nodes) {
      const auto is_summed = [](const StateSpec& state) {
        return state.summed_after >= 0 || state.summed_after_backward >= 0;
      };
      if (std::ranges::none_of(node.spec.states, is_summed)) continue;
      return error("with servers no rank waits for others' statistics, as \"", node.config->name(),
                   "\" does");
    }
  }
  for (const Parameter& parameter : nets_of_phase.parameters.all()) {
    if (parameter.spec.lazy)
      return error("\"", parameter.name(), "\" is lazy, and owners update whole tables");
  }
  const std::vector<PlannedBucket>& buckets = nets_of_phase.train->order.buckets;
  // Of ranks that only serve the last one has least.
  const auto all_own = [&](int servers) {
    return std::ranges::any_of(buckets, [&](const PlannedBucket& bucket) {
      return ServerShard(bucket.elements, shape.ranks - servers, servers, shape.ranks - 1).count() >
             0;
    });
  };
  const int dedicated = shape.server->dedicated;
  int fewer = dedicated;
  while (fewer > 0 && !all_own(fewer)) --fewer;
  if (fewer < dedicated) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected so few that each owns some of the %d elements of gradient buckets, got %d; "
        "lower servers to %d",
        trainer_.source->Where(distributed, "servers"),
        std::accumulate(buckets.begin(), buckets.end(), int64_t{0},
                        [](int64_t sum, const PlannedBucket& b) { return sum + b.elements; }),
        dedicated, fewer));
  }
  return absl::OkStatus();
}

absl::Status RunPlan::CheckSequences() {
  if (data.assumed) return absl::OkStatus();
  const NetSpec& spec = nets.train->spec;
  RETURN_IF_ERROR(CheckTokens(net_, spec, *data.train, "train"));
  if (data.test) {
    RETURN_IF_ERROR(CheckTokens(net_, nets.test.front()->spec, *data.test, "test"));
  }
  const std::vector<std::string> padding = PaddingWarnings(net_, spec, *data.train, "train");
  warnings.insert(warnings.end(), padding.begin(), padding.end());
  return absl::OkStatus();
}

// Ranks that share the data look at them once.
absl::StatusOr<DataLook> RunPlan::LookAt(const Dataset& dataset, const NetPlan& net,
                                         const std::string& what) const {
  std::lock_guard lock(data.looks->mutex);
  const auto [look, first] = data.looks->looks.try_emplace(what, DataLook());
  if (first) look->second = CheckData(dataset, net, what);
  return look->second;
}

// Ranks that would compute different things find out before they begin.
absl::Status RunPlan::Agree(TrainingOptions& options) {
  const std::string trainer_text = config.DebugString(), net_text = net_.message->DebugString();
  RETURN_IF_ERROR(communication_.CheckEqual({{"--threads", options.choices["threads"]},
                                             {"the trainer file with its overrides", trainer_text},
                                             {"the net file with its overrides", net_text}}));
  std::string allreduce = communication_.DescribeAllreduce();
  // The halves of others have the bits of the whole.
  if (const RunShape& shape = nets.options.shape; shape.server) {
    // bsp has the bits of the ranks that train, by "direct".
    const bool exact = shape.server->sync == Sync::kBsp;
    allreduce = exact ? "direct" + DescribeWire(shape) : DescribeServer(shape);
    if (exact) options.choices["ranks"] = absl::StrCat(shape.workers());
  } else if (nets.options.shape.shard_optimizer &&
             PropertiesOf(communication_.algorithm()).cuts_halves_elsewhere) {
    allreduce += ", in halves";
  }
  // One rank sums nothing.
  if (communication_.size() > 1 || nets.options.shape.server) {
    options.choices["allreduce"] = allreduce;
  }
  std::string train = "assumed", test;
  if (!data.assumed) {
    ASSIGN_OR_RETURN(const DataLook look, LookAt(*data.train, *nets.train, "training data"));
    train = look.digest;
    const std::vector<std::string> of_data = LintData(trainer_, look, ClassNamesOf(data.fit));
    warnings.insert(warnings.end(), of_data.begin(), of_data.end());
    options.choices["training data"] = train;
    options.fit = data.fit;
    if (data.test) {
      ASSIGN_OR_RETURN(const DataLook tested, LookAt(*data.test, *nets.test.front(), "test data"));
      test = tested.digest;
    }
  }
  const std::string algorithms = primitives_.choices();
  RETURN_IF_ERROR(
      communication_.CheckEqual({{"the training data", train},
                                 {"the test data", test},
                                 {"what the data take from the training samples", TextOf(data.fit)},
                                 {"the libraries' algorithms", algorithms}}));
  if (!algorithms.empty()) options.choices["algorithms"] = Sha256(algorithms).substr(0, 16);
  return AgreeOn(nets, options);
}

std::string RunPlan::DescribeSync() const {
  const RunShape& shape = nets.options.shape;
  if (communication_.size() == 1) return "";
  if (shape.server) return DescribeServer(shape);
  if (shape.shard_optimizer) return "sharded optimizer by reduce-scatter and allgather";
  std::string sums = communication_.DescribeAllreduce();
  const size_t wire = std::min(sums.find(", as "), sums.size());
  return sums.insert(wire, " allreduce");
}

PlanSummary::Communication RunPlan::CommunicationOf(const ModelPlan& nets_of_phase) const {
  const NetPlan& train = *nets_of_phase.train;
  PlanSummary::Communication communication = {
      .buckets = static_cast<int64_t>(train.order.buckets.size()),
      .sent_bytes = BytesSent(train, bytes_of_sum()),
      .how = DescribeSync()};
  for (const GradientBucket& bucket : train.order.buckets) {
    communication.gradient_bytes += bucket.bytes;
  }
  return communication;
}

PlanSummary::Bytes RunPlan::BytesOf(const ModelPlan& nets_of_phase) const {
  const NetPlan& train = *nets_of_phase.train;
  const ServerBytes server = nets_of_phase.server_bytes();
  const bool has_server = train.spec.shape.server.has_value();
  PlanSummary::Bytes bytes = {
      .nets = nets_of_phase.device_bytes(),
      .gradients = nets_of_phase.communication_bytes(),
      .exchange = has_server ? server.device : nets_of_phase.allreduce_bytes(),
      .capacity = device_.capacity_bytes(),
      .batches = kBatchesHeld * BatchBytes(BatchArrays(train)),
      .checkpoint = nets_of_phase.checkpoint_bytes(),
      .rows = RowBytes(train),
      .server = server.pinned,
      .pages = nets_of_phase.page_bytes(),
      .disk = nets_of_phase.disk_bytes(),
      .optimizer = nets_of_phase.slot_bytes(),
      .carried = CarriedBytes(train)};
  if (nets_of_phase.test.empty()) return bytes;
  bytes.test = static_cast<size_t>(
      RecordBytes(nets_of_phase.test.front()->spec, nets_of_phase.options.test_samples));
  return bytes;
}

PlanSummary RunPlan::Summary(const RunStart& start) const {
  const RunShape& shape = nets.train->spec.shape;
  PlanSummary plan = {.net = net_.message->name(),
                      .device = std::string(DeviceKindName(device_.kind())),
                      .ranks = communication_.size(),
                      .rank = communication_.rank(),
                      .batch = config.batch(),
                      .accumulate = config.accumulate(),
                      .rank_samples = shape.local,
                      .steps = data.assumed && config.has_epochs() ? -1 : length.total_steps(),
                      .samples = data.assumed ? -1 : TrainSamplesOf(config, *data.train),
                      .layers = LayerRows(nets),
                      .communication = CommunicationOf(nets),
                      .bytes = BytesOf(nets),
                      .host_is_device = device_.kind() == DeviceKind::kCpu,
                      .shares_optimizer = shape.shard_optimizer,
                      .page_folder = nets.options.pages.folder,
                      .precisions = BytesInEachPrecision(net_, nets.options, bytes_of_sum()),
                      .notes = LeftOut(config, data),
                      .warnings = warnings};
  const auto add_phase = [&](const ModelPlan& of) {
    plan.phases.push_back({.first_step = of.options.shape.first_step(),
                           .parameters = TrainedElements(of),
                           .communication = CommunicationOf(of),
                           .bytes = BytesOf(of)});
  };
  add_phase(nets);
  for (auto later = others_.upper_bound(shape.first_step()); later != others_.end(); ++later) {
    add_phase(later->second);
  }
  if (nets.pages()) {
    plan.paged_seconds = ExpectIteration(nets).seconds;
    plan.resident_seconds = WorkSeconds(nets.nets_of(0).train->trace.trace);
  }
  plan.warnings.insert(plan.warnings.end(), start.warnings.begin(), start.warnings.end());
  for (const std::string& note : {gyre::DescribeStart(start), batch_text}) {
    if (!note.empty()) plan.notes.insert(plan.notes.begin(), note);
  }
  return plan;
}

std::string RunPlan::DescribeDetails(const PlanSummary& plan) const {
  std::string programs;
  for (int player = 0; player < std::max<int>(nets.turns.size(), 1); ++player) {
    const NetPlan& net = *nets.nets_of(player).train;
    if (!nets.turns.empty()) {
      absl::StrAppend(&programs, "a step of player ", config.players(player).name(), "\n");
    }
    absl::StrAppend(&programs, DescribeProgram(net), DescribeMemory(net));
  }
  return absl::StrCat(
      programs, nets.pages() ? DescribePaging(nets) : "",
      nets.options.pages.planner == PlannerKind::kNone ? "" : DescribeCapacities(nets),
      PrecisionsText(plan));
}

std::string RunPlan::DescribeStart() const {
  // What it chooses is another line's.
  const bool chosen = communication_.size() > 1 && !nets.options.shape.server &&
                      !nets.options.shape.shard_optimizer && communication_.algorithm() == "auto";
  const std::string sync = chosen ? "auto allreduce" : DescribeSync();
  const std::string how =
      absl::StrCat(net_.message->name(), ": ", Counted(communication_.size(), "rank"), " of ",
                   Counted(nets.options.pages.threads, "thread"), " on ",
                   std::string(DeviceKindName(device_.kind())), sync.empty() ? "" : ", ", sync);
  return absl::StrCat(Wrapped("training ", how), "\n",
                      Counted(Total(LayerRows(nets)).parameters, "parameter"), "; ",
                      Counted(TrainSamplesOf(config, *data.train), "sample"), ", ",
                      SamplesAStep(config), " a step, ", Counted(length.total_steps(), "step"),
                      "\n", DescribeFrozen(), DescribePlayers());
}

}  // namespace gyre
