#include "engine/data/sets/picture_input.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/pictures/color.h"
#include "engine/runtime/check.h"
#include "engine/runtime/machine.h"

namespace gyre {
namespace {

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
