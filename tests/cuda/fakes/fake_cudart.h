// fake_cudart.h: the CUDA runtime without a GPU.  A test that links it runs the CUDA device and
// every kernel launch on a machine of its choosing; libcudart_static.a is then left out of the
// program.
//
// It checks what the real one checks (handles, ranges, launch bounds, the current device, the rules
// of captures) and is as late as it may be: a stream does its copies only when something waits for
// them, so that a missing wait shows as wrong bytes.  Device memory begins as NaNs and belongs to
// the fake alone: host code that follows a device pointer gets SIGSEGV.  Kernels are written down,
// not run; between two events a millisecond passes for each.  Thread-safe.  Error codes are
// cudaError_t.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace gyre::fake_cudart {

struct Gpu {
  std::string name = "Fake GPU";
  int compute_capability = 90;  // 10 major + minor
  size_t memory_bytes = size_t{16} << 30;
};

struct Machine {
  int driver_version = 13000;  // CUDA's, 1000 major + 10 minor; 0: there is no driver
  std::vector<Gpu> gpus = {Gpu{}};
};

// A fresh machine: counts, records and failures to come are forgotten.  Aborts if anything of the
// machine before is still alive.
void Boot(const Machine& machine = {});

// How many streams, events, graphs and allocations have not been destroyed.
int Alive();

// The nth call of a function from now on (1: the next) returns the error and does nothing; but what
// ends or destroys something does that, too.
void FailCall(const std::string& function, int error, int nth = 1);
// The nth copy, kernel or library call that a stream comes to from now on fails.  As on a GPU the
// whole context is lost: from then on every call returns the error, whatever its stream.
void FailWork(int error, int nth = 1);

// Calls since Boot or ForgetCalls.  "pageable copy" counts the copies that touch host memory which
// is not pinned, for which the real runtime may make the caller wait; "copy up" and "copy down"
// those that streams were given, replayed ones too, from host memory to device memory and back.
int Calls(std::string_view function);
// Of every function that makes the caller wait for the device, or takes or gives memory: what a
// step must never call.  "cudaStreamSynchronize 2, ..."; empty if none was called.
std::string WaitingCalls();
void ForgetCalls();  // and launches
// What the calling thread's next cudaGetLastError returns, and a kernel launch would be blamed for.
int LastError();

struct Launch {
  std::string kernel;  // mangled, or the name that Enqueue was given
  std::array<unsigned, 3> grid = {}, block = {};
  size_t shared_bytes = 0;  // dynamic
  const void* stream = nullptr;
  bool captured = false;  // written into a graph instead of the stream
  bool replayed = false;  // by the launch of a graph
};
// Since Boot or ForgetCalls, as they were called.
std::vector<Launch> Launches();

// The calling thread's.
int CurrentGpu();

// For fakes of libraries.  Work on a stream, checked, captured and recorded as a kernel launch is,
// and done, if there is any to do, when the stream comes to it, at each replay again.
int Enqueue(void* stream, const std::string& name, std::function<void()> work = nullptr);
// Whether all of [data, data + bytes) lies in one allocation of device memory.
bool IsDeviceMemory(const void* data, size_t bytes);
// The same byte where this process can touch it.  Precondition: IsDeviceMemory(device, 1).
void* HostView(const void* device);

// What nvcc put into the program: a fat binary for each object file, and the kernels (mangled) that
// the file's host code launches.
struct Module {
  const void* fat_binary;  // begins with the header that kernels_test.cc reads
  std::vector<std::string> kernels;
};
std::vector<Module> Modules();

}  // namespace gyre::fake_cudart
