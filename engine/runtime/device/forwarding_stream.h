// forwarding_stream.h: a stream that forwards every call to another.  A subclass changes some.
// CallOnHost arrives as Call.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "engine/runtime/device/device.h"

namespace gyre {

class ForwardingStream : public Stream {
 public:
  // `stream` must outlive the object.
  explicit ForwardingStream(Stream& stream) : stream_(stream) {}
  DeviceKind kind() const override { return stream_.kind(); }
  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    return stream_.Copy(to, from, bytes);
  }
  absl::Status Record(Event& event) override { return stream_.Record(event); }
  absl::Status Wait(const Event& event) override { return stream_.Wait(event); }
  absl::Status Call(std::function<absl::Status()> work) override {
    return stream_.Call(std::move(work));
  }
  absl::Status Synchronize() override { return stream_.Synchronize(); }
  absl::Status BeginCapture() override { return stream_.BeginCapture(); }
  absl::StatusOr<std::unique_ptr<Graph>> EndCapture() override { return stream_.EndCapture(); }
  void* native() const override { return stream_.native(); }

 private:
  Stream& stream_;
};

}  // namespace gyre
