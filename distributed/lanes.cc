#include "distributed/lanes.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "distributed/agreement.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr size_t kPageBytes = 4096;

int DeviceLanes(std::string_view algorithm) {
  return PropertiesOf(algorithm).meets_on_device ? 1 : kLanesInOrder;
}

}  // namespace

absl::Status Lanes::Open() {
  auto exchange = std::make_unique<Exchange>(communicator_, kFirstOperationTag + kExchangeLane);
  exchange_ = exchange.get();
  lanes_[kExchangeLane] = std::move(exchange);
  RETURN_IF_ERROR(Agree());
  return MakeLanes();
}

absl::Status Lanes::MakeLanes() {
  for (int lane = 0; lane < kExchangeLane; ++lane) {
    ASSIGN_OR_RETURN(lanes_[lane], NewCollective(algorithm_, communicator_,
                                                 kFirstOperationTag + lane, arenas_, selector_));
    if (lane < kLanesInOrder && wire_ != DType::kF32) lanes_[lane]->CarryAs(wire_);
  }
  return absl::OkStatus();
}

// Ranks that have chosen otherwise would wait for each other until one is called silent.
absl::Status Lanes::Agree() {
  std::string text = absl::StrCat(command_, "allreduce ", Describe());
  if (!selector_.costs().empty()) {
    std::string costs;
    for (const auto& [algorithm, start_s, byte_s] : selector_.costs()) {
      absl::StrAppendFormat(&costs, "%s %.17g %.17g\n", algorithm, start_s, byte_s);
    }
    absl::StrAppendFormat(&text, ", costs %08x", static_cast<uint32_t>(Hash(costs)));
  }
  constexpr char kWhat[] = "the command";
  const Said said[] = {{kWhat, text}};
  return CheckAgreement(
      said, communicator_.rank(), communicator_.size(), [&](Mail* mail) -> absl::Status {
        exchange_->Carry(mail);
        RETURN_IF_ERROR(exchange_->Start(Claim::Of(0, kWhat), Operation::kExchange,
                                         {nullptr, Shape({0}), DType::kF64}));
        double ignored = 0;
        for (Backoff backoff;; backoff.Pause()) {
          ASSIGN_OR_RETURN(const Advance advance, exchange_->Progress(&ignored));
          if (advance == Advance::kDone) return absl::OkStatus();
        }
      });
}

absl::StatusOr<Advance> Lanes::Drive(Work& work, const Works& active) {
  if (work.by == nullptr) {
    ASSIGN_OR_RETURN(const bool begun, Begin(work, active));
    if (!begun) return Advance::kWaiting;
    if (work.by == nullptr) return Advance::kDone;
  }
  // Whichever thread drives: the device becomes its own.
  if (on_device_ != nullptr) RETURN_IF_ERROR(on_device_->Done().status());
  return work.by->Progress(&work.result);
}

// False: it is not its turn, or its memory is not ready.
absl::StatusOr<bool> Lanes::Begin(Work& work, const Works& active) {
  if (left_[work.lane] != work.turn) return false;
  const auto precedes = [&](const Work& other) { return other.ticket < work.ticket; };
  if (work.call != nullptr) {
    if (std::ranges::any_of(active, precedes)) return false;
    RETURN_IF_ERROR((*work.call)());
    return true;
  }
  const bool on_device = work.memory == MemoryKind::kDevice && !device_.empty();
  // Of one for all, in the same order on all ranks, whenever their memory is ready.
  const auto is_before_on_device = [&](const Work& other) {
    return other.memory == MemoryKind::kDevice && precedes(other);
  };
  if (on_device && device_.size() == 1 && std::ranges::any_of(active, is_before_on_device)) {
    return false;
  }
  if (work.ready != nullptr) {
    ASSIGN_OR_RETURN(const bool ready, work.ready->Done());
    if (!ready) return false;
  }
  if (Timeline::on()) work.begun = Timeline::Now();
  if (work.mail != nullptr) exchange_->Carry(work.mail);
  work.by = (on_device ? device_[work.lane % device_.size()] : lanes_[work.lane]).get();
  RETURN_IF_ERROR(
      work.by->Start(Claim::Of(work.ticket, work.what), work.operation, work.inout, work.root));
  return true;
}

void Lanes::Leave(const Work& work) {
  ++left_[work.lane];
  if (work.begun == 0) return;
  TimelineRow& row = rows_[work.lane];
  if (row.rank < 0) {
    row = Timeline::NewRow(communicator_.rank(), absl::StrCat("communication ", work.lane));
  }
  Timeline::Add(row, TimelineKind::kCommunication, work.what, work.begun, Timeline::Now());
}

void Lanes::Abandon() {
  for (const auto& lane : device_) lane->Abandon();
}

bool Lanes::CanUse(std::string_view algorithm) const {
  const bool threads = communicator_.native() == nullptr && communicator_.size() > 1;
  return CheckAllreduce(algorithm, std::nullopt, threads).ok() &&
         CheckWire(algorithm, wire_).ok() && (algorithm != "shared" || on_one_host());
}

absl::Status Lanes::UseAllreduce(const std::string& algorithm) {
  GYRE_CHECK(device_.empty() && arenas_.empty());
  RETURN_IF_ERROR(CheckWire(algorithm, wire_));
  algorithm_ = algorithm;
  return MakeLanes();
}

absl::Status Lanes::UseDevice(Device& device) {
  for (int lane = 0; lane < DeviceLanes(algorithm_); ++lane) {
    ASSIGN_OR_RETURN(auto sums,
                     NewDeviceCollective(algorithm_, communicator_, kDeviceTag + lane, device));
    if (sums == nullptr) break;
    device_.push_back(std::move(sums));
  }
  asynchronous_ = device.kind() != DeviceKind::kCpu;
  if (!device_.empty()) {
    ASSIGN_OR_RETURN(on_device_, device.NewEvent());
  }
  sums_device_memory_ = !asynchronous_ || !device_.empty();
  return absl::OkStatus();
}

size_t Lanes::DeviceBytes(std::string_view algorithm, size_t bytes, int ranks) {
  return DeviceLanes(algorithm) * AllreduceDeviceBytes(algorithm, bytes, ranks);
}

double Lanes::BytesSent(size_t bytes, DType dtype) const {
  const ClusterShape shape = ShapeOf(communicator_);
  const size_t sent = bytes / SizeOf(dtype) * SizeOf(dtype == DType::kF32 ? wire_ : dtype);
  return AllreduceBytesSent(algorithm_ == "auto" ? selector_.Choose(bytes) : algorithm_,
                            static_cast<double>(sent), shape.ranks, shape.hosts);
}

size_t Lanes::WorthwhileBytes() const {
  return gyre::WorthwhileBytes(algorithm_, selector_, ShapeOf(communicator_));
}

std::string Lanes::Describe() const {
  // On one host nothing depends on where a rank is.
  const std::string hosts =
      ShapeOf(communicator_).hosts == 1
          ? ""
          : absl::StrCat(", ranks on hosts ", absl::StrJoin(communicator_.hosts(), " "));
  if (algorithm_ == "auto") return absl::StrCat("auto: ", selector_.Describe(), hosts);
  const bool ring_turns = algorithm_ == "ring" && !std::ranges::is_sorted(communicator_.hosts());
  if (algorithm_ == "hierarchical" || ring_turns) return algorithm_ + hosts;
  if (wire_ == DType::kF32) return algorithm_;
  return absl::StrCat(algorithm_, ", as ", std::string(DTypeName(wire_)));
}

absl::StatusOr<std::byte*> Lanes::Share(size_t bytes, bool one_copy) {
  const bool has_own = !one_copy || communicator_.rank() == 0;
  auto memory =
      SharedMemory::Create(communicator_, has_own ? std::max(bytes, kPageBytes) : kPageBytes);
  if (absl::IsResourceExhausted(memory.status())) return nullptr;
  RETURN_IF_ERROR(memory.status());
  if (one_copy) return copies_.emplace_back(*std::move(memory))->of(0);
  by_caller_ = !asynchronous_ && on_one_host();
  return arenas_.emplace_back(*std::move(memory))->own();
}

void Lanes::Unshare() {
  by_caller_ = false;
  arenas_.clear();
  copies_.clear();
}

}  // namespace gyre
