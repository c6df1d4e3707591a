#include "engine/data/pictures/pixels/color_changes.h"

#include <algorithm>
#include <cstring>

#include "engine/runtime/parallel/vectorised.h"

namespace gyre {
namespace {

constexpr float kMost = 255;

// Values are not negative, so the conversion rounds down.
inline uint8_t Byte(float value) {
  return static_cast<uint8_t>(static_cast<int32_t>(std::min(std::max(value, 0.f), kMost)));
}

// In torchvision's order of operations, so that both round alike.
inline int32_t GrayLevel(float red, float green, float blue) {
  return static_cast<int32_t>(red * 0.2989f + green * 0.587f + blue * 0.114f);
}

// Loops take bytes by the word of four, because a vector's lanes are words.  No byte then moves to
// another lane.
inline uint32_t Word(const uint8_t* bytes) {
  uint32_t word;
  memcpy(&word, bytes, sizeof(word));
  return word;
}
inline float Get(uint32_t word, int at) {
  return static_cast<float>(static_cast<int32_t>(word >> 8 * at & 0xff));
}
inline uint32_t Put(float value, int at) { return Byte(value) << 8 * at; }

// Calls change(red, green, blue) for pixels of kChannels bytes, kPixels at a time.
template <int kChannels, typename Change>
struct EachColor;

template <typename Change>
struct EachColor<4, Change> {
  static constexpr int kPixels = 1;
  Change change;
  uint8_t* data;
  void operator()(int64_t begin, int64_t end) const {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t word = Word(data + 4 * i);
      float red = Get(word, 0), green = Get(word, 1), blue = Get(word, 2);
      change(red, green, blue);
      const uint32_t changed = Put(red, 0) | Put(green, 1) | Put(blue, 2) | (word & 0xff000000);
      memcpy(data + 4 * i, &changed, sizeof(changed));
    }
  }
};

// Three words are four pixels.
template <typename Change>
struct EachColor<3, Change> {
  static constexpr int kPixels = 4;
  Change change;
  uint8_t* data;
  void operator()(int64_t begin, int64_t end) const {
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t a = Word(data + 12 * i), b = Word(data + 12 * i + 4),
                     c = Word(data + 12 * i + 8);
      float r0 = Get(a, 0), g0 = Get(a, 1), b0 = Get(a, 2);
      float r1 = Get(a, 3), g1 = Get(b, 0), b1 = Get(b, 1);
      float r2 = Get(b, 2), g2 = Get(b, 3), b2 = Get(c, 0);
      float r3 = Get(c, 1), g3 = Get(c, 2), b3 = Get(c, 3);
      change(r0, g0, b0);
      change(r1, g1, b1);
      change(r2, g2, b2);
      change(r3, g3, b3);
      const uint32_t changed_a = Put(r0, 0) | Put(g0, 1) | Put(b0, 2) | Put(r1, 3);
      const uint32_t changed_b = Put(g1, 0) | Put(b1, 1) | Put(r2, 2) | Put(g2, 3);
      const uint32_t changed_c = Put(b2, 0) | Put(r3, 1) | Put(g3, 2) | Put(b3, 3);
      memcpy(data + 12 * i, &changed_a, sizeof(changed_a));
      memcpy(data + 12 * i + 4, &changed_b, sizeof(changed_b));
      memcpy(data + 12 * i + 8, &changed_c, sizeof(changed_c));
    }
  }
};

// Bytes after the last whole group are changed in a group of their own.
template <int kChannels, typename Change>
void ChangeGroups(const Change& change, int64_t bytes, uint8_t* data) {
  using Body = EachColor<kChannels, Change>;
  constexpr int64_t kBytes = Body::kPixels * kChannels;
  const int64_t whole = bytes / kBytes * kBytes;
  parallel_internal::Run(Body{change, data}, 0, bytes / kBytes);
  if (whole == bytes) return;
  uint8_t group[kBytes] = {};
  memcpy(group, data + whole, bytes - whole);
  parallel_internal::Run(Body{change, group}, 0, 1);
  memcpy(data + whole, group, bytes - whole);
}

// Grey stays.
template <typename Change>
void ChangeEach(const Change& change, const ColorPixels& pixels) {
  if (pixels.channels == 3) ChangeGroups<3>(change, pixels.count * 3, pixels.data);
  if (pixels.channels == 4) ChangeGroups<4>(change, pixels.count * 4, pixels.data);
}

struct Scale {
  float ratio, red_offset, green_offset, blue_offset;
  void operator()(float& red, float& green, float& blue) const {
    red = red * ratio + red_offset;
    green = green * ratio + green_offset;
    blue = blue * ratio + blue_offset;
  }
};

// All colours alike, so that bytes need not be whole pixels.
void ScaleAll(float ratio, float offset, const ColorPixels& pixels) {
  const Scale scale{ratio, offset, offset, offset};
  if (pixels.channels == 4) return ChangeEach(scale, pixels);
  ChangeGroups<3>(scale, pixels.count * pixels.channels, pixels.data);
}

// The sum of the grey levels of groups of pixels, four of three words or one of one.
template <int kChannels>
struct SumGroups {
  const uint8_t* data;
  int64_t* sum;
  void operator()(int64_t begin, int64_t end) const {
    int64_t all = 0;
#pragma omp simd reduction(+ : all)
    for (int64_t i = begin; i < end; ++i) {
      if constexpr (kChannels == 3) {
        const uint32_t a = Word(data + 12 * i), b = Word(data + 12 * i + 4),
                       c = Word(data + 12 * i + 8);
        all += GrayLevel(Get(a, 0), Get(a, 1), Get(a, 2)) +
               GrayLevel(Get(a, 3), Get(b, 0), Get(b, 1)) +
               GrayLevel(Get(b, 2), Get(b, 3), Get(c, 0)) +
               GrayLevel(Get(c, 1), Get(c, 2), Get(c, 3));
      } else {
        const uint32_t word = Word(data + 4 * i);
        all +=
            kChannels == 4
                ? GrayLevel(Get(word, 0), Get(word, 1), Get(word, 2))
                : static_cast<int32_t>(Get(word, 0) + Get(word, 1) + Get(word, 2) + Get(word, 3));
      }
    }
    *sum += all;
  }
};

template <int kChannels>
int64_t SumLevels(const ColorPixels& pixels) {
  constexpr int64_t kBytes = kChannels == 3 ? 12 : 4;
  const int64_t bytes = pixels.count * kChannels, whole = bytes / kBytes * kBytes;
  int64_t sum = 0;
  parallel_internal::Run(SumGroups<kChannels>{pixels.data, &sum}, 0, bytes / kBytes);
  uint8_t group[kBytes] = {};  // black has level 0
  memcpy(group, pixels.data + whole, bytes - whole);
  parallel_internal::Run(SumGroups<kChannels>{group, &sum}, 0, 1);
  return sum;
}

float MeanLevel(const ColorPixels& pixels) {
  const int64_t sum = pixels.channels == 1   ? SumLevels<1>(pixels)
                      : pixels.channels == 3 ? SumLevels<3>(pixels)
                                             : SumLevels<4>(pixels);
  return static_cast<float>(static_cast<double>(sum) / static_cast<double>(pixels.count));
}

struct Saturate {
  float ratio;
  void operator()(float& red, float& green, float& blue) const {
    const float grey = static_cast<float>(GrayLevel(red, green, blue)) * (1 - ratio);
    red = red * ratio + grey;
    green = green * ratio + grey;
    blue = blue * ratio + grey;
  }
};

// A colour of value V, chroma C and hue H in sixths of a turn has the channels V - C w(H + n) with
// n = 5, 3, 1 and w(k) = min(k, 4 - k) from 0 to 1, k modulo 6.
// Source: Wikipedia, "HSL and HSV", "HSV to RGB alternative".
struct TurnHue {
  float sixths;  // 0 to 6
  void operator()(float& red, float& green, float& blue) const {
    const float value = std::max(std::max(red, green), blue);
    const float chroma = value - std::min(std::min(red, green), blue);
    const float inverse = 1 / (chroma == 0 ? 1 : chroma);
    float hue = value == red     ? (green - blue) * inverse
                : value == green ? 2 + (blue - red) * inverse
                                 : 4 + (red - green) * inverse;
    hue += sixths;  // -1 to 11
    red = Channel(hue + 5, value, chroma);
    green = Channel(hue + 3, value, chroma);
    blue = Channel(hue + 1, value, chroma);
  }

 private:
  static float Channel(float k, float value, float chroma) {  // k: 0 to 16
    // From 0 to 1 to bytes, torchvision multiplies by 256 - 0.001 and rounds down.
    constexpr float kToByte = (256 - 0.001) / 255;
    k -= k >= 12 ? 12 : k >= 6 ? 6 : 0;
    const float weight = std::min(std::max(std::min(k, 4 - k), 0.f), 1.f);
    return (value - chroma * weight) * kToByte;
  }
};

struct Gray {
  void operator()(float& red, float& green, float& blue) const {
    red = green = blue = static_cast<float>(GrayLevel(red, green, blue));
  }
};

}  // namespace

void ChangeBrightness(double factor, const ColorPixels& pixels) {
  ScaleAll(static_cast<float>(factor), 0, pixels);
}

void ChangeContrast(double factor, const ColorPixels& pixels) {
  if (pixels.count == 0) return;
  const auto ratio = static_cast<float>(factor);
  ScaleAll(ratio, MeanLevel(pixels) * static_cast<float>(1 - factor), pixels);
}

void ChangeSaturation(double factor, const ColorPixels& pixels) {
  ChangeEach(Saturate{static_cast<float>(factor)}, pixels);
}

void ChangeHue(double turns, const ColorPixels& pixels) {
  ChangeEach(TurnHue{static_cast<float>(6 * (turns < 0 ? turns + 1 : turns))}, pixels);
}

void MakeGray(const ColorPixels& pixels) { ChangeEach(Gray{}, pixels); }

void AddColor(const std::array<double, 3>& colour, const ColorPixels& pixels) {
  const auto rounded = [](double value) { return static_cast<float>(value + 0.5); };
  ChangeEach(Scale{1, rounded(colour[0]), rounded(colour[1]), rounded(colour[2])}, pixels);
}

}  // namespace gyre
