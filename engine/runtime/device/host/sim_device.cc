// The sim device: each stream is a worker thread with a first-in, first-out queue.
//
// A wait can only be for work enqueued before it (an event's latest completion), so the streams
// cannot wait for each other in a circle, and a destructor that drains its queue always ends.

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/runtime/device/device.h"
#include "engine/runtime/device/host/host_capture.h"
#include "engine/runtime/device/host/host_event.h"
#include "engine/runtime/device/host/host_memory.h"
#include "engine/runtime/random.h"
#include "engine/runtime/timeline.h"

namespace gyre {
namespace {

// All bits set is a NaN in every floating-point format and -1 as an integer.
constexpr unsigned char kFreshMemory = 0xFF;

// Long against the work of a test's kernel (microseconds), short enough for thousands of them.
constexpr uint32_t kMaxDelayMicroseconds = 200;

// One way between host and device, which copies take one after the other.  Thread-safe.
class Link {
 public:
  explicit Link(double bytes_per_s) : bytes_per_s_(bytes_per_s) {}

  // Until when a copy that comes now is under way.
  std::chrono::steady_clock::time_point Take(size_t bytes) {
    std::lock_guard lock(mutex_);
    const std::chrono::duration<double> least(static_cast<double>(bytes) / bytes_per_s_);
    free_ = std::max(free_, std::chrono::steady_clock::now()) +
            std::chrono::duration_cast<std::chrono::steady_clock::duration>(least);
    return free_;
  }

 private:
  const double bytes_per_s_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point free_;
};

struct Links {
  Link to_device, to_host;
};

class SimStream : public Stream {
 public:
  // Memory and links must outlive the stream.  delay_key: 0 for no delays.
  SimStream(const SimOptions& options, const HostMemory& memory, Links& links, uint64_t delay_key)
      : options_(options),
        memory_(memory),
        links_(links),
        delay_key_(delay_key),
        row_(Timeline::NewRow(Timeline::row().rank, "stream")),
        worker_([this] { Work(); }) {}

  ~SimStream() override {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    worker_.join();
  }

  DeviceKind kind() const override { return DeviceKind::kSim; }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    RETURN_IF_ERROR(memory_.CheckRange(to, bytes));
    RETURN_IF_ERROR(memory_.CheckRange(from, bytes));
    return Call([to, from, bytes, link = LinkOf(to, from)] {
      std::chrono::steady_clock::time_point end;
      if (link != nullptr) end = link->Take(bytes);
      if (bytes > 0) std::memcpy(to, from, bytes);
      if (link != nullptr) std::this_thread::sleep_until(end);
      return absl::OkStatus();
    });
  }

  absl::Status Record(Event& event) override {
    if (!capture_.active()) return Enqueue(nullptr, AsHostEvent(event).Renew());
    capture_.Record(AsHostEvent(event));
    return FirstError();
  }

  absl::Status Wait(const Event& event) override {
    RETURN_IF_ERROR(capture_.Wait(AsHostEvent(event)));
    std::shared_ptr<Completion> completion = AsHostEvent(event).latest();
    if (capture_.active() || completion == nullptr) return FirstError();
    return Enqueue([completion = std::move(completion)] { return completion->Wait(); });
  }

  absl::Status Call(std::function<absl::Status()> work) override {
    work = Timeline::Labelled(std::move(work));
    if (!capture_.active()) return Enqueue(std::move(work));
    capture_.Add(std::move(work));
    return FirstError();
  }

  absl::Status Synchronize() override {
    RETURN_IF_ERROR(capture_.Refuse("Synchronize"));
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.empty(); });
    return status_;
  }

  absl::Status BeginCapture() override { return capture_.Begin(); }
  absl::StatusOr<std::unique_ptr<Graph>> EndCapture() override { return capture_.End(); }

  void* native() const override { return nullptr; }

 private:
  // What a copy takes: null within the device or the host, or where copies are as fast as memcpy.
  Link* LinkOf(const void* to, const void* from) const {
    if (options_.copy_bytes_per_s == 0) return nullptr;
    const bool comes = memory_.IsDevice(to), leaves = memory_.IsDevice(from);
    if (comes == leaves) return nullptr;
    return comes ? &links_.to_device : &links_.to_host;
  }

  // Work is skipped after an error; a completion is always finished, with the first error.
  struct Task {
    std::function<absl::Status()> work;
    std::shared_ptr<Completion> passed;
  };

  absl::Status FirstError() {
    std::lock_guard lock(mutex_);
    return status_;
  }

  absl::Status Enqueue(std::function<absl::Status()> work,
                       std::shared_ptr<Completion> passed = nullptr) {
    std::lock_guard lock(mutex_);
    queue_.push_back({std::move(work), std::move(passed)});
    changed_.notify_all();
    return status_;
  }

  // The worker.  A task leaves the queue once it is done, so an empty queue means an idle stream.
  void Work() {
    omp_set_num_threads(options_.threads);
    Timeline::SetRow(row_);
    absl::Status status;
    for (uint64_t count = 0;; ++count) {
      Task task;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty()) return;
        task = std::move(queue_.front());
      }
      Delay(count);
      if (task.work != nullptr && status.ok()) status = task.work();
      if (task.passed != nullptr) task.passed->Finish(status);
      task = {};  // what the functor holds goes before the stream is seen idle
      std::lock_guard lock(mutex_);
      status_ = status;
      queue_.pop_front();
      changed_.notify_all();
    }
  }

  // Half of the tasks start at once: a race needs some streams to run ahead of others.
  void Delay(uint64_t count) const {
    if (delay_key_ == 0) return;
    const RandomBits bits = Philox(delay_key_, 0, count);
    if (bits.v[0] % 2 == 0) return;
    std::this_thread::sleep_for(std::chrono::microseconds(bits.v[1] % kMaxDelayMicroseconds));
  }

  const SimOptions options_;
  const HostMemory& memory_;
  Links& links_;
  const uint64_t delay_key_;
  const TimelineRow row_;       // of the rank whose thread made it
  HostCapture capture_{*this};  // the owning thread's
  std::mutex mutex_;            // of all below but the thread
  std::condition_variable changed_;
  std::deque<Task> queue_;
  bool stopping_ = false;
  absl::Status status_;
  std::thread worker_;  // last: it uses the others
};

class SimDevice : public Device {
 public:
  explicit SimDevice(const SimOptions& options)
      : options_(options), memory_(DeviceKind::kSim, options.capacity_bytes, kFreshMemory) {
    GYRE_CHECK(options.threads >= 1);
  }

  DeviceKind kind() const override { return DeviceKind::kSim; }

  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) override {
    return memory_.Allocate(kind, bytes);
  }

  void Free(MemoryKind kind, void* memory) override { memory_.Free(kind, memory); }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    // Each stream has delays of its own, the same in every run that makes the streams in this
    // order.
    const uint64_t stream = streams_++;
    const bool delays = options_.delay_seed != 0;
    const uint64_t delay_key = delays ? RandomKey(options_.delay_seed + stream, "sim stream") : 0;
    return std::make_unique<SimStream>(options_, memory_, links_, delay_key);
  }

  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    return std::make_unique<HostEvent>();
  }

  size_t capacity_bytes() const override { return memory_.capacity_bytes(); }

 private:
  const SimOptions options_;
  HostMemory memory_;
  Links links_{Link(options_.copy_bytes_per_s), Link(options_.copy_bytes_per_s)};
  std::atomic<uint64_t> streams_{0};
};

}  // namespace

std::unique_ptr<Device> NewSimDevice(const SimOptions& options) {
  return std::make_unique<SimDevice>(options);
}

}  // namespace gyre
