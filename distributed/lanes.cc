#include "distributed/lanes.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "distributed/agreement.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr size_t kPageBytes = 4096;

// How often an idle thread looks after what it has sent: first soon, because the next rank may wait
// for it; then so rarely that it costs nothing.
constexpr std::chrono::milliseconds kFirstPoke{1}, kLaterPokes{64};
// How often it looks after what is under way, and nobody waits for.  Late by so much is little, and
// it costs some 2 % of a core.
constexpr std::chrono::microseconds kBetweenPasses{50};

int DeviceLanes(std::string_view algorithm) {
  return PropertiesOf(algorithm).meets_on_device ? 1 : kLanesInOrder;
}

// `work`, which lies in `from`, to its place in `active`.
void Place(Works& active, Works& from, Works::iterator work) {
  const auto less_urgent = [&](const Work& other) { return other.urgency < work->urgency; };
  active.splice(std::ranges::find_if(active, less_urgent), from, work);
}

}  // namespace

void Lanes::Run(const MakeCommunicator& make, std::promise<absl::Status> opened) {
  std::unique_lock driving(driving_);
  absl::Status status = Start(make);
  const bool works = status.ok();
  opened.set_value(std::move(status));
  if (!works) return;
  // Ranks may have to come together for these, and one thread may start all of them.
  status = Agree();
  if (status.ok()) status = MakeLanes();
  if (!status.ok()) Fail(status);
  driving.unlock();
  for (auto patience = kFirstPoke;;) {
    const bool called = AwaitCall(patience);
    if (!driving.try_lock()) {
      std::this_thread::yield();  // to who drives
      continue;
    }
    Advance advance = Drive();
    while (!called && advance == Advance::kMoved) advance = Drive();
    const bool idle = active_.empty() && (service_ == nullptr || failed());
    if (idle && Rest()) return;
    patience = called || !idle ? kFirstPoke : std::min(2 * patience, kLaterPokes);
    if (!called && !failed()) {  // else the communicator is of no more use
      status = communicator_->Poke(kNobody);
      if (!status.ok()) Fail(status);
    }
    driving.unlock();
    if (!idle && advance == Advance::kWaiting) std::this_thread::sleep_for(kBetweenPasses);
  }
}

void Lanes::End() {
  communicator_.reset();  // first, so that no rank writes into memory that the others free
  on_device_.reset();
  device_.clear();
  lanes_ = {};
  Unshare();
}

absl::Status Lanes::Start(const MakeCommunicator& make) {
  ASSIGN_OR_RETURN(communicator_, make());
  timeout_ms_ = communicator_->timeout_ms();
  RETURN_IF_ERROR(CheckAllreduce(algorithm(), std::nullopt));
  RETURN_IF_ERROR(CheckWire(algorithm(), choice_.wire));
  ASSIGN_OR_RETURN(selector_, Selector::Calibrated(choice_.calibration, ShapeOf(*communicator_)));
  return absl::OkStatus();
}

// Ranks that have chosen otherwise would wait for each other until one is called silent.
absl::Status Lanes::Agree() {
  auto exchange = std::make_unique<Exchange>(*communicator_, kFirstOperationTag + kExchangeLane);
  exchange_ = exchange.get();
  lanes_[kExchangeLane] = std::move(exchange);
  std::string text = absl::StrCat(choice_.command, "allreduce ", Describe());
  if (!selector_->costs().empty()) {
    std::string costs;
    for (const auto& [algorithm, start_s, byte_s] : selector_->costs()) {
      absl::StrAppendFormat(&costs, "%s %.17g %.17g\n", algorithm, start_s, byte_s);
    }
    absl::StrAppendFormat(&text, ", costs %08x", static_cast<uint32_t>(Hash(costs)));
  }
  constexpr char kWhat[] = "the command";
  const Said said[] = {{kWhat, text}};
  return CheckAgreement(
      said, communicator_->rank(), communicator_->size(), [&](Mail* mail) -> absl::Status {
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

absl::Status Lanes::MakeLanes() {
  for (int lane = 0; lane < kExchangeLane; ++lane) {
    ASSIGN_OR_RETURN(lanes_[lane], NewCollective(algorithm(), *communicator_,
                                                 kFirstOperationTag + lane, arenas_, *selector_));
    if (lane < kLanesInOrder && choice_.wire != DType::kF32) lanes_[lane]->CarryAs(choice_.wire);
  }
  return absl::OkStatus();
}

int64_t Lanes::Submit(std::string_view what, const Work& of) {
  const bool by_caller = by_caller_;
  int64_t ticket;
  {
    std::lock_guard lock(mutex_);
    if (spare_.empty()) AddSpare();
    Work& work = spare_.front();
    std::string named = std::move(work.what);  // which has room
    work = of;
    work.what = std::move(named.assign(what));
    work.ticket = ticket = submitted_++;
    work.lane = work.urgency == kMostUrgent ? kUrgentLane
                : work.urgency == kAwaited  ? kAwaitedLane
                : work.mail != nullptr      ? kExchangeLane
                                            : in_order_++ % kLanesInOrder;
    work.turn = entered_[work.lane]++;
    queue_.splice(queue_.end(), spare_, spare_.begin());
    arriving_ = true;
    called_ = called_ || !by_caller;
  }
  if (by_caller) {
    DriveOn();
  } else {
    work_.notify_all();
  }
  return ticket;
}

// Several, each with room for what a step's work is called: how much is under way at once, and
// which of them is used for what, depends on timing.
void Lanes::AddSpare() {
  for (int i = 0; i < 16; ++i) spare_.emplace_back().what.reserve(256);
}

absl::StatusOr<bool> Lanes::Done(int64_t ticket) {
  std::lock_guard lock(mutex_);
  GYRE_CHECK(ticket >= 0 && ticket < submitted_);
  RETURN_IF_ERROR(status_);
  return std::ranges::find(results_, ticket, &Work::ticket) != results_.end();
}

absl::StatusOr<bool> Lanes::Collect(int64_t ticket, double since, double* result) {
  std::lock_guard lock(mutex_);
  GYRE_CHECK(ticket >= 0 && ticket < submitted_);
  RETURN_IF_ERROR(status_);
  const auto found = std::ranges::find(results_, ticket, &Work::ticket);
  if (found == results_.end()) return false;
  if (since > 0) {
    Timeline::Add(Timeline::row(), TimelineKind::kWaiting, found->what, since, Timeline::Now());
  }
  *result = found->result;
  spare_.splice(spare_.begin(), results_, found);
  return true;
}

absl::StatusOr<double> Lanes::Wait(int64_t ticket) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  double result = 0;
  RETURN_IF_ERROR(DriveUntil([&] { return Collect(ticket, since, &result); }));
  return result;
}

absl::Status Lanes::Await(int64_t ticket) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  for (Backoff backoff;; backoff.Pause()) {
    double ignored = 0;
    ASSIGN_OR_RETURN(const bool done, Collect(ticket, since, &ignored));
    if (done) return absl::OkStatus();
  }
}

absl::StatusOr<int64_t> Lanes::WaitForMore(int64_t seen) {
  const double since = Timeline::on() ? Timeline::Now() : 0;
  int64_t done = 0;
  RETURN_IF_ERROR(DriveUntil([&]() -> absl::StatusOr<bool> {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(status_);
    done = done_;
    if (done <= seen) return false;
    if (since > 0 && !results_.empty()) {
      Timeline::Add(Timeline::row(), TimelineKind::kWaiting, results_.back().what, since,
                    Timeline::Now());
    }
    return true;
  }));
  return done;
}

absl::Status Lanes::AwaitService(const std::function<bool()>& holds) {
  return DriveUntil([&]() -> absl::StatusOr<bool> {
    RETURN_IF_ERROR(status());
    return holds();
  });
}

// The thread polls from now on, for messages come unasked.
void Lanes::Serve(Service& service) {
  GYRE_CHECK(service_ == nullptr);
  service_ = &service;
  std::lock_guard lock(mutex_);
  called_ = true;
  work_.notify_all();
}

absl::Status Lanes::StopServing() {
  std::lock_guard driving(driving_);
  service_ = nullptr;
  return status();
}

void Lanes::Close() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  work_.notify_all();
}

absl::Status Lanes::status() {
  std::lock_guard lock(mutex_);
  return status_;
}

void Lanes::Abort(const absl::Status& reason, int exit_code) {
  {
    std::lock_guard lock(mutex_);
    if (abort_reason_.ok()) abort_reason_ = reason;
    aborting_ = true;
  }
  work_.notify_all();
  communicator_->Abort(reason, exit_code);
}

// Blocks until called for work, the end or an abort while no caller waits.  Returns false after
// `patience`.
bool Lanes::AwaitCall(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return work_.wait_for(lock, patience, [&] {
    return waiting_ == 0 && (closed_ || called_ || (aborting_ && status_.ok()));
  });
}

// Clears the call unless there is work.  Returns whether no work follows.
bool Lanes::Rest() {
  std::lock_guard lock(mutex_);
  called_ = !queue_.empty();
  return closed_ && !called_;
}

template <typename Condition>
absl::Status Lanes::DriveUntil(const Condition& holds) {
  absl::StatusOr<bool> done = holds();
  if (!done.ok() || *done) return done.status();
  ++waiting_;  // from here on nothing wakes the thread
  {
    std::lock_guard driving(driving_);
    Backoff backoff;
    for (done = holds(); done.ok() && !*done; done = holds()) {
      if (Drive() == Advance::kWaiting) {
        backoff.Pause();
      } else {
        backoff.Reset();
      }
    }
  }
  std::lock_guard lock(mutex_);
  if (--waiting_ == 0 && called_) work_.notify_all();
  return done.status();
}

// All that can be done at once, unless another thread drives.
void Lanes::DriveOn() {
  std::unique_lock driving(driving_, std::try_to_lock);
  if (!driving) return;
  while (Drive() != Advance::kWaiting) {
  }
}

Advance Lanes::Drive() {
  Take();
  const absl::StatusOr<Advance> advance = Pass();
  if (advance.ok()) return *advance;
  Fail(advance.status());
  return Advance::kMoved;
}

const Works& Lanes::Take() {
  if (!arriving_) return active_;
  std::lock_guard lock(mutex_);
  while (!queue_.empty()) {
    const auto first = queue_.begin();
    for (auto work = active_.begin(); work != active_.end();) {
      const auto before = work++;
      if (before->lane != first->lane || before->urgency >= first->urgency) continue;
      before->urgency = first->urgency;
      Place(active_, active_, before);
    }
    Place(active_, queue_, first);
  }
  arriving_ = false;
  return active_;
}

// Until the most urgent operation that can go on has done so.
absl::StatusOr<Advance> Lanes::Pass() {
  if (failed()) {
    active_.clear();
    return Advance::kWaiting;
  }
  if (aborting_) {
    std::lock_guard lock(mutex_);
    RETURN_IF_ERROR(abort_reason_);
  }
  for (auto work = active_.begin(); work != active_.end(); ++work) {
    absl::StatusOr<Advance> advance = GoOn(*work);
    if (!advance.ok()) return Annotate(advance.status(), work->what);
    if (*advance == Advance::kDone) Finish(work);
    if (*advance != Advance::kWaiting) return Advance::kMoved;
  }
  if (service_ != nullptr) return service_->Progress(*communicator_);
  // Those under way hear what other ranks tell; what waits for its memory alone does not.
  const auto under_way = [](const Work& work) { return work.by != nullptr; };
  if (std::ranges::none_of(active_, under_way)) RETURN_IF_ERROR(communicator_->Poke(kNobody));
  return Advance::kWaiting;
}

absl::StatusOr<Advance> Lanes::GoOn(Work& work) {
  if (work.by == nullptr) {
    ASSIGN_OR_RETURN(const bool begun, Begin(work));
    if (!begun) return Advance::kWaiting;
    if (work.by == nullptr) return Advance::kDone;
  }
  // Whichever thread drives: the device becomes its own.
  if (on_device_ != nullptr) RETURN_IF_ERROR(on_device_->Done().status());
  return work.by->Progress(&work.result);
}

// False: it is not its turn, or its memory is not ready.
absl::StatusOr<bool> Lanes::Begin(Work& work) {
  if (left_[work.lane] != work.turn) return false;
  const auto precedes = [&](const Work& other) { return other.ticket < work.ticket; };
  if (work.call != nullptr) {
    if (std::ranges::any_of(active_, precedes)) return false;
    RETURN_IF_ERROR((*work.call)(*communicator_));
    return true;
  }
  const bool on_device = work.memory == MemoryKind::kDevice && !device_.empty();
  // Of one for all, in the same order on all ranks, whenever their memory is ready.
  const auto is_before_on_device = [&](const Work& other) {
    return other.memory == MemoryKind::kDevice && precedes(other);
  };
  if (on_device && device_.size() == 1 && std::ranges::any_of(active_, is_before_on_device)) {
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

void Lanes::Finish(Works::iterator work) {
  ++left_[work->lane];
  if (work->begun != 0) {
    TimelineRow& row = rows_[work->lane];
    if (row.rank < 0) {
      row = Timeline::NewRow(communicator_->rank(), absl::StrCat("communication ", work->lane));
    }
    Timeline::Add(row, TimelineKind::kCommunication, work->what, work->begun, Timeline::Now());
  }
  std::lock_guard lock(mutex_);
  results_.splice(results_.end(), active_, work);
  ++done_;
}

void Lanes::Fail(const absl::Status& status) {
  for (const auto& lane : device_) lane->Abandon();  // no device uses work's memory any more
  std::lock_guard lock(mutex_);
  if (status_.ok()) status_ = status;
}

bool Lanes::CanUse(std::string_view algorithm) const {
  const bool threads = communicator_->native() == nullptr && communicator_->size() > 1;
  return CheckAllreduce(algorithm, std::nullopt, threads).ok() &&
         CheckWire(algorithm, choice_.wire).ok() && (algorithm != "shared" || on_one_host());
}

absl::Status Lanes::UseAllreduce(const std::string& algorithm) {
  GYRE_CHECK(device_.empty() && arenas_.empty());
  RETURN_IF_ERROR(CheckWire(algorithm, choice_.wire));
  choice_.algorithm = algorithm;
  return MakeLanes();
}

absl::Status Lanes::UseDevice(Device& device) {
  for (int lane = 0; lane < DeviceLanes(algorithm()); ++lane) {
    ASSIGN_OR_RETURN(auto sums,
                     NewDeviceCollective(algorithm(), *communicator_, kDeviceTag + lane, device));
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
  const ClusterShape shape = ShapeOf(*communicator_);
  const size_t sent = bytes / SizeOf(dtype) * SizeOf(dtype == DType::kF32 ? choice_.wire : dtype);
  return AllreduceBytesSent(algorithm() == "auto" ? selector_->Choose(bytes) : algorithm(),
                            static_cast<double>(sent), shape.ranks, shape.hosts);
}

size_t Lanes::WorthwhileBytes() const {
  return gyre::WorthwhileBytes(algorithm(), *selector_, ShapeOf(*communicator_));
}

std::string Lanes::Describe() const {
  // On one host nothing depends on where a rank is.
  const std::string hosts =
      ShapeOf(*communicator_).hosts == 1
          ? ""
          : absl::StrCat(", ranks on hosts ", absl::StrJoin(communicator_->hosts(), " "));
  if (algorithm() == "auto") return absl::StrCat("auto: ", selector_->Describe(), hosts);
  const bool ring_turns = algorithm() == "ring" && !std::ranges::is_sorted(communicator_->hosts());
  if (algorithm() == "hierarchical" || ring_turns) return algorithm() + hosts;
  if (choice_.wire == DType::kF32) return algorithm();
  return absl::StrCat(algorithm(), ", as ", std::string(DTypeName(choice_.wire)));
}

absl::StatusOr<std::byte*> Lanes::Share(size_t bytes, bool one_copy) {
  const bool has_own = !one_copy || communicator_->rank() == 0;
  auto memory =
      SharedMemory::Create(*communicator_, has_own ? std::max(bytes, kPageBytes) : kPageBytes);
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
