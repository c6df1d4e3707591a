// narrow_passes.h: the loops of the narrow convolution, and how it sums.  Inside the library only.
//
// Terms:
//   run      the elements, columns by channels, that a row of the kernel covers of an image's row
//   R, F, L  a row of the kernel, a filter, an element of a run
#pragma once

#include <algorithm>
#include <utility>

#include "engine/runtime/math.h"
#include "engine/runtime/primitives/activation.h"
#include "engine/runtime/primitives/blocked/depthwise_walk.h"
#include "engine/runtime/primitives/blocked/products.h"

namespace gyre::narrow {

inline constexpr int64_t kLanes = 16;

struct Extents {
  explicit Extents(const Conv2dSpec& spec)
      : n(spec.n),
        h(spec.h),
        out_h(spec.out_h()),
        out_w(spec.out_w()),
        row(spec.w * spec.c),
        out_row(spec.out_w() * spec.filters),
        kernel_h(spec.window.kernel_h),
        stride_h(spec.window.stride_h),
        dilation_h(spec.window.dilation_h),
        filters(spec.filters),
        run(spec.window.kernel_w * spec.c),
        step(spec.window.stride_w * spec.c) {}

  int64_t n, h, out_h, out_w;
  int64_t row, out_row;  // elements of a row of x, and of y
  int64_t kernel_h, stride_h, dilation_h, filters;
  int64_t run, step;  // elements of a run, and from its begin to the next output's
};

// Returns how many of `columns` products run along the columns, which fill vectors.  The few others
// are cheaper along `inner`, with a vector for each 16 terms and some to add its lanes up.
inline int64_t AlongColumns(int64_t columns, int64_t inner) {
  const int64_t left = columns % kLanes;
  return left * (CeilDiv(inner, kLanes) + 4) < inner ? columns - left : columns;
}

// Transposes from[R, F, L] into to[R, L, F].
struct TurnWeights {
  int64_t run, filters;
  const float* from;
  float* to;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t i = begin * filters; i < end * filters; ++i) {
      float* first = to + i / filters * filters * run + i % filters;
      for (int64_t l = 0; l < run; ++l) first[l * filters] = from[i * run + l];
    }
  }
};

// Rows of y, which are the runs under a pixel times the weights.
struct RowsOfOutput {
  Extents e;
  const float* x;
  const float* weights;
  const float* turned;
  const float* bias;  // may be null
  Activation activation;
  float* y;

  void operator()(int64_t begin, int64_t end) const {
    const int64_t along = AlongColumns(e.filters, e.run);
    for (int64_t i = begin; i < end; ++i) {
      float* const to = y + i * e.out_row;
      Products p{.rows = e.out_w, .columns = along, .outer = e.kernel_h, .inner = e.run};
      p.a = x + (i / e.out_h * e.h + i % e.out_h * e.stride_h) * e.row;
      p.a_row = e.step, p.a_outer = e.dilation_h * e.row;
      p.b = turned, p.b_outer = e.run * e.filters, p.b_inner = e.filters;
      p.start = bias;
      p.c = to, p.c_row = e.filters;
      MultiplyAlongColumns(p);
      p.columns = e.filters - along;
      p.b = weights + along * e.run, p.b_inner = 1, p.b_column = e.run;
      if (bias != nullptr) p.start += along;
      p.c += along;
      MultiplyAlongInner(p);
      if (activation == Activation::kNone) continue;
#pragma omp simd
      for (int64_t j = 0; j < e.out_row; ++j) to[j] = Activate(activation, to[j]);
    }
  }
};

// Rows of dx.  Each output that reaches a row adds its share to its run there.
struct RowsOfInput {
  Extents e;
  const float* dy;
  const float* weights;
  const float* turned;
  float* dx;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      float* const to = dx + i * e.row;
      std::fill_n(to, e.row, 0.0F);
      const Reach reach = Outputs(i % e.h);
      if (reach.count == 0) continue;
      Products p{.outer = reach.count, .inner = e.filters};
      p.a = dy + (i / e.h * e.out_h + reach.other) * e.out_row;
      p.a_row = e.filters, p.a_outer = reach.other_step * e.out_row;
      p.b_outer = reach.tap_step * e.filters * e.run;
      const int64_t along = AlongColumns(e.run, e.filters), first = reach.tap * e.filters * e.run;
      p.b = weights + first, p.b_inner = e.run;
      for (int64_t l = 0; l < along; l += kProductColumns) {
        AddTiles(MultiplyAlongColumns, p, l, std::min(kProductColumns, along - l), to);
      }
      p.b = turned + first, p.b_inner = 1, p.b_column = e.filters;
      AddTiles(MultiplyAlongInner, p, along, e.run - along, to);
    }
  }

  // Returns the kernel's rows through which outputs reach a row of an image, and the outputs' rows.
  Reach Outputs(int64_t row) const {
    Reach reach;
    for (int64_t r = 0; r < e.kernel_h && r * e.dilation_h <= row; ++r) {
      const int64_t top = row - r * e.dilation_h;
      if (top % e.stride_h == 0 && top / e.stride_h < e.out_h) reach.Add(r, top / e.stride_h);
    }
    return reach;
  }

  // Adds elements [l, l + count) of all runs of a row.
  void AddTiles(void (*multiply)(const Products&), Products p, int64_t l, int64_t count,
                float* to) const {
    float tile[kProductRows * kProductColumns];
    p.columns = count;
    p.b += l * p.b_column;
    p.c = tile, p.c_row = kProductColumns;
    // Runs that do not overlap follow each other.  Values just stored are slow to load in part.
    const int64_t apart = CeilDiv(count, e.step);
    for (int64_t pixel = 0; pixel < e.out_w; pixel += kProductRows) {
      p.rows = std::min(kProductRows, e.out_w - pixel);
      multiply(p);
      for (int64_t first = 0; first < apart; ++first) {
        for (int64_t i = first; i < p.rows; i += apart) {
          Add(tile + i * kProductColumns, count, to + (pixel + i) * e.step + l);
        }
      }
      p.a += kProductRows * p.a_row;
    }
  }

  static void Add(const float* from, int64_t count, float* to) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] += from[i];
  }
};

// Gradients of weights are summed over bands of an image's rows, then over the images of a slice,
// then over the slices.  Sums are short, and threads do not decide how they are split.
inline constexpr int64_t kBandPixels = 1024;
inline constexpr int64_t kMostSlices = 8;

// A slice's sums.  Each row of the kernel has [F, whole], then [L - whole, F].  Both fill vectors,
// as few elements are left of a run after its whole vectors.  The bias's [F] follow all rows.
struct Sums {
  explicit Sums(const Extents& e)
      : per_slice(std::max<int64_t>(CeilDiv(e.n, kMostSlices), 1)),
        slices(CeilDiv(e.n, per_slice)),
        whole(e.run / kLanes * kLanes),
        of_row(e.filters * e.run),
        of_slice(e.kernel_h * of_row + e.filters) {
    // Or the run takes one more vector, partly filled, if that is cheaper.
    if ((e.run - whole) * CeilDiv(e.filters, kLanes) > e.filters) whole = e.run;
  }

  int64_t per_slice, slices, whole, of_row, of_slice;
};

// Tasks are (slice, row of the kernel).
struct SumSlices {
  Extents e;
  Sums sums;
  const float* x;
  const float* dy;
  float* scratch;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t slice = i / e.kernel_h, r = i % e.kernel_h;
      float* const of_slice = scratch + slice * sums.of_slice;
      float* const of_row = of_slice + r * sums.of_row;
      float* const of_bias = of_slice + e.kernel_h * sums.of_row;
      std::fill_n(of_row, sums.of_row, 0.0F);
      if (r == 0) std::fill_n(of_bias, e.filters, 0.0F);
      const int64_t last = std::min(e.n, (slice + 1) * sums.per_slice);
      for (int64_t image = slice * sums.per_slice; image < last; ++image) {
        const float* gradient = dy + image * e.out_h * e.out_row;
        AddImage(x + (image * e.h + r * e.dilation_h) * e.row, gradient, of_row);
        if (r == 0) AddPixels(gradient, of_bias);
      }
    }
  }

  void AddImage(const float* runs, const float* gradient, float* of_row) const {
    const int64_t rows = CeilDiv(kBandPixels, e.out_w);
    for (int64_t first = 0; first < e.out_h; first += rows) {
      const float* run = runs + first * e.stride_h * e.row;
      const float* filters = gradient + first * e.out_row;
      Products p{.outer = std::min(rows, e.out_h - first), .inner = e.out_w};
      p.rows = e.filters, p.columns = sums.whole;
      p.a = filters, p.a_row = 1, p.a_outer = e.out_row, p.a_inner = e.filters;
      p.b = run, p.b_outer = e.stride_h * e.row, p.b_inner = e.step;
      p.start = p.c = of_row, p.start_row = p.c_row = sums.whole;
      MultiplyAlongColumns(p);
      std::swap(p.a, p.b), std::swap(p.a_outer, p.b_outer), std::swap(p.a_inner, p.b_inner);
      p.a += sums.whole;
      p.rows = e.run - sums.whole, p.columns = e.filters;
      p.start = p.c = of_row + e.filters * sums.whole, p.start_row = p.c_row = e.filters;
      MultiplyAlongColumns(p);
    }
  }

  // Four at a time, as each sum of four pixels waits for the one before.
  void AddPixels(const float* gradient, float* to) const {
    const int64_t pixels = e.out_h * e.out_w;
    int64_t i = 0;
    for (; i + 4 <= pixels; i += 4) {
      const float* p = gradient + i * e.filters;
#pragma omp simd
      for (int64_t f = 0; f < e.filters; ++f) {
        to[f] += (p[f] + p[e.filters + f]) + (p[2 * e.filters + f] + p[3 * e.filters + f]);
      }
    }
    for (; i < pixels; ++i) {
#pragma omp simd
      for (int64_t f = 0; f < e.filters; ++f) to[f] += gradient[i * e.filters + f];
    }
  }
};

// Runs [R, F] of weights' gradients, each summed over the slices in order.
struct AddSlices {
  Extents e;
  Sums sums;
  const float* scratch;
  float* to;

  void operator()(int64_t begin, int64_t end) const {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t filter = i % e.filters;
      float* const run = to + i * e.run;
      std::fill_n(run, e.run, 0.0F);
      for (int64_t slice = 0; slice < sums.slices; ++slice) {
        const float* of_row = scratch + slice * sums.of_slice + i / e.filters * sums.of_row;
        const float* whole = of_row + filter * sums.whole;
#pragma omp simd
        for (int64_t l = 0; l < sums.whole; ++l) run[l] += whole[l];
        const float* rest = of_row + e.filters * sums.whole + filter;
        for (int64_t l = sums.whole; l < e.run; ++l) run[l] += rest[(l - sums.whole) * e.filters];
      }
    }
  }
};

// The same for the bias.
struct AddSlicesOfBias {
  Extents e;
  Sums sums;
  const float* scratch;
  float* to;

  void operator()(int64_t begin, int64_t end) const {
    std::fill(to + begin, to + end, 0.0F);
    for (int64_t slice = 0; slice < sums.slices; ++slice) {
      const float* of_bias = scratch + (slice + 1) * sums.of_slice - e.filters;
#pragma omp simd
      for (int64_t f = begin; f < end; ++f) to[f] += of_bias[f];
    }
  }
};

}  // namespace gyre::narrow
