// The cpu device: work runs at once on the calling thread, so a stream keeps nothing but its first
// error, and an event is done when recorded.

#include <omp.h>

#include <cstring>
#include <optional>
#include <utility>

#include "engine/runtime/device/device.h"
#include "engine/runtime/device/host/host_capture.h"
#include "engine/runtime/device/host/host_event.h"
#include "engine/runtime/device/host/host_memory.h"
#include "engine/runtime/machine.h"
#include "engine/runtime/timeline.h"

namespace gyre {
namespace {

// Beyond caches one core does not fill the memory's bus.
constexpr size_t kTeamBytes = size_t{4} << 20;

void CopyOnTeam(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes == 0) return;
  if (bytes < kTeamBytes) {
    std::memcpy(to, from, bytes);
    return;
  }
#pragma omp parallel
  {
    const size_t threads = static_cast<size_t>(omp_get_num_threads());
    const size_t thread = static_cast<size_t>(omp_get_thread_num());
    const size_t begin = bytes / threads * thread;
    const size_t end = thread + 1 == threads ? bytes : begin + bytes / threads;
    std::memcpy(to + begin, from + begin, end - begin);
  }
}

class CpuStream : public Stream {
 public:
  explicit CpuStream(int threads) : threads_(threads) { SetThreads(); }

  DeviceKind kind() const override { return DeviceKind::kCpu; }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    const auto copy = [to, from, bytes] {
      CopyOnTeam(static_cast<std::byte*>(to), static_cast<const std::byte*>(from), bytes);
      return absl::OkStatus();
    };
    if (capture_.active() || Timeline::on()) return Call(copy);
    if (!status_.ok()) return status_;
    SetThreads();
    return copy();  // without a std::function, which would allocate
  }

  absl::Status Record(Event& event) override {
    if (capture_.active()) {
      capture_.Record(AsHostEvent(event));
    } else {
      AsHostEvent(event).Renew()->Finish(status_);
    }
    return status_;
  }

  absl::Status Wait(const Event& event) override {
    RETURN_IF_ERROR(capture_.Wait(AsHostEvent(event)));
    if (capture_.active()) return status_;
    const std::shared_ptr<Completion> completion = AsHostEvent(event).latest();
    if (status_.ok() && completion != nullptr) status_ = completion->Wait();
    return status_;
  }

  absl::Status Call(std::function<absl::Status()> work) override {
    work = Timeline::Labelled(std::move(work));
    if (capture_.active()) {
      capture_.Add(std::move(work));
    } else if (status_.ok()) {
      SetThreads();
      status_ = work();
    }
    return status_;
  }

  absl::Status Synchronize() override {
    RETURN_IF_ERROR(capture_.Refuse("Synchronize"));
    return status_;
  }

  absl::Status BeginCapture() override { return capture_.Begin(); }
  absl::StatusOr<std::unique_ptr<Graph>> EndCapture() override { return capture_.End(); }
  void* native() const override { return nullptr; }

 private:
  // Of the calling thread, for the work that it is about to run: another may have made the stream.
  void SetThreads() const { omp_set_num_threads(threads_); }

  const int threads_;
  absl::Status status_;
  HostCapture capture_{*this};
};

class CpuDevice : public Device {
 public:
  explicit CpuDevice(const CpuOptions& options)
      : options_(options), memory_(DeviceKind::kCpu, MemoryBytes(), std::nullopt) {
    GYRE_CHECK(options.threads >= 1);
  }

  DeviceKind kind() const override { return DeviceKind::kCpu; }

  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) override {
    return memory_.Allocate(kind, bytes);
  }

  void Free(MemoryKind kind, void* memory) override { memory_.Free(kind, memory); }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    return std::make_unique<CpuStream>(options_.threads);
  }

  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    return std::make_unique<HostEvent>();
  }

  size_t capacity_bytes() const override { return memory_.capacity_bytes(); }

 private:
  const CpuOptions options_;
  HostMemory memory_;
};

}  // namespace

std::unique_ptr<Device> NewCpuDevice(const CpuOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace gyre
