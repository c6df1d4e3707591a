#include "engine/training/model/model.h"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/runtime/math.h"
#include "engine/training/model/page_speeds.h"
#include "engine/training/net/infer/net_kernels.h"

namespace gyre {
namespace {

constexpr size_t kCopyAlignBytes = ModelPlan::kCopyAlignBytes;

// One rank at a time where ranks are threads: under a sanitizer, whose own allocator the program
// uses, this is the first call of glibc's, and two of them would both set it up.
void GiveBackFreeMemory() {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  malloc_trim(0);
}

// 0 times what is not finite is no number.  Without an end at the first: vectors do it.
template <typename T>
bool AllFinite(std::span<const T> values) {
  AccumulateType<T> zeros = 0;
#pragma omp simd reduction(+ : zeros)
  for (size_t i = 0; i < values.size(); ++i) zeros += static_cast<AccumulateType<T>>(values[i]) * 0;
  return zeros == 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> Model::Create(ModelPlan plan, Device& device, Stream& stream,
                                                     ProcessGroup* communication) {
  std::unique_ptr<Model> model(new Model(std::move(plan), device, communication));
  const ModelPlan& p = model->plan_;
  ASSIGN_OR_RETURN(model->device_arena_,
                   Buffer::Allocate(device, MemoryKind::kDevice, p.device_bytes()));
  std::byte* gradients = nullptr;
  if (communication != nullptr && device.kind() == DeviceKind::kCpu && p.train) {
    ASSIGN_OR_RETURN(gradients, communication->Share(p.communication_bytes()));
    if (p.options.shape.shard_optimizer && !p.options.shape.server) {
      GYRE_CHECK(!p.pages());  // on a CPU nothing does
      ASSIGN_OR_RETURN(std::byte* const parameters, communication->ShareOne(p.parameter_bytes()));
      if (parameters != nullptr) model->parameters_ = {parameters, p.parameter_bytes()};
      for (size_t i = 0; i < p.parameters.all().size(); ++i) {
        const StateSpec& spec = p.parameters.all()[i].spec;
        const size_t offset = p.train->memory.placements[p.train->trace.parameters[i]].offset;
        GYRE_CHECK(spec.kind == StateKind::kBuffer
                       ? offset >= p.parameter_bytes()
                       : offset + spec.size_bytes() <= p.parameter_bytes());
      }
    }
  }
  if (gradients == nullptr) {
    ASSIGN_OR_RETURN(model->communication_arena_,
                     Buffer::Allocate(device, MemoryKind::kDevice, p.communication_bytes()));
    gradients = model->communication_arena_.data();
  }
  const auto elements = static_cast<int64_t>(p.communication_bytes() / sizeof(float));
  RETURN_IF_ERROR(Fill(stream, 0, {gradients, Shape({elements}), DType::kF32}));
  ASSIGN_OR_RETURN(model->pages_,
                   Buffer::Allocate(device, MemoryKind::kPinnedHost, p.page_bytes()));
  RETURN_IF_ERROR(model->plan_.OpenPages());
  model->page_file_ = std::move(model->plan_.page_file);
  model->memory_ = {.device = model->device_arena_.data(),
                    .communication = gradients,
                    .pages = model->pages_.data(),
                    .file_homes = model->page_file_ ? model->page_file_->homes() : nullptr,
                    .parameters = model->parameters_};
  RETURN_IF_ERROR(model->BindNets());
  return model;
}

absl::Status Model::BindNets() {
  const auto bind = [&](const NetPlan& plan) -> absl::StatusOr<TurnNets::BoundNet> {
    TurnNets::BoundNet bound{std::make_unique<Net>(plan, memory_), nullptr};
    if (!plan.paging) return bound;
    ASSIGN_OR_RETURN(bound.pager, Pager::Create(device_, *plan.paging, memory_.device,
                                                memory_.pages, page_file_.get(),
                                                KernelsTo(plan_.options.shape.page_activations)));
    return bound;
  };
  if (plan_.train) turns_.resize(std::max<size_t>(plan_.turns.size(), 1));
  for (size_t i = 0; i < turns_.size(); ++i) {
    const TrainingNets& nets = plan_.nets_of(static_cast<int>(i));
    ASSIGN_OR_RETURN(turns_[i].last, bind(*nets.train));
    if (nets.accumulating == nullptr) continue;
    ASSIGN_OR_RETURN(turns_[i].others, bind(*nets.accumulating));
  }
  test_.clear();
  test_pagers_.clear();
  for (const auto& test : plan_.test) {
    ASSIGN_OR_RETURN(TurnNets::BoundNet bound, bind(*test));
    test_.push_back(std::move(bound.net));
    test_pagers_.push_back(std::move(bound.pager));
  }
  return absl::OkStatus();
}

absl::Status Model::TakeTurn(int player, Stream& stream) {
  Pager *const last = turn(turn_).pager(), *const next = turn(player).pager();
  turn_ = player;
  return last == next ? absl::OkStatus() : last->HandOver(*next, stream);
}

absl::Status Model::AddTest(const Parsed<NetConfig>& net, int64_t batch, Stream& stream) {
  RETURN_IF_ERROR(gyre::AddTest(net, batch, plan_));
  if (plan_.device_bytes() > device_arena_.bytes()) {
    auto larger = Buffer::Allocate(device_, MemoryKind::kDevice, plan_.device_bytes());
    if (!larger.ok()) {
      plan_.test.pop_back();
      return larger.status();
    }
    // Parameters lie first, at the same offsets for all nets.
    absl::Status copied = stream.Copy(larger->data(), memory_.device, device_arena_.bytes());
    copied.Update(stream.Synchronize());
    RETURN_IF_ERROR(copied);
    device_arena_ = *std::move(larger);
    memory_.device = device_arena_.data();
  }
  return BindNets();
}

absl::StatusOr<bool> Model::PlanPagesAnew(Stream& stream, std::span<const double> step_seconds) {
  RETURN_IF_ERROR(BringHome(stream));
  RETURN_IF_ERROR(stream.Synchronize());
  const ModelOptions& options = plan_.options;
  ASSIGN_OR_RETURN(PagingCosts costs,
                   MeasureCosts(device_, stream, *plan_.train->paging,
                                {.arena = {device_arena_.data(), device_arena_.bytes()},
                                 .pages = {pages_.data(), pages_.bytes()},
                                 .folder = options.pages.folder},
                                KernelsTo(options.shape.page_activations), options.paging));
  const auto bytes = static_cast<double>(HostBytes(plan_.train->trace.trace, *plan_.train->paging));
  const double hosted = train_pager()->hosted_seconds();
  if (hosted > 0) costs.host_step_bytes_per_s = bytes / hosted;
  ASSIGN_OR_RETURN(const bool faster, gyre::PlanPagesAnew(plan_, step_seconds, costs));
  if (!faster) return false;
  if (plan_.page_bytes() > pages_.bytes()) {
    ASSIGN_OR_RETURN(Buffer more,
                     Buffer::Allocate(device_, MemoryKind::kPinnedHost, plan_.page_bytes()));
    std::copy_n(pages_.data(), pages_.bytes(), more.data());
    pages_ = std::move(more);
    memory_.pages = pages_.data();
  }
  RETURN_IF_ERROR(BindNets());
  return true;
}

// A device's kernels do not reach the mapping of a file.
absl::Status Model::Clear(Stream& stream, const Tensor& home) const {
  const auto* const data = static_cast<const std::byte*>(home.data);
  const std::less<const std::byte*> before;
  if (page_file_ == nullptr || before(data, page_file_->homes()) ||
      !before(data, page_file_->homes() + page_file_->home_bytes())) {
    return Fill(stream, 0, home);
  }
  RETURN_IF_ERROR(stream.Synchronize());
  std::memset(home.data, 0, home.bytes());
  return absl::OkStatus();
}

absl::Status Model::Upload(Stream& stream, std::span<const std::byte> bytes, Tensor to) {
  GYRE_CHECK(bytes.size() == to.bytes());
  RETURN_IF_ERROR(stream.Copy(to.data, bytes.data(), bytes.size()));
  return stream.Synchronize();
}

bool Model::writes(size_t index) const {
  const bool shared =
      one_copy() && plan_.parameters.all()[index].spec.kind == StateKind::kParameter;
  return !shared || plan_.options.shape.rank == 0;
}

absl::Status Model::ValuesWritten() const {
  return one_copy() ? communication_->Barrier() : absl::OkStatus();
}

absl::Status Model::SetParameter(Stream& stream, size_t index, std::span<const std::byte> bytes) {
  const Parameter& parameter = plan_.parameters.all()[index];
  const Tensor to = any().parameter(static_cast<int>(index), plan_.parameters);
  if (writes(index)) {
    const bool rounds = FileDType(parameter) != to.dtype;
    RETURN_IF_ERROR(rounds ? Upload(stream, ToType(bytes, FileDType(parameter), to.dtype), to)
                           : Upload(stream, bytes, to));
  }
  if (!plan_.has_master(index)) return absl::OkStatus();
  const BucketedGradient& gradient = GradientOf(plan_.train->order, static_cast<int>(index));
  const ElementRange own = UpdatedShard(*plan_.train, gradient.bucket);
  const int64_t begin = std::max(own.begin, gradient.at);
  const int64_t end = std::min(own.end, gradient.at + gradient.count);
  if (begin >= end) return absl::OkStatus();
  return SetSlot(stream, gradient.bucket, plan_.train->slots.kinds(), begin - own.begin,
                 bytes.subspan(static_cast<size_t>(begin - gradient.at) * sizeof(float),
                               static_cast<size_t>(end - begin) * sizeof(float)));
}

absl::Status Model::Initialize(Stream& stream) {
  ReleaseHomes();
  const std::span<const Parameter> all = plan_.parameters.all();
  const uint64_t seed = plan_.options.shape.seed;
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor to = any().parameter(i, plan_.parameters);
    if (stream.kind() == DeviceKind::kCuda || FileDType(all[i]) != to.dtype) {
      std::vector<std::byte> value(MasterBytes(all[i]));
      RETURN_IF_ERROR(SetInitialValue(all[i], seed, value.data()));
      RETURN_IF_ERROR(SetParameter(stream, i, value));
    } else if (writes(i)) {
      RETURN_IF_ERROR(stream.Call(
          [&parameter = all[i], seed, to] { return SetInitialValue(parameter, seed, to.data); }));
    }
  }
  RETURN_IF_ERROR(ClearSlotsAndCarried(stream));
  RETURN_IF_ERROR(stream.Synchronize());
  GiveBackFreeMemory();  // or what packing took of it stays with the process
  return ValuesWritten();
}

absl::Status Model::ClearSlotsAndCarried(Stream& stream) {
  for (int b = 0; !turns_.empty() && b < buckets(); ++b) {
    for (int kind = 0; kind < plan_.train->slots.kinds(); ++kind) {
      for (int tile = 0; tile < train().tiles(b); ++tile) {
        RETURN_IF_ERROR(Clear(stream, train().slot(b, kind, tile)));
      }
    }
  }
  return !turns_.empty() ? train().ClearCarried(stream) : absl::OkStatus();
}

absl::Status CheckFiniteTensors(std::span<const NamedTensor> tensors) {
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
  for (const Parameter& p : plan_.parameters.all()) known.insert(CanonicalName(p, ""));
  std::vector<std::string> unknown;
  const auto check = [&](const std::string& name) {
    if (!known.contains(name)) unknown.push_back(absl::StrCat("\"", name, "\""));
  };
  for (const NamedTensor& named : weights.tensors()) check(named.name);
  for (const auto& [name, why] : weights.unreadable()) check(name);
  if (unknown.empty()) return "";
  return absl::StrCat("the net has no parameter for ", absl::StrJoin(unknown, ", "));
}

absl::Status Model::LoadParameter(Stream& stream, size_t index, const TensorFile& weights) {
  const Parameter& parameter = plan_.parameters.all()[index];
  ASSIGN_OR_RETURN(const std::vector<std::byte> value, PackParameter(parameter, weights, ""));
  return SetParameter(stream, index, value);
}

absl::Status Model::LoadSome(Stream& stream, const TensorFile& weights) {
  ReleaseHomes();
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) {
    const bool found = weights.Find(CanonicalName(all[i], "")) != nullptr;
    if (found) RETURN_IF_ERROR(LoadParameter(stream, i, weights));
  }
  return ValuesWritten();
}

absl::Status Model::Load(Stream& stream, const TensorFile& weights, const TensorFiles* optimizer) {
  ReleaseHomes();
  const std::span<const Parameter> all = plan_.parameters.all();
  for (size_t i = 0; i < all.size(); ++i) RETURN_IF_ERROR(LoadParameter(stream, i, weights));
  RETURN_IF_ERROR(ClearSlotsAndCarried(stream));  // with the padding
  RETURN_IF_ERROR(ValuesWritten());
  for (int b = 0; optimizer != nullptr && b < buckets(); ++b) {
    RETURN_IF_ERROR(LoadSlots(stream, b, *optimizer));
  }
  return absl::OkStatus();
}

absl::Status Model::LoadCarried(Stream& stream, const TensorFiles& carried) {
  ReleaseHomes();
  for (const Net::Carried& rows : train().carried()) {
    ASSIGN_OR_RETURN(const std::vector<std::byte> bytes, ReadRows(carried, rows));
    RETURN_IF_ERROR(Upload(stream, bytes, rows.rows));
  }
  return absl::OkStatus();
}

absl::Status Model::LoadSlots(Stream& stream, int bucket, const TensorFiles& optimizer) {
  const ElementRange own = UpdatedShard(*plan_.train, bucket);
  if (has_averages()) RETURN_IF_ERROR(ValuesToAverages(stream, bucket));
  for (const auto& range : RangesIn(plan_.train->order, bucket, own)) {
    const Parameter& parameter = plan_.parameters.all()[range.parameter];
    const size_t element = SizeOf(FileDType(parameter));
    for (int kind = 0; kind < plan_.train->slots.kinds(); ++kind) {
      const std::string suffix = absl::StrCat(".", plan_.train->slots.names[kind]);
      const std::string name = CanonicalName(parameter, suffix);
      if (parameter.spec.trainable_from > 0 && !optimizer.entries().contains(name)) continue;
      ASSIGN_OR_RETURN(const TensorFile read, optimizer.Read({&name, 1}));
      ASSIGN_OR_RETURN(const std::vector<std::byte> value, PackParameter(parameter, read, suffix));
      const auto bytes = std::span(value).subspan(range.begin * element, range.count * element);
      RETURN_IF_ERROR(SetSlot(stream, bucket, kind, range.at - own.begin, bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status Model::SetSlot(Stream& stream, int bucket, int kind, int64_t at,
                            std::span<const std::byte> bytes) {
  const size_t element = SizeOf(plan_.train->slots.dtype(bucket));
  const int64_t end = at + static_cast<int64_t>(bytes.size() / element);
  for (int t = 0; t < train().tiles(bucket); ++t) {
    const ElementRange tile = train().tile(bucket, t);
    const ElementRange both = {std::max(at, tile.begin), std::min(end, tile.end)};
    if (both.count() <= 0) continue;
    const Tensor to = Slice(train().slot(bucket, kind, t), both.begin - tile.begin, both.count());
    RETURN_IF_ERROR(Upload(stream, bytes.subspan((both.begin - at) * element, to.bytes()), to));
  }
  return absl::OkStatus();
}

absl::Status Model::CopyState(Stream& stream, Buffer& copy) const {
  RETURN_IF_ERROR(BringHome(stream));
  const std::span<const Parameter> all = plan_.parameters.all();
  const int rank = plan_.options.shape.rank;
  const bool sharded = plan_.options.shape.shard_optimizer;
  const ModelPlan::CopyBytes parts = plan_.copy_bytes();
  if (const size_t bytes = parts.own + parts.others; copy.bytes() != bytes) {
    copy = Buffer();  // first, for there may not be room for both
    ASSIGN_OR_RETURN(copy, Buffer::Allocate(device_, MemoryKind::kPinnedHost, bytes));
  }
  std::byte *to = copy.data(), *const others = to + parts.own;
  for (size_t i = 0; rank == 0 && i < all.size(); ++i) {
    if (plan_.has_master(i)) continue;
    const Tensor from = any().parameter(i, plan_.parameters);
    RETURN_IF_ERROR(stream.Copy(to, from.data, from.bytes()));
    to += RoundUp(from.bytes(), kCopyAlignBytes);
  }
  for (const Net::Carried& carried : train().carried()) {
    RETURN_IF_ERROR(stream.Copy(to, carried.rows.data, carried.rows.bytes()));
    to += RoundUp(carried.rows.bytes(), kCopyAlignBytes);
  }
  for (const ModelPlan::Slot& slot : plan_.saved_slots()) {
    const bool own = slot.writer == rank;
    if (!own && !sharded) continue;
    RETURN_IF_ERROR(CopySlot(stream, slot.bucket, slot.kind, own ? to : others));
    if (own) to += RoundUp(slot.bytes, kCopyAlignBytes);
  }
  return stream.Synchronize();
}

absl::Status Model::CopySlot(Stream& stream, int bucket, int kind, std::byte* to) const {
  const ElementRange own = UpdatedShard(*plan_.train, bucket);
  const DType dtype = plan_.train->slots.dtype(bucket);
  const Tensor whole{to, Shape({plan_.train->order.buckets[bucket].elements}), dtype};
  const Tensor part = Slice(whole, own.begin, own.count());
  const RunShape& shape = plan_.options.shape;
  const bool equal_parts = shape.workers() == shape.ranks;
  if (!equal_parts) std::memset(to, 0, whole.bytes());
  for (int t = 0; t < train().tiles(bucket); ++t) {
    const ElementRange tile = train().tile(bucket, t);
    const int64_t count = std::min(tile.end, part.elements()) - tile.begin;
    const Tensor copy = Slice(part, tile.begin, count);
    RETURN_IF_ERROR(stream.Copy(copy.data, train().slot(bucket, kind, t).data, copy.bytes()));
  }
  if (!shape.shard_optimizer) return absl::OkStatus();
  RETURN_IF_ERROR(stream.Synchronize());
  const std::string what = absl::StrCat(
      "parts of ",
      kind < plan_.train->slots.kinds() ? plan_.train->slots.names[kind] : "the masters",
      " of bucket ", bucket, ", ", whole.elements());
  // Parts that an allgather does not know: added to the others' zeros.
  if (!equal_parts) return communication_->Sum(what, whole);
  return communication_
      ->Wait(communication_->Submit(what, Operation::kAllgather, /*root=*/0, whole,
                                    /*ready=*/nullptr))
      .status();
}

absl::Status Model::UnpackState(std::span<std::byte> copy, UnpackedState& state) const {
  const auto take = [&copy](size_t bytes) {
    const std::span<std::byte> taken = copy.first(bytes);
    copy = copy.subspan(RoundUp(bytes, kCopyAlignBytes));
    return taken;
  };
  const std::span<const Parameter> all = plan_.parameters.all();
  const int rank = plan_.options.shape.rank;
  for (size_t i = 0; rank == 0 && i < all.size(); ++i) {
    if (plan_.has_master(i)) continue;
    RETURN_IF_ERROR(UnpackValue(all[i], take(all[i].spec.size_bytes()), state.weights));
  }
  for (const Net::Carried& carried : train().carried()) {
    Tensor rows = carried.rows;
    rows.data = take(rows.bytes()).data();
    state.carried.tensors.push_back({NameInFile(carried), rows});
  }
  for (const ModelPlan::Slot& slot : plan_.saved_slots()) {
    if (slot.writer != rank) continue;
    const std::string suffix =
        slot.master ? "" : absl::StrCat(".", plan_.train->slots.names[slot.kind]);
    RETURN_IF_ERROR(UnpackSlot(slot.bucket, take(slot.bytes), suffix,
                               slot.master ? state.weights : state.optimizer));
  }
  JoinSlices(state.weights);
  return absl::OkStatus();
}

absl::Status Model::UnpackSlot(int bucket, std::span<std::byte> whole, absl::string_view suffix,
                               HostTensors& to) const {
  const GradientOrder& order = plan_.train->order;
  for (int g = order.buckets[bucket].first; g < order.buckets[bucket].last; ++g) {
    const Parameter& parameter = plan_.parameters.all()[order.gradients[g].parameter];
    const size_t at = static_cast<size_t>(order.gradients[g].at) * SizeOf(FileDType(parameter));
    RETURN_IF_ERROR(
        UnpackParameter(parameter, whole.subspan(at, MasterBytes(parameter)), suffix, to));
  }
  return absl::OkStatus();
}

}  // namespace gyre
