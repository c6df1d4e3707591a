// host_device.h: HOST_DEVICE marks a function that g++ compiles for the CPU and nvcc, from the
// same text, for the GPU as well.  Every kernel functor and whatever it calls carries it.
#pragma once

#if defined(__CUDACC__)
#define HOST_DEVICE __host__ __device__
#else
#define HOST_DEVICE
#endif
