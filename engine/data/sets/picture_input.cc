#include "engine/data/sets/picture_input.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <new>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/pictures/color.h"
#include "engine/runtime/check.h"
#include "engine/runtime/machine.h"

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

uint8_t* Grow(ReusedBytes& bytes, size_t size) {
  return reinterpret_cast<uint8_t*>(bytes.Grow(size));
}

// Writes what lies in the input of the pixels of geometry.source to `to`.
void Place(const uint8_t* pixels, const PictureInput& input, const Geometry& geometry,
           SampleMemory& memory, uint8_t* to) {
  const Window& source = geometry.source;
  // What of the resized picture lies in the input.
  const int64_t height = input.fit.height, width = input.fit.width;
  Window part{.top = std::max<int64_t>(geometry.top, 0),
              .left = std::max<int64_t>(geometry.left, 0)};
  part.height = std::min(geometry.height, geometry.top + height) - part.top;
  part.width = std::min(geometry.width, geometry.left + width) - part.left;
  const bool whole = part.height == height && part.width == width;
  const auto channels = static_cast<size_t>(input.format.channels);
  const size_t row = static_cast<size_t>(part.width) * channels;
  uint8_t* const resized =
      whole ? to : Grow(memory.resized, static_cast<size_t>(part.height) * row);
  Resize({source.height, source.width, input.format.channels, pixels}, input.filter,
         geometry.height, geometry.width, part, resized);
  if (whole) return;
  const std::array<uint8_t, 4> border = {input.format.background[0], input.format.background[1],
                                         input.format.background[2], 255};
  for (int64_t i = 0; i < height * width; ++i) {
    std::memcpy(to + static_cast<size_t>(i) * channels, border.data(), channels);
  }
  for (int64_t y = 0; y < part.height; ++y) {
    const int64_t down = part.top - geometry.top + y, right = part.left - geometry.left;
    std::memcpy(to + static_cast<size_t>(down * width + right) * channels,
                resized + static_cast<size_t>(y) * row, row);
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

absl::StatusOr<PictureInput> PictureInputOf(const ImagesConfig& config, const NetInput& net,
                                            const AugmentationConfig& augmentation) {
  const std::vector<int64_t>& dims = net.dims;
  if (net.label || dims.size() != 3 || (dims[2] != 1 && dims[2] != 3 && dims[2] != 4)) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "images feed an input of type REAL and dims [height, width, channels], with 1, 3 or 4 "
        "channels, but \"%s\" has dims [%s]",
        net.name, absl::StrJoin(dims, ", ")));
  }
  const double bytes =
      static_cast<double>(dims[0]) * static_cast<double>(dims[1]) * static_cast<double>(dims[2]);
  if (bytes > static_cast<double>(MemoryBytes())) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "a picture for \"%s\", of dims [%s], takes %.0f bytes, this process may use %d of memory; "
        "lower the dims",
        net.name, absl::StrJoin(dims, ", "), bytes, MemoryBytes()));
  }
  PictureInput input;
  input.fit.height = dims[0];
  input.fit.width = dims[1];
  input.fit.fit = static_cast<PictureFit>(config.fit());
  input.fit.shortest = config.shortest();
  input.filter = static_cast<ResizeFilter>(config.filter());
  input.format.channels = static_cast<int>(dims[2]);
  ASSIGN_OR_RETURN(input.format.background, ParseColor(config.background()));
  input.most_pixels = config.most_pixels();
  if (augmentation.has_random_crop()) {
    const AugmentationConfig::RandomCrop& crop = augmentation.random_crop();
    input.fit.random =
        RandomCrop{crop.least_area(), crop.most_area(), crop.least_aspect(), crop.most_aspect()};
  }
  return input;
}

PictureInput MaskInputOf(PictureInput picture) {
  picture.format = {.channels = 1, .background = {0, 0, 0}, .indices = true};
  picture.filter = ResizeFilter::kNearest;
  return picture;
}

absl::Status FillInput(std::string_view file, const PictureInput& input,
                       const std::optional<SampleDraw>& draw, SampleMemory& memory, uint8_t* to) {
  ASSIGN_OR_RETURN(const PictureHeader header, ReadPictureHeader(file, input.most_pixels));
  ASSIGN_OR_RETURN(const Geometry geometry,
                   GeometryOf(header.height, header.width, input.fit, draw));
  const Window& source = geometry.source;
  const double bytes = static_cast<double>(source.height) * static_cast<double>(source.width) *
                       input.format.channels;
  const auto too_little = [&] {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "too little memory for a picture of %d x %d pixels, %.0f bytes; shrink it, or free memory "
        "(most_pixels, which is %d, refuses larger ones)",
        header.width, header.height, bytes, input.most_pixels));
  };
  // Less is not worth asking the system.
  constexpr double kFits = 64 << 20;
  if (bytes > kFits && bytes > static_cast<double>(MemoryBytes())) return too_little();
  try {
    uint8_t* const pixels = Grow(memory.pixels, static_cast<size_t>(bytes));
    RETURN_IF_ERROR(DecodePicture(file, header, source, input.format, pixels));
    Place(pixels, input, geometry, memory, to);
  } catch (const std::bad_alloc&) {
    return too_little();
  }
  return absl::OkStatus();
}

absl::Status FillInput(const Pixels& picture, const PictureInput& input,
                       const std::optional<SampleDraw>& draw, SampleMemory& memory, uint8_t* to) {
  ASSIGN_OR_RETURN(const Geometry geometry,
                   GeometryOf(picture.height, picture.width, input.fit, draw));
  const Window& source = geometry.source;
  const auto channels = static_cast<size_t>(picture.channels);
  const size_t row = static_cast<size_t>(source.width) * channels;
  uint8_t* const pixels = Grow(memory.pixels, static_cast<size_t>(source.height) * row);
  for (int64_t y = 0; y < source.height; ++y) {
    const int64_t first = (source.top + y) * picture.width + source.left;
    std::memcpy(pixels + static_cast<size_t>(y) * row,
                picture.data + static_cast<size_t>(first) * channels, row);
  }
  Place(pixels, input, geometry, memory, to);
  return absl::OkStatus();
}

}  // namespace gyre
