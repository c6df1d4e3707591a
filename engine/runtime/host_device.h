// host_device.h: HOST_DEVICE marks a function that g++ compiles for the CPU, and nvcc for the GPU
// as well.  Every kernel functor and every function that it calls carries it.
#pragma once

#if defined(__CUDACC__)
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif
