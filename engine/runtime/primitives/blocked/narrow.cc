// Convolution of few channels to few filters.  Of 20 channels a vector of 16 leaves 12 lanes of its
// second empty; but what a row of the kernel covers of an image, 5 pixels of 20 channels, lies as
// one run of 100.  The passes are products of such runs, read where they lie.  Weights are stored
// [rows of the kernel, filters, runs].  Passes also read them as [rows, runs, filters], into which
// each pass turns them.  A net that is not trained stores both.
#include "engine/runtime/primitives/blocked/blocked.h"
#include "engine/runtime/primitives/blocked/channels.h"
#include "engine/runtime/primitives/blocked/narrow_passes.h"

namespace gyre {
namespace {

constexpr std::string_view kLayout = "rows,filters,runs";
constexpr std::string_view kBothLayout = "rows,filters,runs and rows,runs,filters";

class Narrow : public Conv2d {
 public:
  Narrow(const Conv2dSpec& spec, bool stores_both)
      : Conv2d({.bytes = static_cast<size_t>(stores_both ? 2 * Aligned(spec) : spec.weights()) *
                         sizeof(float),
                .tag = std::string(stores_both ? kBothLayout : kLayout)}),
        spec_(spec),
        extents_(spec),
        sums_(extents_),
        stores_both_(stores_both) {}

  size_t scratch_bytes() const override {
    if (stores_both_) return 0;
    const size_t sums = static_cast<size_t>(sums_.slices * sums_.of_slice) * sizeof(float);
    return spec_.train ? std::max(sums, layout_.bytes) : layout_.bytes;
  }

  absl::Status Forward(Stream& stream, const void* x, const void* weights, const void* bias,
                       void* y, void* scratch) const override {
    if (!stores_both_) RETURN_IF_ERROR(Turn(stream, weights, scratch));
    const float* const stored = static_cast<const float*>(weights);
    return OnTeam(stream, extents_.n * extents_.out_h,
                  narrow::RowsOfOutput{
                      extents_, static_cast<const float*>(x), stored,
                      stores_both_ ? stored + Aligned(spec_) : static_cast<const float*>(scratch),
                      spec_.bias ? static_cast<const float*>(bias) : nullptr, spec_.activation,
                      static_cast<float*>(y)});
  }

  absl::Status BackwardData(Stream& stream, const void* dy, const void* weights, void* dx,
                            void* scratch) const override {
    RETURN_IF_ERROR(Turn(stream, weights, scratch));
    return OnTeam(stream, extents_.n * extents_.h,
                  narrow::RowsOfInput{extents_, static_cast<const float*>(dy),
                                      static_cast<const float*>(weights),
                                      static_cast<const float*>(scratch), static_cast<float*>(dx)});
  }

  absl::Status BackwardWeights(Stream& stream, const void* x, const void* dy, void* dweights,
                               void* dbias, void* scratch) const override {
    float* const sums = static_cast<float*>(scratch);
    RETURN_IF_ERROR(OnTeam(stream, sums_.slices * extents_.kernel_h,
                           narrow::SumSlices{extents_, sums_, static_cast<const float*>(x),
                                             static_cast<const float*>(dy), sums}));
    RETURN_IF_ERROR(
        OnTeam(stream, extents_.kernel_h * extents_.filters,
               narrow::AddSlices{extents_, sums_, sums, static_cast<float*>(dweights)}));
    if (!spec_.bias) return absl::OkStatus();
    return OnTeam(stream, extents_.filters,
                  narrow::AddSlicesOfBias{extents_, sums_, sums, static_cast<float*>(dbias)});
  }

  absl::Status Pack(const void* canonical, void* opaque) const override {
    ForEachWeight(
        [from = static_cast<const float*>(canonical), to = static_cast<float*>(opaque)](
            int64_t of_canonical, int64_t of_opaque) { to[of_opaque] = from[of_canonical]; });
    if (!stores_both_) return absl::OkStatus();
    float* const first = static_cast<float*>(opaque);
    float* const second = first + Aligned(spec_);
    std::fill(first + spec_.weights(), second + Aligned(spec_), 0.0F);
    narrow::TurnWeights{extents_.run, extents_.filters, first, second}(0, extents_.kernel_h);
    return absl::OkStatus();
  }
  absl::Status Unpack(const void* opaque, void* canonical) const override {
    ForEachWeight(
        [from = static_cast<const float*>(opaque), to = static_cast<float*>(canonical)](
            int64_t of_canonical, int64_t of_opaque) { to[of_canonical] = from[of_opaque]; });
    return absl::OkStatus();
  }

 private:
  // Elements until the second layout.
  static int64_t Aligned(const Conv2dSpec& spec) { return RoundUp(spec.weights(), narrow::kLanes); }

  absl::Status Turn(Stream& stream, const void* weights, void* scratch) const {
    return OnTeam(
        stream, extents_.kernel_h,
        narrow::TurnWeights{extents_.run, extents_.filters, static_cast<const float*>(weights),
                            static_cast<float*>(scratch)});
  }

  // visit(index in [F, channel, R, column], index in [R, F, column, channel]).
  template <typename Visit>
  void ForEachWeight(const Visit& visit) const {
    const int64_t columns = spec_.window.kernel_w;
    for (int64_t i = 0; i < spec_.weights(); ++i) {
      const int64_t column = i % columns, r = i / columns % extents_.kernel_h;
      const int64_t channel = i / columns / extents_.kernel_h % spec_.c;
      const int64_t filter = i / columns / extents_.kernel_h / spec_.c;
      visit(i, ((r * spec_.filters + filter) * columns + column) * spec_.c + channel);
    }
  }

  const Conv2dSpec spec_;
  const narrow::Extents extents_;
  const narrow::Sums sums_;
  const bool stores_both_;
};

// Both ends fill a quarter of their last vector at most, of two and four vectors, and the kernel
// has several columns and takes no zeros round the image.  With fuller vectors oneDNN is as fast.
// Gradients of larger images would be long sums in float.
bool Narrows(const Conv2dSpec& spec) {
  const Window2d& w = spec.window;
  const auto fills_badly = [](int64_t channels, int64_t most) {
    const int64_t last = channels % narrow::kLanes;
    return 0 < last && last <= narrow::kLanes / 4 && channels < most;
  };
  const bool kernel =
      1 < w.kernel_w && std::max(w.kernel_w, w.kernel_h) <= narrow::kLanes && w.dilation_w == 1 &&
      std::max({w.padding_top, w.padding_bottom, w.padding_left, w.padding_right}) == 0;
  constexpr double kMostPixels = 16 * narrow::kBandPixels;
  const double pixels = static_cast<double>(spec.out_h()) * static_cast<double>(spec.out_w());
  return spec.dtype == DType::kF32 && spec.groups == 1 && kernel && pixels <= kMostPixels &&
         fills_badly(spec.c, 2 * narrow::kLanes) && fills_badly(spec.filters, 4 * narrow::kLanes);
}

}  // namespace

std::unique_ptr<Conv2d> PrepareNarrow(const Conv2dSpec& spec) {
  if (!Narrows(spec)) return nullptr;
  const std::string_view layout = spec.weight_layout;
  if (!spec.train && (layout.empty() || layout == kBothLayout)) {
    return std::make_unique<Narrow>(spec, /*stores_both=*/true);
  }
  const bool fits = layout.empty() || layout == kLayout;
  return fits ? std::make_unique<Narrow>(spec, /*stores_both=*/false) : nullptr;
}

}  // namespace gyre
