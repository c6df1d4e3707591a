// Pooling with the channels of a pixel as vectors, a chunk of them at a time, so that what a window
// has so far stays in registers.  Forward works on rows of outputs, backward on rows of the image:
// a sum per pixel over the windows that hold it, in the order of the outputs, so nothing is added
// to by two threads.  Of 16 bits such a sum stays in registers as F32, and is rounded once.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "engine/runtime/half.h"
#include "engine/runtime/primitives/blocked/blocked.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/pool_geometry.h"

namespace gyre {
namespace {

using Geometry = PoolGeometry<int64_t>;
using Range = Geometry::Range;

// Integers as wide as what T is computed in, so that one vector of them goes with one of it.
template <typename T>
using AsWide = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;

template <typename T>
constexpr bool kIsHalf = sizeof(T) == 2;

// Rows of outputs, numbered through all images.  Position: of a maximum in its window.
template <typename T, typename Position>
struct BlockedMaxForward {
  Geometry g;
  const T* x;
  T* y;
  Position* saved;  // may be null

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      const T* image = x + row / g.out_h * g.h * g.w * g.c;
      const Range rows = g.RowsOf(row % g.out_h);
      for (int64_t column = 0; column < g.out_w; ++column) {
        const Range columns = g.ColumnsOf(column);
        const int64_t out = (row * g.out_w + column) * g.c;
        const int64_t origin = g.PositionIn(row % g.out_h, column, 0, 0);
        ForEachChunk(g.c, [&]<int kCount>(int64_t c) {
          Chunk<kCount>(image + c, rows, columns, origin, y + out + c,
                        saved == nullptr ? nullptr : saved + out + c);
        });
      }
    }
  }

  // origin: the position of the image's first pixel in the window, were it there.
  template <int kCount>
  void Chunk(const T* image, Range rows, Range columns, int64_t origin, T* to,
             Position* positions) const {
    using A = AccumulateType<T>;
    using At = AsWide<T>;
    A best[kCount];
    At at[kCount];
    const T* first = image + (rows.begin * g.w + columns.begin) * g.c;
    const auto first_at = static_cast<At>(origin + rows.begin * g.kernel_w + columns.begin);
#pragma omp simd
    for (int c = 0; c < kCount; ++c) {
      best[c] = first[c];
      at[c] = first_at;
    }
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t column = columns.begin; column < columns.end; ++column) {
        const T* here = image + (row * g.w + column) * g.c;
        const auto here_at = static_cast<At>(origin + row * g.kernel_w + column);
#pragma omp simd
        for (int c = 0; c < kCount; ++c) {
          const A value = here[c];
          const bool take = (value > best[c]) | (value != value);  // a NaN beats all
          best[c] = take ? value : best[c];
          at[c] = take ? here_at : at[c];
        }
      }
    }
#pragma omp simd
    for (int c = 0; c < kCount; ++c) to[c] = static_cast<T>(best[c]);
    if (positions == nullptr) return;
#pragma omp simd
    for (int c = 0; c < kCount; ++c) positions[c] = static_cast<Position>(at[c]);
  }
};

template <typename T>
struct BlockedAverageForward {
  Geometry g;
  const T* x;
  T* y;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t row = begin; row < end; ++row) {
      const T* image = x + row / g.out_h * g.h * g.w * g.c;
      const Range rows = g.RowsOf(row % g.out_h);
      for (int64_t column = 0; column < g.out_w; ++column) {
        const Range columns = g.ColumnsOf(column);
        T* to = y + (row * g.out_w + column) * g.c;
        ForEachChunk(
            g.c, [&]<int kCount>(int64_t c) { Chunk<kCount>(image + c, rows, columns, to + c); });
      }
    }
  }

  template <int kCount>
  void Chunk(const T* image, Range rows, Range columns, T* to) const {
    using A = AccumulateType<T>;
    double totals[kCount] = {};
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      for (int64_t first = columns.begin; first < columns.end; first += kPooledRun) {
        A sum[kCount] = {};
        const int64_t last = std::min(columns.end, first + kPooledRun);
        for (int64_t column = first; column < last; ++column) {
          const T* here = image + (row * g.w + column) * g.c;
#pragma omp simd
          for (int c = 0; c < kCount; ++c) sum[c] += static_cast<A>(here[c]);
        }
#pragma omp simd
        for (int c = 0; c < kCount; ++c) totals[c] += static_cast<double>(sum[c]);
      }
    }
    const auto pixels = static_cast<double>(rows.size() * columns.size());
#pragma omp simd
    for (int c = 0; c < kCount; ++c) to[c] = static_cast<T>(totals[c] / pixels);
  }
};

// Rows of the image, numbered through all images: sums over the windows that hold a pixel, in the
// order of the outputs.  give(output row, output column, row, columns, index of the window's first
// channel, the row's sums) adds what a window gives to its columns of a row.
template <typename T, typename Give>
void SumOverWindows(const Geometry& g, T* dx, int64_t begin, int64_t end, const Give& give) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t image = i / g.h, row = i % g.h;
    T* sums = dx + i * g.w * g.c;
    std::fill_n(sums, g.w * g.c, T{0});
    const Range rows = g.WindowsOfRow(row);
    for (int64_t out_row = rows.begin; out_row < rows.end; ++out_row) {
      for (int64_t out_column = 0; out_column < g.out_w; ++out_column) {
        const int64_t first = ((image * g.out_h + out_row) * g.out_w + out_column) * g.c;
        give(out_row, out_column, row, g.ColumnsOf(out_column), first, sums);
      }
    }
  }
}

// The same for 16 bits: add.operator()<count>(output row, output column, row, column, index of the
// window's first channel, sums) adds what a window gives to a pixel.
template <typename T, typename Add>
void SumPixels(const Geometry& g, T* dx, int64_t begin, int64_t end, const Add& add) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t image = i / g.h, row = i % g.h;
    const Range rows = g.WindowsOfRow(row);
    for (int64_t column = 0; column < g.w; ++column) {
      const Range columns = g.WindowsOfColumn(column);
      ForEachChunk(g.c, [&]<int kCount>(int64_t first) {
        AccumulateType<T> sums[kCount] = {};
        for (int64_t out_row = rows.begin; out_row < rows.end; ++out_row) {
          for (int64_t out = columns.begin; out < columns.end; ++out) {
            const int64_t at = ((image * g.out_h + out_row) * g.out_w + out) * g.c + first;
            add.template operator()<kCount>(out_row, out, row, column, at, sums);
          }
        }
        T* const to = dx + (i * g.w + column) * g.c + first;
#pragma omp simd
        for (int c = 0; c < kCount; ++c) to[c] = static_cast<T>(sums[c]);
      });
    }
  }
}

template <typename T, typename Position>
struct BlockedMaxBackward {
  Geometry g;
  const T* dy;
  const Position* saved;
  T* dx;

  void operator()(int64_t begin, int64_t end) const {
    if constexpr (kIsHalf<T>) {
      SumPixels(g, dx, begin, end,
                [this]<int kCount>(int64_t out_row, int64_t out_column, int64_t row, int64_t column,
                                   int64_t at, float* sums) {
                  const auto here =
                      static_cast<int32_t>(g.PositionIn(out_row, out_column, row, column));
#pragma omp simd
                  for (int c = 0; c < kCount; ++c) {
                    const float gradient = dy[at + c];
                    sums[c] += static_cast<int32_t>(saved[at + c]) == here ? gradient : 0.0f;
                  }
                });
    } else {
      SumOverWindows(g, dx, begin, end,
                     [this](int64_t out_row, int64_t out_column, int64_t row, Range columns,
                            int64_t first, T* sums) {
                       const int64_t origin = g.PositionIn(out_row, out_column, row, 0);
                       ForEachChunk(g.c, [&]<int kCount>(int64_t c) {
                         Chunk<kCount>(dy + first + c, saved + first + c, origin, columns,
                                       sums + c);
                       });
                     });
    }
  }

  // origin: the position of the row's first pixel in the window, were it there.
  template <int kCount>
  void Chunk(const T* from, const Position* positions, int64_t origin, Range columns,
             T* sums) const {
    // A store through `sums` could otherwise seem to change a byte of `positions`.
    AsWide<T> at[kCount];
    T gradient[kCount];
#pragma omp simd
    for (int c = 0; c < kCount; ++c) {
      at[c] = positions[c];
      gradient[c] = from[c];
    }
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      const auto here = static_cast<AsWide<T>>(origin + column);
      T* to = sums + column * g.c;
#pragma omp simd
      for (int c = 0; c < kCount; ++c) to[c] += at[c] == here ? gradient[c] : T{0};
    }
  }
};

template <typename T>
struct BlockedAverageBackward {
  Geometry g;
  const T* dy;
  T* dx;

  void operator()(int64_t begin, int64_t end) const {
    if constexpr (kIsHalf<T>) {
      SumPixels(g, dx, begin, end,
                [this]<int kCount>(int64_t out_row, int64_t out_column, int64_t, int64_t,
                                   int64_t at, float* sums) {
                  const auto pixels =
                      static_cast<float>(g.RowsOf(out_row).size() * g.ColumnsOf(out_column).size());
#pragma omp simd
                  for (int c = 0; c < kCount; ++c) {
                    sums[c] += static_cast<float>(dy[at + c]) / pixels;
                  }
                });
    } else {
      SumOverWindows(
          g, dx, begin, end,
          [this](int64_t out_row, int64_t, int64_t, Range columns, int64_t first, T* sums) {
            const T pixels = static_cast<T>(g.RowsOf(out_row).size() * columns.size());
            ForEachChunk(g.c, [&]<int kCount>(int64_t c) {
              Chunk<kCount>(dy + first + c, pixels, columns, sums + c);
            });
          });
    }
  }

  template <int kCount>
  void Chunk(const T* from, T pixels, Range columns, T* sums) const {
    T share[kCount];
#pragma omp simd
    for (int c = 0; c < kCount; ++c) share[c] = from[c] / pixels;
    for (int64_t column = columns.begin; column < columns.end; ++column) {
      T* to = sums + column * g.c;
#pragma omp simd
      for (int c = 0; c < kCount; ++c) to[c] += share[c];
    }
  }
};

template <typename T, typename Position>
class BlockedPool2d : public Pool2d {
 public:
  explicit BlockedPool2d(const Pool2dSpec& spec) : spec_(spec), geometry_(spec, spec.c) {}

  size_t saved_bytes() const override {
    if (spec_.kind != PoolKind::kMax || !spec_.train) return 0;
    return static_cast<size_t>(out_rows() * spec_.out_w() * spec_.c) * sizeof(Position);
  }

  absl::Status Forward(Stream& stream, const void* x, void* y, void* saved) const override {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (spec_.kind == PoolKind::kAverage) {
      return OnTeam(stream, out_rows(), BlockedAverageForward<T>{geometry_, from, to});
    }
    auto* positions = saved_bytes() > 0 ? static_cast<Position*>(saved) : nullptr;
    return OnTeam(stream, out_rows(),
                  BlockedMaxForward<T, Position>{geometry_, from, to, positions});
  }

  absl::Status Backward(Stream& stream, const void* dy, const void* saved,
                        void* dx) const override {
    const T* from = static_cast<const T*>(dy);
    T* to = static_cast<T*>(dx);
    const int64_t rows = spec_.n * spec_.h;
    if (spec_.kind == PoolKind::kAverage) {
      return OnTeam(stream, rows, BlockedAverageBackward<T>{geometry_, from, to});
    }
    const auto* positions = static_cast<const Position*>(saved);
    return OnTeam(stream, rows, BlockedMaxBackward<T, Position>{geometry_, from, positions, to});
  }

 private:
  int64_t out_rows() const { return spec_.n * spec_.out_h(); }

  const Pool2dSpec spec_;
  const Geometry geometry_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Pool2d>> PrepareBlockedPool2d(const Pool2dSpec& spec) {
  // A byte holds a position where it can; a window of more than 2^31 pixels does not fit in memory
  // with its image.
  const bool small =
      static_cast<double>(spec.window.kernel_h) * static_cast<double>(spec.window.kernel_w) <=
      std::numeric_limits<uint8_t>::max();
  return VisitReal(spec.dtype, [&]<typename T>() -> std::unique_ptr<Pool2d> {
    if (small) return std::make_unique<BlockedPool2d<T, uint8_t>>(spec);
    return std::make_unique<BlockedPool2d<T, int32_t>>(spec);
  });
}

}  // namespace gyre
