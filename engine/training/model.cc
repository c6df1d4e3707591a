#include "engine/training/model.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "distributed/collectives/catalogue.h"
#include "engine/runtime/math.h"
#include "engine/training/net/net_kernels.h"

namespace gyre {
namespace {

// One rank at a time where ranks are threads: under a sanitizer, whose own allocator the program
// uses, this is the first call of glibc's, and two of them would both set it up.
void GiveBackFreeMemory() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  malloc_trim(0);
}

// Of what is copied for a checkpoint: a cache line, and so every element.
constexpr size_t kCopyAlignBytes = 64;
// A batch of this size is planned whatever the capacity, for the plan's error says what would do.
constexpr size_t kPlannedBytes = size_t{64} << 20;

// Before anything is prepared for a batch that the memory cannot hold.
absl::Status CheckInputsFit(const Parsed<NetConfig>& net, const ModelOptions& options,
                            int64_t global_batch) {
  const auto samples = static_cast<double>(ShareOf(global_batch, 0, options.shape.ranks).count);
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
class Planner {
 public:
  Planner(const Parsed<NetConfig>& net, ModelPlan& plan) : net_(net), plan_(plan) {}

  absl::StatusOr<std::unique_ptr<NetPlan>> Plan(bool train, int64_t global_batch) {
    const RunShape& run = plan_.options.shape;
    RETURN_IF_ERROR(CheckInputsFit(net_, plan_.options, global_batch));
    const int64_t largest = ShareOf(global_batch, 0, run.ranks).count;
    const int64_t smallest = ShareOf(global_batch, run.ranks - 1, run.ranks).count;
    const int64_t own = ShareOf(global_batch, run.rank, run.ranks).count;
    ASSIGN_OR_RETURN(std::unique_ptr<NetPlan> plan, PlanShare(train, global_batch, largest));
    if (first_ == nullptr) first_ = std::make_unique<NetPlan>(*plan);
    if (smallest == largest) return plan;
    ASSIGN_OR_RETURN(std::unique_ptr<NetPlan> other, PlanShare(train, global_batch, smallest));
    return own == largest ? std::move(plan) : std::move(other);
  }

 private:
  absl::StatusOr<std::unique_ptr<NetPlan>> PlanShare(bool train, int64_t global, int64_t local) {
    const ModelOptions& options = plan_.options;
    RunShape shape = options.shape;
    shape.local = local;
    shape.global = global;
    ASSIGN_OR_RETURN(NetPlan plan,
                     PlanNet(net_,
                             {.infer = {.train = train,
                                        .shape = shape,
                                        .primitives = options.primitives,
                                        .same_parameters_as = first_ ? &first_->spec : nullptr},
                              .optimizer_slots = static_cast<int>(options.slots.size()),
                              .bucket_bytes = options.bucket_bytes,
                              .fit_buckets = options.fit_buckets,
                              .feed = options.feed},
                             plan_.parameters));
    return std::make_unique<NetPlan>(std::move(plan));
  }

  const Parsed<NetConfig>& net_;
  ModelPlan& plan_;
  std::unique_ptr<NetPlan> first_;
};

// One arena serves all nets beside the gradients' one, so the largest net says what would do.
absl::Status CheckLargest(const ModelPlan& plan) {
  std::vector<const NetPlan*> nets;
  if (plan.train) nets.push_back(plan.train.get());
  for (const auto& test : plan.test) nets.push_back(test.get());
  const auto largest =
      std::max_element(nets.begin(), nets.end(), [](const NetPlan* a, const NetPlan* b) {
        return a->memory.device_bytes < b->memory.device_bytes;
      });
  if (largest == nets.end()) return absl::OkStatus();
  return CheckCapacity((*largest)->trace.trace, (*largest)->memory, plan.options.capacity_bytes,
                       plan.communication_bytes() + plan.allreduce_bytes());
}

}  // namespace

absl::StatusOr<ModelPlan> PlanModel(const Parsed<NetConfig>& net, const ModelOptions& options) {
  ModelPlan plan;
  plan.options = options;
  Planner planner(net, plan);
  if (options.train) {
    ASSIGN_OR_RETURN(plan.train, planner.Plan(true, options.shape.global));
    plan.options.shape = plan.train->spec.shape;
  }
  if (options.test_samples > 0) {
    ASSIGN_OR_RETURN(plan.test.emplace_back(), planner.Plan(false, options.test_batch));
    const int64_t rest = options.test_samples % options.test_batch;
    if (rest > 0) {
      ASSIGN_OR_RETURN(plan.test.emplace_back(), planner.Plan(false, rest));
    }
  }
  RETURN_IF_ERROR(CheckLargest(plan));
  return plan;
}

size_t ModelPlan::device_bytes() const {
  size_t bytes = train ? train->memory.device_bytes : 0;
  for (const auto& net : test) bytes = std::max(bytes, net->memory.device_bytes);
  return bytes;
}

size_t ModelPlan::communication_bytes() const {
  return train ? train->memory.communication_bytes : 0;
}

size_t ModelPlan::allreduce_bytes() const {
  if (train == nullptr || options.device_allreduce.empty()) return 0;
  int64_t longest = 0;
  for (size_t b = 0; b < train->order.buckets.size(); ++b) {
    longest = std::max(longest, BucketElements(*train, static_cast<int>(b)));
  }
  return AllreduceDeviceBytes(options.device_allreduce,
                              static_cast<size_t>(longest) * SizeOf(options.shape.compute),
                              options.shape.ranks);
}

std::string ModelPlan::Fingerprint() const {
  std::string text;
  for (const Parameter& p : parameters.all()) {
    absl::StrAppend(&text, p.name(), " ", std::string(DTypeName(p.spec.dtype)), " ",
                    p.spec.size_bytes(), " ", p.spec.layout, "\n");
  }
  if (train) {
    for (const GradientBucket& b : train->order.buckets) {
      absl::StrAppend(&text, "bucket ", b.first, " ", b.last, "\n");
    }
  }
  return text;
}

absl::StatusOr<std::unique_ptr<Model>> Model::Create(ModelPlan plan, Device& device, Stream& stream,
                                                     ProcessGroup* communication) {
  std::unique_ptr<Model> model(new Model(std::move(plan)));
  const ModelPlan& p = model->plan_;
  ASSIGN_OR_RETURN(model->device_arena_,
                   Buffer::Allocate(device, MemoryKind::kDevice, p.device_bytes()));
  std::byte* gradients = nullptr;
  if (communication != nullptr && device.kind() == DeviceKind::kCpu && p.train) {
    ASSIGN_OR_RETURN(gradients, communication->Share(p.communication_bytes()));
  }
  if (gradients == nullptr) {
    ASSIGN_OR_RETURN(model->communication_arena_,
                     Buffer::Allocate(device, MemoryKind::kDevice, p.communication_bytes()));
    gradients = model->communication_arena_.data();
  }
  const auto elements = static_cast<int64_t>(p.communication_bytes() / sizeof(float));
  RETURN_IF_ERROR(Fill(stream, 0, {gradients, Shape({elements}), DType::kF32}));
  if (p.train) {
    model->train_ = std::make_unique<Net>(*p.train, model->device_arena_.data(), gradients);
  }
  for (const auto& test : p.test) {
    model->test_.push_back(std::make_unique<Net>(*test, model->device_arena_.data(), nullptr));
  }
  return model;
}

absl::Status Model::Upload(Stream& stream, std::span<const std::byte> bytes, Tensor to) {
  GYRE_CHECK(bytes.size() == to.bytes());
  RETURN_IF_ERROR(stream.Copy(to.data, bytes.data(), bytes.size()));
  return stream.Synchronize();
}

absl::Status Model::Initialize(Stream& stream) {
  const std::span<const Parameter> all = plan_.parameters.all();
  const uint64_t seed = plan_.options.shape.seed;
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor to = any().parameter(i, plan_.parameters);
    if (stream.kind() == DeviceKind::kCuda) {
      std::vector<std::byte> value(to.bytes());
      RETURN_IF_ERROR(SetInitialValue(all[i], seed, value.data()));
      RETURN_IF_ERROR(Upload(stream, value, to));
    } else {
      RETURN_IF_ERROR(stream.Call(
          [&parameter = all[i], seed, to] { return SetInitialValue(parameter, seed, to.data); }));
    }
  }
  RETURN_IF_ERROR(ClearSlots(stream));
  RETURN_IF_ERROR(stream.Synchronize());
  GiveBackFreeMemory();  // or what packing took of it stays with the process
  return absl::OkStatus();
}

absl::Status Model::ClearSlots(Stream& stream) {
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].trained()) continue;
    for (size_t s = 0; s < plan_.options.slots.size(); ++s) {
      RETURN_IF_ERROR(Fill(stream, 0, any().slot(i, s, plan_.parameters)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(std::span<const NamedTensor> tensors) {
  for (const auto& [name, tensor] : tensors) {
    const bool finite = VisitReal(tensor.dtype, [&]<typename T>() {
      const std::span<const T> values(tensor.as<T>(), static_cast<size_t>(tensor.elements()));
      return std::ranges::all_of(
          values, [](T value) { return std::isfinite(static_cast<AccumulateType<T>>(value)); });
    });
    if (!finite) {
      return absl::InternalError(absl::StrCat("\"", name, "\" holds a value that is not finite"));
    }
  }
  return absl::OkStatus();
}

std::string Model::Unknown(const TensorFile& weights) const {
  std::set<std::string> known;
  for (const Parameter& p : plan_.parameters.all()) {
    for (const CanonicalPart& part : p.spec.parts) known.insert(CanonicalName(p, part, ""));
  }
  std::vector<std::string> unknown;
  for (const NamedTensor& named : weights.tensors()) {
    if (!known.contains(named.name)) unknown.push_back(absl::StrCat("\"", named.name, "\""));
  }
  if (unknown.empty()) return "";
  return absl::StrCat("the net has no parameter for ", absl::StrJoin(unknown, ", "));
}

absl::Status Model::LoadParameter(Stream& stream, size_t index, const TensorFile& weights) {
  const Parameter& parameter = plan_.parameters.all()[index];
  ASSIGN_OR_RETURN(const std::vector<std::byte> value, PackParameter(parameter, weights, ""));
  for (const CanonicalPart& part : parameter.spec.parts) {
    const std::string name = CanonicalName(parameter, part, "");
    const NamedTensor read = {name, *weights.Find(name)};
    RETURN_IF_ERROR(CheckFinite({&read, 1}));
  }
  return Upload(stream, value, any().parameter(index, plan_.parameters));
}

absl::Status Model::LoadSome(Stream& stream, const TensorFile& weights) {
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool found = std::ranges::any_of(all[i].spec.parts, [&](const CanonicalPart& part) {
      return weights.Find(CanonicalName(all[i], part, "")) != nullptr;
    });
    if (found) RETURN_IF_ERROR(LoadParameter(stream, i, weights));
  }
  return absl::OkStatus();
}

absl::Status Model::Load(Stream& stream, const TensorFile& weights, const TensorFile* optimizer) {
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) RETURN_IF_ERROR(LoadParameter(stream, i, weights));
  if (optimizer == nullptr) return ClearSlots(stream);
  for (size_t i = 0; i < all.size(); ++i) {
    if (!all[i].trained()) continue;
    for (size_t s = 0; s < plan_.options.slots.size(); ++s) {
      ASSIGN_OR_RETURN(
          const std::vector<std::byte> value,
          PackParameter(all[i], *optimizer, absl::StrCat(".", plan_.options.slots[s])));
      RETURN_IF_ERROR(Upload(stream, value, any().slot(i, s, plan_.parameters)));
    }
  }
  return absl::OkStatus();
}

absl::Status Model::ForEachKept(const std::function<absl::Status(size_t, int)>& use) const {
  const std::span<const Parameter> all = plan_.parameters.all();
  const int slots = static_cast<int>(plan_.options.slots.size());
  for (size_t i = 0; i < all.size(); ++i) {
    for (int slot = -1; slot < (all[i].trained() ? slots : 0); ++slot) {
      RETURN_IF_ERROR(use(i, slot));
    }
  }
  return absl::OkStatus();
}

absl::Status Model::CopyState(Stream& stream, std::vector<std::byte>& copy) const {
  const std::span<const Parameter> all = plan_.parameters.all();
  size_t bytes = 0;
  RETURN_IF_ERROR(ForEachKept([&](size_t i, int) {
    bytes += RoundUp(all[i].spec.size_bytes(), kCopyAlignBytes);
    return absl::OkStatus();
  }));
  copy.resize(bytes);
  std::byte* to = copy.data();
  RETURN_IF_ERROR(ForEachKept([&](size_t i, int slot) {
    const Tensor from = slot < 0 ? any().parameter(i, plan_.parameters)
                                 : any().slot(i, static_cast<size_t>(slot), plan_.parameters);
    std::byte* const place = to;
    to += RoundUp(from.bytes(), kCopyAlignBytes);
    return stream.Copy(place, from.data, from.bytes());
  }));
  return stream.Synchronize();
}

absl::Status Model::UnpackState(std::span<std::byte> copy, HostTensors& weights,
                                HostTensors& optimizer) const {
  return ForEachKept([&](size_t i, int slot) {
    const Parameter& parameter = plan_.parameters.all()[i];
    const size_t bytes = parameter.spec.size_bytes();
    const std::span<std::byte> storage = copy.first(bytes);
    copy = copy.subspan(RoundUp(bytes, kCopyAlignBytes));
    if (slot < 0) return UnpackParameter(parameter, storage, "", weights);
    return UnpackParameter(parameter, storage, absl::StrCat(".", plan_.options.slots[slot]),
                           optimizer);
  });
}

absl::StatusOr<std::string> Model::Sha256OfWeights(Stream& stream) const {
  HostTensors weights;
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor from = any().parameter(i, plan_.parameters);
    std::vector<std::byte>& storage = weights.memory.emplace_back(from.bytes());
    RETURN_IF_ERROR(stream.Copy(storage.data(), from.data, from.bytes()));
    RETURN_IF_ERROR(stream.Synchronize());
    RETURN_IF_ERROR(UnpackParameter(all[i], std::span(storage), "", weights));
  }
  return WeightsSha256(weights.tensors);
}

}  // namespace gyre
