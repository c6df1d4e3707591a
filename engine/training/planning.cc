#include "engine/training/planning.h"

#include <algorithm>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/collectives/catalogue.h"
#include "engine/training/optimizer.h"

namespace gyre {

ModelOptions Planning::OptionsOf(const TrainerConfig& config) const {
  const DistributedConfig& distributed = config.distributed();
  const int ranks = communication.size();
  std::string device_allreduce;
  const bool sums = distributed.sync() == DistributedConfig::ALLREDUCE;
  if (ranks > 1 && device.kind() != DeviceKind::kCpu && communication.sums_device_memory() &&
      sums && !distributed.shard_optimizer()) {
    device_allreduce = distributed.allreduce();
  }
  // "ring", by default, has them; the default itself protobuf makes when it is first asked for,
  // without a word that ThreadSanitizer hears.
  const bool has_halves = !distributed.has_allreduce() || CheckHalves(distributed.allreduce()).ok();
  const bool fit_buckets = ranks > 1 && !distributed.has_bucket_bytes();
  return {.shape = ShapeOf(config, *net.message, communication.rank(), ranks),
          .test_batch = data.test ? TestBatchOf(config, *data.test) : 0,
          .test_samples = data.test ? TestSamplesOf(config, *data.test) : 0,
          .slots = NewOptimizer(config.optimizer())->slot_names(),
          .bucket_bytes = fit_buckets ? communication.WorthwhileBytes()
                                      : static_cast<size_t>(distributed.bucket_bytes()),
          .fit_buckets = fit_buckets,
          .can_send_rows = has_halves && distributed.wire() == DistributedConfig::F32,
          .feed = FeedOn(device.kind(), data.feed),
          .capacity_bytes = device.capacity_bytes(),
          .planner = PlannerOn(device.kind(), planner),
          .host_bytes = host_bytes,
          .page_folder = page_folder,
          .threads = threads,
          .device_allreduce = device_allreduce,
          .primitives = &primitives};
}

// No longer than the data; each rank has a sample.
absl::StatusOr<LargestBatch> Planning::Largest(const TrainerConfig& config) const {
  int64_t most = data.train->size();
  const auto rows = static_cast<int64_t>(data.train->sequences().size());
  if (config.data().order() == DataConfig::CONTIGUOUS && rows > 0) most = std::min(most, rows);
  const auto options = [&](int64_t batch) {
    TrainerConfig of = config;
    of.set_batch(batch);
    return OptionsOf(of);
  };
  return FindLargestBatch(net, options, communication.size(), most / config.accumulate());
}

absl::StatusOr<ModelPlan> Planning::Plan(const TrainerConfig& config) const {
  ModelOptions options = OptionsOf(config);
  absl::StatusOr<ModelPlan> plan = PlanModel(net, options);
  if (!absl::IsResourceExhausted(plan.status())) return plan;
  // Of that another batch needs hardly less.
  if (absl::StartsWith(plan.status().message(), "host memory")) return plan;
  if (options.test_samples > 0) {
    options.test_samples = 0;
    if (PlanModel(net, options).ok()) {
      return absl::Status(
          plan.status().code(),
          absl::StrCat(plan.status().message(),
                       "; training alone fits: lower test_batch, which is ", options.test_batch));
    }
  }
  const absl::StatusOr<LargestBatch> largest = Largest(config);
  if (!largest.ok()) return plan;
  std::string fits = largest->paged < communication.size()
                         ? "; no batch fits"
                         : absl::StrCat("; the largest batch that fits is ", largest->paged);
  if (planner != PlannerKind::kAuto) {
    Planning other = *this;
    other.planner = PlannerKind::kAuto;
    const absl::StatusOr<LargestBatch> paged = other.Largest(config);
    if (paged.ok() && paged->paged > largest->paged) {
      absl::StrAppend(&fits, "; with --planner=auto one of ", paged->paged, " does");
    }
  }
  return absl::Status(plan.status().code(), absl::StrCat(plan.status().message(), fits));
}

absl::StatusOr<std::string> Planning::ChooseBatch(TrainerConfig& config) const {
  if (device.kind() == DeviceKind::kCpu) {
    return absl::InvalidArgumentError(
        "--batch=auto: the memory of --device=cpu has no bound; say how many samples, or use "
        "--device=sim");
  }
  ASSIGN_OR_RETURN(const LargestBatch own, Largest(config));
  std::vector<double> all(static_cast<size_t>(2 * communication.size()));
  all[2 * communication.rank()] = static_cast<double>(own.resident);
  all[2 * communication.rank() + 1] = static_cast<double>(own.paged);
  const Tensor tensor{all.data(), Shape({static_cast<int64_t>(all.size())}), DType::kF64};
  if (communication.size() > 1) RETURN_IF_ERROR(communication.Sum("largest batches", tensor));
  LargestBatch largest = own;
  for (size_t rank = 0; rank < all.size() / 2; ++rank) {
    largest.resident = std::min(largest.resident, static_cast<int64_t>(all[2 * rank]));
    largest.paged = std::min(largest.paged, static_cast<int64_t>(all[2 * rank + 1]));
  }
  const bool pages = largest.resident < communication.size();
  // One that fits nowhere is planned, too, for the error of that says why.
  config.set_batch(
      std::max<int64_t>(pages ? largest.paged : largest.resident, communication.size()));
  return absl::StrFormat(
      "batch: %d samples, the largest %s; the largest with paging is %d", config.batch(),
      pages ? "that fits, with paging" : "with which nothing is paged", largest.paged);
}

}  // namespace gyre
