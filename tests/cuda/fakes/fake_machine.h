// fake_machine.h: the inside of the fake CUDA runtime: the machine that fake_cudart.cc's functions
// act on.  Work waits in its stream's queue until something asks for it to have been done.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/fakes/fake_cudart.h"
#include "tests/cuda/fakes/fake_memory.h"

namespace gyre::fake_cudart {

// A point in a stream, as an event holds it.
struct Point {
  CUstream_st* stream;
  bool passed = false;
  int64_t worked = 0;  // kernels that the stream had done by then
};

struct Op {
  // kHost: of the host.  kJoin: nothing, where a stream joins.
  enum Kind { kCopy, kWork, kHost, kRecord, kWait, kJoin } kind;
  void* to = nullptr;  // kCopy
  const void* from = nullptr;
  size_t bytes = 0;
  std::shared_ptr<Point> point = nullptr;  // kRecord: passes it; kWait: waits for it
  Launch launch = {};                      // kWork
  std::function<void()> work = nullptr;    // kHost; kWork: what it does, if the fake can
};

// Work of a graph, and which nodes before it must be over when it begins.
struct Node {
  Op op;
  std::set<size_t> after = {};
};

// Work that is being written down, on the stream where it began and those that joined it.
struct Capture {
  CUstream_st* origin;
  std::thread::id thread;
  cudaStreamCaptureMode mode;
  std::vector<CUstream_st*> forks = {};
  std::vector<Node> nodes = {};
  bool broken = false, ended = false;
};

}  // namespace gyre::fake_cudart

// What CUDA's handles point to.
struct CUstream_st {
  int gpu;
  std::deque<gyre::fake_cudart::Op> queue = {};
  int64_t worked = 0;  // kernels done
  std::shared_ptr<gyre::fake_cudart::Capture> capture = nullptr;
  std::set<size_t> last = {};  // nodes of the capture that its next one comes after
};
struct CUevent_st {
  int gpu;
  std::shared_ptr<gyre::fake_cudart::Point> point = nullptr;  // null: never recorded
  std::shared_ptr<gyre::fake_cudart::Capture> capture = nullptr;
  std::set<size_t> last = {};  // the captured stream's, at the record
};
struct CUgraph_st {
  std::vector<gyre::fake_cudart::Node> nodes;
};
struct CUgraphExec_st {
  int gpu;
  std::vector<gyre::fake_cudart::Op> work;  // in an order that nodes allow
};
struct CUkern_st {
  std::string name;
};

namespace gyre::fake_cudart {

// Everything; all under `mutex`, which callers hold.
class State {
 public:
  static State& Get();  // lives for ever: kernels are registered before main

  // Counts the call.  Errors: what FailCall asked for.
  cudaError_t Enter(const std::string& function);
  // What spoils the calling thread's capture.  Errors: cudaErrorStreamCaptureUnsupported.
  cudaError_t RefuseInCapture();
  cudaError_t Break(Capture& capture, cudaError_t error);

  // The stream is alive and of the calling thread's GPU.
  cudaError_t CheckStream(cudaStream_t stream) const;
  // Enqueues, or writes down.
  cudaError_t Add(cudaStream_t stream, Op op);
  cudaError_t Copy(cudaStream_t stream, void* to, const void* from, size_t bytes);
  cudaError_t LaunchKernel(cudaStream_t stream, Launch launch,
                           std::function<void()> work = nullptr);
  cudaError_t Record(cudaEvent_t event, cudaStream_t stream);
  cudaError_t Wait(cudaStream_t stream, cudaEvent_t event);
  cudaError_t BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
  cudaError_t EndCapture(cudaStream_t stream, cudaGraph_t* graph);

  void RunOne(CUstream_st& stream);
  void RunAll(CUstream_st& stream);
  void RunAll();
  // The error of an event that cannot be asked about, because it is part of a capture.
  cudaError_t CheckEvent(cudaEvent_t event);

  std::recursive_mutex mutex;  // work asks for views of memory
  Machine machine;
  FakeMemory device{/*host_access=*/false}, pinned{/*host_access=*/true};
  std::set<cudaStream_t> streams;
  std::vector<cudaStream_t> destroyed_streams;  // they may have work left
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> executables;

  std::map<std::string, int> calls;
  std::vector<Launch> launches;
  std::map<std::string, std::pair<int, cudaError_t>> failing_calls;  // how many calls from now
  int failing_work = 0;                                              // how many from now; 0: none
  cudaError_t failing_work_error = cudaSuccess;
  cudaError_t lost = cudaSuccess;  // the error of the context, which stays

  std::map<const void*, CUkern_st*> kernels;  // by the host function that stands for them
  std::vector<std::unique_ptr<Module>> modules;

 private:
  // Where the fake can touch the byte.
  void* Reach(const void* data) const;
  void Do(const Op& op);

  std::vector<std::shared_ptr<Capture>> captures_;  // going on
};

// The fake machine's state, locked while this object lives.
struct Locked {
  State* operator->() const { return &state; }
  State& state = State::Get();
  std::lock_guard<std::recursive_mutex> lock{state.mutex};
};

// The calling thread's.
extern thread_local int current_gpu;
extern thread_local cudaError_t last_error;
extern thread_local bool in_host_function;

// What a launch of the graph does, in an order that its nodes allow: of those that may be next the
// one written down last, so that a wait that is missing shows.
std::vector<Op> LateOrder(const std::vector<Node>& nodes);

enum class Needs { kNothing, kGpu };

// Every function of the runtime: under the lock, counted, failing where a test wants it to.
template <typename Body>
cudaError_t Api(const char* function, Body body, Needs needs = Needs::kGpu) {
  const Locked locked;
  cudaError_t error = in_host_function ? cudaErrorNotPermitted : locked->Enter(function);
  if (error == cudaSuccess && needs == Needs::kGpu) {
    // Any driver for CUDA x.y runs all of x.
    if (locked->machine.driver_version / 1000 < CUDART_VERSION / 1000) {
      error = cudaErrorInsufficientDriver;
    } else if (locked->machine.gpus.empty()) {
      error = cudaErrorNoDevice;
    } else {
      error = locked->lost;
    }
  }
  if (error == cudaSuccess) error = body(locked.state);
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace gyre::fake_cudart
