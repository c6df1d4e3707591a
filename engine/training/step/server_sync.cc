#include "engine/training/step/server_sync.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/runtime/check.h"
#include "engine/training/net/infer/net_kernels.h"
#include "engine/training/net/plan/gradient_order.h"
#include "engine/training/step/update_gate.h"

namespace gyre {

// An owner's update of one bucket, by chunks.
class ServerSync::Update final : public TableUpdate {
 public:
  // dropped: by chunk.
  Update(const ServerSync& sync, int bucket, UpdateScalars* scalars, std::span<int64_t> dropped)
      : sync_(sync),
        bucket_(bucket),
        scalars_(scalars),
        dropped_(dropped),
        applied_(dropped.size()) {}

  // Slots, then masters.  None if the server uses the model's.
  int slots() const override {
    const bool in_host_memory = sync_.model_.plan().options.shape.server->in_host_memory;
    return in_host_memory ? sync_.model_.train().plan().slots.arrays(bucket_) : 0;
  }

  // Called by the thread that drives the server, one call at a time.
  absl::Status Apply(Stream& stream, const OwnedRows& rows, RowIndices, Tensor sent,
                     int64_t clock) const override {
    GYRE_CHECK(rows.chunk < static_cast<int>(dropped_.size()));
    const Model& model = sync_.model_;
    const RunShape& shape = model.plan().options.shape;
    const int64_t step = sync_.first_step_ + clock;
    const double shares = shape.shares();
    const bool gated_alone = shape.gates_alone();  // and the loss's scale taken out
    UpdateScalars scalars = {
        .gradient_scale = gated_alone ? shares : shares / shape.loss_scale.initial,
        .groups = sync_.groups_};
    const int64_t number =
        (sync_.first_step_ - sync_.skipped_) * shape.shares() + applied_[rows.chunk]++;
    sync_.optimizer_.Prepare(static_cast<uint64_t>(number), scalars);
    if (sync_.gradient_norms_) scalars = sync_.gate_;
    scalars.learning_rate = sync_.learning_rate_(step) / shares;
    if (gated_alone) {
      RETURN_IF_ERROR(
          SetUpdateUnlessSpoilt(stream, sent, scalars, number, &dropped_[rows.chunk], scalars_));
    } else {
      RETURN_IF_ERROR(SetUpdate(stream, scalars, scalars_));
    }
    return sync_.optimizer_.Update(stream, scalars_, sync_.ViewsOf(bucket_, rows, sent).parameters);
  }

 private:
  const ServerSync& sync_;
  const int bucket_;
  UpdateScalars* const scalars_;
  const std::span<int64_t> dropped_;
  mutable std::vector<int64_t> applied_;  // by chunk: updates, since Start
};

absl::StatusOr<std::unique_ptr<ServerSync>> ServerSync::Create(
    const Model& model, const Optimizer& optimizer, RateOfStep learning_rate, Device& device,
    Stream& compute, ProcessGroup& communication, TakeIn take_in) {
  std::unique_ptr<ServerSync> sync(new ServerSync(model, optimizer, std::move(learning_rate),
                                                  compute, communication, std::move(take_in)));
  const Net& net = model.train();
  const RunShape& shape = model.plan().options.shape;
  const RunShape::Server& mode = *shape.server;
  const bool gated = mode.sync == Sync::kBsp && shape.gated();
  if (mode.in_host_memory) {
    sync->host_ = NewCpuDevice({.threads = model.plan().options.pages.threads});
    ASSIGN_OR_RETURN(sync->host_stream_, sync->host_->NewStream());
  }
  Device& owner = sync->host_ ? *sync->host_ : device;
  Stream& owners = sync->host_ ? *sync->host_stream_ : compute;
  ASSIGN_OR_RETURN(sync->norms_,
                   Buffer::Allocate(owner, MemoryKind::kDevice, NormsBytes(net.plan().pieces)));
  ASSIGN_OR_RETURN(sync->server_, ParameterServer::Create(communication, device, compute,
                                                          {.sync = mode.sync,
                                                           .staleness = mode.staleness,
                                                           .servers = mode.dedicated,
                                                           .gated = gated,
                                                           .background = !model.plan().pages(),
                                                           .in_host_memory = sync->host_.get()}));
  const std::vector<TableSpec> tables = ServerTables(net.plan());
  std::vector<size_t> chunks;
  for (const TableSpec& table : tables) {
    const int64_t rows = table.parts[shape.rank].count();
    chunks.push_back(ServerChunks(rows, table.row_bytes(), kServerChunkBytes));
  }
  const size_t all_chunks = std::accumulate(chunks.begin(), chunks.end(), size_t{0});
  const size_t scalars_bytes = tables.size() * sizeof(UpdateScalars);
  ASSIGN_OR_RETURN(sync->scalars_, Buffer::Allocate(owner, MemoryKind::kDevice,
                                                    scalars_bytes + all_chunks * sizeof(int64_t)));
  const Tensor dropped{sync->scalars_.data() + scalars_bytes,
                       Shape({static_cast<int64_t>(all_chunks)}), DType::kF64};
  RETURN_IF_ERROR(Fill(owners, 0, dropped));  // the bits of I64 zeros
  auto* dropped_at = reinterpret_cast<int64_t*>(dropped.data);
  for (size_t b = 0; b < tables.size(); ++b) {
    const int bucket = static_cast<int>(b);
    auto* const scalars = reinterpret_cast<UpdateScalars*>(sync->scalars_.data()) + b;
    sync->updates_.push_back(
        std::make_unique<Update>(*sync, bucket, scalars, std::span(dropped_at, chunks[b])));
    dropped_at += chunks[b];
    RETURN_IF_ERROR(sync->server_->AddTable(tables[b], *sync->updates_.back()).status());
  }
  const size_t buckets = shape.works() ? tables.size() : 0;
  sync->reads_.resize(buckets);
  for (size_t b = buckets; b-- > 0;) {  // forward takes last what backward has first
    const int bucket = static_cast<int>(b);
    ASSIGN_OR_RETURN(sync->reads_[b],
                     sync->server_->AddRead(bucket, RowList::All(tables[b].rows),
                                            model.turn(0).first().net->summed(bucket)));
  }
  for (size_t b = 0; b < buckets; ++b) {
    const int bucket = static_cast<int>(b);
    ASSIGN_OR_RETURN(
        sync->pushes_.emplace_back(),
        sync->server_->AddUpdate(bucket, RowList::All(tables[b].rows),
                                 net.bucket(bucket, net.plan().trace.buckets[b].leaves)));
  }
  sync->taken_.assign(tables.size(), 0);
  RETURN_IF_ERROR(sync->server_->Prepare());
  if (gated) {
    ASSIGN_OR_RETURN(sync->gradient_norms_,
                     ServerNorms::Create(net.plan(), owner, owners, communication, *sync->server_));
  }
  return sync;
}

ServerSync::ServerSync(const Model& model, const Optimizer& optimizer, RateOfStep learning_rate,
                       Stream& compute, ProcessGroup& communication, TakeIn take_in)
    : model_(model),
      optimizer_(optimizer),
      learning_rate_(std::move(learning_rate)),
      compute_(compute),
      communication_(communication),
      take_in_(std::move(take_in)) {}

ServerSync::~ServerSync() = default;

void ServerSync::SetGroups(const UpdateGroups& groups) {
  groups_ = groups;
  for (double& first : groups_.first_update) first *= model_.plan().options.shape.shares();
}

BucketViews ServerSync::ViewsOf(int bucket, const OwnedRows& rows, const Tensor& sent) const {
  const Net& net = model_.train();
  const int64_t own = UpdatedShard(net.plan(), bucket).begin;
  const ElementRange range = {rows.first, rows.first + rows.values.shape[0]};
  const auto in_range = [&](const Tensor& all, const ParameterRange& of) {
    return Slice(all, of.at - range.begin, of.count);
  };
  const auto value = [&](const ParameterRange& of) { return in_range(rows.values, of); };
  const auto gradient = [&](const ParameterRange& of) { return in_range(sent, of); };
  const auto slot = [&](int array, const ParameterRange& of) {
    return rows.slots.empty() ? Slice(net.slot(bucket, array), of.at - own, of.count)
                              : in_range(rows.slots[array], of);
  };
  return ViewsIn(net.plan(), model_.plan().parameters, bucket, range,
                 {value, gradient, slot, norms_.data()});
}

// A step that has diverged is the last, and not all ranks may make another.
absl::Status ServerSync::AddNorms() {
  return diverged_ ? absl::OkStatus() : gradient_norms_->AddUp();
}

absl::Status ServerSync::Clock(const UpdateScalars* update, const GradientReport* report) {
  if (gradient_norms_ == nullptr) return server_->Clock();
  if (!diverged_) {
    GradientReport found;
    RETURN_IF_ERROR(compute_.Copy(&gate_, update, sizeof(gate_)));
    RETURN_IF_ERROR(compute_.Copy(&found, report, sizeof(found)));
    RETURN_IF_ERROR(compute_.Synchronize());
    const bool dynamic = model_.plan().options.shape.loss_scale.dynamic();
    diverged_ = found.bad_bucket >= 0 && !(dynamic && found.loss_scale.scale >= kLeastLossScale);
    RETURN_IF_ERROR(MeasureParameters());
  }
  RETURN_IF_ERROR(server_->Apply());
  return server_->Clock();
}

// Between the gate and the updates, so that all ranks know norms of parameters that shards cut.
absl::Status ServerSync::MeasureParameters() {
  const Net& net = model_.train();
  const NetPlan& plan = net.plan();
  const RunShape& shape = model_.plan().options.shape;
  Stream& owners = host_ ? *host_stream_ : compute_;
  if (!shape.scales_by_norms && !gate_.logs_norms) return absl::OkStatus();
  auto* const scalars = reinterpret_cast<UpdateScalars*>(scalars_.data());
  RETURN_IF_ERROR(SetUpdate(owners, gate_, scalars));
  for (int b = 0; b < static_cast<int>(updates_.size()); ++b) {
    const BucketViews views = ViewsOf(b, server_->owned(b), server_->sum(b));
    if (gate_.logs_norms) RETURN_IF_ERROR(MeasureGradients(owners, scalars, views.parameters));
    if (!shape.scales_by_norms) continue;
    RETURN_IF_ERROR(optimizer_.Measure(owners, scalars, views.parameters));
  }
  if (shape.scales_by_norms) {
    RETURN_IF_ERROR(SumOwnChanges(plan, communication_, owners, norms_.data()));
  }
  if (!gate_.logs_norms) return absl::OkStatus();
  RETURN_IF_ERROR(owners.Synchronize());
  RETURN_IF_ERROR(compute_.Copy(LoggedSquares(plan.pieces, net.norms()),
                                LoggedSquares(plan.pieces, norms_.data()),
                                plan.pieces.count * sizeof(double)));
  return compute_.Synchronize();
}

absl::Status ServerSync::Start(int64_t step) {
  if (begun_) return absl::OkStatus();
  first_step_ = step;
  const Net& net = model_.train();
  const ParameterSet& parameters = model_.plan().parameters;
  for (size_t b = 0; b < updates_.size(); ++b) {
    const int bucket = static_cast<int>(b);
    RETURN_IF_ERROR(net.PackParameters(compute_, parameters, bucket,
                                       UpdatedShard(net.plan(), bucket),
                                       server_->owned(bucket).values));
  }
  RETURN_IF_ERROR(EachSlot([&](const Tensor& servers, const Tensor& models) {
    return compute_.Copy(servers.data, models.data, servers.bytes());
  }));
  begun_ = true;
  return server_->Start();
}

absl::Status ServerSync::EachSlot(
    absl::FunctionRef<absl::Status(const Tensor& servers, const Tensor& models)> copy) const {
  for (size_t b = 0; b < updates_.size(); ++b) {
    const int bucket = static_cast<int>(b);
    const std::vector<Tensor>& slots = server_->owned(bucket).slots;
    for (size_t kind = 0; kind < slots.size(); ++kind) {
      RETURN_IF_ERROR(copy(slots[kind], model_.train().slot(bucket, static_cast<int>(kind))));
    }
  }
  return absl::OkStatus();
}

absl::Status ServerSync::Await(int bucket) {
  if (taken_[bucket] > server_->clock()) return absl::OkStatus();
  ++taken_[bucket];
  RETURN_IF_ERROR(server_->Read(reads_[bucket]));
  RETURN_IF_ERROR(take_in_(bucket, /*squares=*/0));
  RETURN_IF_ERROR(server_->PostRead(reads_[bucket]));
  return server_->PreUpdate(pushes_[bucket]);
}

absl::Status ServerSync::UploadNorms() {
  const Tensor sums = model_.train().sums();
  return compute_.Copy(sums.data, gradient_norms_->sums(), sums.bytes());
}

absl::Status ServerSync::Settle() {
  if (!begun_) return absl::OkStatus();
  RETURN_IF_ERROR(model_.BringHome(compute_));
  model_.ReleaseHomes();
  const Net& net = model_.train();
  const GradientOrder& order = net.plan().order;
  const ParameterSet& parameters = model_.plan().parameters;
  for (size_t b = 0; b < updates_.size(); ++b) {
    const int bucket = static_cast<int>(b);
    Tensor all{nullptr, Shape({order.buckets[b].elements}), order.buckets[b].dtype};
    std::vector<std::byte> values(all.bytes());
    RETURN_IF_ERROR(server_->Get(bucket, values.data()));
    all.data = values.data();
    RETURN_IF_ERROR(net.UnpackParameters(compute_, parameters, bucket, {0, all.elements()}, all));
    RETURN_IF_ERROR(compute_.Synchronize());
  }
  RETURN_IF_ERROR(EachSlot([&](const Tensor& servers, const Tensor& models) {
    return compute_.Copy(models.data, servers.data, servers.bytes());
  }));
  return compute_.Synchronize();
}

}  // namespace gyre
