// recurrent_rows.h: the order of a recurrent layer's rows.  It is x's, or packed, without the rows
// beyond a sample's length, if samples have lengths that the host can read.
//
// A time's packed rows are of the samples longer than it, the longest first.  So they are also the
// first rows of the time before, and of running states.  The host knows their number only after the
// work before.  So a packed pass is one call on the stream, which runs its work at once.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "engine/runtime/device/forwarding_stream.h"
#include "layers/common/cells.h"
#include "layers/interface/layer.h"
#include "layers/recurrent/recurrent_cells.h"

namespace gyre {

// In a pass's scratch, but written and read by the host.  All null unless rows are packed.
struct PackedRows {
  int64_t* alive = nullptr;   // [T + 1]: samples at a time; none at T
  int64_t* first = nullptr;   // [T + 1]: first row of a time; the last is the number of rows
  int32_t* order = nullptr;   // [N]: samples, the longest first
  int32_t* place = nullptr;   // [N]: a sample's index in `order`
  int32_t* outer = nullptr;   // by packed row: the row in x
  int32_t* packed = nullptr;  // by row in x: the packed row, or -1
  uint64_t* zeros = nullptr;  // for the columns of the widest row
};

// lengths: [N].  A bad length counts as 0.
inline void PackRows(const SequenceRows& rows, const int32_t* lengths, const PackedRows& to) {
  const auto length = [&](int64_t n) {
    return lengths[n] < 0 || lengths[n] > rows.times ? 0 : lengths[n];
  };
  std::fill_n(to.alive, rows.times + 1, 0);
  for (int64_t n = 0; n < rows.samples; ++n) {
    if (length(n) > 0) ++to.alive[length(n) - 1];
  }
  for (int64_t t = rows.times; t-- > 0;) to.alive[t] += to.alive[t + 1];
  // Longer samples come before a sample.
  std::copy_n(to.alive, rows.times + 1, to.first);
  for (int64_t n = 0; n < rows.samples; ++n) {
    to.place[n] = static_cast<int32_t>(to.first[length(n)]++);
    to.order[to.place[n]] = static_cast<int32_t>(n);
  }
  to.first[0] = 0;
  for (int64_t t = 0; t < rows.times; ++t) to.first[t + 1] = to.first[t] + to.alive[t];
  std::fill_n(to.packed, rows.times * rows.samples, -1);
  for (int64_t t = 0; t < rows.times; ++t) {
    for (int64_t k = 0; k < to.alive[t]; ++k) {
      const int64_t row = to.first[t] + k, outer = rows(t, to.order[k]);
      to.outer[row] = static_cast<int32_t>(outer);
      to.packed[outer] = static_cast<int32_t>(row);
    }
  }
}

template <typename Bits>
struct TakeRow {
  const int32_t* index;
  const Bits* from;
  int64_t from_stride;
  const Bits* zeros;
  Bits* to;
  int64_t to_stride;
  HOST_DEVICE void operator()(int64_t row, int64_t column) const {
    const Bits* const taken = index[row] < 0 ? zeros : from + index[row] * from_stride;
    to[row * to_stride + column] = taken[column];
  }
};

// Row r of `to` is row index[r] of `from`, zeros if index[r] < 0, or row r if index is null.
inline absl::Status TakeRows(Stream& stream, DType dtype, int64_t rows, int64_t columns,
                             const int32_t* index, const uint64_t* zeros, Cells from, Cells to) {
  if (index == nullptr) return CopyCells(stream, dtype, rows, columns, from, to);
  return VisitBits(dtype, [&]<typename Bits>() {
    return ForEachCell(stream, rows, columns,
                       TakeRow<Bits>{index, static_cast<const Bits*>(from.first), from.stride,
                                     reinterpret_cast<const Bits*>(zeros),
                                     static_cast<Bits*>(to.first), to.stride});
  });
}

// Enqueues run(context), for `cpu` and `sim`.  The stream in its context runs all work at once.
template <typename F>
absl::Status RunAtOnce(const LayerContext& context, const F& run) {
  class AtOnce : public ForwardingStream {
   public:
    using ForwardingStream::ForwardingStream;
    absl::Status Call(std::function<absl::Status()> work) override { return work(); }
  };
  struct BoundTensors {
    std::vector<Tensor> states, gradients;  // the context's are gone by then
  };
  auto bound = std::make_shared<BoundTensors>(
      BoundTensors{{context.states.begin(), context.states.end()},
                   {context.gradients.begin(), context.gradients.end()}});
  return context.stream.Call([context, bound = std::move(bound), run] {
    AtOnce stream(context.stream);
    return run(LayerContext{stream, bound->states, bound->gradients, context.position,
                            context.fault, context.layer, context.phase, context.recompute});
  });
}

}  // namespace gyre
