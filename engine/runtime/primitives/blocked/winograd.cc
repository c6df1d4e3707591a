// Convolution of 3 x 3 by Winograd's F(2x2, 3x3), for nets that are not trained: 16 products of a
// channel and a filter make 4 outputs, which take 36 else.
//
// Stored are the canonical weights, which Unpack returns bit for bit, and then their points,
// [strip of filters][point][channel][filter].  A task is a block of tiles and some strips:
//   points of x   [point][tile][channel], in the thread's own memory, which its cache holds
//   each strip    16 products of [tiles, channels] and [channels, filters], and from them the
//                 tiles of y
// No task waits for another.
//
// Channels are summed in order, so the bits depend on neither batch nor threads.  An output is off
// by at most 64 (C + 10) C X W 2^-24, with C channels and magnitudes in x and weights of at most X
// and W.  64 is the square of the largest row of |A^T| (|G| 1 |B^T| 1).  Of random values errors
// are like those of a direct convolution, whose sums have nine times as many terms.
#include <omp.h>

#include <algorithm>

#include "engine/runtime/math.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/primitives/blocked/blocked.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/blocked/products.h"
#include "engine/runtime/primitives/blocked/winograd_tiles.h"

namespace gyre {
namespace {

using winograd::kLanes, winograd::kPoints, winograd::kTile;

constexpr std::string_view kLayout = "winograd 2x2";
constexpr int64_t kStrip = 2 * kLanes;        // filters
constexpr int64_t kBlock = 4 * kProductRows;  // tiles
// Tasks of a thread, in which its share can differ from another's.
constexpr int64_t kThreadTasks = 4;

struct alignas(kLanes * sizeof(float)) PointVector {
  float lanes[kLanes];
};

// Offsets and strides in elements.
struct WinogradExtents {
  explicit WinogradExtents(const Conv2dSpec& spec)
      : rows(CeilDiv(spec.out_h(), kTile)),
        columns(CeilDiv(spec.out_w(), kTile)),
        tiles(spec.n * rows * columns),
        blocks(CeilDiv(tiles, kBlock)),
        plane(kBlock * spec.c + kLanes),
        strips(CeilDiv(spec.filters, kStrip)),
        strip(kPoints * spec.c * kStrip),
        points(RoundUp(spec.weights(), kLanes)) {}

  int64_t rows, columns;  // tiles of an image
  int64_t tiles, blocks;  // in all
  // From one point of a block to the next.  A vector more than it needs, so that the points of a
  // tile do not meet in one set of a cache.
  int64_t plane;
  int64_t strips, strip;  // their number, and the weights' points in one
  int64_t points;         // where they begin behind the canonical weights
};

// Where a tile is in the images.
struct TilePosition {
  TilePosition(const WinogradExtents& extents, int64_t tile)
      : image(tile / (extents.rows * extents.columns)),
        row(tile / extents.columns % extents.rows * kTile),
        column(tile % extents.columns * kTile) {}

  int64_t image, row, column;  // of the tile's first pixel in y
};

// Tasks are (block of tiles, group of strips).  Each group transforms its block anew, which takes
// an eighth of one strip's products.
struct WinogradForward {
  Conv2dSpec spec;
  WinogradExtents extents;
  int64_t groups;
  const float* x;
  const float* weights;
  const float* bias;  // or null
  float* y;

  void operator()(int64_t begin, int64_t end) const {
    float* const points =
        parallel_internal::PartialValues<PointVector>(kPoints * extents.plane / kLanes)->lanes;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t first = task / groups * kBlock, group = task % groups;
      const int64_t count = std::min(kBlock, extents.tiles - first);
      PointsOfInput(first, count, points);
      for (int64_t strip = extents.strips * group / groups;
           strip < extents.strips * (group + 1) / groups; ++strip) {
        OutputsOfPoints(strip, first, count, points);
      }
    }
  }

  void PointsOfInput(int64_t first, int64_t count, float* points) const {
    const Window2d& w = spec.window;
    for (int64_t i = 0; i < count; ++i) {
      const TilePosition at(extents, first + i);
      const int64_t row = at.row - w.padding_top, column = at.column - w.padding_left;
      const int64_t pixel = (at.image * spec.h + row) * spec.w + column;
      winograd::ToPoints({.pixel = x + pixel * spec.c,
                          .row = spec.w * spec.c,
                          .channels = spec.c,
                          .rows = {-row, spec.h - row},
                          .columns = {-column, spec.w - column}},
                         points + i * spec.c, extents.plane);
    }
  }

  void OutputsOfPoints(int64_t strip, int64_t first, int64_t count, const float* points) const {
    alignas(64) float sums[kPoints * kBlock * kStrip];
    const int64_t filters = std::min(kStrip, spec.filters - strip * kStrip);
    Products p{.rows = count, .columns = filters, .inner = spec.c};
    p.a_row = spec.c;
    p.b_inner = p.c_row = kStrip;
    for (int64_t point = 0; point < kPoints; ++point) {
      p.a = points + point * extents.plane;
      p.b = weights + strip * extents.strip + point * spec.c * kStrip;
      p.c = sums + point * kBlock * kStrip;
      MultiplyAlongColumns(p);
    }
    for (int64_t i = 0; i < count; ++i) {
      const TilePosition at(extents, first + i);
      const int64_t row = spec.out_w() * spec.filters;
      float* const pixel =
          y + (at.image * spec.out_h() + at.row) * row + at.column * spec.filters + strip * kStrip;
      for (int64_t f = 0; f < filters; f += kLanes) {
        winograd::FromPoints(sums + i * kStrip + f, kBlock * kStrip,
                             {.bias = bias == nullptr ? nullptr : bias + strip * kStrip + f,
                              .pixel = pixel + f,
                              .row = row,
                              .column = spec.filters,
                              .rows = {0, spec.out_h() - at.row},
                              .columns = {0, spec.out_w() - at.column},
                              .activation = spec.activation});
      }
    }
  }
};

class Winograd : public Conv2d {
 public:
  explicit Winograd(const Conv2dSpec& spec) : Conv2d({}), spec_(spec), extents_(spec) {
    layout_.tag = kLayout;
    layout_.bytes =
        static_cast<size_t>(extents_.points + extents_.strips * extents_.strip) * sizeof(float);
  }

  size_t scratch_bytes() const override { return 0; }

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void*) const override {
    return stream.Call([=, this] {
      const int64_t threads = omp_get_max_threads();
      const int64_t wanted = threads == 1 ? 1 : kThreadTasks * threads;
      const int64_t groups = std::clamp<int64_t>(
          CeilDiv(wanted, std::max<int64_t>(1, extents_.blocks)), 1, extents_.strips);
      RunByTask(extents_.blocks * groups,
                WinogradForward{spec_, extents_, groups, static_cast<const float*>(x),
                                static_cast<const float*>(weights) + extents_.points,
                                spec_.bias ? static_cast<const float*>(bias) : nullptr,
                                static_cast<float*>(y)});
      return absl::OkStatus();
    });
  }

  absl::Status BackwardData(Stream&, const void*, const void*, void*, void*) const override {
    return NotTrained();
  }
  absl::Status BackwardWeights(Stream&, const void*, const void*, void*, void*,
                               void*) const override {
    return NotTrained();
  }

  absl::Status Pack(const void* canonical, void* opaque) const override {
    const float* const from = static_cast<const float*>(canonical);
    float* const to = static_cast<float*>(opaque);
    std::fill(std::copy_n(from, spec_.weights(), to), to + layout_.bytes / sizeof(float), 0.0F);
    for (int64_t filter = 0; filter < spec_.filters; ++filter) {
      float* const strip =
          to + extents_.points + filter / kStrip * extents_.strip + filter % kStrip;
      for (int64_t c = 0; c < spec_.c; ++c) {
        winograd::KernelToPoints(from + (filter * spec_.c + c) * winograd::kKernelSize,
                                 strip + c * kStrip, spec_.c * kStrip);
      }
    }
    return absl::OkStatus();
  }
  absl::Status Unpack(const void* opaque, void* canonical) const override {
    std::copy_n(static_cast<const float*>(opaque), spec_.weights(), static_cast<float*>(canonical));
    return absl::OkStatus();
  }

 private:
  absl::Status NotTrained() const {
    return absl::InternalError(ToString(spec_) + ": has no backward pass");
  }

  const Conv2dSpec spec_;
  const WinogradExtents extents_;
};

// Full vectors, in a net that is not trained.  So many tiles are worth reading 16 / 9 of the
// weights.
bool Transforms(const Conv2dSpec& spec) {
  constexpr int64_t kFewestTiles = 9;
  const Window2d& w = spec.window;
  const auto fills = [](int64_t channels) {
    return channels % kLanes == 0 && channels >= 2 * kLanes;
  };
  const bool plain = spec.dtype == DType::kF32 && spec.groups == 1 && !spec.train &&
                     w.kernel_h == winograd::kKernel && w.kernel_w == winograd::kKernel &&
                     std::max({w.stride_h, w.stride_w, w.dilation_h, w.dilation_w}) == 1 &&
                     fills(spec.c) && fills(spec.filters);
  if (!plain || !spec.weight_layout.empty()) return plain && spec.weight_layout == kLayout;
  return CeilDiv(spec.out_h(), kTile) * CeilDiv(spec.out_w(), kTile) >= kFewestTiles;
}

}  // namespace

std::unique_ptr<Conv2d> PrepareWinograd(const Conv2dSpec& spec) {
  return Transforms(spec) ? std::make_unique<Winograd>(spec) : nullptr;
}

}  // namespace gyre
