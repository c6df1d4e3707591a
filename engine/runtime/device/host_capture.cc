#include "engine/runtime/device/host_capture.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace gyre {
namespace {

class HostGraph : public Graph {
 public:
  explicit HostGraph(std::vector<HostCapture::Work> work) : work_(std::move(work)) {}

  absl::Status Replay(Stream& stream) override {
    // A cpu stream runs work at once and needs no copy of it, which would allocate.
    const bool at_once = stream.kind() == DeviceKind::kCpu;
    for (const HostCapture::Work& work : work_) {
      RETURN_IF_ERROR(stream.Call(at_once ? HostCapture::Work([&work] { return work(); }) : work));
    }
    return absl::OkStatus();
  }

 private:
  const std::vector<HostCapture::Work> work_;
};

}  // namespace

absl::Status HostCapture::Refuse(const char* call) {
  if (!active()) return absl::OkStatus();
  status_ = absl::FailedPreconditionError(absl::StrCat(call, " within a capture"));
  return status_;
}

absl::Status HostCapture::Begin() {
  RETURN_IF_ERROR(Refuse("BeginCapture"));
  work_.emplace();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Graph>> HostCapture::End() {
  if (!active()) return absl::FailedPreconditionError("EndCapture without BeginCapture");
  std::vector<Work> work = *std::exchange(work_, std::nullopt);
  RETURN_IF_ERROR(std::exchange(status_, absl::OkStatus()));
  return std::make_unique<HostGraph>(std::move(work));
}

}  // namespace gyre
