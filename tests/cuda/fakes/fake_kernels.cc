// The functions of the CUDA runtime that nvcc's output calls: kernels are registered before main,
// and launched by stubs.

#include <utility>

#include "engine/runtime/check.h"
#include "tests/cuda/fakes/fake_cudart.h"
#include "tests/cuda/fakes/fake_machine.h"

namespace gyre::fake_cudart {
namespace {

struct CallConfiguration {
  dim3 grid, block;
  size_t shared_bytes;
  cudaStream_t stream;
};
thread_local std::vector<CallConfiguration> configurations;

Launch MakeLaunch(const CUkern_st* kernel, dim3 grid, dim3 block, size_t shared_bytes) {
  return {.kernel = kernel->name,
          .grid = {grid.x, grid.y, grid.z},
          .block = {block.x, block.y, block.z},
          .shared_bytes = shared_bytes};
}

}  // namespace

std::vector<Module> Modules() {
  const Locked state;
  std::vector<Module> modules;
  for (const auto& module : state->modules) modules.push_back(*module);
  return modules;
}

}  // namespace gyre::fake_cudart

using namespace gyre::fake_cudart;

extern "C" {

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return Api("cudaFuncGetAttributes", [&](State& state) {
    *attributes = {};
    return state.kernels.contains(function) ? cudaSuccess : cudaErrorInvalidDeviceFunction;
  });
}

void** __cudaRegisterFatBinary(void* wrapper) {
  struct Wrapper {  // fatbinary_section.h
    int magic, version;
    const void* data;
  };
  const Locked state;
  state->modules.push_back(std::make_unique<Module>());
  state->modules.back()->fat_binary = static_cast<const Wrapper*>(wrapper)->data;
  return reinterpret_cast<void**>(state->modules.back().get());
}

void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }

void __cudaRegisterFunction(void** module, const char* host_function, char*, const char* name, int,
                            uint3*, uint3*, dim3*, dim3*, int*) {
  const Locked state;
  state->kernels[host_function] = new CUkern_st{name};
  reinterpret_cast<Module*>(module)->kernels.emplace_back(name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                     CUstream_st* stream) {
  configurations.push_back({grid, block, shared_bytes, stream});
  return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared_bytes,
                                       void* stream) {
  GYRE_CHECK(!configurations.empty());
  const CallConfiguration top = configurations.back();
  configurations.pop_back();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<cudaStream_t*>(stream) = top.stream;
  return cudaSuccess;
}

// nvcc's output asks once for each kernel, whatever machine is booted then.
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
  const Locked state;
  const auto found = state->kernels.find(host_function);
  if (found == state->kernels.end()) return cudaErrorInvalidDeviceFunction;
  *kernel = found->second;
  return cudaSuccess;
}

cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**,
                               size_t shared_bytes, cudaStream_t stream) {
  return Api("cudaLaunchKernel", [&](State& state) {
    if (kernel == nullptr) return cudaErrorInvalidResourceHandle;
    return state.LaunchKernel(stream, MakeLaunch(kernel, grid, block, shared_bytes));
  });
}

cudaError_t cudaLaunchKernel(const void* host_function, dim3 grid, dim3 block, void** arguments,
                             size_t shared_bytes, cudaStream_t stream) {
  cudaKernel_t kernel = nullptr;
  const cudaError_t found = __cudaGetKernel(&kernel, host_function);
  if (found != cudaSuccess) return found;
  return __cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

}  // extern "C"
