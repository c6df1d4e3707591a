// recurrent_cells.h: functors of recurrent layers between their products, for parallel.h.  A call
// is for a row (a sample) and a column (a unit) at one step.
//
// Step s of a direction is time s, or T - 1 - s in the reverse direction.  A mark says whether a
// sample takes part in a step, so lengths and resets bring no branch into the loops.
#pragma once

#include "engine/runtime/elementary.h"
#include "engine/runtime/parallel/parallel.h"
#include "layers/interface/fault.h"

namespace gyre {

// Row numbers of an array [T, N, ...] or [N, T, ...].
struct SequenceRows {
  int64_t times, samples, time_step, sample_step;
  HOST_DEVICE int64_t operator()(int64_t t, int64_t n) const {
    return t * time_step + n * sample_step;
  }
};

// Marks of a sample at a step.
constexpr int32_t kAlive = 1;  // the step is within its length
constexpr int32_t kFresh = 2;  // alive, and a sequence begins: the state before the step is 0
constexpr int32_t kLast = 4;   // alive, and it is the sample's last step

// marks: [T + 1, N].  No sample is alive after the last step.
struct MarkSteps {
  SequenceRows rows;
  bool reverse, carried;
  const int32_t* order;    // of samples, or null
  const int32_t* lengths;  // by sample; null: all are T
  const int32_t* reset;    // by row, or null
  int32_t* marks;
  Fault* fault;
  int layer;

  HOST_DEVICE void operator()(int64_t s, int64_t n) const {
    const int64_t t = reverse ? rows.times - 1 - s : s;
    const int64_t sample = order == nullptr ? n : order[n];
    int64_t length = lengths == nullptr ? rows.times : lengths[sample];
    if (length < 0 || length > rows.times) {
      RaiseFault(fault, layer, sample);
      length = 0;
    }
    bool fresh = (s == 0 && !carried) || (reverse && t == length - 1);
    const int64_t begin = reverse ? t + 1 : t;  // of a sequence, if the step is its first
    if (reset != nullptr && s < rows.times && begin < rows.times) {
      const int32_t given = reset[rows(begin, sample)];
      if (given < 0 || given > 1) RaiseFault(fault, layer, sample);
      fresh = fresh || given != 0;
    }
    const bool alive = s < rows.times && t < length;
    const bool last = alive && t == (reverse ? 0 : length - 1);
    marks[s * rows.samples + n] = alive * kAlive | (alive && fresh) * kFresh | last * kLast;
  }
};

// One step's rows, its marks and the next step's.  Questions about a sample also take the column j.
// A compiler turns a comparison with the column into a vector mask, but not a condition that is
// equal for the whole row.
struct Step {
  int64_t first_row, row_step;
  const int32_t* marks;
  const int32_t* next;
  HOST_DEVICE int64_t Row(int64_t n) const { return first_row + n * row_step; }
  HOST_DEVICE bool IsAlive(int64_t n, int64_t j) const { return Has(marks[n], kAlive, j); }
  HOST_DEVICE bool IsFresh(int64_t n, int64_t j) const { return Has(marks[n], kFresh, j); }
  HOST_DEVICE bool IsLast(int64_t n, int64_t j) const { return Has(marks[n], kLast, j); }
  HOST_DEVICE bool IsNextFresh(int64_t n, int64_t j) const { return Has(next[n], kFresh, j); }

  // Whether the mark has `what`.  It compares j >= 0 with 0, or with 2^32 or more.
  HOST_DEVICE static bool Has(int32_t mark, int32_t what, int64_t j) {
    return j < static_cast<int64_t>(mark & what) << 32;
  }
};

// Turns the carried state into the state before the first step, which has these marks.
template <typename T>
struct BeginState {
  const int32_t* marks;
  int64_t width;
  T* to;
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    using A = AccumulateType<T>;
    const A carried = static_cast<A>(to[n * width + j]);
    to[n * width + j] = static_cast<T>(Step::Has(marks[n], kFresh, j) ? A{0} : carried);
  }
};

// ---- Forward ------------------------------------------------------------------------------------

template <typename T>
struct CellArrays {
  Step step;
  int64_t hidden, gates;       // units; columns of a row of gates, `hidden` for each gate
  bool keeps;                  // the gates' values, for backward
  T* gate;                     // all rows of W_ih x, which become the values that are kept
  T* recurrent;                // [N, gates]: W_hh h', which become the others
  const T *bias_ih, *bias_hh;  // [gates]

  HOST_DEVICE T* Gates(int64_t n) const { return gate + step.Row(n) * gates; }
  // Values that are not kept go where they stay in a cache.
  HOST_DEVICE T* Values(int64_t n) const { return keeps ? Gates(n) : recurrent + n * gates; }
  using A = AccumulateType<T>;
  // Inputs of the k-th gate, from x and from the state.
  HOST_DEVICE A OfInput(int64_t n, int64_t j, int64_t k) const {
    return static_cast<A>(Gates(n)[k * hidden + j]) + static_cast<A>(bias_ih[k * hidden + j]);
  }
  HOST_DEVICE A OfState(int64_t n, int64_t j, int64_t k) const {
    return static_cast<A>(recurrent[n * gates + k * hidden + j]) +
           static_cast<A>(bias_hh[k * hidden + j]);
  }
  HOST_DEVICE A Both(int64_t n, int64_t j, int64_t k) const {
    return OfInput(n, j, k) + OfState(n, j, k);
  }
};

// Stores the new h in the output and, for the next step, in the running state.  A sample that is
// not alive retains its running state.
template <typename T>
struct StoreHidden {
  using A = AccumulateType<T>;
  Step step;
  int64_t width, stride;  // columns of h; elements between rows of the output
  T* output;
  T* running;  // [N, width]
  HOST_DEVICE void operator()(int64_t n, int64_t j, A h) const {
    const int64_t at = n * width + j;
    const bool alive = step.IsAlive(n, j), next_fresh = step.IsNextFresh(n, j);
    const A before = static_cast<A>(running[at]), kept = alive ? h : before;
    output[step.Row(n) * stride + j] = static_cast<T>(alive ? h : A{0});
    running[at] = static_cast<T>(next_fresh ? A{0} : kept);
  }
};

// Stores h in [N, width], for the projection's product.
template <typename T>
struct StoreUnprojected {
  int64_t width;
  T* to;
  HOST_DEVICE void operator()(int64_t n, int64_t j, AccumulateType<T> h) const {
    to[n * width + j] = static_cast<T>(h);
  }
};

template <typename T>
struct StoreProjected {
  const T* from;
  StoreHidden<T> store;
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    store(n, j, static_cast<AccumulateType<T>>(from[n * store.width + j]));
  }
};

// Hochreiter & Schmidhuber 1997 with the forget gate of Gers et al. 2000.
template <typename T, typename Store>
struct LstmForward {
  using A = AccumulateType<T>;
  CellArrays<T> arrays;
  A* running;  // c, [N, hidden]
  T* cell;     // of this step, [N, hidden]
  Store store;
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    const int64_t hidden = arrays.hidden, at = n * hidden + j;
    const A i = Logistic(arrays.Both(n, j, 0)), f = Logistic(arrays.Both(n, j, 1));
    const A g = Tanh(arrays.Both(n, j, 2)), o = Logistic(arrays.Both(n, j, 3));
    const A before = running[at];
    const A c = arrays.step.IsAlive(n, j) ? f * before + i * g : before;
    T* const gates = arrays.Values(n);
    gates[j] = static_cast<T>(i);
    gates[hidden + j] = static_cast<T>(f);
    gates[2 * hidden + j] = static_cast<T>(g);
    gates[3 * hidden + j] = static_cast<T>(o);
    cell[at] = static_cast<T>(c);
    running[at] = arrays.step.IsNextFresh(n, j) ? A{0} : c;
    store(n, j, o * Tanh(c));
  }
};

// Cho et al. 2014, arXiv:1406.1078, with the reset after the product, as in cuDNN and PyTorch.
template <typename T>
struct GruForward {
  using A = AccumulateType<T>;
  CellArrays<T> arrays;
  T* candidate;  // all rows of W_hn h' + b_hn
  StoreHidden<T> store;
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    const int64_t hidden = arrays.hidden;
    const A r = Logistic(arrays.Both(n, j, 0)), z = Logistic(arrays.Both(n, j, 1));
    const A of_state = arrays.OfState(n, j, 2);
    const A c = Tanh(arrays.OfInput(n, j, 2) + r * of_state);
    const A before = static_cast<A>(store.running[n * hidden + j]);
    T* const gates = arrays.Values(n);
    gates[j] = static_cast<T>(r);
    gates[hidden + j] = static_cast<T>(z);
    gates[2 * hidden + j] = static_cast<T>(c);
    candidate[arrays.step.Row(n) * hidden + j] = static_cast<T>(of_state);
    store(n, j, c + z * (before - c));
  }
};

// Elman 1990.  The one gate is h.
struct TanhCell {
  template <typename A>
  HOST_DEVICE static A Value(A x) {
    return Tanh(x);
  }
  template <typename A>
  HOST_DEVICE static A Slope(A y) {
    return 1 - y * y;
  }
};

struct ReluCell {
  template <typename A>
  HOST_DEVICE static A Value(A x) {
    return x <= 0 ? A{0} : x;  // a NaN stays
  }
  template <typename A>
  HOST_DEVICE static A Slope(A y) {
    return y <= 0 ? A{0} : A{1};
  }
};

template <typename T, typename Cell>
struct RnnForward {
  CellArrays<T> arrays;
  StoreHidden<T> store;
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    const AccumulateType<T> h = Cell::Value(arrays.Both(n, j, 0));
    arrays.Values(n)[j] = static_cast<T>(h);
    store(n, j, h);
  }
};

// ---- Backward -----------------------------------------------------------------------------------

// h' of a step's rows, 0 if a sequence begins.
template <typename T>
struct PreviousHidden {
  using A = AccumulateType<T>;
  Step step, before;
  int64_t width, stride;
  const T* from;  // rows of the step before
  T* to;          // all rows
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    const A h = static_cast<A>(from[before.Row(n) * stride + j]);
    to[step.Row(n) * width + j] = static_cast<T>(step.IsFresh(n, j) ? A{0} : h);
  }
};

// dh is the output's gradient plus that from the next step.  At a sample's last step the second is
// the gradient of its final state.
template <typename T>
struct HiddenGradient {
  using A = AccumulateType<T>;
  Step step;
  int64_t width, stride;
  const T* output;  // dL/doutput, all rows
  const T* last;    // [N, width]
  const T* next;    // [N, width]
  HOST_DEVICE A operator()(int64_t n, int64_t j) const {
    const int64_t at = n * width + j;
    const A of_last = static_cast<A>(last[at]), of_next = static_cast<A>(next[at]);
    const A of_output = static_cast<A>(output[step.Row(n) * stride + j]);
    const bool is_last = step.IsLast(n, j), next_fresh = step.IsNextFresh(n, j);
    const bool alive = step.IsAlive(n, j);
    const A going_on = next_fresh ? A{0} : of_next, later = is_last ? of_last : going_on;
    return alive ? of_output + later : A{0};
  }
};

// Stores the gradient of a projection's result, for the gradients of its input and of its weight.
template <typename T>
struct ProjectedGradient {
  HiddenGradient<T> gradient;
  T* of_step;
  T* of_all;
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    const T dh = static_cast<T>(gradient(n, j));
    of_step[n * gradient.width + j] = dh;
    of_all[n * gradient.width + j] = dh;
  }
};

template <typename T>
struct UnprojectedGradient {
  int64_t width;
  const T* from;  // [N, width]
  HOST_DEVICE AccumulateType<T> operator()(int64_t n, int64_t j) const {
    return static_cast<AccumulateType<T>>(from[n * width + j]);
  }
};

// Turns gates into the gradients of their inputs from x.  `of_step`, [N, gates], gets those of
// W_hh h'.
template <typename T>
struct GateGradients {
  using A = AccumulateType<T>;
  Step step;
  int64_t hidden, gates;
  T* gate;
  T* of_step;

  HOST_DEVICE T* Gates(int64_t n) const { return gate + step.Row(n) * gates; }
  HOST_DEVICE A Gate(int64_t n, int64_t j, int64_t k) const {
    return static_cast<A>(Gates(n)[k * hidden + j]);
  }
  HOST_DEVICE void OfInput(int64_t n, int64_t j, int64_t k, A d) const {
    Gates(n)[k * hidden + j] = static_cast<T>(step.IsAlive(n, j) ? d : A{0});
  }
  HOST_DEVICE void OfState(int64_t n, int64_t j, int64_t k, A d) const {
    of_step[n * gates + k * hidden + j] = static_cast<T>(step.IsAlive(n, j) ? d : A{0});
  }
  HOST_DEVICE void Both(int64_t n, int64_t j, int64_t k, A d) const {
    OfInput(n, j, k, d);
    OfState(n, j, k, d);
  }
};

// With kProjects the step's cell becomes o tanh(c), for the gradient of the projection's weight.
template <typename T, typename Gradient, bool kProjects>
struct LstmBackward {
  using A = AccumulateType<T>;
  GateGradients<T> gates;
  Gradient gradient;
  const T* before;  // c', [N, hidden]
  T* cell;          // c
  A* running;       // dL/dc, [N, hidden]
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    const Step& step = gates.step;
    const bool alive = step.IsAlive(n, j), fresh = step.IsFresh(n, j);
    const int64_t at = n * gates.hidden + j;
    const A i = gates.Gate(n, j, 0), f = gates.Gate(n, j, 1);
    const A g = gates.Gate(n, j, 2), o = gates.Gate(n, j, 3);
    const A kept = static_cast<A>(before[at]), c_before = fresh ? A{0} : kept;
    const A tanh_c = Tanh(static_cast<A>(cell[at]));
    const A dh = gradient(n, j), dc = dh * o * (1 - tanh_c * tanh_c) + running[at];
    gates.Both(n, j, 0, dc * g * i * (1 - i));
    gates.Both(n, j, 1, dc * c_before * f * (1 - f));
    gates.Both(n, j, 2, dc * i * (1 - g * g));
    gates.Both(n, j, 3, dh * tanh_c * o * (1 - o));
    const A back = fresh ? A{0} : dc * f;
    running[at] = alive ? back : A{0};
    if constexpr (kProjects) cell[at] = static_cast<T>(o * tanh_c);
  }
};

template <typename T>
struct GruBackward {
  using A = AccumulateType<T>;
  GateGradients<T> gates;
  HiddenGradient<T> gradient;
  const T* before;  // h' of all rows
  T* candidate;     // of all rows; becomes its gradient
  A* running;       // [N, hidden]: the share of dL/dh' that bypasses the gates
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    const Step& step = gates.step;
    const int64_t at = step.Row(n) * gates.hidden + j;
    const A r = gates.Gate(n, j, 0), z = gates.Gate(n, j, 1), c = gates.Gate(n, j, 2);
    const bool fresh = step.IsFresh(n, j);
    A& straight = running[n * gates.hidden + j];
    const A dh = gradient(n, j) + straight, of_state = static_cast<A>(candidate[at]);
    const A dc = dh * (1 - z) * (1 - c * c);
    gates.Both(n, j, 0, dc * of_state * r * (1 - r));
    gates.Both(n, j, 1, dh * (static_cast<A>(before[at]) - c) * z * (1 - z));
    gates.OfInput(n, j, 2, dc);
    gates.OfState(n, j, 2, dc * r);
    candidate[at] = static_cast<T>(step.IsAlive(n, j) ? dc * r : A{0});
    straight = fresh ? A{0} : dh * z;
  }
};

template <typename T, typename Cell>
struct RnnBackward {
  using A = AccumulateType<T>;
  GateGradients<T> gates;
  HiddenGradient<T> gradient;
  HOST_DEVICE void operator()(int64_t n, int64_t j) const {
    gates.Both(n, j, 0, gradient(n, j) * Cell::Slope(gates.Gate(n, j, 0)));
  }
};

// Sums `from`, [rows, columns], over rows by ReduceColumns, into each bound gradient of a bias.
// With `adds`, adds to the gradient.
template <typename T>
struct SumOfGates : SumReduction<AccumulateType<T>> {
  using A = AccumulateType<T>;
  int64_t columns;
  const T* from;
  T *bias, *other;  // or null
  bool adds;
  HOST_DEVICE A Load(int64_t row, int64_t column) const {
    return static_cast<A>(from[row * columns + column]);
  }
  HOST_DEVICE void Store(int64_t column, A sum) const {
    if (bias != nullptr) Put(bias[column], sum);
    if (other != nullptr) Put(other[column], sum);
  }
  HOST_DEVICE void Put(T& to, A sum) const {
    to = static_cast<T>(adds ? static_cast<A>(to) + sum : sum);
  }
};

// Swaps the last `width` columns of rows of `stride` elements with the rows of `other`.
template <typename T>
struct SwapColumns {
  int64_t width, stride;
  T* rows;
  T* other;
  HOST_DEVICE void operator()(int64_t row, int64_t j) const {
    T& a = rows[row * stride + stride - width + j];
    T& b = other[row * width + j];
    const T kept = a;
    a = b;
    b = kept;
  }
};

}  // namespace gyre
