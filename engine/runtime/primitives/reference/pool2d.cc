// The reference pooling, which is a GPU's as well.  Neighbouring threads take neighbouring
// channels, so that loads coalesce, and where the channels allow four each, so that the index
// arithmetic is shared.  Backward is a sum per input pixel over the windows that hold it, in the
// order of the outputs: nothing is added to by two threads.
#include <algorithm>
#include <cstdint>
#include <limits>

#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/pool_geometry.h"
#include "engine/runtime/primitives/reference/reference.h"

namespace gyre {
namespace {

// Neighbouring channels, loaded and stored at once.
template <typename T, int kSize>
struct alignas(sizeof(T) * kSize) Pack {
  T v[kSize];
};

// The indices of a cell of [images x rows, columns x channels].
template <typename Index>
struct NhwcIndex {
  HOST_DEVICE NhwcIndex(int64_t of_rows, int64_t of_columns, Index rows, Index channels)
      : image(static_cast<Index>(of_rows) / rows),
        row(static_cast<Index>(of_rows) % rows),
        column(static_cast<Index>(of_columns) / channels),
        channel(static_cast<Index>(of_columns) % channels) {}
  Index image, row, column, channel;
};

// Pixels of a window's row, and windows of a pixel's row, that a maximum loads before it looks at
// the first, so that a GPU waits once: those of windows of 3 pixels, 2 apart.
constexpr int kPixels = 3, kWindows = 2;

// y[i] and, if `saved` is not null, where in its window it was: the first of equal maxima, but a
// NaN beats all.
template <typename T, typename Index, typename Position, int kSize>
struct MaxForward {
  using A = AccumulateType<T>;
  PoolGeometry<Index> g;
  const Pack<T, kSize>* x;
  Pack<T, kSize>* y;
  Pack<Position, kSize>* saved;

  HOST_DEVICE void operator()(int64_t of_rows, int64_t of_columns) const {
    const NhwcIndex<Index> out(of_rows, of_columns, g.out_h, g.c);
    const auto rows = g.RowsOf(out.row), columns = g.ColumnsOf(out.column);
    const Pack<T, kSize>* image = x + out.image * g.h * g.w * g.c + out.channel;
    Pack<T, kSize> best = image[(rows.begin * g.w + columns.begin) * g.c];
    Pack<Position, kSize> position;
    for (int j = 0; j < kSize; ++j) {
      position.v[j] =
          static_cast<Position>(g.PositionIn(out.row, out.column, rows.begin, columns.begin));
    }
    for (Index row = rows.begin; row < rows.end; ++row) {
      for (Index first = columns.begin; first < columns.end; first += kPixels) {
        const auto column = [&](int k) {  // the last one again changes nothing
          return first + k < columns.end ? first + k : columns.end - 1;
        };
        Pack<T, kSize> here[kPixels];
        for (int k = 0; k < kPixels; ++k) here[k] = image[(row * g.w + column(k)) * g.c];
        for (int k = 0; k < kPixels; ++k) {
          const auto at = static_cast<Position>(g.PositionIn(out.row, out.column, row, column(k)));
          for (int j = 0; j < kSize; ++j) {
            const A value = here[k].v[j];
            if (value > static_cast<A>(best.v[j]) || value != value) {
              best.v[j] = here[k].v[j];
              position.v[j] = at;
            }
          }
        }
      }
    }
    const int64_t index = of_rows * g.out_w * g.c + of_columns;
    y[index] = best;
    if (saved != nullptr) saved[index] = position;
  }
};

template <typename T, typename Index, typename Position, int kSize>
struct MaxBackward {
  using A = AccumulateType<T>;
  PoolGeometry<Index> g;
  const Pack<T, kSize>* dy;
  const Pack<Position, kSize>* saved;
  Pack<T, kSize>* dx;

  HOST_DEVICE void operator()(int64_t of_rows, int64_t of_columns) const {
    const NhwcIndex<Index> in(of_rows, of_columns, g.h, g.c);
    const auto rows = g.WindowsOfRow(in.row), columns = g.WindowsOfColumn(in.column);
    A sum[kSize] = {};
    for (Index row = rows.begin; row < rows.end; ++row) {
      for (Index first = columns.begin; first < columns.end; first += kWindows) {
        Pack<Position, kSize> position[kWindows];
        Pack<T, kSize> gradient[kWindows];
        for (int k = 0; k < kWindows; ++k) {
          const Index column = first + k < columns.end ? first + k : columns.end - 1;
          const Index i = ((in.image * g.out_h + row) * g.out_w + column) * g.c + in.channel;
          position[k] = saved[i];
          gradient[k] = dy[i];
        }
        for (int k = 0; k < kWindows; ++k) {
          const Index column = first + k;
          const auto here = static_cast<Position>(g.PositionIn(row, column, in.row, in.column));
          for (int j = 0; j < kSize; ++j) {
            if (column < columns.end && position[k].v[j] == here) {
              sum[j] += static_cast<A>(gradient[k].v[j]);
            }
          }
        }
      }
    }
    Pack<T, kSize> result;
    for (int j = 0; j < kSize; ++j) result.v[j] = static_cast<T>(sum[j]);
    dx[of_rows * g.w * g.c + of_columns] = result;
  }
};

template <typename T, typename Index, int kSize>
struct AverageForward {
  using A = AccumulateType<T>;
  PoolGeometry<Index> g;
  const Pack<T, kSize>* x;
  Pack<T, kSize>* y;

  HOST_DEVICE void operator()(int64_t of_rows, int64_t of_columns) const {
    const NhwcIndex<Index> out(of_rows, of_columns, g.out_h, g.c);
    const auto rows = g.RowsOf(out.row), columns = g.ColumnsOf(out.column);
    const Pack<T, kSize>* image = x + out.image * g.h * g.w * g.c + out.channel;
    double totals[kSize] = {};
    for (Index row = rows.begin; row < rows.end; ++row) {
      for (Index first = columns.begin; first < columns.end; first += kPooledRun) {
        A sum[kSize] = {};
        const Index last = first + kPooledRun < columns.end ? first + kPooledRun : columns.end;
        for (Index column = first; column < last; ++column) {
          const Pack<T, kSize> here = image[(row * g.w + column) * g.c];
          for (int j = 0; j < kSize; ++j) sum[j] += static_cast<A>(here.v[j]);
        }
        for (int j = 0; j < kSize; ++j) totals[j] += static_cast<double>(sum[j]);
      }
    }
    const auto pixels = static_cast<double>(rows.size() * columns.size());
    Pack<T, kSize> result;
    for (int j = 0; j < kSize; ++j) {
      result.v[j] = static_cast<T>(static_cast<A>(totals[j] / pixels));
    }
    y[of_rows * g.out_w * g.c + of_columns] = result;
  }
};

template <typename T, typename Index, int kSize>
struct AverageBackward {
  using A = AccumulateType<T>;
  PoolGeometry<Index> g;
  const Pack<T, kSize>* dy;
  Pack<T, kSize>* dx;

  HOST_DEVICE void operator()(int64_t of_rows, int64_t of_columns) const {
    const NhwcIndex<Index> in(of_rows, of_columns, g.h, g.c);
    const auto rows = g.WindowsOfRow(in.row), columns = g.WindowsOfColumn(in.column);
    A sum[kSize] = {};
    for (Index row = rows.begin; row < rows.end; ++row) {
      for (Index column = columns.begin; column < columns.end; ++column) {
        const Pack<T, kSize> gradient =
            dy[((in.image * g.out_h + row) * g.out_w + column) * g.c + in.channel];
        const A pixels = static_cast<A>(g.RowsOf(row).size() * g.ColumnsOf(column).size());
        for (int j = 0; j < kSize; ++j) sum[j] += static_cast<A>(gradient.v[j]) / pixels;
      }
    }
    Pack<T, kSize> result;
    for (int j = 0; j < kSize; ++j) result.v[j] = static_cast<T>(sum[j]);
    dx[of_rows * g.w * g.c + of_columns] = result;
  }
};

// Whether 32 bits hold every offset and a byte every position in a window, which is cheaper.
bool IsSmall(const Pool2dSpec& spec) {
  constexpr double kLimit = std::numeric_limits<int32_t>::max();
  const double window =
      static_cast<double>(spec.window.kernel_h) * static_cast<double>(spec.window.kernel_w);
  const double images = static_cast<double>(spec.n) * static_cast<double>(spec.c);
  const double in = static_cast<double>(spec.h) * static_cast<double>(spec.w);
  const double out = static_cast<double>(spec.out_h()) * static_cast<double>(spec.out_w());
  const double strides = static_cast<double>(std::max(spec.window.stride_h, spec.window.stride_w));
  // The window's 255 at most are what a padded offset exceeds the image by.
  return window <= 255 && std::max({images * in, images * out, in, strides}) < kLimit - 512;
}

// The largest pack for which there is code.
constexpr int kPackSize = 4;

bool IsAligned(const void* p, size_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

template <typename T>
class ReferencePool2d : public Pool2d {
 public:
  explicit ReferencePool2d(const Pool2dSpec& spec) : spec_(spec), small_(IsSmall(spec)) {}

  size_t saved_bytes() const override {
    if (spec_.kind != PoolKind::kMax || !spec_.train) return 0;
    return static_cast<size_t>(out_elements()) * (small_ ? sizeof(uint8_t) : sizeof(int32_t));
  }

  absl::Status Forward(Stream& stream, const void* x, void* y, void* saved) const override {
    void* const kept = saved_bytes() > 0 ? saved : nullptr;
    return Choose(x, y, kept, [&]<typename Index, typename Position, int kSize>() {
      using Elements = Pack<T, kSize>;
      const PoolGeometry<Index> geometry(spec_, spec_.c / kSize);
      const int64_t rows = spec_.n * spec_.out_h(), columns = spec_.out_w() * spec_.c / kSize;
      if (spec_.kind == PoolKind::kAverage) {
        return ForEachCell(
            stream, rows, columns,
            AverageForward<T, Index, kSize>{geometry, static_cast<const Elements*>(x),
                                            static_cast<Elements*>(y)});
      }
      return ForEachCell(stream, rows, columns,
                         MaxForward<T, Index, Position, kSize>{
                             geometry, static_cast<const Elements*>(x), static_cast<Elements*>(y),
                             static_cast<Pack<Position, kSize>*>(kept)});
    });
  }

  absl::Status Backward(Stream& stream, const void* dy, const void* saved,
                        void* dx) const override {
    const void* const kept = saved_bytes() > 0 ? saved : nullptr;
    return Choose(dy, dx, kept, [&]<typename Index, typename Position, int kSize>() {
      using Elements = Pack<T, kSize>;
      const PoolGeometry<Index> geometry(spec_, spec_.c / kSize);
      const int64_t rows = spec_.n * spec_.h, columns = spec_.w * spec_.c / kSize;
      if (spec_.kind == PoolKind::kAverage) {
        return ForEachCell(
            stream, rows, columns,
            AverageBackward<T, Index, kSize>{geometry, static_cast<const Elements*>(dy),
                                             static_cast<Elements*>(dx)});
      }
      return ForEachCell(
          stream, rows, columns,
          MaxBackward<T, Index, Position, kSize>{geometry, static_cast<const Elements*>(dy),
                                                 static_cast<const Pack<Position, kSize>*>(kept),
                                                 static_cast<Elements*>(dx)});
    });
  }

 private:
  // Calls run<Index, Position, pack size>() with the cheapest that this spec and these operands
  // allow; the bits of the result are the same.
  template <typename Run>
  absl::Status Choose(const void* from, const void* to, const void* saved, Run run) const {
    if (!small_) return run.template operator()<int64_t, int32_t, 1>();
    if (spec_.c % kPackSize == 0 && IsAligned(from, kPackSize * sizeof(T)) &&
        IsAligned(to, kPackSize * sizeof(T)) && IsAligned(saved, kPackSize)) {
      return run.template operator()<int32_t, uint8_t, kPackSize>();
    }
    return run.template operator()<int32_t, uint8_t, 1>();
  }

  int64_t out_elements() const { return spec_.n * spec_.out_h() * spec_.out_w() * spec_.c; }

  const Pool2dSpec spec_;
  const bool small_;
};

}  // namespace

std::unique_ptr<Pool2d> PrepareReferencePool2d(const Pool2dSpec& spec) {
  return VisitReal(spec.dtype, [&]<typename T>() -> std::unique_ptr<Pool2d> {
    return std::make_unique<ReferencePool2d<T>>(spec);
  });
}

}  // namespace gyre
