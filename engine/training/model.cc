#include "engine/training/model.h"

#include <malloc.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/math.h"
#include "engine/training/carried_rows.h"
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

// Whether no exponent is all ones.  In integers, and without an end at the first: vectors do it.
template <typename T>
bool AllFinite(std::span<const T> values) {
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>>;
  const auto ones =
      std::bit_cast<Bits>(static_cast<T>(std::numeric_limits<AccumulateType<T>>::infinity()));
  const T* const value = values.data();
  Bits found = 0;
#pragma omp simd reduction(| : found)
  for (size_t i = 0; i < values.size(); ++i) {
    found |= (std::bit_cast<Bits>(value[i]) & ones) == ones ? ones : Bits{0};
  }
  return found == 0;
}

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
                              .slots = {.kinds = static_cast<int>(options.slots.size()),
                                        .elements = train ? std::vector<int64_t>() : first_slots()},
                              .homes = first_ ? first_->homes : std::vector<CarriedHome>(),
                              .bucket_bytes = options.bucket_bytes,
                              .fit_buckets = options.fit_buckets,
                              .feed = options.feed},
                             plan_.parameters));
    return std::make_unique<NetPlan>(std::move(plan));
  }

  std::vector<int64_t> first_slots() const {
    return first_ ? first_->slots.elements : std::vector<int64_t>();
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

// A batch of another size has rows of its own, so that one that is smaller ends the test alone.
absl::Status CheckWholeBatches(const Parsed<NetConfig>& net, const ModelPlan& plan) {
  const int64_t samples = plan.options.test_samples, batch = plan.options.test_batch;
  const std::vector<CarriedState> carried = CarriedStates(plan.test.front()->spec);
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
    RETURN_IF_ERROR(CheckWholeBatches(net, plan));
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
  for (const int64_t elements : train->order.elements) longest = std::max(longest, elements);
  return ProcessGroup::DeviceBytes(options.device_allreduce,
                                   static_cast<size_t>(longest) * SizeOf(options.shape.compute),
                                   options.shape.ranks);
}

size_t ModelPlan::slot_bytes() const {
  int64_t elements = 0;
  for (const int64_t of_bucket : train->slots.elements) elements += of_bucket;
  return options.slots.size() * static_cast<size_t>(elements) * SizeOf(options.shape.compute);
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
    text += DescribeCarried(train->spec);
  }
  return text;
}

absl::StatusOr<std::unique_ptr<Model>> Model::Create(ModelPlan plan, Device& device, Stream& stream,
                                                     ProcessGroup* communication) {
  std::unique_ptr<Model> model(new Model(std::move(plan), device, communication));
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
  RETURN_IF_ERROR(ClearSlotsAndCarried(stream));
  RETURN_IF_ERROR(stream.Synchronize());
  GiveBackFreeMemory();  // or what packing took of it stays with the process
  return absl::OkStatus();
}

absl::Status Model::ClearSlotsAndCarried(Stream& stream) {
  for (int b = 0; train_ && b < buckets(); ++b) {
    for (int kind = 0; kind < plan_.train->slots.kinds; ++kind) {
      RETURN_IF_ERROR(Fill(stream, 0, train_->slot(b, kind)));
    }
  }
  return train_ ? train_->ClearCarried(stream) : absl::OkStatus();
}

absl::Status CheckFinite(std::span<const NamedTensor> tensors) {
  for (const auto& [name, tensor] : tensors) {
    const bool finite = VisitReal(tensor.dtype, [&]<typename T>() {
      return AllFinite<T>(std::span(tensor.as<T>(), static_cast<size_t>(tensor.elements())));
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

absl::Status Model::Load(Stream& stream, const TensorFile& weights, const TensorFiles* optimizer) {
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) RETURN_IF_ERROR(LoadParameter(stream, i, weights));
  RETURN_IF_ERROR(ClearSlotsAndCarried(stream));  // with the padding
  for (int b = 0; optimizer != nullptr && b < buckets(); ++b) {
    RETURN_IF_ERROR(LoadSlots(stream, b, *optimizer));
  }
  return absl::OkStatus();
}

absl::Status Model::LoadCarried(Stream& stream, const TensorFiles& carried) {
  for (const Net::Carried& rows : train_->carried()) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadRows(carried, rows));
    RETURN_IF_ERROR(Upload(stream, bytes, rows.rows));
  }
  return absl::OkStatus();
}

absl::Status Model::LoadSlots(Stream& stream, int bucket, const TensorFiles& optimizer) {
  const ElementRange own = UpdatedPart(*plan_.train, bucket);
  for (const auto& piece : PiecesIn(plan_.train->order, plan_.parameters, bucket, own)) {
    const Parameter& parameter = plan_.parameters.all()[piece.parameter];
    const size_t element = SizeOf(parameter.spec.dtype);
    for (int kind = 0; kind < plan_.train->slots.kinds; ++kind) {
      const std::string suffix = absl::StrCat(".", plan_.options.slots[kind]);
      std::vector<std::string> names;
      for (const CanonicalPart& part : parameter.spec.parts) {
        names.push_back(CanonicalName(parameter, part, suffix));
      }
      ASSIGN_OR_RETURN(const TensorFile read, optimizer.Read(names));
      ASSIGN_OR_RETURN(const std::vector<std::byte> value, PackParameter(parameter, read, suffix));
      RETURN_IF_ERROR(Upload(stream,
                             std::span(value).subspan(piece.begin * element, piece.count * element),
                             Slice(train_->slot(bucket, kind), piece.at - own.begin, piece.count)));
    }
  }
  return absl::OkStatus();
}

std::vector<int> ShareOut(std::span<const size_t> bytes, int ranks, size_t rank_0_has) {
  std::vector<size_t> order(bytes.size()), has(static_cast<size_t>(ranks));
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t item) { return bytes[item]; });
  has[0] = rank_0_has;
  std::vector<int> takers(bytes.size());
  for (const size_t item : order) {
    const auto least = std::ranges::min_element(has);
    *least += bytes[item];
    takers[item] = static_cast<int>(least - has.begin());
  }
  return takers;
}

std::vector<int> Model::SlotWriters() const {
  const RunShape& shape = plan_.options.shape;
  size_t of_values = 0;
  for (const Parameter& parameter : plan_.parameters.all())
    of_values += parameter.spec.size_bytes();
  std::vector<size_t> bytes;
  for (int b = 0; b < buckets(); ++b) {
    bytes.insert(bytes.end(), plan_.train->slots.kinds, train_->bucket(b).bytes());
  }
  return ShareOut(bytes, shape.shard_optimizer ? shape.ranks : 1, of_values);
}

absl::Status Model::CopyState(Stream& stream, Buffer& copy) const {
  const std::span<const Parameter> all = plan_.parameters.all();
  const int rank = plan_.options.shape.rank;
  const bool sharded = plan_.options.shape.shard_optimizer;
  const std::vector<int> writers = SlotWriters();
  size_t of_values = 0, of_slots = 0, of_others = 0;
  for (const Parameter& parameter : all) {
    of_values += RoundUp(parameter.spec.size_bytes(), kCopyAlignBytes);
  }
  for (size_t slot = 0; slot < writers.size(); ++slot) {
    const int bucket = static_cast<int>(slot) / plan_.train->slots.kinds;
    const size_t bytes = RoundUp(train_->bucket(bucket).bytes(), kCopyAlignBytes);
    if (writers[slot] == rank) of_slots += bytes;
    // There is a place for any of the others', again and again.
    if (writers[slot] != rank && sharded) of_others = std::max(of_others, bytes);
  }
  size_t of_rows = 0;
  for (const Net::Carried& carried : train_->carried()) {
    of_rows += RoundUp(carried.rows.bytes(), kCopyAlignBytes);
  }
  const size_t bytes = (rank == 0 ? of_values : 0) + of_rows + of_slots + of_others;
  if (copy.bytes() != bytes) {
    copy = Buffer();  // first, for there may not be room for both
    ASSIGN_OR_RETURN(copy, Buffer::Allocate(device_, MemoryKind::kPinnedHost, bytes));
  }
  std::byte* to = copy.data();
  for (size_t i = 0; rank == 0 && i < all.size(); ++i) {
    const Tensor from = any().parameter(i, plan_.parameters);
    RETURN_IF_ERROR(stream.Copy(to, from.data, from.bytes()));
    to += RoundUp(from.bytes(), kCopyAlignBytes);
  }
  for (const Net::Carried& carried : train_->carried()) {
    RETURN_IF_ERROR(stream.Copy(to, carried.rows.data, carried.rows.bytes()));
    to += RoundUp(carried.rows.bytes(), kCopyAlignBytes);
  }
  std::byte* const others = to + of_slots;
  for (size_t slot = 0; slot < writers.size(); ++slot) {
    const int bucket = static_cast<int>(slot) / plan_.train->slots.kinds;
    const int kind = static_cast<int>(slot) % plan_.train->slots.kinds;
    const bool own = writers[slot] == rank;
    if (!own && !sharded) continue;
    RETURN_IF_ERROR(CopySlot(stream, bucket, kind, own ? to : others));
    if (own) to += RoundUp(train_->bucket(bucket).bytes(), kCopyAlignBytes);
  }
  return stream.Synchronize();
}

absl::Status Model::CopySlot(Stream& stream, int bucket, int kind, std::byte* to) const {
  const ElementRange own = UpdatedPart(*plan_.train, bucket);
  Tensor whole = train_->bucket(bucket);  // as long, and of the same type
  whole.data = to;
  const Tensor part = Slice(whole, own.begin, own.count());
  RETURN_IF_ERROR(stream.Copy(part.data, train_->slot(bucket, kind).data, part.bytes()));
  if (!plan_.options.shape.shard_optimizer) return absl::OkStatus();
  RETURN_IF_ERROR(stream.Synchronize());
  const std::string what = absl::StrCat("parts of ", plan_.options.slots[kind], " of bucket ",
                                        bucket, ", ", whole.elements());
  return communication_
      ->Wait(communication_->Submit(what, Operation::kAllgather, /*root=*/0, whole,
                                    /*ready=*/nullptr))
      .status();
}

absl::Status Model::UnpackState(std::span<std::byte> copy, State& state) const {
  const auto take = [&copy](size_t bytes) {
    const std::span<std::byte> taken = copy.first(bytes);
    copy = copy.subspan(RoundUp(bytes, kCopyAlignBytes));
    return taken;
  };
  const std::span<const Parameter> all = plan_.parameters.all();
  const int rank = plan_.options.shape.rank;
  for (size_t i = 0; rank == 0 && i < all.size(); ++i) {
    RETURN_IF_ERROR(UnpackParameter(all[i], take(all[i].spec.size_bytes()), "", state.weights));
  }
  for (const Net::Carried& carried : train_->carried()) {
    Tensor rows = carried.rows;
    rows.data = take(rows.bytes()).data();
    state.carried.tensors.push_back({NameInFile(carried), rows});
  }
  const GradientOrder& order = plan_.train->order;
  const std::vector<int> writers = SlotWriters();
  for (size_t slot = 0; slot < writers.size(); ++slot) {
    if (writers[slot] != rank) continue;
    const int bucket = static_cast<int>(slot) / plan_.train->slots.kinds;
    const int kind = static_cast<int>(slot) % plan_.train->slots.kinds;
    const std::span<std::byte> whole = take(train_->bucket(bucket).bytes());
    for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
      const Parameter& parameter = all[order.gradients[g].parameter];
      const size_t at = order.gradients[g].at * SizeOf(parameter.spec.dtype);
      RETURN_IF_ERROR(UnpackParameter(parameter, whole.subspan(at, parameter.spec.size_bytes()),
                                      absl::StrCat(".", plan_.options.slots[kind]),
                                      state.optimizer));
    }
  }
  return absl::OkStatus();
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
