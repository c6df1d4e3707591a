#include "engine/training/model/model_plan.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/batches/sample_order.h"
#include "engine/runtime/math.h"
#include "memory/planner/paging_schedule.h"
#include "memory/resident/memory_plan.h"

namespace gyre {
namespace {

// A batch of this size is planned whatever the capacity, for the plan's error says what would do.
constexpr size_t kPlannedBytes = size_t{64} << 20;

// Before anything is prepared for a batch that the memory cannot hold.
absl::Status CheckInputsFit(const Parsed<NetConfig>& net, const ModelOptions& options, int ranks) {
  const int64_t global_batch = options.shape.global;
  const auto samples = static_cast<double>(ShareOf(global_batch, 0, ranks).count);
  for (const InputConfig& input : net.message->input()) {
    const bool label = input.type() == InputConfig::LABEL;
    double bytes =
        samples * static_cast<double>(SizeOf(label ? DType::kI32 : options.shape.compute));
    for (const int64_t extent : input.dims()) bytes *= static_cast<double>(extent);
    if (bytes <= static_cast<double>(std::max(options.capacity_bytes, kPlannedBytes))) continue;
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: input \"%s\": a batch of %d samples takes %.0f bytes on a rank, the device's memory "
        "has %d; lower the batch",
        net.source->Where(input), input.name(), global_batch, bytes, options.capacity_bytes));
  }
  return absl::OkStatus();
}

// Plans nets so that all ranks and all shapes agree: the first one planned, which chooses the
// parameters' layouts, is that of the largest share, and every rank plans both sizes of share, so
// that libraries are asked for the same operations everywhere.
class NetsPlanner {
 public:
  // `first` was planned before, or is null.
  NetsPlanner(const Parsed<NetConfig>& net, ModelPlan& plan, const NetPlan* first = nullptr)
      : net_(net), plan_(plan), first_(first ? std::make_unique<NetPlan>(*first) : nullptr) {}

  // turn: of players, or -1.
  absl::StatusOr<std::unique_ptr<NetPlan>> Plan(bool train, int64_t global_batch, int turn = -1) {
    ModelOptions options = plan_.options;
    options.train = train;
    options.shape.global = global_batch;
    options.shape.turn = turn;
    const RunShape& run = options.shape;
    const int ranks = train ? run.workers() : run.ranks;
    RETURN_IF_ERROR(CheckInputsFit(net_, options, ranks));
    const int64_t largest = ShareOf(global_batch, 0, ranks).count;
    const int64_t smallest = ShareOf(global_batch, ranks - 1, ranks).count;
    // Of a rank that runs none the first one's.
    const int64_t own = ShareOf(global_batch, run.rank < ranks ? run.rank : 0, ranks).count;
    options.shape.local = largest;
    ASSIGN_OR_RETURN(auto plan, PlanNet(net_, options, first_.get(), plan_.parameters));
    if (first_ == nullptr) first_ = std::make_unique<NetPlan>(*plan);
    if (smallest == largest) return plan;
    options.shape.local = smallest;
    ASSIGN_OR_RETURN(auto other, PlanNet(net_, options, first_.get(), plan_.parameters));
    return own == largest ? std::move(plan) : std::move(other);
  }

 private:
  const Parsed<NetConfig>& net_;
  ModelPlan& plan_;
  std::unique_ptr<NetPlan> first_;
};

// Those that run, training nets first.
std::vector<NetPlan*> NetsOf(const ModelPlan& plan) {
  std::vector<NetPlan*> nets;
  for (int turn = 0; plan.train && turn < std::max<int>(plan.turns.size(), 1); ++turn) {
    const TrainingNets& of = plan.nets_of(turn);
    nets.push_back(of.train.get());
    if (of.accumulating) nets.push_back(of.accumulating.get());
  }
  for (const auto& test : plan.test) nets.push_back(test.get());
  return nets;
}

// As they are where they page.  A net that accumulates is there with paging if it is without.
std::vector<NetPlan*> PagedNetsOf(const ModelPlan& plan) {
  std::vector<NetPlan*> nets = NetsOf(plan);
  for (int turn = 0; plan.train && turn < std::max<int>(plan.turns.size(), 1); ++turn) {
    const TrainingNets& of = plan.nets_of(turn);
    if (of.paged == nullptr) continue;
    std::ranges::replace(nets, of.train.get(), of.paged.get());
    std::ranges::replace(nets, of.accumulating.get(), of.paged_accumulating.get());
  }
  return nets;
}

size_t Most(const std::vector<NetPlan*>& nets, size_t (NetPlan::*bytes)() const) {
  size_t most = 0;
  for (const NetPlan* const net : nets) most = std::max(most, (net->*bytes)());
  return most;
}

// Of the same memory, whatever is planned: as nets are, or where they page.
size_t ReservedBytes(const ModelPlan& plan) {
  return Most(NetsOf(plan), &NetPlan::communication_bytes) + plan.allreduce_bytes() +
         plan.server_bytes().device;
}
size_t PagedReservedBytes(const ModelPlan& plan) {
  return Most(PagedNetsOf(plan), &NetPlan::communication_bytes) + plan.allreduce_bytes() +
         plan.paged_server_bytes().device;
}

// An error of too little memory, with what is reserved of it and what would make that less.
absl::Status WithReserved(const absl::Status& lacking, const ModelPlan& plan) {
  if (!absl::StrContains(lacking.message(), " are reserved")) return lacking;
  const RunShape& shape = plan.options.shape;
  std::string text = "; reserved is what several ranks' gradients are summed in";
  if (shape.server) {
    text = "; reserved is what gradients are sent from, and the parameter server's";
    if (!shape.server->in_host_memory) text += "; it is less with --server_memory=host";
  } else if (!plan.options.device_allreduce.empty()) {
    absl::StrAppend(&text, ", on the device by ", plan.options.device_allreduce,
                    "; it is less with --shard_optimizer or --set distributed.allreduce=direct");
  }
  return absl::Status(lacking.code(), absl::StrCat(lacking.message(), text));
}

// Whether the host has nothing to do within an iteration but with pages.
bool OneGraph(const ModelPlan& plan) { return plan.options.shape.ranks == 1; }

size_t LargestStepOf(const NetPlan& net, PlannerKind planner) {
  return FindLargestStep(net.trace.trace, nullptr, planner).bytes;
}

// What of the training net is another where iterations only accumulate, or nets page.
absl::Status PlanOtherTraining(const ModelPlan& plan, TrainingNets& nets) {
  nets.accumulating = AccumulatingPlan(*nets.train, plan.parameters);
  const bool pages = plan.options.pages.planner != PlannerKind::kNone;
  if (!pages || plan.options.shape.ranks == 1) return absl::OkStatus();
  std::vector<int64_t> sent;
  for (const PlannedBucket& bucket : plan.train->order.buckets) {
    // What is summed in device memory stays where that finds it.  Without a server tables' rows are
    // exchanged in place.
    const bool stays = !plan.options.device_allreduce.empty() ||
                       (!plan.options.shape.server && TableOf(*plan.train, sent.size()));
    sent.push_back(stays ? 0 : bucket.elements);
  }
  ASSIGN_OR_RETURN(nets.paged, PagedPlan(*nets.train, plan.parameters, std::move(sent)));
  nets.paged_accumulating = AccumulatingPlan(*nets.paged, plan.parameters);
  return absl::OkStatus();
}

// A batch of another size has rows of its own, so that one that is smaller ends the test alone.
absl::Status CheckWholeBatches(const Parsed<NetConfig>& net, const ModelPlan& plan) {
  const int64_t samples = plan.options.test_samples, batch = plan.options.test_batch;
  const std::vector<CarriedState>& carried = plan.test.front()->spec.carried;
  if (carried.empty() || samples % batch == 0) return absl::OkStatus();
  int64_t divisor = batch;
  while (samples % divisor != 0) --divisor;
  return AtLayer(
      net, *plan.test.front()->spec.nodes[carried[0].node].config,
      absl::InvalidArgumentError(absl::StrFormat(
          "it carries rows from batch to batch, but the %d samples of the test are no "
          "whole batches of %d; set test_batch to %d, or data.order to CONTIGUOUS, which "
          "leaves samples out",
          samples, batch, divisor)));
}

// A sequence goes on in the next batch's row only where samples come in such rows.
absl::Status CheckSequences(const Parsed<NetConfig>& net, const NetPlan& test) {
  constexpr size_t kReset = 2;  // input
  for (const NetNode& node : test.spec.nodes) {
    if (!node.config->has_alarm() || node.inputs.size() <= kReset || test.feed.contiguous) continue;
    return AtLayer(net, *node.config,
                   absl::InvalidArgumentError(
                       "its sequences go on from sample to sample in a row; write order: "
                       "CONTIGUOUS in the trainer's data"));
  }
  return absl::OkStatus();
}

// All but how the nets page.
absl::StatusOr<ModelPlan> PlanNets(const Parsed<NetConfig>& net, const ModelOptions& options) {
  ModelPlan plan;
  plan.options = options;
  NetsPlanner planner(net, plan);
  if (options.train) {
    ASSIGN_OR_RETURN(plan.train, planner.Plan(true, options.shape.global));
    plan.options.shape = plan.train->spec.shape;
    const int players = static_cast<int>(options.shape.players.size());
    RETURN_IF_ERROR(CheckPlayers(net, plan.train->spec, {}));
    for (int turn = 0; turn < players; ++turn) {
      TrainingNets& nets = plan.turns.emplace_back();
      ASSIGN_OR_RETURN(nets.train, planner.Plan(true, options.shape.global, turn));
      RETURN_IF_ERROR(PlanOtherTraining(plan, nets));
    }
    RETURN_IF_ERROR(CheckPlayers(net, plan.train->spec, plan.turns));
    if (players == 0) RETURN_IF_ERROR(PlanOtherTraining(plan, plan));
  }
  if (options.test_samples > 0) {
    ASSIGN_OR_RETURN(plan.test.emplace_back(), planner.Plan(false, options.test_batch));
    RETURN_IF_ERROR(CheckWholeBatches(net, plan));
    RETURN_IF_ERROR(CheckSequences(net, *plan.test.front()));
    const int64_t rest = options.test_samples % options.test_batch;
    if (rest > 0) {
      ASSIGN_OR_RETURN(plan.test.emplace_back(), planner.Plan(false, rest));
    }
  }
  plan.resident_bytes = plan.device_bytes() + ReservedBytes(plan);
  return plan;
}

// Whether it is another plan from now on.
absl::StatusOr<bool> PlanNetAnew(const ModelPlan& plan, NetPlan& net) {
  const AccessTrace& trace = net.trace.trace;
  const PagingCosts& costs = plan.options.paging;
  const PagingTimes now = PredictTimes(trace, *net.paging, SchedulePaging(*net.paging), costs);
  net.paging->seconds = now.seconds;
  net.paging->stalled_seconds = now.stalled_seconds;
  // The arena is there, and no larger than the first plans made it.
  const size_t reserved = PagedReservedBytes(plan);
  // Where updates run stays as it is: on a GPU their bits might not be the host's.
  const std::vector<int> host_steps = HostStepsOf(*net.paging);
  const PagingLimits limits = {.capacity_bytes = plan.device_bytes() + reserved,
                               .reserved_bytes = reserved,
                               .self_contained = OneGraph(plan),
                               .host_bytes = plan.options.pages.host_bytes,
                               .homes = &net.paging->homes,
                               .host_steps = &host_steps};
  absl::StatusOr<PagingPlan> planned = PlanPaging(trace, costs, limits);
  // Pages laid out anew may not pack into the same host memory.
  if (absl::IsResourceExhausted(planned.status())) return false;
  ASSIGN_OR_RETURN(PagingPlan other, std::move(planned));
  // Another plan would round other values, and what is measured must not decide which.
  if (net.paging->rounds() || other.rounds()) return false;
  // The file of a run stays as long as it is.
  if (other.seconds >= now.seconds || other.disk_bytes > plan.disk_bytes()) return false;
  for (size_t s = 0; s < trace.states.size(); ++s) {
    if (!trace.states[s].persistent) continue;
    const auto [block, offset] = net.paging->states[s];
    const auto [next_block, next_offset] = other.states[s];
    GYRE_CHECK((block < 0) == (next_block < 0) && offset == next_offset);
    GYRE_CHECK(block < 0 || net.paging->blocks[block].page == other.blocks[next_block].page);
  }
  net.paging = std::move(other);
  return true;
}

}  // namespace

absl::StatusOr<ModelPlan> PlanModel(const Parsed<NetConfig>& net, const ModelOptions& options) {
  if (options.train && !options.recompute) {
    ASSIGN_OR_RETURN(ModelPlan plan, PlanNets(net, options));
    if (plan.resident_bytes <= options.capacity_bytes) return plan;
  }
  ModelOptions recomputing = options;
  recomputing.recompute = true;
  ASSIGN_OR_RETURN(ModelPlan plan, PlanNets(net, recomputing));
  if (plan.resident_bytes <= options.capacity_bytes) return plan;
  if (options.pages.planner == PlannerKind::kNone) {
    // One arena serves all nets beside the gradients' one, so the largest net says what would do.
    const std::vector<NetPlan*> nets = NetsOf(plan);
    const NetPlan& largest = **std::ranges::max_element(nets, {}, &NetPlan::device_bytes);
    return WithReserved(CheckCapacity(largest.trace.trace, largest.memory, options.capacity_bytes,
                                      ReservedBytes(plan)),
                        plan);
  }
  const auto as_paged = [](TrainingNets& nets) {
    if (nets.paged == nullptr) return;
    nets.train = std::move(nets.paged);
    nets.accumulating = std::move(nets.paged_accumulating);
  };
  as_paged(plan);
  for (TrainingNets& nets : plan.turns) as_paged(nets);
  for (auto& test : plan.test) {
    const std::vector<int64_t>& sent = NetsOf(plan).front()->sent;
    if (sent.empty()) break;
    ASSIGN_OR_RETURN(test, PagedPlan(*test, plan.parameters, sent));
  }
  absl::StatusOr<std::vector<PagingPlan>> pages = PlanPages(plan, options.capacity_bytes);
  if (!pages.ok()) return WithReserved(pages.status(), plan);
  const std::vector<NetPlan*> nets = NetsOf(plan);
  for (size_t n = 0; n < nets.size(); ++n) nets[n]->paging = std::move((*pages)[n]);
  return plan;
}

absl::Status AddTest(const Parsed<NetConfig>& net, int64_t batch, ModelPlan& plan) {
  GYRE_CHECK(!plan.train && !plan.test.empty());
  if (plan.pages()) {
    return absl::FailedPreconditionError(absl::StrFormat(
        "the device's memory cannot hold the net at once, so all batches are of %d samples",
        plan.test.front()->spec.shape.global));
  }
  NetsPlanner planner(net, plan, plan.test.front().get());
  ASSIGN_OR_RETURN(std::unique_ptr<NetPlan> test, planner.Plan(/*train=*/false, batch));
  RETURN_IF_ERROR(CheckCapacity(test->trace.trace, test->memory, plan.options.capacity_bytes, 0));
  plan.test.push_back(std::move(test));
  return absl::OkStatus();
}

absl::StatusOr<bool> PlanPagesAnew(ModelPlan& plan, std::span<const double> step_seconds,
                                   const PagingCosts& costs) {
  plan.options.paging = costs;
  std::vector<TraceStep>& steps = plan.train->trace.trace.steps;
  for (size_t s = 0; s < steps.size(); ++s) steps[s].seconds = step_seconds[s];
  for (const int s : HostStepsOf(*plan.train->paging)) {
    TraceStep& step = steps[s];
    // On the device it would take no longer.
    step.seconds = static_cast<double>(step.host_bytes) / costs.host_step_bytes_per_s;
  }
  ASSIGN_OR_RETURN(bool anew, PlanNetAnew(plan, *plan.train));
  if (plan.accumulating == nullptr) return anew;
  size_t s = 0;
  for (TraceStep& step : plan.accumulating->trace.trace.steps) {
    while (steps[s].name != step.name) ++s;  // updates
    step.seconds = step_seconds[s++];
  }
  ASSIGN_OR_RETURN(const bool other, PlanNetAnew(plan, *plan.accumulating));
  return anew || other;
}

size_t LeastCapacity(const ModelPlan& plan) {
  if (plan.options.pages.planner == PlannerKind::kNone) return plan.resident_bytes;
  size_t largest = 0;
  for (const NetPlan* const net : PagedNetsOf(plan)) {
    largest = std::max(largest, LargestStepOf(*net, plan.options.pages.planner));
  }
  // GeePS's buffer may take more than all at once.
  return std::min(plan.resident_bytes, largest + PagedReservedBytes(plan));
}

// In what the gradients and their sums leave.  Test nets have the training net's parameters where
// it has them, and may touch more at a step than it.
absl::StatusOr<std::vector<PagingPlan>> PlanPages(const ModelPlan& plan, size_t capacity_bytes,
                                                  bool train_alone) {
  const PlannerKind planner = plan.options.pages.planner;
  const std::vector<NetPlan*> nets = PagedNetsOf(plan);
  const auto largest = [planner](const NetPlan* net) { return LargestStepOf(*net, planner); };
  PagingLimits limits = {.capacity_bytes = capacity_bytes,
                         .reserved_bytes = PagedReservedBytes(plan),
                         .host_bytes = plan.options.pages.host_bytes};
  const auto page = [&](const NetPlan& net) {
    return PlanPaging(net.trace.trace, plan.options.paging, limits, planner);
  };
  // Whatever the first net leaves on the device, the others have room beside it.
  size_t others = limits.reserved_bytes;
  for (size_t n = 1; n < nets.size(); ++n) {
    others = std::max(others, limits.reserved_bytes + largest(nets[n]));
  }
  limits.most_resident_bytes = capacity_bytes - std::min(capacity_bytes, others);
  const NetPlan* const neediest = *std::ranges::max_element(nets, {}, largest);
  if (largest(neediest) + limits.reserved_bytes > capacity_bytes) {
    return page(*neediest).status();  // what it lacks is the error
  }
  std::vector<PagingPlan> plans;
  std::vector<Home> homes;
  for (const NetPlan* const net : nets) {
    if (train_alone && !net->spec.train) break;
    limits.self_contained = net->spec.train && OneGraph(plan);
    ASSIGN_OR_RETURN(plans.emplace_back(), page(*net));
    if (limits.homes == nullptr) homes = plans.front().homes;
    limits.homes = &homes;
  }
  return plans;
}

size_t ModelPlan::device_bytes() const { return Most(NetsOf(*this), &NetPlan::device_bytes); }
size_t ModelPlan::page_bytes() const { return Most(NetsOf(*this), &NetPlan::page_bytes); }
size_t ModelPlan::disk_bytes() const { return Most(NetsOf(*this), &NetPlan::disk_bytes); }

absl::Status ModelPlan::OpenPages() {
  if (disk_bytes() == 0 || page_file != nullptr) return absl::OkStatus();
  // Nets that have homes there agree on where.
  const size_t home_bytes = Most(NetsOf(*this), &NetPlan::disk_home_bytes);
  ASSIGN_OR_RETURN(page_file, PageFile::Create(options.pages.folder, disk_bytes(), home_bytes));
  return absl::OkStatus();
}

size_t ModelPlan::communication_bytes() const {
  return Most(NetsOf(*this), &NetPlan::communication_bytes);
}

}  // namespace gyre
