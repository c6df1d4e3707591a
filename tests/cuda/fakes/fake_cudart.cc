// The CUDA runtime's functions that Gyre calls, and those that nvcc's output calls, on a machine
// that is not there.  libcudart_static.a is one object file: a function that is missing here brings
// it in, and the linker then finds the others defined twice.

#include "tests/cuda/fakes/fake_cudart.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <utility>

#include "engine/runtime/check.h"
#include "tests/cuda/fakes/fake_machine.h"

namespace gyre::fake_cudart {
namespace {

// What makes the caller wait for the device, or takes or gives memory.
constexpr const char* kWaiting[] = {"cudaEventSynchronize",  "cudaFree",      "cudaFreeHost",
                                    "cudaGraphInstantiate",  "cudaHostAlloc", "cudaMalloc",
                                    "cudaStreamSynchronize", "pageable copy"};

struct ErrorText {
  cudaError_t code;
  const char *name, *text;
};
#define ERROR_TEXT(code, text) \
  { code, #code, text }
constexpr ErrorText kErrors[] = {
    ERROR_TEXT(cudaSuccess, "no error"),
    ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_TEXT(cudaErrorInitializationError, "initialization error"),
    ERROR_TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR_TEXT(cudaErrorInsufficientDriver,
               "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR_TEXT(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR_TEXT(cudaErrorInvalidDeviceFunction, "invalid device function"),
    ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_TEXT(cudaErrorNoKernelImageForDevice,
               "no kernel image is available for execution on the device"),
    ERROR_TEXT(cudaErrorUnsupportedPtxVersion,
               "the provided PTX was compiled with an unsupported toolchain."),
    ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    ERROR_TEXT(cudaErrorNotPermitted, "operation not permitted"),
    ERROR_TEXT(cudaErrorNotSupported, "operation not supported"),
    ERROR_TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR_TEXT(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    ERROR_TEXT(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    ERROR_TEXT(cudaErrorStreamCaptureMerge,
               "operation would result in a merge of separate capture sequences"),
    ERROR_TEXT(cudaErrorStreamCaptureUnmatched,
               "capture was not ended in the same stream as it began"),
    ERROR_TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR_TEXT(cudaErrorStreamCaptureIsolation,
               "dependency created on uncaptured work in another stream"),
    ERROR_TEXT(cudaErrorCapturedEvent,
               "operation not permitted on an event last recorded in a capturing stream"),
    ERROR_TEXT(cudaErrorStreamCaptureWrongThread,
               "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef ERROR_TEXT

const ErrorText& TextOf(cudaError_t code) {
  const auto* const text = std::find_if(std::begin(kErrors), std::end(kErrors),
                                        [code](const ErrorText& e) { return e.code == code; });
  GYRE_CHECK(text != std::end(kErrors));
  return *text;
}

// Destroying works after the context is lost, though it returns the context's error.
template <typename Handle>
cudaError_t Destroy(const char* function, std::set<Handle> State::*alive, Handle handle) {
  const Locked locked;
  cudaError_t error = locked->Enter(function);
  // Never deleted, so that no other handle gets this one's address.
  const bool known = (locked.state.*alive).erase(handle) > 0;
  if (error == cudaSuccess) error = known ? locked->lost : cudaErrorInvalidResourceHandle;
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t Allocate(State& state, FakeMemory& memory, void** data, size_t bytes) {
  if (const cudaError_t error = state.RefuseInCapture()) return error;
  const size_t most = state.machine.gpus[static_cast<size_t>(current_gpu)].memory_bytes;
  if (bytes > most || memory.in_use_bytes(current_gpu) > most - bytes) {
    return cudaErrorMemoryAllocation;
  }
  *data = memory.Allocate(bytes, current_gpu);
  return cudaSuccess;
}

cudaError_t Free(const char* function, FakeMemory State::*memory, void* data) {
  const Locked locked;
  cudaError_t error = locked->Enter(function);
  if (error == cudaSuccess) error = locked->RefuseInCapture();
  locked->RunAll();  // the real one waits for the device, too
  const int gpu = (locked.state.*memory).GpuOf(data);
  if (gpu < 0) {
    if (error == cudaSuccess) error = cudaErrorInvalidValue;
  } else if (gpu != current_gpu) {
    // The real runtime frees any GPU's memory, but opens the thread's current GPU to do so.
    error = cudaErrorInvalidDevice;
  } else {
    (locked.state.*memory).Free(data);
    if (error == cudaSuccess) error = locked->lost;
  }
  if (error != cudaSuccess) last_error = error;
  return error;
}

}  // namespace

void Boot(const Machine& machine) {
  GYRE_CHECK(Alive() == 0);
  const Locked state;
  state->machine = machine;
  state->calls.clear();
  state->launches.clear();
  state->destroyed_streams.clear();
  state->failing_calls.clear();
  state->failing_work = 0;
  state->lost = cudaSuccess;
  last_error = cudaSuccess;
}

int Alive() {
  const Locked state;
  return static_cast<int>(state->streams.size() + state->events.size() + state->graphs.size() +
                          state->executables.size()) +
         state->device.allocations() + state->pinned.allocations();
}

void FailCall(const std::string& function, int error, int nth) {
  Locked()->failing_calls[function] = {nth, static_cast<cudaError_t>(error)};
}

void FailWork(int error, int nth) {
  const Locked state;
  state->failing_work = nth;
  state->failing_work_error = static_cast<cudaError_t>(error);
}

int Calls(std::string_view function) {
  const Locked state;
  const auto calls = state->calls.find(std::string(function));
  return calls == state->calls.end() ? 0 : calls->second;
}

std::string WaitingCalls() {
  std::string text;
  for (const char* function : kWaiting) {
    const int calls = Calls(function);
    if (calls == 0) continue;
    text += (text.empty() ? "" : ", ") + std::string(function) + " " + std::to_string(calls);
  }
  return text;
}

void ForgetCalls() {
  const Locked state;
  state->calls.clear();
  state->launches.clear();
}

int LastError() { return last_error; }

std::vector<Launch> Launches() { return Locked()->launches; }

int CurrentGpu() { return current_gpu; }

int Enqueue(void* stream, const std::string& name, std::function<void()> work) {
  return Api("library call", [&](State& state) {
    return state.LaunchKernel(static_cast<cudaStream_t>(stream),
                              {.kernel = name, .grid = {1, 1, 1}, .block = {1, 1, 1}},
                              std::move(work));
  });
}

bool IsDeviceMemory(const void* data, size_t bytes) {
  return Locked()->device.Contains(data, bytes);
}

void* HostView(const void* device) { return Locked()->device.View(device); }

}  // namespace gyre::fake_cudart

using namespace gyre::fake_cudart;

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return TextOf(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return TextOf(error).text; }

cudaError_t cudaGetLastError() {
  return std::exchange(last_error, State::Get().lost);  // a lost context's error stays
}

// --- Machine -------------------------------------------------------------------------------------

cudaError_t cudaDriverGetVersion(int* version) {
  return Api(
      "cudaDriverGetVersion",
      [&](State& state) {
        *version = state.machine.driver_version;
        return cudaSuccess;
      },
      Needs::kNothing);
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return Api(
      "cudaRuntimeGetVersion",
      [&](State&) {
        *version = CUDART_VERSION;
        return cudaSuccess;
      },
      Needs::kNothing);
}

cudaError_t cudaGetDeviceCount(int* count) {
  return Api("cudaGetDeviceCount", [&](State& state) {
    *count = static_cast<int>(state.machine.gpus.size());
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* gpu) {
  return Api("cudaGetDevice", [&](State&) {
    *gpu = current_gpu;
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int gpu) {
  return Api("cudaSetDevice", [&](State& state) {
    if (gpu < 0 || gpu >= static_cast<int>(state.machine.gpus.size())) {
      return cudaErrorInvalidDevice;
    }
    current_gpu = gpu;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int gpu) {
  return Api("cudaGetDeviceProperties", [&](State& state) {
    if (gpu < 0 || gpu >= static_cast<int>(state.machine.gpus.size())) {
      return cudaErrorInvalidDevice;
    }
    const Gpu& from = state.machine.gpus[static_cast<size_t>(gpu)];
    *properties = {};
    from.name.copy(properties->name, sizeof(properties->name) - 1);
    properties->major = from.compute_capability / 10;
    properties->minor = from.compute_capability % 10;
    properties->totalGlobalMem = from.memory_bytes;
    return cudaSuccess;
  });
}

// --- Memory --------------------------------------------------------------------------------------

// GPUs in pairs, as bridges join them: 0 and 1, 2 and 3.
cudaError_t cudaDeviceCanAccessPeer(int* can, int gpu, int other) {
  return Api("cudaDeviceCanAccessPeer", [&](State& state) {
    const int gpus = static_cast<int>(state.machine.gpus.size());
    if (gpu < 0 || other < 0 || gpu >= gpus || other >= gpus) return cudaErrorInvalidDevice;
    *can = gpu != other && gpu / 2 == other / 2;
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Api("cudaMemGetInfo", [&](State& state) {
    *total = state.machine.gpus[static_cast<size_t>(current_gpu)].memory_bytes;
    *free = *total - state.device.in_use_bytes(current_gpu);
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  return Api("cudaMalloc",
             [&](State& state) { return Allocate(state, state.device, data, bytes); });
}

cudaError_t cudaHostAlloc(void** data, size_t bytes, unsigned) {
  return Api("cudaHostAlloc",
             [&](State& state) { return Allocate(state, state.pinned, data, bytes); });
}

cudaError_t cudaFree(void* data) { return Free("cudaFree", &State::device, data); }
cudaError_t cudaFreeHost(void* data) { return Free("cudaFreeHost", &State::pinned, data); }

// --- Streams and events --------------------------------------------------------------------------

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  return Api("cudaStreamCreateWithFlags", [&](State& state) {
    *stream = new CUstream_st{.gpu = current_gpu};
    state.streams.insert(*stream);
    return cudaSuccess;
  });
}

// Returns at once; what was enqueued is done some time.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  {
    const Locked state;
    if (state->streams.contains(stream)) {
      if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
      state->destroyed_streams.push_back(stream);
    }
  }
  return Destroy("cudaStreamDestroy", &State::streams, stream);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return Api("cudaStreamSynchronize", [&](State& state) {
    if (const cudaError_t error = state.CheckStream(stream)) return error;
    if (stream->capture != nullptr) {
      return state.Break(*stream->capture, cudaErrorStreamCaptureUnsupported);
    }
    if (const cudaError_t error = state.RefuseInCapture()) return error;
    state.RunAll(*stream);
    return state.lost;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return Api("cudaStreamWaitEvent", [&](State& state) { return state.Wait(stream, event); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return Api("cudaEventCreateWithFlags", [&](State& state) {
    *event = new CUevent_st{.gpu = current_gpu};
    state.events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return Destroy("cudaEventDestroy", &State::events, event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
  return Api("cudaEventElapsedTime", [&](State& state) {
    for (cudaEvent_t event : {start, stop}) {
      if (const cudaError_t error = state.CheckEvent(event)) return error;
      if (event->point == nullptr) return cudaErrorInvalidResourceHandle;
      if (!event->point->passed) return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>(stop->point->worked - start->point->worked);
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return Api("cudaEventRecord", [&](State& state) { return state.Record(event, stream); });
}

// The stream comes a little further, so that a loop that polls ends.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  return Api("cudaEventQuery", [&](State& state) {
    if (const cudaError_t error = state.CheckEvent(event)) return error;
    if (const cudaError_t error = state.RefuseInCapture()) return error;
    if (event->point == nullptr || event->point->passed) return state.lost;
    state.RunOne(*event->point->stream);
    return state.lost != cudaSuccess ? state.lost : cudaErrorNotReady;
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return Api("cudaEventSynchronize", [&](State& state) {
    if (const cudaError_t error = state.CheckEvent(event)) return error;
    if (const cudaError_t error = state.RefuseInCapture()) return error;
    while (event->point != nullptr && !event->point->passed) state.RunOne(*event->point->stream);
    return state.lost;
  });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return Api("cudaMemcpyAsync", [&](State& state) {
    if (kind != cudaMemcpyDefault) return cudaErrorInvalidMemcpyDirection;  // not needed, not told
    return state.Copy(stream, to, from, bytes);
  });
}

// Not in a graph: what it is handed would be gone at the second replay.
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t work, void* data) {
  return Api("cudaLaunchHostFunc", [&](State& state) {
    if (const cudaError_t error = state.CheckStream(stream)) return error;
    if (stream->capture != nullptr) return cudaErrorNotSupported;
    return state.Add(stream, {.kind = Op::kHost, .work = [work, data] {
                                in_host_function = true;
                                work(data);
                                in_host_function = false;
                              }});
  });
}

// --- Graphs --------------------------------------------------------------------------------------

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return Api("cudaStreamBeginCapture",
             [&](State& state) { return state.BeginCapture(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  // A failure that a test asked for comes after the end.
  return Api("end of a capture", [&](State& state) {
    const cudaError_t error = state.EndCapture(stream, graph);
    const cudaError_t asked_for = state.Enter("cudaStreamEndCapture");
    if (asked_for == cudaSuccess) return error;
    state.graphs.erase(std::exchange(*graph, nullptr));
    return asked_for;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  return Api("cudaGraphInstantiate", [&](State& state) {
    if (!state.graphs.contains(graph)) return cudaErrorInvalidValue;
    *executable = new CUgraphExec_st{.gpu = current_gpu, .work = LateOrder(graph->nodes)};
    state.executables.insert(*executable);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return Api("cudaGraphGetNodes", [&](State& state) {
    if (!state.graphs.contains(graph) || nodes != nullptr) return cudaErrorInvalidValue;
    *count = LateOrder(graph->nodes).size();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Destroy("cudaGraphDestroy", &State::graphs, graph);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return Destroy("cudaGraphExecDestroy", &State::executables, executable);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  return Api("cudaGraphLaunch", [&](State& state) {
    if (!state.executables.contains(executable)) return cudaErrorInvalidValue;
    if (const cudaError_t error = state.CheckStream(stream)) return error;
    if (executable->gpu != stream->gpu) return cudaErrorInvalidValue;
    for (const Op& op : executable->work) {
      if (const cudaError_t error = state.Add(stream, op)) return error;
      if (op.kind != Op::kWork) continue;
      Launch launch = op.launch;
      launch.stream = stream;
      launch.captured = stream->capture != nullptr;
      launch.replayed = true;
      state.launches.push_back(std::move(launch));
    }
    return cudaSuccess;
  });
}

}  // extern "C"
