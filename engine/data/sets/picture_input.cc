#include "engine/data/sets/picture_input.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "engine/data/files/file_reader.h"
#include "engine/data/pictures/color.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

uint8_t* Grow(ReusedBytes& bytes, size_t size) {
  return reinterpret_cast<uint8_t*>(bytes.Grow(size));
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
  picture.format = {.channels = 1, .background = {0, 0, 0}};
  picture.filter = ResizeFilter::kNearest;
  return picture;
}

absl::StatusOr<std::string_view> ReadPictureFile(const std::string& path, SampleMemory& memory) {
  ASSIGN_OR_RETURN(FileReader reader, FileReader::Open(path));
  RETURN_IF_ERROR(CheckFitsMemory(path, reader.size()));
  std::byte* const bytes = memory.file.Grow(reader.size());
  RETURN_IF_ERROR(reader.ReadAll(bytes, reader.size()));
  return std::string_view(reinterpret_cast<const char*>(bytes), reader.size());
}

absl::Status FillInput(std::string_view file, const PictureInput& input,
                       const std::optional<SampleDraw>& draw, SampleMemory& memory, uint8_t* to) {
  ASSIGN_OR_RETURN(const PictureHeader header, ReadPictureHeader(file, input.most_pixels));
  ASSIGN_OR_RETURN(const Geometry geometry,
                   GeometryOf(header.height, header.width, input.fit, draw));
  const auto channels = static_cast<size_t>(input.format.channels);
  const Window& source = geometry.source;
  uint8_t* const pixels =
      Grow(memory.pixels, static_cast<size_t>(source.height * source.width) * channels);
  RETURN_IF_ERROR(DecodePicture(file, header, source, input.format, pixels));
  // What of the resized picture lies in the input.
  const int64_t height = input.fit.height, width = input.fit.width;
  Window part{.top = std::max<int64_t>(geometry.top, 0),
              .left = std::max<int64_t>(geometry.left, 0)};
  part.height = std::min(geometry.height, geometry.top + height) - part.top;
  part.width = std::min(geometry.width, geometry.left + width) - part.left;
  const bool whole = part.height == height && part.width == width;
  const size_t row = static_cast<size_t>(part.width) * channels;
  uint8_t* const resized =
      whole ? to : Grow(memory.resized, static_cast<size_t>(part.height) * row);
  Resize({source.height, source.width, input.format.channels, pixels}, input.filter,
         geometry.height, geometry.width, part, resized);
  if (whole) return absl::OkStatus();
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
  return absl::OkStatus();
}

}  // namespace gyre
