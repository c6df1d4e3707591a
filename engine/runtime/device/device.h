// device.h: the memory, streams and events of one device.
//
// Work on one Stream runs in the order of the calls.  Only Record and Wait order work on two
// streams.  A Stream belongs to one thread.  Any thread may poll an Event.  A device reports late,
// so errors of enqueued work surface at the next call on its stream and in Event::Done.  A GPU's
// refusal to launch a kernel is returned by that launch alone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/runtime/tensor.h"

namespace gyre {

class Stream;

enum class DeviceKind : uint8_t { kCpu, kSim, kCuda };
enum class MemoryKind : uint8_t { kDevice, kPinnedHost };

class Event {
 public:
  virtual ~Event() = default;
  // Returns true once the work before the last Record has finished, or if there was no Record.
  // Never blocks.  Any thread.  Errors: the first error of that work.
  virtual absl::StatusOr<bool> Done() const = 0;
  // Blocks until Done is true.  Errors: as of Done.
  virtual absl::Status Synchronize() const = 0;
};

// Work captured from one or more streams, to be replayed with the same arguments.  Its device, the
// streams that joined (Stream::BeginCapture), and all memory that it touches must outlive it and
// its replays.
class Graph {
 public:
  virtual ~Graph() = default;
  // Enqueues the work on `stream`, of the same device, in place of the captured stream.  It runs
  // after earlier and before later work of `stream`.  Errors: those of the captured calls.
  virtual absl::Status Replay(Stream& stream) = 0;
  // The number of nodes (kernels, copies, a library's own) of a GPU's graph, else 0.
  virtual size_t nodes() const { return 0; }
};

// The device must outlive its streams.
class Stream {
 public:
  virtual ~Stream() = default;  // finishes what was enqueued
  virtual DeviceKind kind() const = 0;

  // Copies between any two of device memory, pinned host memory and pageable host memory.  Both
  // ranges must stay valid until the stream has passed this point.  On cuda a copy of pageable
  // memory may block.  Errors: OutOfRange (sim) if a
  // range leaves the allocation it begins or ends in.  Nothing is enqueued then.
  virtual absl::Status Copy(void* to, const void* from, size_t bytes) = 0;
  // Sets the event's point to this point of the stream.  Precondition, as of Wait: an event of this
  // stream's device.
  virtual absl::Status Record(Event& event) = 0;
  // Later work waits for the point that the event has now.  A later Record does not move it.
  // Without a Record there is no effect.  An error of the awaited work becomes this stream's.
  virtual absl::Status Wait(const Event& event) = 0;
  // Enqueues host code that may touch this device's memory but no stream.  It is dropped, without
  // being run, after the stream's first error.  On cuda returns Unimplemented, which becomes the
  // stream's error.
  virtual absl::Status Call(std::function<absl::Status()> work) = 0;
  // As Call, on every device, for host code that touches host memory alone, pinned or not, and
  // calls no device.  On cuda later calls return its errors, and a capture refuses it.
  virtual absl::Status CallOnHost(std::function<absl::Status()> work) {
    return Call(std::move(work));
  }
  // Blocks until everything enqueued has finished.  Returns the first error, which stays.
  virtual absl::Status Synchronize() = 0;

  // Starts a capture.  Until EndCapture, Copy, Call, kernels, Record and Wait are stored instead of
  // enqueued.  Another stream of the thread joins, until the end, by a Wait for an event recorded
  // in the capture.  Errors: FailedPrecondition for these calls.
  //   captured streams  Synchronize, BeginCapture, Wait for an event from outside
  //   captured events   Done, Synchronize, and Wait after the end
  // A call refused on a captured stream also fails EndCapture.
  virtual absl::Status BeginCapture() = 0;
  // Ends the capture, also after an error of captured work, which is then not the streams' error.
  // Errors: FailedPrecondition unless this stream began the capture and has waited for the last
  // work of all that joined.  Unimplemented if the device cannot capture the work.
  virtual absl::StatusOr<std::unique_ptr<Graph>> EndCapture() = 0;
  // The cudaStream_t on which a kernel or a library's work is launched, null on cpu and sim.  On
  // cuda the call makes the stream's GPU the thread's, and counts as a captured call.
  virtual void* native() const = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceKind kind() const = 0;
  // Allocates a whole arena, at start only, with an alignment of 4096 or more.  Contents are
  // unspecified (sim: NaNs).  bytes == 0 gives null.  All memory must be freed before the device is
  // destroyed.  Errors: ResourceExhausted with the bytes asked for.  Beyond the capacity of device
  // memory it also names the bytes in use and the capacity.
  virtual absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) = 0;
  virtual void Free(MemoryKind kind, void* memory) = 0;
  virtual absl::StatusOr<std::unique_ptr<Stream>> NewStream() = 0;
  virtual absl::StatusOr<std::unique_ptr<Event>> NewEvent() = 0;
  // Bytes of device memory that a plan may use.
  virtual size_t capacity_bytes() const = 0;
  // One line for logs and benchmark tables, of a GPU alone.  It has the GPU, its compute
  // capability, the GPUs whose memory it reaches without the host, and the CUDA versions of driver
  // and runtime.
  virtual std::string description() const { return ""; }
};

struct CpuOptions {
  int threads = 1;  // >= 1, OpenMP threads of each stream, one of the recorded choices
};

// Runs work at once, on the calling thread.  NewStream and all work set its OpenMP thread count.
// Errors are returned at once, and by every later call.  Device memory is host memory.
std::unique_ptr<Device> NewCpuDevice(const CpuOptions& options);

struct SimOptions {
  int threads = 1;
  size_t capacity_bytes = size_t{1} << 30;
  // Rate of each direction between host and device, shared by all streams.  Copies of one direction
  // run one after another.  0 is as fast as memcpy.
  double copy_bytes_per_s = 0;
  // Non-zero values seed random sleeps of each stream before about half of its work.  A forgotten
  // Wait then shows as wrong bits instead of passing by luck.
  uint64_t delay_seed = 0;
};

// A CPU that behaves as a GPU does, with bounded memory of its own, a worker thread for each
// stream, and events.  Host code may reach its memory by Copy and Call alone.  Copy checks its
// ranges.
std::unique_ptr<Device> NewSimDevice(const SimOptions& options);

// "cpu", "sim" or "cuda".
std::string_view DeviceKindName(DeviceKind kind);
// Errors: InvalidArgument listing the choices.
absl::StatusOr<DeviceKind> ParseDeviceKind(std::string_view name);

}  // namespace gyre
