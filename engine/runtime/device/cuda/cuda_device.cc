// The cuda device: a thin layer over the CUDA runtime that checks every return code and keeps each
// stream's first error.  Nothing here makes a step wait: what blocks is Synchronize, and what takes
// or gives memory belongs to start and end.
//
// The runtime's calls work on the calling thread's current GPU, so each method sets it first.

#include "engine/runtime/device/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_calls.h"
#include "engine/runtime/device/cuda/cuda_host_calls.h"
#include "engine/runtime/device/cuda/cuda_probe.h"
#include "engine/runtime/device/stream_capture.h"

namespace gyre {
namespace {

constexpr size_t kAlignment = 4096;  // promised by Device::Allocate; CUDA promises 256

// Device memory that is not for plans, an upper estimate: cuBLASLt, cuDNN and NCCL load their code
// and make their own buffers only when they are first used, after a plan has taken what it wants.
constexpr size_t kReserveBytes = size_t{512} << 20;
// What a process takes by opening a GPU, an upper estimate too; only ranks that share one need it.
constexpr size_t kContextBytes = size_t{512} << 20;

class CudaEvent : public Event {
 public:
  CudaEvent(int gpu, cudaEvent_t event) : gpu_(gpu), event_(event) {}
  // A destructor has nobody to tell; an error of the GPU is every other call's as well.
  ~CudaEvent() override {
    (void)Select(gpu_);
    (void)cudaEventDestroy(event_);
    (void)cudaGetLastError();
  }

  absl::StatusOr<bool> Done() const override {
    RETURN_IF_ERROR(Ask("Done"));
    RETURN_IF_ERROR(Select(gpu_));
    const cudaError_t code = cudaEventQuery(event_);
    if (code == cudaErrorNotReady) {
      (void)cudaGetLastError();  // the runtime counts it as an error: see Error
      return false;
    }
    RETURN_IF_ERROR(Check(code, "cudaEventQuery"));
    RETURN_IF_ERROR(status());  // of host code
    return true;
  }

  absl::Status Synchronize() const override {
    RETURN_IF_ERROR(Ask("Synchronize"));
    RETURN_IF_ERROR(Select(gpu_));
    RETURN_IF_ERROR(Check(cudaEventSynchronize(event_), "cudaEventSynchronize"));
    return status();
  }

  cudaEvent_t native() const { return event_; }

  // Of the stream at the last Record: work that CUDA refused, and host code, leave no trace in
  // cudaEvent_t.
  absl::Status status() const {
    std::lock_guard lock(mutex_);
    return FirstOf(status_, host_errors_);
  }
  AllHostErrors host_errors() const {
    std::lock_guard lock(mutex_);
    return host_errors_;
  }
  CapturePoint captured() const {
    std::lock_guard lock(mutex_);
    return captured_;
  }
  void set_recorded(const absl::Status& status, const AllHostErrors& host_errors,
                    CapturePoint captured) {
    std::lock_guard lock(mutex_);
    status_ = status;
    host_errors_ = host_errors;
    captured_ = std::move(captured);
  }

 private:
  // CUDA knows of no point that a captured event could be asked about.
  absl::Status Ask(const char* call) const {
    std::lock_guard lock(mutex_);
    if (captured_.capture == nullptr) return FirstOf(status_, host_errors_);
    return absl::FailedPreconditionError(absl::StrCat(call, " of an event recorded in a capture"));
  }

  const int gpu_;
  const cudaEvent_t event_;
  mutable std::mutex mutex_;  // of all below: any thread may poll while the stream's records
  absl::Status status_;
  AllHostErrors host_errors_;
  CapturePoint captured_;
};

class CudaStream : public Stream {
 public:
  CudaStream(int gpu, cudaStream_t stream) : gpu_(gpu), stream_(stream) {}

  ~CudaStream() override {
    if (capture_.began()) (void)EndCapture();
    (void)Synchronize();
    (void)cudaStreamDestroy(stream_);  // Synchronize has selected the GPU
    (void)cudaGetLastError();
  }

  DeviceKind kind() const override { return DeviceKind::kCuda; }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    RETURN_IF_ERROR(First());
    if (bytes == 0) return absl::OkStatus();
    RETURN_IF_ERROR(Select(gpu_));
    if (capture_.active()) capture_.AddCall();
    const cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_);
    if (code == cudaSuccess) return absl::OkStatus();
    return Keep(Error(code, absl::StrCat("cudaMemcpyAsync of ", bytes, " bytes")));
  }

  absl::Status Record(Event& event) override {
    auto* cuda_event = dynamic_cast<CudaEvent*>(&event);
    GYRE_CHECK(cuda_event != nullptr);
    absl::Status status = First();
    if (status.ok()) status = Select(gpu_);
    if (status.ok()) {
      status = Check(cudaEventRecord(cuda_event->native(), stream_), "cudaEventRecord");
    }
    cuda_event->set_recorded(status, host_errors_, capture_.Here());
    return Keep(status);
  }

  absl::Status Wait(const Event& event) override {
    const auto* cuda_event = dynamic_cast<const CudaEvent*>(&event);
    GYRE_CHECK(cuda_event != nullptr);
    Merge(cuda_event->host_errors(), host_errors_);
    RETURN_IF_ERROR(First());
    RETURN_IF_ERROR(capture_.Wait(cuda_event->captured()));
    absl::Status status = cuda_event->status();
    if (status.ok()) status = Select(gpu_);
    if (status.ok()) {
      status = Check(cudaStreamWaitEvent(stream_, cuda_event->native(), 0), "cudaStreamWaitEvent");
    }
    return Keep(status);
  }

  absl::Status Call(std::function<absl::Status()>) override {
    return Keep(absl::UnimplementedError(
        "Stream::Call: host code cannot run on a GPU; what was called has no kernel"));
  }

  absl::Status CallOnHost(std::function<absl::Status()> work) override {
    RETURN_IF_ERROR(capture_.Refuse("CallOnHost"));
    RETURN_IF_ERROR(First());
    RETURN_IF_ERROR(Select(gpu_));
    if (called_ == nullptr) host_errors_.push_back(called_ = std::make_shared<HostErrors>());
    const cudaError_t code = HostCall::Launch(stream_, called_, std::move(work));
    return status_ = Check(code, "cudaLaunchHostFunc");
  }

  absl::Status Synchronize() override {
    RETURN_IF_ERROR(capture_.Refuse("Synchronize"));
    absl::Status now = Select(gpu_);
    if (now.ok()) now = Check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
    if (status_.ok()) status_ = now;
    return First();
  }

  absl::Status BeginCapture() override {
    RETURN_IF_ERROR(capture_.Refuse("BeginCapture"));
    RETURN_IF_ERROR(First());
    RETURN_IF_ERROR(Select(gpu_));
    // Other threads, such as the one that decodes batches, go on using the GPU meanwhile.
    RETURN_IF_ERROR(Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                          "cudaStreamBeginCapture"));
    return capture_.Begin(std::make_shared<Capture>());
  }

  absl::StatusOr<std::unique_ptr<Graph>> EndCapture() override;

  absl::Status Replay(cudaGraphExec_t graph) {
    RETURN_IF_ERROR(First());
    RETURN_IF_ERROR(Select(gpu_));
    return Keep(Check(cudaGraphLaunch(graph, stream_), "cudaGraphLaunch"));
  }

  // Kernels are launched on the calling thread's GPU, hence Select; if it fails, so do they.
  void* native() const override {
    if (capture_.active()) capture_.AddCall();
    (void)Select(gpu_);
    return stream_;
  }

  int gpu() const { return gpu_; }

 private:
  // The first error there is, as far as that is known.
  const absl::Status& First() { return status_ = FirstOf(status_, host_errors_); }

  // An error of captured work spoils the capture alone.
  absl::Status Keep(absl::Status status) {
    if (capture_.active()) return capture_.Keep(std::move(status));
    status_.Update(status);
    return status;
  }

  const int gpu_;
  const cudaStream_t stream_;
  absl::Status status_;                 // the first error
  std::shared_ptr<HostErrors> called_;  // of CallOnHost; null before
  AllHostErrors host_errors_;
  StreamCapture capture_;
};

class CudaGraph : public Graph {
 public:
  CudaGraph(int gpu, cudaGraphExec_t graph, size_t nodes)
      : gpu_(gpu), graph_(graph), nodes_(nodes) {}
  ~CudaGraph() override {
    (void)Select(gpu_);
    (void)cudaGraphExecDestroy(graph_);
    (void)cudaGetLastError();
  }

  absl::Status Replay(Stream& stream) override {
    auto* cuda_stream = dynamic_cast<CudaStream*>(&stream);
    GYRE_CHECK(cuda_stream != nullptr && cuda_stream->gpu() == gpu_);
    return cuda_stream->Replay(graph_);
  }

  size_t nodes() const override { return nodes_; }

 private:
  const int gpu_;
  const cudaGraphExec_t graph_;
  const size_t nodes_;
};

absl::StatusOr<std::unique_ptr<Graph>> CudaStream::EndCapture() {
  const bool began = capture_.began();
  absl::Status status = capture_.End();
  if (!began) return status;
  RETURN_IF_ERROR(Select(gpu_));
  cudaGraph_t captured = nullptr;  // stays null if the capture was spoilt
  const absl::Status ended =
      Check(cudaStreamEndCapture(stream_, &captured), "cudaStreamEndCapture");
  if (status.ok()) status = ended;
  cudaGraphExec_t graph = nullptr;
  size_t nodes = 0;
  if (status.ok()) {
    status = Check(cudaGraphGetNodes(captured, nullptr, &nodes), "cudaGraphGetNodes");
  }
  if (status.ok())
    status = Check(cudaGraphInstantiate(&graph, captured, 0), "cudaGraphInstantiate");
  if (captured != nullptr) {
    const absl::Status destroyed = Check(cudaGraphDestroy(captured), "cudaGraphDestroy");
    if (status.ok()) status = destroyed;
  }
  std::unique_ptr<Graph> owned;
  if (graph != nullptr) owned = std::make_unique<CudaGraph>(gpu_, graph, nodes);
  RETURN_IF_ERROR(status);
  return owned;
}

class CudaDevice : public Device {
 public:
  CudaDevice(int gpu, size_t capacity_bytes, std::string description)
      : gpu_(gpu), capacity_bytes_(capacity_bytes), description_(std::move(description)) {}
  ~CudaDevice() override { GYRE_CHECK(allocations_.empty()); }

  DeviceKind kind() const override { return DeviceKind::kCuda; }

  // Every allocation is one of CUDA's: a run makes a few dozen at its start and keeps them, so a
  // cache would have nothing to do.
  absl::StatusOr<void*> Allocate(MemoryKind kind, size_t bytes) override {
    if (bytes == 0) return nullptr;
    RETURN_IF_ERROR(Select(gpu_));
    std::lock_guard lock(mutex_);
    const bool on_device = kind == MemoryKind::kDevice;
    if (on_device && bytes > capacity_bytes_ - in_use_bytes_) {
      return absl::ResourceExhaustedError(OutOfMemory(bytes));
    }
    const size_t padded = bytes + std::min(kAlignment, std::numeric_limits<size_t>::max() - bytes);
    void* base = nullptr;
    const cudaError_t code =
        on_device ? cudaMalloc(&base, padded) : cudaHostAlloc(&base, padded, cudaHostAllocDefault);
    if (code != cudaSuccess) {
      const std::string call =
          absl::StrCat(on_device ? "cudaMalloc" : "cudaHostAlloc", " of ", padded, " bytes");
      return Annotate(Error(code, call), on_device ? OutOfMemory(bytes) : "cuda");
    }
    const auto address = reinterpret_cast<uintptr_t>(base);
    void* const data =
        static_cast<std::byte*>(base) + ((kAlignment - address % kAlignment) % kAlignment);
    allocations_[data] = {base, bytes, kind};
    if (on_device) in_use_bytes_ += bytes;
    return data;
  }

  // As in a destructor, an error of the GPU is every other call's as well.
  void Free(MemoryKind kind, void* memory) override {
    if (memory == nullptr) return;
    (void)Select(gpu_);
    std::lock_guard lock(mutex_);
    const auto allocation = allocations_.find(memory);
    GYRE_CHECK(allocation != allocations_.end() && allocation->second.kind == kind);
    if (kind == MemoryKind::kDevice) {
      in_use_bytes_ -= allocation->second.bytes;
      (void)cudaFree(allocation->second.base);
    } else {
      (void)cudaFreeHost(allocation->second.base);
    }
    (void)cudaGetLastError();
    allocations_.erase(allocation);
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    RETURN_IF_ERROR(Select(gpu_));
    cudaStream_t stream = nullptr;
    RETURN_IF_ERROR(Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                          "cudaStreamCreateWithFlags"));
    return std::make_unique<CudaStream>(gpu_, stream);
  }

  // A thread that waits for an event sleeps: the cores have batches to decode.
  absl::StatusOr<std::unique_ptr<Event>> NewEvent() override {
    RETURN_IF_ERROR(Select(gpu_));
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(
        Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
              "cudaEventCreateWithFlags"));
    return std::make_unique<CudaEvent>(gpu_, event);
  }

  size_t capacity_bytes() const override { return capacity_bytes_; }
  std::string description() const override { return description_; }

 private:
  struct CudaAllocation {
    void* base;  // what CUDA gave
    size_t bytes;
    MemoryKind kind;
  };

  std::string OutOfMemory(size_t bytes) const {
    return absl::StrFormat(
        "cuda: out of device memory: %d bytes asked for, %d in use, capacity %d bytes", bytes,
        in_use_bytes_, capacity_bytes_);
  }

  const int gpu_;
  const size_t capacity_bytes_;
  const std::string description_;
  std::mutex mutex_;  // of all below
  std::map<void*, CudaAllocation> allocations_;
  size_t in_use_bytes_ = 0;  // of device memory
};

// CUDA's way to write a version: 12040 is 12.4.
std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

absl::Status Unavailable(const absl::Status& why, std::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("cuda: ", std::string(what), ": ", std::string(why.message())));
}

// How many GPUs there are: at least one.
absl::StatusOr<int> CountGpus(int driver, int runtime) {
  int gpus = 0;
  const cudaError_t code = cudaGetDeviceCount(&gpus);
  (void)cudaGetLastError();
  if (code == cudaErrorInsufficientDriver && driver == 0) {
    return absl::UnavailableError(
        absl::StrCat("cuda: no NVIDIA driver found (libcuda.so.1); this build needs one for CUDA ",
                     Version(runtime), " or newer; use --device=cpu where there is no GPU"));
  }
  if (code == cudaErrorInsufficientDriver) {
    return absl::UnavailableError(absl::StrCat("cuda: the NVIDIA driver is for CUDA ",
                                               Version(driver), ", but this build needs one for ",
                                               Version(runtime), " or newer"));
  }
  if (code == cudaErrorNoDevice || (code == cudaSuccess && gpus == 0)) {
    return absl::UnavailableError(
        "cuda: the driver sees no GPU; look at nvidia-smi and CUDA_VISIBLE_DEVICES");
  }
  if (code != cudaSuccess) {
    return Unavailable(Error(code, "cudaGetDeviceCount"), "the driver does not answer");
  }
  return gpus;
}

// The other GPUs whose memory this one can reach without the host: ", peers 1 2"; "" if none.
absl::StatusOr<std::string> Peers(int gpu, int gpus) {
  std::string peers;
  for (int other = 0; other < gpus; ++other) {
    int reaches = 0;
    if (other == gpu) continue;
    RETURN_IF_ERROR(
        Check(cudaDeviceCanAccessPeer(&reaches, gpu, other), "cudaDeviceCanAccessPeer"));
    if (reaches != 0) absl::StrAppend(&peers, peers.empty() ? ", peers " : " ", other);
  }
  return peers;
}

// An only rank takes what is free.  Ranks that share a GPU start at the same time and would see
// each other's memory or not, so theirs is a part of the whole.
absl::StatusOr<size_t> Capacity(int ranks_on_gpu) {
  size_t free = 0, total = 0;
  RETURN_IF_ERROR(Check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  const size_t share = ranks_on_gpu == 1 ? free : total / static_cast<size_t>(ranks_on_gpu);
  const size_t others = kReserveBytes + (ranks_on_gpu == 1 ? 0 : kContextBytes);
  return share - std::min(share, others);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> NewCudaDevice(const CudaOptions& options) {
  GYRE_CHECK(options.local_rank >= 0 && options.local_rank < options.local_ranks);
  int driver = 0, runtime = 0;
  RETURN_IF_ERROR(Check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion"));
  RETURN_IF_ERROR(Check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion"));
  ASSIGN_OR_RETURN(const int gpus, CountGpus(driver, runtime));
  const int gpu = options.local_rank % gpus;
  cudaDeviceProp properties;
  RETURN_IF_ERROR(Check(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties"));
  const std::string name = absl::StrFormat("GPU %d of %d, %s, compute capability %d.%d", gpu, gpus,
                                           properties.name, properties.major, properties.minor);
  const int oldest = OldestComputeCapability();
  if (properties.major * 10 + properties.minor < oldest) {
    return absl::UnavailableError(
        absl::StrFormat("cuda: %s, is too old: this build has kernels for %d.%d and newer", name,
                        oldest / 10, oldest % 10));
  }
  // Creates the context: a GPU that is in use exclusively, or in a bad state, refuses.
  if (const absl::Status status = Check(cudaSetDevice(gpu), "cudaSetDevice"); !status.ok()) {
    return Unavailable(status, absl::StrCat(name, ", cannot be opened"));
  }
  if (const absl::Status status = Check(LoadProbe(), "cudaFuncGetAttributes"); !status.ok()) {
    return Unavailable(status, absl::StrCat(name, ", with a driver for CUDA ", Version(driver),
                                            ", cannot load this build's kernels"));
  }
  const int ranks_on_gpu = (options.local_ranks - gpu + gpus - 1) / gpus;
  size_t capacity = options.capacity_bytes;
  if (capacity == 0) {
    ASSIGN_OR_RETURN(capacity, Capacity(ranks_on_gpu));
  }
  ASSIGN_OR_RETURN(const std::string peers, Peers(gpu, gpus));
  return std::make_unique<CudaDevice>(
      gpu, capacity,
      absl::StrCat(name, peers, ", driver for CUDA ", Version(driver), ", runtime ",
                   Version(runtime)));
}

}  // namespace gyre
