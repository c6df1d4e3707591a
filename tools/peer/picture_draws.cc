// picture_draws: what augmentation draws for many samples, as lines `NAME NUMBER...`, one for each
// draw.  compare_draws makes the same of torchvision and compares the distributions.  Draws that
// no function returns are read off small pictures that they have changed.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/data/batches/augmentation.h"
#include "engine/data/pictures/pixel_changes.h"
#include "engine/data/sample_draw.h"
#include "engine/data/sets/picture_input.h"
#include "engine/runtime/check.h"

namespace gyre {
namespace {

constexpr uint64_t kSeed = 1;

void Print(const char* name, const std::vector<int64_t>& numbers) {
  std::fputs(name, stdout);
  for (const int64_t number : numbers) std::printf(" %lld", static_cast<long long>(number));
  std::putchar('\n');
}

void PrintCrop(const char* name, int64_t height, int64_t width, const SampleDraw& draw) {
  const auto geometry =
      GeometryOf(height, width, {.height = 224, .width = 224, .random = RandomCrop{}}, draw);
  GYRE_CHECK(geometry.ok());
  const Window& window = geometry->source;
  Print(name, {window.height, window.width, window.top, window.left});
}

// A picture of [height, width, 3], the same in compare_draws.
struct SmallPicture {
  int64_t height, width;
  std::function<int64_t(int64_t y, int64_t x, int64_t channel)> value;
};

std::vector<int64_t> Changed(const PixelChanges& changes, const SmallPicture& picture,
                             const SampleDraw& draw) {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < picture.height; ++y) {
    for (int64_t x = 0; x < picture.width; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        pixels.push_back(static_cast<uint8_t>(picture.value(y, x, c)));
      }
    }
  }
  ChangePixels(changes, draw, picture.height, picture.width, 3, pixels.data());
  return {pixels.begin(), pixels.end()};
}

constexpr uint8_t kColors[4][3] = {{200, 100, 50}, {30, 60, 90}, {120, 130, 110}, {10, 240, 128}};
const SmallPicture kFour = {1, 4, [](int64_t, int64_t x, int64_t c) { return kColors[x][c]; }};
const SmallPicture kMiddle = {1, 1, [](int64_t, int64_t, int64_t) { return 128; }};
const SmallPicture kSlope = {65, 65, [](int64_t, int64_t x, int64_t) { return 3 * x; }};
const SmallPicture kLine = {33, 33, [](int64_t, int64_t x, int64_t) { return x == 16 ? 255 : 0; }};
const SmallPicture kBlack = {48, 64, [](int64_t, int64_t, int64_t) { return 0; }};

// The extents and the corner of what is not black, or none.
std::vector<int64_t> Box(const std::vector<int64_t>& pixels, const SmallPicture& picture) {
  int64_t top = picture.height, left = picture.width, bottom = -1, right = -1;
  for (int64_t i = 0; i < picture.height * picture.width; ++i) {
    if (pixels[3 * i] == 0) continue;
    top = std::min(top, i / picture.width), bottom = std::max(bottom, i / picture.width);
    left = std::min(left, i % picture.width), right = std::max(right, i % picture.width);
  }
  if (bottom < 0) return {0, 0, 0, 0};
  return {bottom - top + 1, right - left + 1, top, left};
}

void PrintDraws(int64_t position) {
  const SampleDraw draw{.seed = kSeed, .position = position};
  PrintCrop("crop", 375, 500, draw);
  PrintCrop("crop_tall", 1000, 100, draw);
  const Move move = MoveAt({.flip = true, .shift = 4}, kSeed, position);
  Print("flip", {move.flip});
  Print("shift", {move.down, move.right});
  Print("brightness", Changed({.brightness = 0.4}, kFour, draw));
  Print("contrast", Changed({.contrast = 0.4}, kFour, draw));
  Print("saturation", Changed({.saturation = 0.4}, kFour, draw));
  Print("hue", Changed({.hue = 0.1}, kFour, draw));
  Print("color",
        Changed({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1}, kFour, draw));
  Print("gray", Changed({.gray = 0.3}, kFour, draw));
  Print("noise", Changed({.noise = 0.1}, kMiddle, draw));
  Print("lighting", Changed({.lighting = 0.5}, kMiddle, draw));
  // Above the centre and left of it: where the slope shows the sine and the cosine.
  const std::vector<int64_t> turned = Changed({.rotate = 30}, kSlope, draw);
  Print("rotate", {turned[3 * (65 * 6 + 32)], turned[3 * (65 * 32 + 6)]});
  const std::vector<int64_t> blurred =
      Changed({.blur = 1, .least_sigma = 0.1, .most_sigma = 2}, kLine, draw);
  Print("blur", {blurred[3 * (33 * 16 + 16)], blurred[3 * (33 * 16 + 18)]});
  const PixelChanges erase = {.erase = 0.5,
                              .least_area = 0.02,
                              .most_area = 0.33,
                              .least_aspect = 0.3,
                              .erased = {255, 255, 255}};
  Print("erase", Box(Changed(erase, kBlack, draw), kBlack));
}

}  // namespace
}  // namespace gyre

int main(int argc, char** argv) {
  int64_t count = 0;
  const std::string_view text = argc == 2 ? argv[1] : "";
  std::from_chars(text.data(), text.data() + text.size(), count);
  if (count < 1) {
    std::fputs("usage: picture_draws COUNT, 1 or more\n", stderr);
    return 2;
  }
  for (int64_t position = 0; position < count; ++position) gyre::PrintDraws(position);
}
