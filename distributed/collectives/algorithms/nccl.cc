// nccl.cc: see nccl.h.
//
// NCCL is asked not to block: a call that is not finished when it returns leaves the NCCL
// communicator "in progress", and until that has passed it may neither be called again nor may
// anything else be put on its stream.  Hence a state machine, as for every other algorithm, which
// can be aborted and has a time limit.

#include "distributed/collectives/algorithms/nccl.h"

#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "distributed/collectives/device_reduction.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/buffer.h"
#include "engine/runtime/device/cuda/cuda_libraries.h"

namespace gyre {
namespace {

using Clock = std::chrono::steady_clock;

// NCCL's farewell is a few messages between ranks that have come to the same point.
constexpr std::chrono::seconds kFarewellLimit{5};

ncclDataType_t NcclType(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return ncclFloat64;
    case DType::kF16:
      return ncclFloat16;
    case DType::kBF16:
      return ncclBfloat16;
    default:
      return ncclFloat32;
  }
}

class NcclCollective final : public Collective {
 public:
  NcclCollective(const Nccl& nccl, Communicator& communicator, int tag, Device& device)
      : Collective(communicator, tag), nccl_(nccl), device_(device) {}
  ~NcclCollective() override;

  absl::Status Open();
  void Abandon() override;

 private:
  absl::Status Begin() override;
  absl::StatusOr<Advance> Step() override;

  enum class NcclStage {
    kIdle,
    kMeet,     // the ranks are told rank 0's unique id
    kConnect,  // NCCL connects them
    kBegin,    // connected
    kEnqueue,  // NCCL puts the sum on the stream
    kSum,      // the stream sums and measures
  };

  bool Leave();
  void GoTo(NcclStage stage);
  absl::Status PostId();
  absl::Status Connect();
  absl::StatusOr<bool> NcclIsReady(const char* during);
  absl::Status EnqueueSum();
  absl::Status EnqueueMeasureOfSum();
  absl::Status Checked(ncclResult_t code, const char* call);
  absl::StatusOr<Advance> Wait() const;

  const Nccl& nccl_;
  Device& device_;
  Buffer measure_;   // device memory: a DeviceMeasure
  Buffer measured_;  // pinned: a sum of squares
  std::unique_ptr<Event> finished_;
  std::unique_ptr<Stream> stream_;

  ncclComm_t comm_ = nullptr;
  bool connected_ = false;
  ncclUniqueId id_;
  NcclStage stage_ = NcclStage::kIdle;
  Clock::time_point deadline_;  // of the stage
};

absl::Status NcclCollective::Open() {
  ASSIGN_OR_RETURN(measure_, Buffer::Allocate(device_, MemoryKind::kDevice, sizeof(DeviceMeasure)));
  ASSIGN_OR_RETURN(measured_, Buffer::Allocate(device_, MemoryKind::kPinnedHost, sizeof(double)));
  ASSIGN_OR_RETURN(finished_, device_.NewEvent());
  ASSIGN_OR_RETURN(stream_, device_.NewStream());
  return absl::OkStatus();
}

NcclCollective::~NcclCollective() {
  if (!Leave()) Abandon();
}

// Ranks leave together, so that none frees memory which another one's kernels still read.  False if
// they cannot, because something is unfinished or a rank does not come; nobody is left to hear why.
bool NcclCollective::Leave() {
  if (comm_ == nullptr || !connected_ || stage_ != NcclStage::kIdle) return false;
  ncclResult_t state = nccl_.ncclCommFinalize(comm_);
  const Clock::time_point limit = Clock::now() + kFarewellLimit;
  Backoff backoff;
  while (state == ncclInProgress && Clock::now() < limit) {
    backoff.Pause();
    if (nccl_.ncclCommGetAsyncError(comm_, &state) != ncclSuccess) return false;
  }
  if (state != ncclSuccess) return false;
  return nccl_.ncclCommDestroy(std::exchange(comm_, nullptr)) == ncclSuccess;
}

// Ends NCCL's kernels, also those that wait for another rank.
void NcclCollective::Abandon() {
  if (comm_ != nullptr) (void)nccl_.ncclCommAbort(std::exchange(comm_, nullptr));
  if (stream_ != nullptr) (void)stream_->Synchronize();
}

absl::Status NcclCollective::Begin() {
  if (operation_ != Operation::kAllreduce) return Lacks();
  GYRE_CHECK(stage_ == NcclStage::kIdle);
  if (connected_) {
    GoTo(NcclStage::kBegin);
    return absl::OkStatus();
  }
  GoTo(NcclStage::kMeet);
  return PostId();
}

absl::StatusOr<Advance> NcclCollective::Step() {
  switch (stage_) {
    case NcclStage::kIdle:
      return absl::FailedPreconditionError("nothing was started");
    case NcclStage::kMeet: {
      ASSIGN_OR_RETURN(const bool arrived, Quiet());
      if (!arrived) return Advance::kWaiting;  // the communicator has a time limit of its own
      RETURN_IF_ERROR(Connect());
      GoTo(NcclStage::kConnect);
      return Advance::kMoved;
    }
    case NcclStage::kConnect: {
      ASSIGN_OR_RETURN(connected_, NcclIsReady("ncclCommInitRankConfig"));
      if (!connected_) return Wait();
      GoTo(NcclStage::kBegin);
      return Advance::kMoved;
    }
    case NcclStage::kBegin:
      RETURN_IF_ERROR(EnqueueSum());
      GoTo(NcclStage::kEnqueue);
      return Advance::kMoved;
    case NcclStage::kEnqueue: {
      ASSIGN_OR_RETURN(const bool enqueued, NcclIsReady("ncclAllReduce"));
      if (!enqueued) return Wait();
      RETURN_IF_ERROR(EnqueueMeasureOfSum());
      GoTo(NcclStage::kSum);
      return Advance::kMoved;
    }
    case NcclStage::kSum: {
      RETURN_IF_ERROR(NcclIsReady("ncclAllReduce").status());
      ASSIGN_OR_RETURN(const bool done, finished_->Done());
      if (!done) return Wait();
      stage_ = NcclStage::kIdle;
      squares_ = *reinterpret_cast<const double*>(measured_.data());
      return Advance::kDone;
    }
  }
  return Advance::kDone;
}

void NcclCollective::GoTo(NcclStage stage) {
  stage_ = stage;
  deadline_ = Clock::now() + std::chrono::milliseconds(communicator_.timeout_ms());
}

absl::StatusOr<Advance> NcclCollective::Wait() const {
  if (Clock::now() < deadline_) return Advance::kWaiting;
  return absl::UnavailableError(
      absl::StrCat("NCCL has waited for other ranks for ", communicator_.timeout_ms(), " ms"));
}

absl::Status NcclCollective::PostId() {
  if (rank_ != 0) return Receive(&id_, sizeof(id_), 0);
  RETURN_IF_ERROR(Checked(nccl_.ncclGetUniqueId(&id_), "ncclGetUniqueId"));
  for (int to = 1; to < ranks_; ++to) RETURN_IF_ERROR(Send(&id_, sizeof(id_), to));
  return absl::OkStatus();
}

absl::Status NcclCollective::Connect() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  return Checked(nccl_.ncclCommInitRankConfig(&comm_, ranks_, id_, rank_, &config),
                 "ncclCommInitRankConfig");
}

// Errors also say what a kernel of NCCL found while it ran.
absl::StatusOr<bool> NcclCollective::NcclIsReady(const char* during) {
  ncclResult_t state = ncclSuccess;
  RETURN_IF_ERROR(Checked(nccl_.ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError"));
  RETURN_IF_ERROR(Checked(state, during));
  return state == ncclSuccess;
}

absl::Status NcclCollective::EnqueueSum() {
  if (tensor_.elements() == 0) return absl::OkStatus();
  return Checked(
      nccl_.ncclAllReduce(tensor_.data, tensor_.data, static_cast<size_t>(tensor_.elements()),
                          NcclType(tensor_.dtype), ncclSum, comm_,
                          static_cast<cudaStream_t>(stream_->native())),
      "ncclAllReduce");
}

absl::Status NcclCollective::EnqueueMeasureOfSum() {
  auto* const measure = reinterpret_cast<DeviceMeasure*>(measure_.data());
  RETURN_IF_ERROR(
      EnqueueMeasure(*stream_, tensor_.dtype, tensor_.data, tensor_.elements(), measure));
  RETURN_IF_ERROR(stream_->Copy(measured_.data(), &measure->total, sizeof(double)));
  return stream_->Record(*finished_);
}

absl::Status NcclCollective::Checked(ncclResult_t code, const char* call) {
  if (code == ncclSuccess || code == ncclInProgress) return absl::OkStatus();
  const absl::Status status = NcclStatus(nccl_, code, comm_, call);
  // What NCCL says then names buses, not what to do.
  if (connected_ || code != ncclInvalidUsage) return status;
  return absl::Status(status.code(), absl::StrCat(std::string(status.message()),
                                                  "; NCCL needs a GPU for each rank: where ranks "
                                                  "share one, use allreduce \"ring\""));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewNccl(const Nccl& nccl, Communicator& communicator,
                                                    int tag, Device& device) {
  auto allreduce = std::make_unique<NcclCollective>(nccl, communicator, tag, device);
  RETURN_IF_ERROR(allreduce->Open());
  return allreduce;
}

absl::StatusOr<std::unique_ptr<Collective>> NewNccl(Communicator& communicator, int tag,
                                                    Device& device) {
  ASSIGN_OR_RETURN(const Nccl* const nccl, LoadNccl());
  return NewNccl(*nccl, communicator, tag, device);
}

size_t NcclDeviceBytes() { return sizeof(DeviceMeasure); }

}  // namespace gyre
