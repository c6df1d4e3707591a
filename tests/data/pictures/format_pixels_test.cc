#include "engine/data/pictures/format_pixels.h"

#include <gtest/gtest.h>

#include "tests/data/pictures/pixels_fixture.h"

namespace gyre {
namespace {

std::vector<uint8_t> Format(const std::vector<uint8_t>& from, int from_channels,
                            const PixelFormat& format, int64_t step = 1) {
  const auto count = static_cast<int64_t>(from.size()) / from_channels;
  std::vector<uint8_t> to(static_cast<size_t>(count * step * format.channels), 77);
  FormatPixels(from.data(), from_channels, count, format, to.data(), step);
  return to;
}

TEST(FormatPixels, EveryBlendIsRounded) {
  for (int color = 0; color < 256; ++color) {
    for (int behind = 0; behind < 256; behind += 5) {
      std::vector<uint8_t> from;
      std::vector<Rgba> pixels;
      for (int alpha = 0; alpha < 256; ++alpha) {
        from.push_back(static_cast<uint8_t>(color)), from.push_back(static_cast<uint8_t>(alpha));
        pixels.push_back({color, color, color, alpha});
      }
      const auto back = static_cast<uint8_t>(behind);
      const PixelFormat format = {.channels = 3, .background = {back, back, 9}};
      ASSERT_EQ(Format(from, 2, format), Formatted(pixels, format));
    }
  }
}

TEST(FormatPixels, GreyStaysAndColoursAreWeighed) {
  for (int value = 0; value < 256; ++value) {
    const auto byte = static_cast<uint8_t>(value);
    EXPECT_EQ(Format({byte, byte, byte}, 3, {.channels = 1})[0], value);
    EXPECT_EQ(Format({byte}, 1, {.channels = 1})[0], value);
  }
  EXPECT_EQ(Format({255, 0, 0, 0, 255, 0, 0, 0, 255}, 3, {.channels = 1}),
            (std::vector<uint8_t>{76, 150, 29}));
}

TEST(FormatPixels, StepsLeaveWhatIsBetween) {
  EXPECT_EQ(Format({1, 2}, 1, {.channels = 1}, 3), (std::vector<uint8_t>{1, 77, 77, 2, 77, 77}));
  EXPECT_EQ(Format({1, 2, 3, 4, 5, 6}, 3, {.channels = 3}, 2),
            (std::vector<uint8_t>{1, 2, 3, 77, 77, 77, 4, 5, 6, 77, 77, 77}));
}

TEST(FormatPixels, AlphaIsKeptInFourChannels) {
  const PixelFormat format = {.channels = 4, .background = {1, 2, 3}};
  EXPECT_EQ(Format({9, 8, 7, 0}, 4, format), (std::vector<uint8_t>{9, 8, 7, 0}));
  EXPECT_EQ(Format({9, 8, 7}, 3, format), (std::vector<uint8_t>{9, 8, 7, 255}));
  EXPECT_EQ(Format({9, 40}, 2, format), (std::vector<uint8_t>{9, 9, 9, 40}));
  EXPECT_EQ(Format({9}, 1, format), (std::vector<uint8_t>{9, 9, 9, 255}));
}

}  // namespace
}  // namespace gyre
