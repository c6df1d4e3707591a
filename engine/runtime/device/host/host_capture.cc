#include "engine/runtime/device/host/host_capture.h"

#include <utility>
#include <vector>

namespace gyre {
namespace {

struct Call {
  enum CallKind { kWork, kRecord, kWait } kind = kWork;
  Stream* stream = nullptr;  // null: the one that is captured, in whose place a replay has another
  HostCapture::Work work = nullptr;
  size_t event = 0;  // of the graph's: each record has one
};

struct CallList : Capture {
  std::vector<Call> calls;
  size_t events = 0;
};

class HostGraph : public Graph {
 public:
  HostGraph(std::vector<Call> calls, size_t events) : calls_(std::move(calls)), events_(events) {}

  absl::Status Replay(Stream& stream) override {
    // A cpu stream runs work at once and needs no copy of it, which would allocate.
    const bool at_once = stream.kind() == DeviceKind::kCpu;
    for (const Call& call : calls_) {
      Stream& on = call.stream == nullptr ? stream : *call.stream;
      switch (call.kind) {
        case Call::kWork:
          RETURN_IF_ERROR(on.Call(
              at_once ? HostCapture::Work([&work = call.work] { return work(); }) : call.work));
          break;
        case Call::kRecord:
          RETURN_IF_ERROR(on.Record(events_[call.event]));
          break;
        case Call::kWait:
          RETURN_IF_ERROR(on.Wait(events_[call.event]));
          break;
      }
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<Call> calls_;
  std::vector<HostEvent> events_;
};

CallList& ListOf(const StreamCapture& part) { return static_cast<CallList&>(part.capture()); }

}  // namespace

void HostCapture::Add(Work work) {
  part_.AddCall();
  ListOf(part_).calls.push_back(
      {.stream = part_.began() ? nullptr : &stream_, .work = std::move(work)});
}

void HostCapture::Record(HostEvent& event) {
  CallList& list = ListOf(part_);
  list.calls.push_back(
      {.kind = Call::kRecord, .stream = part_.began() ? nullptr : &stream_, .event = list.events});
  event.SetCaptured({part_.Here(), list.events++});
}

absl::Status HostCapture::Wait(const HostEvent& event) {
  const HostEvent::Captured captured = event.captured();
  RETURN_IF_ERROR(part_.Wait(captured.point));
  if (!active()) return absl::OkStatus();
  ListOf(part_).calls.push_back(
      {.kind = Call::kWait, .stream = part_.began() ? nullptr : &stream_, .event = captured.event});
  return absl::OkStatus();
}

absl::Status HostCapture::Begin() { return part_.Begin(std::make_shared<CallList>()); }

absl::StatusOr<std::unique_ptr<Graph>> HostCapture::End() {
  const std::shared_ptr<Capture> capture = part_.Here().capture;
  RETURN_IF_ERROR(part_.End());
  auto& list = static_cast<CallList&>(*capture);
  return std::make_unique<HostGraph>(std::move(list.calls), list.events);
}

}  // namespace gyre
