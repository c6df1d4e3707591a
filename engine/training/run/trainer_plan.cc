// trainer_plan.cc: what a run plans and agrees on before it begins, and says of it.

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/server_shards.h"
#include "engine/data/files/atomic_file.h"
#include "engine/runtime/count_text.h"
#include "engine/runtime/wrapped_text.h"
#include "engine/training/feed/data_check.h"
#include "engine/training/feed/sequence_check.h"
#include "engine/training/metrics/record_metrics.h"
#include "engine/training/plan/planning.h"
#include "engine/training/run/trainer.h"
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

}  // namespace

// What a parameter server does not do.
absl::Status Trainer::CheckServer(const Parsed<TrainerConfig>& trainer) const {
  const RunShape& shape = plan_->options.shape;
  if (!shape.server) return absl::OkStatus();
  const DistributedConfig& distributed = trainer.message->distributed();
  const auto error = [&](const auto&... what) {
    return absl::InvalidArgumentError(
        absl::StrCat(trainer.source->Where(distributed, "sync"), ": ", DescribeServer(shape), ": ",
                     what..., "; train with sync allreduce (shard_optimizer shares out the same)"));
  };
  for (const DType dtype : plan_->train->order.dtypes) {
    if (shape.SentAs(dtype) != DType::kF16 || !shape.gates_alone()) continue;
    return error("gradients that a rank clips or skips itself travel without the loss's scale, in ",
                 "which those of F16 would be lost; BF16, bsp and loss_scale.fixed lose none");
  }
  if (shape.server->dedicated > 0) {
    const NetSpec& spec = plan_->train->spec;
    if (const auto carried = CarriedStates(spec); !carried.empty()) {
      return error("with servers no rows are carried from step to step, as those of \"",
                   NameOf(spec, carried.front()), "\" are");
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
  for (const Parameter& parameter : plan_->parameters.all()) {
    if (parameter.spec.lazy)
      return error("\"", parameter.name(), "\" is lazy, and owners update whole tables");
  }
  const std::vector<int64_t>& elements = plan_->train->order.elements;
  // Of ranks that only serve the last one has least.
  const auto all_own = [&](int servers) {
    return std::ranges::any_of(elements, [&](int64_t of_bucket) {
      return ServerShard(of_bucket, shape.ranks - servers, servers, shape.ranks - 1).count() > 0;
    });
  };
  const int dedicated = shape.server->dedicated;
  int fewer = dedicated;
  while (fewer > 0 && !all_own(fewer)) --fewer;
  if (fewer < dedicated) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: expected so few that each owns some of the %d elements of gradient buckets, got %d; "
        "lower servers to %d",
        trainer.source->Where(distributed, "servers"),
        std::accumulate(elements.begin(), elements.end(), int64_t{0}), dedicated, fewer));
  }
  return absl::OkStatus();
}

absl::Status Trainer::PlanNets(const Parsed<NetConfig>& net, const Primitives& primitives,
                               const TrainingOptions& options) {
  const Planning planning{net, data_, device_, primitives, communication_, options.pages};
  // Its batch is all ranks' by now.
  if (options.tune) RETURN_IF_ERROR(options.tune([&] { return planning.PrepareAll(config_); }));
  ASSIGN_OR_RETURN(plan_, planning.Plan(config_));
  return absl::OkStatus();
}

absl::Status Trainer::CheckSequences(const Parsed<NetConfig>& net) {
  if (data_.assumed) return absl::OkStatus();
  const NetSpec& spec = plan_->train->spec;
  RETURN_IF_ERROR(CheckTokens(net, spec, *data_.train, "train"));
  if (data_.test) {
    RETURN_IF_ERROR(CheckTokens(net, plan_->test.front()->spec, *data_.test, "test"));
  }
  const std::vector<std::string> padding = PaddingWarnings(net, spec, *data_.train, "train");
  warnings_.insert(warnings_.end(), padding.begin(), padding.end());
  return absl::OkStatus();
}

// Ranks that share the data look at them once.
absl::StatusOr<std::string> Trainer::LookAt(const Dataset& dataset, const NetPlan& net,
                                            const std::string& what) const {
  std::lock_guard lock(data_.looks->mutex);
  const auto [look, first] = data_.looks->digests.try_emplace(what, "");
  if (first) look->second = CheckData(dataset, net, what);
  return look->second;
}

// Ranks that would compute different things find out before they begin.
absl::Status Trainer::Agree(const Parsed<NetConfig>& net, const Primitives& primitives,
                            TrainingOptions& options) {
  const std::string trainer_text = config_.DebugString(), net_text = net.message->DebugString();
  RETURN_IF_ERROR(communication_.CheckEqual({{"--threads", options.choices["threads"]},
                                             {"the trainer file with its overrides", trainer_text},
                                             {"the net file with its overrides", net_text}}));
  std::string& allreduce = options.choices["allreduce"];
  allreduce = communication_.DescribeAllreduce();
  // The halves of others have the bits of the whole.
  if (const RunShape& shape = plan_->options.shape; shape.server) {
    // bsp has the bits of the ranks that train, by "direct".
    const bool exact = shape.server->sync == Sync::kBsp;
    allreduce = exact ? "direct" + DescribeWire(shape) : DescribeServer(shape);
    if (exact) options.choices["ranks"] = absl::StrCat(shape.workers());
  } else if (plan_->options.shape.shard_optimizer &&
             CutsHalvesElsewhere(config_.distributed().allreduce())) {
    allreduce += ", in halves";
  }
  std::string train = "assumed", test;
  if (!data_.assumed) {
    ASSIGN_OR_RETURN(train, LookAt(*data_.train, *plan_->train, "training data"));
    options.choices["training data"] = train;
    options.older_choices["training data"] = SampledDigestOf(*data_.train, data_.feed);
    options.fit = data_.fit;
    if (data_.test) {
      ASSIGN_OR_RETURN(test, LookAt(*data_.test, *plan_->test.front(), "test data"));
    }
  }
  const std::string fingerprint = plan_->Fingerprint(), algorithms = primitives.choices();
  RETURN_IF_ERROR(
      communication_.CheckEqual({{"the training data", train},
                                 {"the test data", test},
                                 {"what the data take from the training samples", data_.fit.text},
                                 {"the weights' layouts and buckets", fingerprint},
                                 {"the libraries' algorithms", algorithms}}));
  options.choices["layouts"] = Sha256(fingerprint).substr(0, 16);
  if (!algorithms.empty()) options.choices["algorithms"] = Sha256(algorithms).substr(0, 16);
  if (plan_->options.shape.page_activations != DType::kF32) {
    std::string rounding;
    for (const NetPlan* const of : {plan_->train.get(), plan_->accumulating.get()}) {
      if (of != nullptr && of->paging) rounding += RoundingText(*of->paging);
    }
    options.choices["rounded pages"] = rounding.empty() ? "none" : Sha256(rounding).substr(0, 16);
  }
  return absl::OkStatus();
}

std::string Trainer::DescribeSync() const {
  const RunShape& shape = plan_->options.shape;
  if (communication_.size() == 1) return "";
  if (shape.server) return DescribeServer(shape);
  if (shape.shard_optimizer) return "sharded optimizer by reduce-scatter and allgather";
  std::string sums = communication_.DescribeAllreduce();
  const size_t wire = std::min(sums.find(", as "), sums.size());
  return sums.insert(wire, " allreduce");
}

PlanSummary Trainer::Plan(const Parsed<NetConfig>& net) const {
  const RunShape& shape = plan_->train->spec.shape;
  const auto bytes_sent = [this](size_t bytes, DType dtype) {
    return communication_.BytesSent(bytes, dtype);
  };
  const ServerBytes server = plan_->server_bytes(plan_->pages());
  PlanSummary plan = {
      .net = net.message->name(),
      .device = std::string(DeviceKindName(device_.kind())),
      .ranks = communication_.size(),
      .rank = communication_.rank(),
      .batch = config_.batch(),
      .accumulate = config_.accumulate(),
      .rank_samples = shape.local,
      .steps = data_.assumed && config_.has_epochs() ? -1 : length_.total_steps(),
      .samples = data_.assumed ? -1 : TrainSamplesOf(config_, *data_.train),
      .layers = LayerRows(*plan_),
      .communication = {.buckets = static_cast<int64_t>(plan_->train->order.buckets.size()),
                        .sent_bytes = BytesSent(*plan_->train, bytes_sent),
                        .how = DescribeSync()},
      .bytes = {.nets = plan_->device_bytes(),
                .gradients = plan_->communication_bytes(),
                .exchange = shape.server ? server.device : plan_->allreduce_bytes(),
                .capacity = device_.capacity_bytes(),
                .batches = kBatches * BatchBytes(BatchArrays(*plan_->train)),
                .checkpoint = plan_->checkpoint_bytes(),
                .rows = RowBytes(*plan_->train),
                .server = server.pinned,
                .pages = plan_->page_bytes(),
                .disk = plan_->disk_bytes(),
                .optimizer = plan_->slot_bytes(),
                .carried = CarriedBytes(*plan_->train)},
      .host_is_device = device_.kind() == DeviceKind::kCpu,
      .shares_optimizer = shape.shard_optimizer,
      .page_folder = plan_->options.pages.folder,
      .precisions = BytesInEachPrecision(net, plan_->options, bytes_sent),
      .notes = LeftOut(config_, data_),
      .warnings = warnings_};
  for (const GradientBucket& bucket : plan_->train->order.buckets) {
    plan.communication.gradient_bytes += bucket.bytes;
  }
  if (!plan_->test.empty()) {
    plan.bytes.test =
        static_cast<size_t>(RecordBytes(plan_->test.front()->spec, plan_->options.test_samples));
  }
  if (plan_->pages()) {
    plan.paged_seconds = ExpectIteration(*plan_).seconds;
    plan.resident_seconds = WorkSeconds(plan_->train->trace.trace);
  }
  const RunStart& start = state_->start();
  plan.warnings.insert(plan.warnings.end(), start.warnings.begin(), start.warnings.end());
  for (const std::string& note : {gyre::DescribeStart(start), batch_text_}) {
    if (!note.empty()) plan.notes.insert(plan.notes.begin(), note);
  }
  return plan;
}

std::string Trainer::DescribeDetails(const PlanSummary& plan) const {
  return absl::StrCat(
      DescribeMemory(*plan_->train), plan_->pages() ? DescribePaging(*plan_) : "",
      plan_->options.pages.planner == PlannerKind::kNone ? "" : DescribeCapacities(*plan_),
      PrecisionsText(plan));
}

std::string Trainer::DescribeStart(const Parsed<NetConfig>& net) const {
  int64_t parameters = 0;
  for (const LayerRow& row : LayerRows(*plan_)) {
    parameters += row.parameters;
  }
  // What it chooses is another line's.
  const bool chosen = communication_.size() > 1 && !plan_->options.shape.server &&
                      !plan_->options.shape.shard_optimizer &&
                      config_.distributed().allreduce() == "auto";
  const std::string sync = chosen ? "auto allreduce" : DescribeSync();
  const std::string how =
      absl::StrCat(net.message->name(), ": ", Counted(communication_.size(), "rank"), " of ",
                   Counted(plan_->options.pages.threads, "thread"), " on ",
                   std::string(DeviceKindName(device_.kind())), sync.empty() ? "" : ", ", sync);
  return absl::StrCat(Wrapped("training ", how), "\n", Counted(parameters, "parameter"), "; ",
                      Counted(TrainSamplesOf(config_, *data_.train), "sample"), ", ",
                      SamplesAStep(config_), " a step, ", Counted(length_.total_steps(), "step"),
                      "\n");
}

std::string Trainer::DrawPlan(const Parsed<NetConfig>& net, bool page,
                              const std::string& below) const {
  return gyre::DrawPlan(*plan_, net.message->name(), page, below);
}

}  // namespace gyre
