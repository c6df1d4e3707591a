#include "engine/training/plan/planning.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "engine/training/optimizers/optimizer.h"
#include "engine/training/trainable_from.h"

namespace gyre {
namespace {

// The largest of least, ..., most that fits, or least - 1.  Doubles what fits, then bisects.
// Precondition: every value below one that fits fits too.
int64_t LargestThat(int64_t least, int64_t most, const std::function<bool(int64_t)>& fits) {
  int64_t good = least - 1, bad = most + 1;
  for (int64_t next = least; good + 1 < bad;) {
    (fits(next) ? good : bad) = next;
    const int64_t doubled = std::max(2 * good, least);
    next = bad == most + 1 ? std::min(doubled, most) : good + (bad - good) / 2;
  }
  return good;
}

}  // namespace

static_assert(kMostGroups == 1 + kMostTrainableFrom);

absl::StatusOr<LargestBatch> FindLargestBatch(
    const Parsed<NetConfig>& net, const std::function<ModelOptions(int64_t batch)>& options,
    int64_t least, int64_t most, const AskAll& ask_all) {
  absl::Status wrong, ranks;
  const auto find = [&](int64_t from, size_t (*capacity)(const ModelPlan&)) {
    return LargestThat(from, most, [&](int64_t batch) {
      ModelOptions of = options(batch);
      const size_t bytes = of.capacity_bytes;
      of.capacity_bytes = ~size_t{0};  // so that nothing is paged yet
      const absl::StatusOr<ModelPlan> plan = PlanModel(net, of);
      // What else is wrong with a batch the run itself says.
      const bool too_large = absl::IsResourceExhausted(plan.status());
      if (!plan.ok() && !too_large && batch == least) wrong = plan.status();
      const bool here = plan.ok() ? capacity(*plan) <= bytes : !too_large;
      if (!ranks.ok()) return here;
      const absl::StatusOr<bool> all = ask_all(here);
      ranks = all.status();
      return all.value_or(here);
    });
  };
  LargestBatch largest;
  largest.resident = find(least, [](const ModelPlan& plan) { return plan.resident_bytes; });
  RETURN_IF_ERROR(ranks);
  if (!wrong.ok()) return wrong;
  const bool pages = options(least).pages.planner != PlannerKind::kNone;
  largest.paged =
      pages ? std::max(largest.resident, find(std::max(least, largest.resident), LeastCapacity))
            : largest.resident;
  RETURN_IF_ERROR(ranks);
  return largest;
}

ModelOptions Planning::OptionsOf(const TrainerConfig& config) const {
  const DistributedConfig& distributed = config.distributed();
  const int ranks = communication.size();
  std::string device_allreduce;
  const bool sums = distributed.sync() == DistributedConfig::ALLREDUCE;
  if (ranks > 1 && device.kind() != DeviceKind::kCpu && communication.sums_device_memory() &&
      sums && !distributed.shard_optimizer()) {
    device_allreduce = communication.algorithm();
  }
  const bool has_halves = PropertiesOf(communication.algorithm()).has_halves;
  PagingOptions on_device = pages;
  on_device.planner = PlannerOn(device.kind(), pages.planner);
  const bool fit_buckets = ranks > 1 && !distributed.has_bucket_bytes();
  RunShape shape = ShapeOf(config, *net.message, communication.rank(), ranks);
  shape.trainable_from = PhasesOf(*net.message);
  std::erase_if(shape.trainable_from, [this](int64_t from) { return from > first_step; });
  return {.shape = shape,
          .test_batch = data.test ? TestBatchOf(config, *data.test) : 0,
          .test_samples = data.test ? TestSamplesOf(config, *data.test) : 0,
          .slots = NewOptimizer(config.optimizer())->slot_names(),
          .bucket_bytes = fit_buckets ? communication.WorthwhileBytes()
                                      : static_cast<size_t>(distributed.bucket_bytes()),
          .fit_buckets = fit_buckets,
          .can_send_rows = has_halves && distributed.wire() == DistributedConfig::F32,
          .recompute = device.kind() != DeviceKind::kCuda,
          .feed = FeedOn(device.kind(), data.feed),
          .capacity_bytes = device.capacity_bytes(),
          .pages = on_device,
          .device_allreduce = device_allreduce,
          .primitives = &primitives};
}

// No longer than the data; each rank has a sample.
absl::StatusOr<LargestBatch> Planning::Largest(const TrainerConfig& config, bool test) const {
  int64_t most = data.train->size();
  const auto rows = static_cast<int64_t>(data.train->sequences().size());
  if (config.data().order() == DataConfig::CONTIGUOUS && rows > 0) most = std::min(most, rows);
  const auto options = [&](int64_t batch) {
    TrainerConfig of = config;
    of.set_batch(batch);
    ModelOptions options_of = OptionsOf(of);
    if (!test) options_of.test_samples = 0;
    return options_of;
  };
  return FindLargestBatch(net, options, communication.size(), most / config.accumulate(),
                          [this](bool here) { return FitsAll(here); });
}

absl::StatusOr<bool> Planning::FitsAll(bool here) const {
  double count = here ? 1 : 0;
  if (communication.size() > 1) {
    RETURN_IF_ERROR(communication.Sum("ranks whose memory suffices", std::span(&count, 1)));
  }
  return count == communication.size();
}

absl::Status Planning::PrepareAll(const TrainerConfig& config) const {
  ModelOptions options = OptionsOf(config);
  options.capacity_bytes = ~size_t{0};  // whatever each rank's holds
  return PlanModel(net, options).status();
}

absl::StatusOr<ModelPlan> Planning::Plan(const TrainerConfig& config) const {
  const ModelOptions options = OptionsOf(config);
  absl::StatusOr<ModelPlan> plan = PlanModel(net, options);
  // Of that another batch needs hardly less.
  const bool exhausted = absl::IsResourceExhausted(plan.status());
  const bool of_host = absl::StartsWith(plan.status().message(), "host memory");
  const bool lacks = exhausted && !of_host;
  // What else is wrong is so on every rank, or is told by the one where it is.
  ASSIGN_OR_RETURN(const bool all, FitsAll(!lacks));
  if (all && exhausted) {
    return absl::Status(plan.status().code(),
                        absl::StrCat(plan.status().message(), "; give more --host_memory"));
  }
  if (all) return plan;
  ASSIGN_OR_RETURN(const std::string advice, Advice(config, options));
  if (lacks) {
    return absl::Status(plan.status().code(), absl::StrCat(plan.status().message(), advice));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("device memory: another rank's is too small", advice));
}

// Ranks whose memory suffices help the others find out.
absl::StatusOr<std::string> Planning::Advice(const TrainerConfig& config,
                                             const ModelOptions& options) const {
  const bool tests = options.test_samples > 0;
  std::string more = device.kind() == DeviceKind::kSim ? "give more --device_memory" : "";
  if (pages.planner == PlannerKind::kNone) {
    ModelOptions paged = options;
    paged.pages.planner = PlannerKind::kAuto;
    ASSIGN_OR_RETURN(const bool all, FitsAll(PlanModel(net, paged).ok()));
    if (all) absl::StrAppend(&more, more.empty() ? "" : ", or ", "leave --planner=none out");
  }
  if (tests) {
    ModelOptions alone = options;
    alone.test_samples = 0;
    ASSIGN_OR_RETURN(const bool all, FitsAll(PlanModel(net, alone).ok()));
    if (all) {
      return absl::StrCat("; training alone fits: lower test_batch, which is ", options.test_batch,
                          " (--set test_batch=...)", more.empty() ? "" : ", or ", more);
    }
  }
  const int ranks = communication.size();
  const auto largest_of = [&](const Planning& planning, bool test) -> int64_t {
    const absl::StatusOr<LargestBatch> largest = planning.Largest(config, test);
    return largest.ok() ? largest->paged : -1;
  };
  const int64_t largest = largest_of(*this, tests);
  if (largest < 0) return "";
  Planning other = *this;
  other.pages.planner = PlannerKind::kAuto;
  const int64_t paged = pages.planner == PlannerKind::kAuto ? largest : largest_of(other, tests);
  std::string fits = paged > largest ? "; no batch fits with this --planner" : "; no batch fits";
  if (largest >= ranks) {
    fits = absl::StrCat("; the largest batch that fits is ", largest);
  } else if (tests) {
    if (const int64_t alone = largest_of(*this, false); alone >= ranks) {
      absl::StrAppend(&fits, " beside test_batch, which is ", options.test_batch,
                      "; the largest that trains alone is ", alone, ": lower both");
    }
  }
  if (paged > largest) absl::StrAppend(&fits, "; with --planner=auto one of ", paged, " does");
  if (more.empty()) return fits;
  return absl::StrCat(fits, fits.ends_with("no batch fits") ? "; " : ", or ", more);
}

absl::StatusOr<std::string> Planning::ChooseBatch(TrainerConfig& config) const {
  if (device.kind() == DeviceKind::kCpu) {
    return absl::InvalidArgumentError(
        "--batch=auto: the memory of --device=cpu has no bound; say how many samples, or use "
        "--device=sim");
  }
  ASSIGN_OR_RETURN(const LargestBatch largest, Largest(config, /*test=*/data.test != nullptr));
  const bool pages = largest.resident < communication.size();
  // One that fits nowhere is planned, too, for the error of that says why.
  config.set_batch(
      std::max<int64_t>(pages ? largest.paged : largest.resident, communication.size()));
  std::string text =
      absl::StrFormat("batch: %d samples, the largest %s", config.batch(),
                      pages ? "that fits, with paging" : "with which nothing is paged");
  if (largest.paged > config.batch()) {
    absl::StrAppend(&text, "; with paging ", largest.paged, " fit");
  }
  return text;
}

}  // namespace gyre
