// The main of device_tests: GoogleTest; after a test that failed, whether the GPU still works,
// since where its context is lost all other tests would fail alike; and --describe, which opens the
// device and its libraries and says what they are, each thing before the next is begun.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "engine/runtime/device/cuda/cuda_device.h"
#include "tests/any_device/try_device.h"
#include "tests/test_device.h"

namespace gyre {
namespace {

// tools/gpu starts what is left in a new process.
constexpr int kDeviceLost = 3;

void Say(const std::string& what, const std::string& text) {
  std::printf("%s: %s\n", what.c_str(), text.c_str());
  std::fflush(stdout);
}

class LostDevice : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    if (!test.result()->Failed() || NamedDevice() != DeviceKind::kCuda) return;
    const absl::Status status = TryDevice(*OpenTestDevice(DeviceKind::kCuda).device);
    if (status.ok()) return;
    Say("device lost", status.ToString());
    std::_Exit(kDeviceLost);  // what is cleaned up would wait for it
  }
};

// Of the libraries that the process has opened, those of CUDA.
std::set<std::string> LibrariesOfCuda() {
  std::set<std::string> found;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.find('/');
    if (slash == line.npos) continue;
    const std::string path = line.substr(slash);
    for (const char* name : {"libcuda", "libcublas", "libcudnn", "libnv", "libnccl"}) {
      if (path.find(name) != path.npos) found.insert(path);
    }
  }
  return found;
}

int Describe() {
  const DeviceKind kind = NamedDevice().value_or(DeviceKind::kCpu);
  if (kind == DeviceKind::kCuda) {
    const auto device = NewCudaDevice({});
    if (!device.ok()) {
      Say("error", device.status().ToString());
      return 1;
    }
    Say("device", (*device)->description());
    Say("memory", std::to_string((*device)->capacity_bytes()) + " bytes for plans");
  } else {
    Say("device", std::string(DeviceKindName(kind)));
  }
  const TestDevice opened = OpenTestDevice(kind);  // with its libraries; says what is missing
  for (const std::string& path : LibrariesOfCuda()) Say("library", path);
  const absl::Status status = TryDevice(*opened.device);
  Say("copies", status.ok() ? "ok" : status.ToString());
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "--describe") == 0) return gyre::Describe();
  testing::InitGoogleTest(&argc, argv);
  testing::UnitTest::GetInstance()->listeners().Append(new gyre::LostDevice);
  return RUN_ALL_TESTS();
}
