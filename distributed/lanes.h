// lanes.h: the operations between ranks, from submission until a caller has waited for them, and
// the algorithms that carry them out.
//
// Work in a lane is sequential, and lanes do not wait for each other.  Device memory has lanes of
// its own.  One thread submits, and one at a time drives: that of Run, or in its place a caller
// that waits.  All ranks submit the same in the same order.  Nothing is allocated unless more than
// ever is under way at once.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/collectives/algorithms/catalogue.h"
#include "distributed/collectives/exchange.h"
#include "distributed/gradient_bucket.h"
#include "distributed/transport/communicator.h"
#include "engine/runtime/device/device.h"
#include "engine/runtime/timeline.h"

namespace gyre {

// Lanes, each with a tag and staging of its own:
//   in order  in turn, so that ranks agree (gradient_bucket.h)
//   urgent    work of kMostUrgent
//   awaited   sums that a stream awaits, perhaps submitted long before their memory is ready
//   exchange  mail, which may take long
inline constexpr int kUrgentLane = kLanesInOrder;
inline constexpr int kAwaitedLane = kUrgentLane + 1, kExchangeLane = kAwaitedLane + 1;
inline constexpr int kLanes = kExchangeLane + 1;

inline constexpr int kMostUrgent = std::numeric_limits<int>::max();
inline constexpr int kAwaited = kMostUrgent - 1;
inline constexpr int kLeastUrgent = std::numeric_limits<int>::min();

struct Work {
  std::string what = {};  // the same on all ranks
  Operation operation = Operation::kAllreduce;
  int root = 0;
  Tensor inout = {};
  MemoryKind memory = MemoryKind::kPinnedHost;
  Mail* mail = nullptr;  // of an exchange
  // Among work that can go on, the highest does.  Earlier work in its lane gets it too.
  int urgency = 0;
  const Event* ready = nullptr;
  // Runs in place of an operation once all earlier work is done.  It may wait for other ranks.
  const std::function<absl::Status(Communicator&)>* call = nullptr;
  // Set by Lanes:
  int64_t ticket = 0;          // position among all work
  int64_t lane = 0, turn = 0;  // turn: position in the lane
  double result = 0;
  Collective* by = nullptr;  // null before it starts
  double begun = 0;          // Timeline::Now at the start; 0 without a timeline
};

using Works = std::list<Work>;

// Work of the driving thread besides operations in order.  It serves messages that may arrive at
// any time, such as a parameter server's.
class Service {
 public:
  virtual ~Service() = default;
  // Does all that needs no waiting, and never blocks.  The driving thread calls it repeatedly.
  // Returns kWaiting if there was nothing to do.  Errors become those of all operations.
  virtual absl::StatusOr<Advance> Progress(Communicator& communicator) = 0;
};

// ProcessGroup says what most functions do.
class Lanes {
 public:
  using MakeCommunicator = std::function<absl::StatusOr<std::unique_ptr<Communicator>>()>;

  // `choice` is equal on all ranks.
  explicit Lanes(AllreduceChoice choice) : choice_(std::move(choice)) {}

  // Calls `make`, sets `opened` to the result, and drives until Close and the end of all work.  The
  // same thread then calls End, which ends the communicator and gives memory back.
  void Run(const MakeCommunicator& make, std::promise<absl::Status> opened);
  void End();

  // All below come once `opened` is set.  Any thread:
  Communicator& communicator() const { return *communicator_; }  // if it is OK
  int64_t timeout_ms() const { return timeout_ms_; }             // the communicator's, or 0
  absl::Status Await(int64_t ticket);
  absl::Status status();
  void Abort(const absl::Status& reason, int exit_code);

  // Submitting thread:
  int64_t Submit(std::string_view what, const Work& of);
  absl::StatusOr<bool> Done(int64_t ticket);
  absl::StatusOr<double> Wait(int64_t ticket);
  absl::StatusOr<int64_t> WaitForMore(int64_t seen);
  absl::Status AwaitService(const std::function<bool()>& holds);
  absl::Status StopServing();
  void Close();  // no work follows

  // Submitting thread, and in the call of work:
  const std::string& algorithm() const { return choice_.algorithm; }
  bool CanUse(std::string_view algorithm) const;
  double BytesSent(size_t bytes, DType dtype) const;
  std::string Describe() const;
  size_t WorthwhileBytes() const;
  bool sums_device_memory() const { return sums_device_memory_; }
  static size_t DeviceBytes(std::string_view algorithm, size_t bytes, int ranks);
  bool connects() const { return PropertiesOf(algorithm()).meets_on_device; }
  bool sums_in_arenas() const {
    return ShapeOf(*communicator_).hosts <= PropertiesOf(algorithm()).arena_hosts;
  }
  bool on_one_host() const { return ShapeOf(*communicator_).hosts == 1; }

  // In the call of work alone:
  absl::Status UseAllreduce(const std::string& algorithm);
  absl::Status UseDevice(Device& device);
  // With `one_copy` as ShareOne.
  absl::StatusOr<std::byte*> Share(size_t bytes, bool one_copy);
  void Unshare();
  void Serve(Service& service);

  // One thread at a time.  Moves submitted work to that under way, and returns it, ordered by
  // urgency, then by ticket.
  const Works& Take();

 private:
  static constexpr int kDeviceTag = kFirstOperationTag + kLanes;  // of the first device lane

  absl::Status Start(const MakeCommunicator& make);
  absl::Status Agree();
  absl::Status MakeLanes();
  void AddSpare();
  bool AwaitCall(std::chrono::milliseconds patience);
  bool Rest();
  absl::StatusOr<bool> Collect(int64_t ticket, double since, double* result);
  template <typename Condition>
  absl::Status DriveUntil(const Condition& holds);
  void DriveOn();
  Advance Drive();
  absl::StatusOr<Advance> Pass();
  absl::StatusOr<Advance> GoOn(Work& work);
  absl::StatusOr<bool> Begin(Work& work);
  void Finish(Works::iterator work);
  void Fail(const absl::Status& status);
  bool failed() const { return !status_.ok(); }  // driving thread

  std::atomic<bool> arriving_ = false, aborting_ = false;
  std::atomic<int> waiting_ = 0;  // callers, who drive
  std::mutex mutex_;              // guards the members up to driving_
  std::condition_variable work_;
  bool called_ = false, closed_ = false;
  Works queue_;    // submitted, not under way
  Works results_;  // done, not collected
  Works spare_;
  int64_t submitted_ = 0, in_order_ = 0, done_ = 0;
  std::array<int64_t, kLanes> entered_ = {};
  absl::Status status_;  // the first error; written by the driving thread
  absl::Status abort_reason_;

  std::mutex driving_;  // of the thread that drives.  Guards the members below but by_caller_
  Works active_;
  Service* service_ = nullptr;
  std::unique_ptr<Communicator> communicator_;  // any thread may ask for what is constant
  int64_t timeout_ms_ = 0;
  AllreduceChoice choice_;                                 // its wire type: of sums in order
  std::optional<Selector> selector_;                       // once opened
  SharedArenas arenas_;                                    // in which ranks sum in place
  SharedArenas copies_;                                    // rank 0's, which all ranks use
  std::array<std::unique_ptr<Collective>, kLanes> lanes_;  // on host memory
  Exchange* exchange_ = nullptr;                           // lanes_[kExchangeLane]
  // On device memory: none, one for all lanes, or one for each lane in order.
  std::vector<std::unique_ptr<Collective>> device_;
  std::unique_ptr<Event> on_device_;       // never recorded; Done makes the device current
  std::array<int64_t, kLanes> left_ = {};  // work done, by lane
  std::array<TimelineRow, kLanes> rows_;
  bool sums_device_memory_ = false;  // written before UseDevice returns
  bool asynchronous_ = false;        // whether the device in use is no cpu
  // Whether the submitting thread may drive, because sums work in place in memory that is ready at
  // once.  Any thread.
  std::atomic<bool> by_caller_ = false;
};

}  // namespace gyre
