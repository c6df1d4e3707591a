#include "engine/data/pictures/imgcodecs/pnm.h"

#include <algorithm>
#include <string>
#include <vector>

namespace gyre {
namespace {

constexpr int kMostDigits = 1 << 30;  // all that there are

// Takes the next number off a header or text.  Blanks and comments come before it.  -1: there is
// none.
int64_t NextNumber(std::string_view& rest, int most_digits = kMostDigits) {
  const char* at = rest.data();
  const char* const end = at + rest.size();
  for (; at != end && (*at == ' ' || (*at >= '\t' && *at <= '\r') || *at == '#'); ++at) {
    if (*at == '#') at = std::find(at, end, '\n');
    if (at == end) break;
  }
  int64_t number = -1;
  constexpr int64_t kMost = int64_t{1} << 40;  // more digits change nothing
  for (; at != end && *at >= '0' && *at <= '9' && most_digits > 0; ++at, --most_digits) {
    if (number < kMost) number = 10 * std::max<int64_t>(number, 0) + (*at - '0');
  }
  rest.remove_prefix(static_cast<size_t>(at - rest.data()));
  return number;
}

struct Pnm {
  bool text = false;
  bool bitmap = false;  // 1 is black, and a text needs no blanks
  int channels = 1;
  int64_t height = 0, width = 0;
  int64_t most = 1;  // the largest number, shown as white
  std::string_view numbers;
};

Refusal ReadPnm(std::string_view file, Pnm& pnm) {
  const char kind = file[1];
  pnm.text = kind <= '3';
  pnm.bitmap = kind == '1' || kind == '4';
  pnm.channels = kind == '3' || kind == '6' ? 3 : 1;
  pnm.numbers = file.substr(2);
  pnm.width = NextNumber(pnm.numbers);
  pnm.height = NextNumber(pnm.numbers);
  if (!pnm.bitmap) pnm.most = NextNumber(pnm.numbers);
  if (pnm.most < 1 || pnm.most > 65535) {
    return Damaged("expected a PNM of values up to 1 to 65535, got " + std::to_string(pnm.most));
  }
  // One blank ends a header before bytes.
  if (!pnm.text && !pnm.numbers.empty()) pnm.numbers.remove_prefix(1);
  return {};
}

// Calls `number_of` for the samples [begin, end) of a row, and shows them.
template <typename NumberOf>
Refusal ShowNumbers(const Pnm& pnm, int64_t y, int64_t begin, int64_t end, NumberOf number_of,
                    std::vector<uint8_t>& shown) {
  for (int64_t i = begin; i < end; ++i) {
    const int64_t number = number_of(i);
    if (number < 0) {
      const int64_t samples = pnm.width * pnm.channels;
      return Damaged("expected a PNM of " + std::to_string(pnm.height * samples) +
                     " numbers, got " + std::to_string(y * samples + i) +
                     ": it is truncated or damaged");
    }
    if (number > pnm.most) {
      return Damaged("expected a PNM of numbers up to " + std::to_string(pnm.most) + ", got " +
                     std::to_string(number) + " in row " + std::to_string(y) + ", column " +
                     std::to_string(i / pnm.channels));
    }
    const uint8_t sample =
        ShownSample(static_cast<uint32_t>(number), static_cast<uint32_t>(pnm.most));
    shown[static_cast<size_t>(i)] = pnm.bitmap ? static_cast<uint8_t>(255 - sample) : sample;
  }
  return {};
}

}  // namespace

Refusal ReadPnmHeader(std::string_view file, PictureHeader& header) {
  Pnm pnm;
  const Refusal refusal = ReadPnm(file, pnm);
  return refusal.refused() ? refusal : SetSize("PNM", pnm.height, pnm.width, header);
}

Refusal DecodePnm(std::string_view file, const PictureHeader& header, const Window& stored,
                  RowFunction row) {
  Pnm pnm;
  Refusal refusal = ReadPnm(file, pnm);
  if (refusal.refused()) return refusal;
  const int64_t samples = pnm.width * pnm.channels;
  const int64_t bits = pnm.bitmap ? 1 : pnm.most < 256 ? 8 : 16;  // of a binary file
  const int64_t row_bytes = (samples * bits + 7) / 8;
  if (!pnm.text) {
    refusal =
        CheckBytes("PNM", header, pnm.height * row_bytes, static_cast<int64_t>(pnm.numbers.size()));
    if (refusal.refused()) return refusal;
  }
  std::vector<uint8_t> shown(static_cast<size_t>(samples));
  const int64_t left = stored.left * pnm.channels, right = left + stored.width * pnm.channels;
  for (int64_t y = pnm.text ? 0 : stored.top; y < stored.top + stored.height; ++y) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(pnm.numbers.data()) + y * row_bytes;
    const auto show = [&](int64_t begin, int64_t end, auto number_of) {
      return ShowNumbers(pnm, y, begin, end, number_of, shown);
    };
    if (pnm.text) {
      refusal = show(0, samples, [&](int64_t) {
        return NextNumber(pnm.numbers, pnm.bitmap ? 1 : kMostDigits);
      });
    } else if (bits == 1) {
      refusal = show(left, right, [&](int64_t i) { return bytes[i / 8] >> (7 - i % 8) & 1; });
    } else if (bits == 8) {
      refusal = show(left, right, [&](int64_t i) { return bytes[i]; });
    } else {
      refusal = show(left, right, [&](int64_t i) { return bytes[2 * i] * 256 + bytes[2 * i + 1]; });
    }
    if (refusal.refused()) return refusal;
    if (y >= stored.top) row(shown.data() + left, pnm.channels);
  }
  return {};
}

}  // namespace gyre
