// elements.h: the calls of a functor of ForEach and ForEachCell, one by one or in batches.
//
// A GPU hides the latency of memory by loads in flight.  A compiler does not move a load before a
// store that might change what it reads, so f(i) has one element's loads in flight.  A functor of
// Load and Store lets a thread load a batch before it stores the first element.
#pragma once

#include <cstdint>

#include "engine/runtime/host_device.h"

namespace gyre::parallel_internal {

// Elements of a batch.  H100's 3.3 TB/s take 10 KiB of loads in flight on each of 132 processors,
// at 0.8 us of latency and with as many stores.  2,048 threads with 4 elements of 2 bytes have 16.
inline constexpr int kBatch = 4;

template <typename F, typename... Index>
concept LoadsAndStores = requires(const F& f, Index... at) {
  f.Store(at..., f.Load(at...));
};

template <typename F, typename... Index>
HOST_DEVICE void CallOnce(const F& f, Index... at) {
  if constexpr (LoadsAndStores<F, Index...>) {
    f.Store(at..., f.Load(at...));
  } else {
    f(at...);
  }
}

// Calls f for first, first + stride, ... below n.
template <typename F>
HOST_DEVICE void CallEach(int64_t first, int64_t stride, int64_t n, const F& f) {
  int64_t i = first;
  if constexpr (LoadsAndStores<F, int64_t>) {
    for (; i + (kBatch - 1) * stride < n; i += kBatch * stride) {
      decltype(f.Load(i)) batch[kBatch];
      for (int k = 0; k < kBatch; ++k) batch[k] = f.Load(i + k * stride);
#if defined(__CUDA_ARCH__)
      asm volatile("" ::: "memory");  // or a load moves down into the branch that uses it
#endif
      for (int k = 0; k < kBatch; ++k) f.Store(i + k * stride, batch[k]);
    }
  }
#if defined(__CUDA_ARCH__)
#pragma unroll 1  // a short rest, whose copies would cost registers and so threads
#endif
  for (; i < n; i += stride) CallOnce(f, i);
}

// One column of a functor of cells, as a functor of rows.
template <typename F>
struct AtColumn {
  const F& f;
  int64_t column;
  HOST_DEVICE void operator()(int64_t row) const { f(row, column); }
};

template <typename F>
requires LoadsAndStores<F, int64_t, int64_t>
struct AtColumn<F> {
  const F& f;
  int64_t column;
  HOST_DEVICE auto Load(int64_t row) const { return f.Load(row, column); }
  template <typename Value>
  HOST_DEVICE void Store(int64_t row, Value v) const {
    f.Store(row, column, v);
  }
};

// The calls of thread `thread` of `threads`, at most 2^32, over rows x columns cells.  Neighbouring
// threads take neighbouring cells.  A thread keeps its column, so that it divides once and the
// compiler keeps what depends on the column alone.
template <typename F>
HOST_DEVICE void CallEachCell(int64_t thread, int64_t threads, int64_t rows, int64_t columns,
                              const F& f) {
  uint32_t stride = 1, row = 0;
  if (columns < threads) {  // a 32-bit division takes a quarter of the time of a 64-bit one
    const auto width = static_cast<uint32_t>(columns);
    stride = static_cast<uint32_t>(threads) / width;
    row = static_cast<uint32_t>(thread) / width;
    if (row >= stride) return;
  }
  for (int64_t column = thread - row * columns; column < columns; column += threads) {
    CallEach(row, stride, rows, AtColumn<F>{f, column});
  }
}

}  // namespace gyre::parallel_internal
