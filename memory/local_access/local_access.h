// local_access.h: arrays larger together than the device, for any program that has a device: it
// says once what an iteration touches, then each access finds its arrays on the device, and the
// rest moves behind its back.  No layer, no net; nothing else of Gyre is needed.
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
// Used by the thread that owns the stream.  Source: Cui et al. 2016, "GeePS", section 4
// (LocalAccess and PostLocalAccess, no-fetch and no-save); the plan is ours (paging_plan.h).
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
  size_t capacity_bytes = 0;  // of device memory, for all arrays
  PagingCosts costs = {};     // of the machine's copies, to plan by; no value depends on them
};

class LocalData {
 public:
  enum class Lifetime : uint8_t {
    kRun,        // has a value between iterations, which Read and Write reach
    kIteration,  // written anew in each iteration before it is fetched
  };
  class Array {
   private:
    friend class LocalData;
    Array(const LocalData* owner, int index) : owner_(owner), index_(index) {}
    const LocalData* owner_;
    int index_;
  };
  // fetch: the step reads the value from before; else it finds anything there.
  // keep: it changes the value, all of it where it does not fetch.  Fetched and not kept is only
  // read, and must be left as it was; neither is scratch: there is no value afterwards.
  struct ArrayAccess {
    Array array;
    Fetch fetch = kFetch;
    Keep keep = kKeep;
  };

  // The device outlives `compute`, and both the result.
  static std::unique_ptr<LocalData> Create(Device& device, Stream& compute,
                                           const LocalDataOptions& options);
  // Waits until what was enqueued has finished.
  ~LocalData();
  LocalData(const LocalData&) = delete;
  LocalData& operator=(const LocalData&) = delete;

  // While recording.  bytes: 0 or more.  name: for people.
  // Errors: FailedPrecondition after the recorded iteration.
  absl::StatusOr<Array> Declare(const std::string& name, size_t bytes,
                                Lifetime lifetime = Lifetime::kRun);

  // Whether the iteration is the first, which moves nothing: the caller enqueues no work.
  bool recording() const { return pager_ == nullptr; }

  // Begins a step.  Gives each array's address in device memory, from a multiple of 4096 bytes, in
  // order; null while recording, and for 0 bytes.  Work enqueued on the stream from now to
  // PostLocalAccess may touch them, and nothing else that is declared.  Enqueues waits for copies;
  // the host waits for nothing.
  // seconds: what the work takes, for the plan to know what copies can hide behind; looked at while
  // recording alone.  Left out it is 0: of the plans the one that copies fastest is taken.
  // Errors, after which nothing has changed: FailedPrecondition inside of a step, or unless it is
  // the recorded iteration's next, with what was expected and what came; InvalidArgument for an
  // array of another LocalData, twice, fetched without a value, or of Lifetime::kRun and scratch.
  // Those of work that failed, for good.
  absl::StatusOr<std::vector<std::byte*>> LocalAccess(const std::string& step,
                                                      const std::vector<ArrayAccess>& accesses,
                                                      double seconds = 0);
  // Ends it.  Errors: FailedPrecondition outside of one; those of work that failed.
  absl::Status PostLocalAccess();

  // Ends the iteration.  The recorded one's makes the plan and takes the memory that it needs.
  // Errors: FailedPrecondition before the last recorded step, or inside of one; while recording
  // PlanPaging's, ResourceExhausted by name where a step does not fit, and the device's: then there
  // is no plan, and recording is not over.
  absl::Status FinishIteration();

  // The whole value of an array, to or from host memory, between iterations; blocks until all
  // work has finished.  Before the first Write it is unspecified.  `compute` may not be captured.
  // Errors: FailedPrecondition while recording, in an iteration, or for Lifetime::kIteration;
  // InvalidArgument for an array of another LocalData; those of work that failed.
  absl::Status Read(Array array, void* to);
  absl::Status Write(Array array, const void* from);

  // Where all lies when, and what an iteration is expected to copy.  Precondition: !recording().
  const PagingPlan& plan() const { return plan_; }

 private:
  LocalData(Device& device, Stream& compute, const LocalDataOptions& options)
      : device_(device), compute_(compute), options_(options) {}
  absl::Status CheckNext(const std::string& step, const std::vector<ArrayAccess>& accesses) const;
  absl::Status CheckNew(const std::string& step, const std::vector<ArrayAccess>& accesses) const;
  absl::Status CheckOwn(const std::string& where, Array array) const;
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
  std::vector<bool> has_value_;                     // by array: at this point of the recording
  PagingPlan plan_;
  Buffer arena_, pages_;
  std::unique_ptr<Pager> pager_;                    // null while recording
  std::vector<std::vector<std::byte*>> addresses_;  // by step and access
  int next_ = 0;                                    // step
  bool open_ = false;                               // the one before it
};

}  // namespace gyre
