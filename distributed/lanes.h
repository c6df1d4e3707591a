// lanes.h: the algorithms that do the work between ranks, several operations at once.
//
// In a lane one follows the other; across lanes none waits for another.  Device memory has lanes of
// its own, and memory that ranks share lies here.  Used by one thread at a time.
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
  // The communicator must outlive this but for its end.
  // selector: what "auto" chooses.  choice: of all ranks.
  Lanes(Communicator& communicator, const AllreduceChoice& choice, Selector selector)
      : communicator_(communicator),
        algorithm_(choice.algorithm),
        selector_(std::move(selector)),
        wire_(choice.wire),
        command_(choice.command) {}

  // Blocks until all ranks have come here.  Errors: NewCollective's; FailedPrecondition on every
  // rank if one has another command, another algorithm or another selector.
  absl::Status Open();
  // Begins or advances one of `active`.  kDone: it is to be told to Leave.  Errors: of its event,
  // its call or its algorithm.
  absl::StatusOr<Advance> Drive(Work& work, const Works& active);
  void Leave(const Work& work);
  // Blocks until no device works on the memory of an operation; nothing else may follow.
  void Abandon();

  // ProcessGroup's promises.
  absl::Status UseDevice(Device& device);
  bool sums_device_memory() const { return sums_device_memory_; }
  static size_t DeviceBytes(std::string_view algorithm, size_t bytes, int ranks);
  double BytesSent(size_t bytes, DType dtype) const;
  std::string Describe() const;
  size_t WorthwhileBytes() const;
  bool connects() const { return algorithm_ == "nccl"; }
  bool sums_in_arenas() const { return SumsInArenas(algorithm_, ShapeOf(communicator_).hosts); }
  bool on_one_host() const { return ShapeOf(communicator_).hosts == 1; }
  absl::StatusOr<std::byte*> Share(size_t bytes);
  absl::StatusOr<std::byte*> ShareOne(size_t bytes);
  // Whether sums go on well enough in passes of the thread that submits them: they are added where
  // they lie, in memory that is ready at once.  Any thread's.
  bool by_caller() const { return by_caller_; }

 private:
  static constexpr int kDeviceTag = kFirstOperationTag + kLanes;  // the first of them

  absl::Status Agree();
  absl::StatusOr<bool> Begin(Work& work, const Works& active);

  Communicator& communicator_;
  const std::string algorithm_;
  const Selector selector_;
  const DType wire_;  // as what sums of F32 travel that are in order
  const std::string command_;
  SharedArenas arenas_;                                    // where sums are made where they lie
  SharedArenas copies_;                                    // the first rank's, which all use
  std::array<std::unique_ptr<Collective>, kLanes> lanes_;  // of host memory
  Exchange* exchange_ = nullptr;                           // one of them
  // Of device memory: none, one for all lanes, or one for each lane in order.
  std::vector<std::unique_ptr<Collective>> device_;
  std::unique_ptr<Event> on_device_;       // never recorded
  std::array<int64_t, kLanes> left_ = {};  // how many have left each
  std::array<TimelineRow, kLanes> rows_;
  bool sums_device_memory_ = false;  // written before UseDevice returns
  bool asynchronous_ = false;        // so is device memory in use
  std::atomic<bool> by_caller_ = false;
};

}  // namespace gyre
