// device.h: bytes and order on one device.
//
// Work enqueued on one Stream runs in the order it was enqueued; work on two streams is ordered
// only by Record and Wait.  A Stream belongs to the thread that made it; Events may be polled
// anywhere. Errors of enqueued work surface at the next call on its stream and in Event::Done,
// because a device reports late.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "engine/runtime/tensor.h"

namespace gyre {

class Stream;

enum class DeviceKind : uint8_t { kCpu, kSim, kCuda };
enum class MemoryKind : uint8_t { kDevice, kPinnedHost };

class Event {
 public:
  virtual ~Event() = default;
  // True once the work before the last Record has finished (also if never recorded).
  // Errors: the first error of that work.  Any thread; never blocks.
  virtual absl::StatusOr<bool> Done() const = 0;
  // Blocks until it has.  Errors: as Done's.
  virtual absl::Status Synchronize() const = 0;
};

// Work captured from a stream, and from those that joined it, to be run again and again with the
// same arguments.  Its device, streams that joined, and all that the work touches, must outlive it
// and its replays.
class Graph {
 public:
  virtual ~Graph() = default;
  // Enqueues the work in place of the captured stream's on a stream of the same device: behind what
  // is there, and what comes after is behind all of it.  Errors: as of the calls that were
  // captured.
  virtual absl::Status Replay(Stream& stream) = 0;
};

// The device must outlive its streams.
class Stream {
 public:
  virtual ~Stream() = default;  // finishes what was enqueued
  virtual DeviceKind kind() const = 0;

  // Copies between any two of: device memory, pinned host memory, pageable host memory.  Both
  // ranges must stay valid until the stream has passed this point.  Errors: OutOfRange (sim) if a
  // range leaves the allocation it begins or ends in; nothing is enqueued then.
  virtual absl::Status Copy(void* to, const void* from, size_t bytes) = 0;
  // Makes this point of the stream the event's, in place of the one recorded before.
  virtual absl::Status Record(Event& event) = 0;
  // Later work waits for the point that the event has now; a later Record does not move it.  No
  // effect if never recorded.  An error of the work waited for becomes this stream's.
  virtual absl::Status Wait(const Event& event) = 0;
  // Enqueues host code that may touch this device's memory but no stream.  After the stream's first
  // error it is dropped without being run.  cpu and sim only.
  virtual absl::Status Call(std::function<absl::Status()> work) = 0;
  // Blocks the calling thread until everything enqueued has finished; returns its first error,
  // which stays: a stream does not recover.
  virtual absl::Status Synchronize() = 0;

  // Until EndCapture, Copy, Call, kernels, Record and Wait are written down instead of being
  // enqueued.  Another stream of the same thread joins by a Wait for an event recorded in the
  // capture, and is captured, too, until that ends.  Such an event is for the capture's streams
  // alone, and they wait for no other: FailedPrecondition, also of Done and Synchronize.
  // Synchronize is not for captured work: FailedPrecondition.  After any of these within the
  // capture EndCapture fails, too.
  virtual absl::Status BeginCapture() = 0;
  // Ends the capture, also after an error of captured work, on the stream where it began.  Errors:
  // FailedPrecondition unless that has waited for the last work of all that joined; Unimplemented
  // if the device cannot capture what was enqueued; the streams are then as they were before.
  virtual absl::StatusOr<std::unique_ptr<Graph>> EndCapture() = 0;
  virtual void* native() const = 0;  // cudaStream_t; null on cpu and sim
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // Whole arenas, at start only.  Alignment >= 4096.  Contents are unspecified (sim: a pattern of
  // NaNs).  bytes == 0 gives null.  All is freed before the device goes.  Errors: ResourceExhausted
  // with the bytes asked for, in use, and the capacity.
  virtual absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) = 0;
  virtual void Free(MemoryKind kind, void* memory) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
  // Bytes of device memory a plan may use.
  virtual size_t capacity_bytes() const = 0;
};

struct CpuOptions {
  int threads = 1;  // >= 1: OpenMP threads of each stream; part of the recorded choices
};

// Runs work at once on the calling thread, whose OpenMP thread count NewStream and all work set;
// errors are returned at once, and by every later call.  Device memory is host memory.
std::unique_ptr<Device> NewCpuDevice(const CpuOptions& options);

struct SimOptions {
  int threads = 1;
  size_t capacity_bytes = size_t{1} << 30;
  // Each way between host and device, of all streams together: one copy after the other.  0: as
  // fast as memcpy.
  double copy_bytes_per_s = 0;
  // Non-zero: each stream sleeps a random time (seeded by this) before each piece of work, so that
  // a forgotten Wait shows as wrong bits instead of passing by luck.
  uint64_t delay_seed = 0;
};

// A CPU that behaves like a GPU: bounded memory of its own, a worker thread a stream, events.  Host
// code that reaches into its device memory other than by Copy or Call is a bug; Copy checks that
// neither of its ranges leaves the allocation it lies in.
std::unique_ptr<Device> NewSimDevice(const SimOptions& options);

// "cpu", "sim" or "cuda".
std::string_view DeviceKindName(DeviceKind kind);
// The kind of a name.  Errors: InvalidArgument listing the choices.
absl::StatusOr<DeviceKind> ParseDeviceKind(std::string_view name);

}  // namespace gyre
