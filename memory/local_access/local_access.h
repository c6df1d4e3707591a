// local_access.h: pages the arrays of any program that computes on a device and holds more than it.
// The program declares once which arrays each step touches.  From then on each access finds its
// arrays on the device, and the others move meanwhile.  No other part of Gyre is needed.
//
//   auto made = gyre::LocalData::Create(device, stream, {.capacity_bytes = 1 << 30});
//   gyre::LocalData& data = *made;
//   auto points = data.Declare("points", bytes);             // and others
//   auto iterate = [&]() -> absl::Status {
//     auto at = data.LocalAccess("assign", {{*points, gyre::kFetch, gyre::kNoKeep}});
//     if (!at.ok()) return at.status();
//     if (!data.recording()) ...                             // enqueue work on (*at)[0] to stream
//     if (auto status = data.PostLocalAccess(); !status.ok()) return status;
//     return data.FinishIteration();
//   };
//   iterate();                                               // recorded; makes the plan
//   data.Write(*points, host.data());
//   while (...) iterate();
//
// Used by the thread that owns the stream.  The plan is ours (paging_plan.h).
// Source: Cui et al. 2016, "GeePS", section 4 (LocalAccess, PostLocalAccess, no-fetch, no-save).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/device/buffer.h"
#include "engine/runtime/device/device.h"
#include "memory/pager/pager.h"
#include "memory/planner/paging_plan.h"
#include "memory/trace/access_trace.h"

namespace gyre {

enum Fetch : bool { kNoFetch = false, kFetch = true };
enum Keep : bool { kNoKeep = false, kKeep = true };

struct LocalDataOptions {
  size_t capacity_bytes = 0;  // device memory for all arrays
  PagingCosts costs = {};     // of the machine's copies; the plan depends on them, no value does
};

class LocalData {
 public:
  enum class Lifetime : uint8_t {
    kRun,        // has a value between iterations, which Read and Write reach
    kIteration,  // written in each iteration before it is fetched
  };
  class Array {
   public:
    bool operator==(const Array&) const = default;

   private:
    friend class LocalData;
    Array(const LocalData* owner, int index) : owner_(owner), index_(index) {}
    const LocalData* owner_;
    int index_;
  };
  // The step's use of an array:
  //   kFetch    kKeep    changes the value
  //   kFetch    kNoKeep  only reads the value, and must leave it as it was
  //   kNoFetch  kKeep    finds any bytes, and writes the whole value
  //   kNoFetch  kNoKeep  scratch: finds any bytes and leaves no value
  struct ArrayAccess {
    Array array;
    Fetch fetch = kFetch;
    Keep keep = kKeep;
    bool operator==(const ArrayAccess&) const = default;
  };

  // The device outlives `compute`, and both outlive the result.
  static std::unique_ptr<LocalData> Create(Device& device, Stream& compute,
                                           const LocalDataOptions& options);
  ~LocalData();  // blocks until all enqueued work has finished
  LocalData(const LocalData&) = delete;
  LocalData& operator=(const LocalData&) = delete;

  // `bytes` may be 0.  Errors, by name: FailedPrecondition after the recorded iteration.
  absl::StatusOr<Array> Declare(const std::string& name, size_t bytes,
                                Lifetime lifetime = Lifetime::kRun);

  // Whether this is the first iteration, in which the caller enqueues no work.
  bool recording() const { return pager_ == nullptr; }

  // Begins a step.  Returns the device addresses of the arrays, in order, multiples of 4096.  They
  // are null while recording, and for 0 bytes.  Work enqueued on the stream before PostLocalAccess
  // may touch these arrays and no other declared ones.  Enqueues waits for copies, does not block.
  // `seconds` is the duration of the work, which copies can hide behind.  Only recording uses it.
  // With 0 for all steps, the plan with the fastest copies wins.
  // Errors, which change nothing:
  //   FailedPrecondition  inside a step, or not the next recorded access (the message has both)
  //   InvalidArgument     an array of another LocalData, an array twice, a fetch without a value,
  //                       or scratch of Lifetime::kRun
  // Errors of failed work are final.
  absl::StatusOr<std::vector<std::byte*>> LocalAccess(const std::string& step,
                                                      const std::vector<ArrayAccess>& accesses,
                                                      double seconds = 0);
  // Ends the step.  Errors: FailedPrecondition outside a step, and those of failed work.
  absl::Status PostLocalAccess();

  // Ends the iteration.  After the recorded one, makes the plan and allocates its memory.
  // Errors: FailedPrecondition inside a step or before the last recorded one.  While recording,
  // PlanPaging's (ResourceExhausted if a step does not fit) and the device's, after which there is
  // no plan and recording goes on.
  absl::Status FinishIteration();

  // Copy an array's whole value to or from host memory, between iterations.  Block until all work
  // has finished.  A value is unspecified before Write.  Precondition: `compute` is not captured.
  // Errors: FailedPrecondition while recording, in an iteration, or for Lifetime::kIteration,
  // InvalidArgument for an array of another LocalData, and those of failed work.
  absl::Status Read(Array array, void* to);
  absl::Status Write(Array array, const void* from);

  const PagingPlan& plan() const { return plan_; }  // Precondition: !recording()

 private:
  LocalData(Device& device, Stream& compute, const LocalDataOptions& options)
      : device_(device), compute_(compute), options_(options) {}
  absl::Status CheckClosed(const std::string& call) const;
  absl::Status CheckNew(const std::string& step, const std::vector<ArrayAccess>& accesses) const;
  absl::Status CheckOwn(const std::string& where, Array array) const;
  absl::Status OutOfTurn(const std::string& call) const;
  void Record(const std::string& step, const std::vector<ArrayAccess>& accesses, double seconds);
  std::string Text(const std::string& step, const std::vector<ArrayAccess>& accesses) const;
  void FindAddresses();
  absl::StatusOr<std::byte*> Home(const std::string& call, Array array);
  int steps() const { return static_cast<int>(trace_.steps.size()); }

  Device& device_;
  Stream& compute_;
  const LocalDataOptions options_;
  AccessTrace trace_;
  std::vector<std::vector<ArrayAccess>> accesses_;  // by step
  std::vector<bool> has_value_;                     // by array: so far in the recording
  PagingPlan plan_;
  Buffer arena_, pages_;
  std::unique_ptr<Pager> pager_;                    // null while recording
  std::vector<std::vector<std::byte*>> addresses_;  // by step and access
  int next_ = 0;                                    // step
  bool open_ = false;                               // the step before it
};

}  // namespace gyre
