#include "engine/data/pictures/geometry.h"

#include <algorithm>
#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

// Half of `extent` >= 0, rounded to even as Python's round(extent / 2.0).
int64_t RoundedHalf(int64_t extent) { return extent / 2 + (extent % 4 == 3 ? 1 : 0); }

// a * b / c, rounded to the nearest.
int64_t ScaledToNearest(int64_t a, int64_t b, int64_t c) { return (2 * a * b + c) / (2 * c); }

// The window of random area and aspect ratio, each of which has a word of the draw.
// Source: torchvision's RandomResizedCrop.get_params.
Window RandomWindow(int64_t height, int64_t width, const RandomCrop& crop, const SampleDraw& draw) {
  const auto area = static_cast<double>(height * width);
  const double least = std::log(crop.least_aspect), most = std::log(crop.most_aspect);
  for (uint64_t attempt = 0; attempt < 10; ++attempt) {
    const RandomBits bits = draw.Bits("random crop", attempt);
    const auto uniform = [&](int word) { return UniformDouble(bits.v[word], 0); };
    const double target =
        area * (crop.least_area + (crop.most_area - crop.least_area) * uniform(0));
    const double aspect = std::exp(least + (most - least) * uniform(1));
    const double columns = std::nearbyint(std::sqrt(target * aspect));
    const double rows = std::nearbyint(std::sqrt(target / aspect));
    if (!(columns >= 1 && columns <= static_cast<double>(width))) continue;
    if (!(rows >= 1 && rows <= static_cast<double>(height))) continue;
    Window window{.height = static_cast<int64_t>(rows), .width = static_cast<int64_t>(columns)};
    window.top = UniformBelow(bits.v[2], height - window.height + 1);
    window.left = UniformBelow(bits.v[3], width - window.width + 1);
    return window;
  }
  // The largest window in the centre with the aspect ratio that is nearest to the picture's.
  Window window{.height = height, .width = width};
  const double aspect = static_cast<double>(width) / static_cast<double>(height);
  const auto rounded = [](double extent, int64_t all) {
    return std::clamp(static_cast<int64_t>(std::nearbyint(extent)), int64_t{1}, all);
  };
  if (aspect < crop.least_aspect) {
    window.height = rounded(static_cast<double>(width) / crop.least_aspect, height);
  } else if (aspect > crop.most_aspect) {
    window.width = rounded(static_cast<double>(height) * crop.most_aspect, width);
  }
  window.top = (height - window.height) / 2;
  window.left = (width - window.width) / 2;
  return window;
}

// The size that has `shortest` on the shorter side.
// Source: torchvision's Resize, which rounds the longer side down.
void SetShortest(int64_t shortest, Geometry& geometry) {
  const Window& source = geometry.source;
  if (source.width <= source.height) {
    geometry.width = shortest;
    geometry.height = shortest * source.height / source.width;
  } else {
    geometry.height = shortest;
    geometry.width = shortest * source.width / source.height;
  }
}

// The smallest size that covers the input.
void SetCovering(const InputFit& fit, Geometry& geometry) {
  const Window& source = geometry.source;
  if (fit.height * source.width >= fit.width * source.height) {
    geometry.height = fit.height;
    geometry.width = fit.height * source.width / source.height;
  } else {
    geometry.width = fit.width;
    geometry.height = fit.width * source.height / source.width;
  }
}

// The largest size that lies in the input.
void SetContained(const InputFit& fit, Geometry& geometry) {
  const Window& source = geometry.source;
  geometry.height = fit.height;
  geometry.width = fit.width;
  if (fit.height * source.width <= fit.width * source.height) {
    geometry.width = std::max<int64_t>(ScaledToNearest(fit.height, source.width, source.height), 1);
  } else {
    geometry.height = std::max<int64_t>(ScaledToNearest(fit.width, source.height, source.width), 1);
  }
}

}  // namespace

absl::StatusOr<Geometry> GeometryOf(int64_t height, int64_t width, const InputFit& fit,
                                    const std::optional<SampleDraw>& draw) {
  GYRE_CHECK(height > 0 && width > 0 && fit.height > 0 && fit.width > 0);
  Geometry geometry{
      .source = {.height = height, .width = width}, .height = fit.height, .width = fit.width};
  if (fit.random.has_value() && draw.has_value()) {
    geometry.source = RandomWindow(height, width, *fit.random, *draw);
    return geometry;
  }
  switch (fit.fit) {
    case PictureFit::kCrop:
      fit.shortest > 0 ? SetShortest(fit.shortest, geometry) : SetCovering(fit, geometry);
      if (geometry.height < fit.height || geometry.width < fit.width) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "has %d x %d pixels (height x width), resized to %d x %d by shortest: %d; expected the "
            "input's %d x %d at least; set a larger shortest, or none",
            height, width, geometry.height, geometry.width, fit.shortest, fit.height, fit.width));
      }
      geometry.top = RoundedHalf(geometry.height - fit.height);
      geometry.left = RoundedHalf(geometry.width - fit.width);
      return geometry;
    case PictureFit::kStretch:
      return geometry;
    case PictureFit::kLetterbox:
      SetContained(fit, geometry);
      geometry.top = -((fit.height - geometry.height) / 2);
      geometry.left = -((fit.width - geometry.width) / 2);
      return geometry;
    case PictureFit::kAsIs:
      if (height != fit.height || width != fit.width) {
        return absl::InvalidArgumentError(absl::StrFormat(
            "has %d x %d pixels (height x width); expected the input's %d x %d; use fit: CROP, "
            "STRETCH or LETTERBOX to resize pictures",
            height, width, fit.height, fit.width));
      }
      return geometry;
  }
  GYRE_CHECK(false);
}

}  // namespace gyre
