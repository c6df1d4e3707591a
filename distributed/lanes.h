// lanes.h: the algorithms that carry out work between ranks, several operations at once.
//
// Work in a lane is sequential, and lanes do not wait for each other.  Device memory has lanes of
// its own.  Owns the memory that ranks share.  Used by one thread at a time.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/collectives/algorithms/catalogue.h"
#include "distributed/work_queue.h"
#include "engine/runtime/timeline.h"

namespace gyre {

class Lanes {
 public:
  // The communicator must outlive this object, except for its end.  `choice` is equal on all ranks.
  Lanes(Communicator& communicator, const AllreduceChoice& choice, Selector selector)
      : communicator_(communicator),
        algorithm_(choice.algorithm),
        selector_(std::move(selector)),
        wire_(choice.wire),
        command_(choice.command) {}

  // Blocks until all ranks have called it.  Errors: those of NewCollective, and FailedPrecondition
  // on every rank if commands, algorithms or selectors differ.
  absl::Status Open();
  // Begins or advances one of `active`.  After kDone the caller calls Leave.  Errors: those of its
  // event, its call and its algorithm.
  absl::StatusOr<Advance> Drive(Work& work, const Works& active);
  void Leave(const Work& work);
  // Blocks until no device uses an operation's memory.  Nothing else may follow.
  void Abandon();

  // See ProcessGroup.
  const std::string& algorithm() const { return algorithm_; }
  // Whether these ranks can sum by it.  Equal on all ranks.
  bool CanUse(std::string_view algorithm) const;
  absl::Status UseAllreduce(const std::string& algorithm);
  absl::Status UseDevice(Device& device);
  bool sums_device_memory() const { return sums_device_memory_; }
  static size_t DeviceBytes(std::string_view algorithm, size_t bytes, int ranks);
  double BytesSent(size_t bytes, DType dtype) const;
  std::string Describe() const;
  size_t WorthwhileBytes() const;
  bool connects() const { return PropertiesOf(algorithm_).meets_on_device; }
  bool sums_in_arenas() const {
    return ShapeOf(communicator_).hosts <= PropertiesOf(algorithm_).arena_hosts;
  }
  bool on_one_host() const { return ShapeOf(communicator_).hosts == 1; }
  // With `one_copy` as ShareOne.
  absl::StatusOr<std::byte*> Share(size_t bytes, bool one_copy);
  void Unshare();
  // Whether the submitting thread may drive, because sums work in place in memory that is ready at
  // once.  Any thread.
  bool by_caller() const { return by_caller_; }

 private:
  static constexpr int kDeviceTag = kFirstOperationTag + kLanes;  // of the first device lane

  absl::Status Agree();
  absl::Status MakeLanes();
  absl::StatusOr<bool> Begin(Work& work, const Works& active);

  Communicator& communicator_;
  std::string algorithm_;
  const Selector selector_;
  const DType wire_;  // wire type of sums of F32 in order
  const std::string command_;
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
  std::atomic<bool> by_caller_ = false;
};

}  // namespace gyre
