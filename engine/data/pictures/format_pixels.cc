#include "engine/data/pictures/format_pixels.h"

#include <cstddef>
#include <cstring>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

// round(x / 255) for x up to 255 * 255: there is no tie, 255 being odd.
uint8_t DivideBy255(uint32_t x) {
  x += 128;
  return static_cast<uint8_t>((x + (x >> 8)) >> 8);
}

uint8_t Blend(uint8_t color, uint8_t behind, uint8_t alpha) {
  return DivideBy255(color * alpha + behind * (255u - alpha));
}

// The factors are 0.299, 0.587 and 0.114 times 2^16, of sum 2^16: grey stays as it is.
uint8_t Grey(uint8_t red, uint8_t green, uint8_t blue) {
  return static_cast<uint8_t>((19595u * red + 38470u * green + 7471u * blue + (1u << 15)) >> 16);
}

template <int kFrom, int kTo>
void Format(const uint8_t* from, int64_t count, const PixelFormat& format, uint8_t* to,
            int64_t step) {
  constexpr bool kColor = kFrom >= 3, kAlpha = kFrom % 2 == 0;
  const auto& behind = format.background;
  for (int64_t i = 0; i < count; ++i, from += kFrom, to += kTo * step) {
    uint8_t red = from[0], green = from[kColor ? 1 : 0], blue = from[kColor ? 2 : 0];
    const uint8_t alpha = kAlpha ? from[kFrom - 1] : 255;
    if (kAlpha && kTo != 4) {
      red = Blend(red, behind[0], alpha);
      green = Blend(green, behind[1], alpha);
      blue = Blend(blue, behind[2], alpha);
    }
    if (kTo == 1) {
      to[0] = kFrom == 1 ? red : Grey(red, green, blue);
    } else {
      to[0] = red, to[1] = green, to[2] = blue;
      if (kTo == 4) to[3] = alpha;
    }
  }
}

template <int kFrom>
void FormatFrom(const uint8_t* from, int64_t count, const PixelFormat& format, uint8_t* to,
                int64_t step) {
  switch (format.channels) {
    case 1:
      return Format<kFrom, 1>(from, count, format, to, step);
    case 3:
      return Format<kFrom, 3>(from, count, format, to, step);
    case 4:
      return Format<kFrom, 4>(from, count, format, to, step);
    default:
      GYRE_CHECK(false);
  }
}

}  // namespace

void FormatPixels(const uint8_t* from, int from_channels, int64_t count, const PixelFormat& format,
                  uint8_t* to, int64_t step) {
  const bool same = from_channels == format.channels;  // alpha is kept
  if (same && step == 1) {
    std::memcpy(to, from, static_cast<size_t>(count * from_channels));
    return;
  }
  switch (from_channels) {
    case 1:
      return FormatFrom<1>(from, count, format, to, step);
    case 2:
      return FormatFrom<2>(from, count, format, to, step);
    case 3:
      return FormatFrom<3>(from, count, format, to, step);
    case 4:
      return FormatFrom<4>(from, count, format, to, step);
    default:
      GYRE_CHECK(false);
  }
}

}  // namespace gyre
