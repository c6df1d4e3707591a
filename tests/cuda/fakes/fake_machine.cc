#include "tests/cuda/fakes/fake_machine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/runtime/check.h"

namespace gyre::fake_cudart {

namespace {

// Which nodes are among `last` or must be over before one of them begins.
std::vector<bool> Before(const std::vector<Node>& nodes, const std::set<size_t>& last) {
  std::vector<bool> before(nodes.size());
  for (const size_t node : last) before[node] = true;
  for (size_t node = nodes.size(); node-- > 0;) {
    for (const size_t earlier : nodes[node].after) {
      if (before[node]) before[earlier] = true;
    }
  }
  return before;
}

}  // namespace

std::vector<Op> LateOrder(const std::vector<Node>& nodes) {
  std::vector<size_t> waits_for;
  std::vector<std::vector<size_t>> then(nodes.size());
  std::set<size_t> ready;
  for (size_t node = 0; node < nodes.size(); ++node) {
    waits_for.push_back(nodes[node].after.size());
    for (const size_t earlier : nodes[node].after) then[earlier].push_back(node);
    if (waits_for[node] == 0) ready.insert(node);
  }
  std::vector<Op> order;
  while (!ready.empty()) {
    const size_t node = *ready.rbegin();
    ready.erase(node);
    if (nodes[node].op.kind != Op::kJoin) order.push_back(nodes[node].op);
    for (const size_t next : then[node]) {
      if (--waits_for[next] == 0) ready.insert(next);
    }
  }
  return order;
}

thread_local int current_gpu = 0;
thread_local cudaError_t last_error = cudaSuccess;
thread_local bool in_host_function = false;

State& State::Get() {
  static State& state = *new State;
  return state;
}

cudaError_t State::Enter(const std::string& function) {
  ++calls[function];
  const auto failing = failing_calls.find(function);
  if (failing == failing_calls.end() || --failing->second.first > 0) return cudaSuccess;
  const cudaError_t error = failing->second.second;
  failing_calls.erase(failing);
  return error;
}

cudaError_t State::Break(Capture& capture, cudaError_t error) {
  capture.broken = true;
  return error;
}

cudaError_t State::RefuseInCapture() {
  cudaError_t error = cudaSuccess;
  for (const auto& capture : captures_) {
    if (capture->mode == cudaStreamCaptureModeGlobal ||
        (capture->mode == cudaStreamCaptureModeThreadLocal &&
         capture->thread == std::this_thread::get_id())) {
      error = Break(*capture, cudaErrorStreamCaptureUnsupported);
    }
  }
  return error;
}

// The real runtime takes null for its legacy stream, which waits for all others: a bug in Gyre.
cudaError_t State::CheckStream(cudaStream_t stream) const {
  if (!streams.contains(stream) || stream->gpu != current_gpu) {
    return cudaErrorInvalidResourceHandle;
  }
  return cudaSuccess;
}

cudaError_t State::CheckEvent(cudaEvent_t event) {
  // The real runtime asks any GPU's events, but opens the thread's current GPU to do so.
  if (!events.contains(event) || event->gpu != current_gpu) return cudaErrorInvalidResourceHandle;
  if (event->capture == nullptr) return cudaSuccess;
  return Break(*event->capture, cudaErrorCapturedEvent);
}

cudaError_t State::Add(cudaStream_t stream, Op op) {
  if (stream->capture == nullptr) {
    if (op.kind == Op::kCopy) {
      const bool to = device.InRegion(op.to), from = device.InRegion(op.from);
      if (to != from) ++calls[to ? "copy up" : "copy down"];
    }
    stream->queue.push_back(std::move(op));
    return cudaSuccess;
  }
  if (stream->capture->broken) return cudaErrorStreamCaptureInvalidated;
  stream->capture->nodes.push_back({std::move(op), stream->last});
  stream->last = {stream->capture->nodes.size() - 1};
  return cudaSuccess;
}

cudaError_t State::Copy(cudaStream_t stream, void* to, const void* from, size_t bytes) {
  if (const cudaError_t error = CheckStream(stream)) return error;
  bool pageable = false;
  for (const void* data : {static_cast<const void*>(to), from}) {
    if (data == nullptr && bytes > 0) return cudaErrorInvalidValue;
    const bool known = device.InRegion(data) || pinned.InRegion(data);
    if (known && !device.Contains(data, bytes) && !pinned.Contains(data, bytes)) {
      return cudaErrorInvalidValue;
    }
    pageable |= !known;
  }
  const Op copy{.kind = Op::kCopy, .to = to, .from = from, .bytes = bytes};
  if (!pageable) return Add(stream, copy);
  // The runtime stages such a copy, for which it may make the caller wait.
  ++calls["pageable copy"];
  if (stream->capture != nullptr) {
    return Break(*stream->capture, cudaErrorStreamCaptureUnsupported);
  }
  stream->queue.push_back(copy);
  RunAll(*stream);
  return lost;
}

cudaError_t State::LaunchKernel(cudaStream_t stream, Launch launch, std::function<void()> work) {
  if (const cudaError_t error = CheckStream(stream)) return error;
  const auto within = [](const std::array<unsigned, 3>& extents, std::array<unsigned, 3> most) {
    for (size_t i = 0; i < 3; ++i) {
      if (extents[i] < 1 || extents[i] > most[i]) return false;
    }
    return true;
  };
  const uint64_t threads = uint64_t{launch.block[0]} * launch.block[1] * launch.block[2];
  if (!within(launch.grid, {0x7FFFFFFF, 65535, 65535}) || !within(launch.block, {1024, 1024, 64}) ||
      threads > 1024) {
    return cudaErrorInvalidConfiguration;
  }
  if (launch.shared_bytes > size_t{48} << 10) return cudaErrorInvalidValue;
  launch.stream = stream;
  launch.captured = stream->capture != nullptr;
  if (const cudaError_t error =
          Add(stream, {.kind = Op::kWork, .launch = launch, .work = std::move(work)}))
    return error;
  launches.push_back(std::move(launch));
  return cudaSuccess;
}

cudaError_t State::Record(cudaEvent_t event, cudaStream_t stream) {
  if (!events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = CheckStream(stream)) return error;
  if (event->gpu != stream->gpu) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    event->point = nullptr;
    event->capture = stream->capture;
    event->last = stream->last;
    return cudaSuccess;
  }
  event->capture = nullptr;
  event->point = std::make_shared<Point>(Point{.stream = stream});
  return Add(stream, {.kind = Op::kRecord, .point = event->point});
}

cudaError_t State::Wait(cudaStream_t stream, cudaEvent_t event) {
  if (!events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = CheckStream(stream)) return error;
  if (event->capture == nullptr) {
    if (stream->capture != nullptr) {
      return Break(*stream->capture, cudaErrorStreamCaptureIsolation);
    }
    if (event->point == nullptr) return cudaSuccess;
    return Add(stream, {.kind = Op::kWait, .point = event->point});
  }
  if (event->capture->ended) return cudaErrorCapturedEvent;
  if (stream->capture == nullptr) {
    stream->capture = event->capture;
    stream->last = event->last;
    event->capture->forks.push_back(stream);
    // An unjoined stream spoils the capture even if nothing was put on it.
    return Add(stream, {.kind = Op::kJoin});
  }
  if (stream->capture != event->capture) {
    return Break(*stream->capture, cudaErrorStreamCaptureMerge);
  }
  stream->last.insert(event->last.begin(), event->last.end());
  return cudaSuccess;
}

cudaError_t State::BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = CheckStream(stream)) return error;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  stream->capture = std::make_shared<Capture>(
      Capture{.origin = stream, .thread = std::this_thread::get_id(), .mode = mode});
  stream->last = {};
  captures_.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t State::EndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (const cudaError_t error = CheckStream(stream)) return error;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != stream) return Break(*capture, cudaErrorStreamCaptureUnmatched);
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return Break(*capture, cudaErrorStreamCaptureWrongThread);
  }
  cudaError_t error = capture->broken ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
  stream->capture = nullptr;
  const std::vector<bool> joined = Before(capture->nodes, stream->last);
  for (CUstream_st* fork : capture->forks) {
    const bool back = std::ranges::all_of(fork->last, [&](size_t node) { return joined[node]; });
    if (error == cudaSuccess && !back) error = cudaErrorStreamCaptureUnjoined;
    fork->capture = nullptr;
  }
  capture->ended = true;
  std::erase(captures_, capture);
  if (error != cudaSuccess) return error;
  *graph = new CUgraph_st{.nodes = std::move(capture->nodes)};
  graphs.insert(*graph);
  return cudaSuccess;
}

void* State::Reach(const void* data) const {
  if (device.InRegion(data)) return device.View(data);
  if (pinned.InRegion(data)) return pinned.View(data);
  return const_cast<void*>(data);
}

void State::Do(const Op& op) {
  if (lost != cudaSuccess) return;
  if (failing_work > 0 && --failing_work == 0) {
    lost = failing_work_error;
    return;
  }
  if (op.kind == Op::kCopy) std::memmove(Reach(op.to), Reach(op.from), op.bytes);
  if (op.work != nullptr) op.work();
}

void State::RunOne(CUstream_st& stream) {
  GYRE_CHECK(!stream.queue.empty());
  const Op op = std::move(stream.queue.front());
  stream.queue.pop_front();
  switch (op.kind) {
    case Op::kRecord:
      op.point->passed = true;
      op.point->worked = stream.worked;
      break;
    case Op::kWait:
      // The record was enqueued before the wait, so this ends.
      while (!op.point->passed) RunOne(*op.point->stream);
      break;
    case Op::kJoin:
      break;
    default:
      if (op.kind == Op::kWork) ++stream.worked;
      Do(op);
  }
}

void State::RunAll(CUstream_st& stream) {
  while (!stream.queue.empty()) RunOne(stream);
}

void State::RunAll() {
  for (cudaStream_t stream : streams) RunAll(*stream);
  for (cudaStream_t stream : destroyed_streams) RunAll(*stream);
}

}  // namespace gyre::fake_cudart
