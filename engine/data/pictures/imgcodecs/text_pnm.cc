#include "engine/data/pictures/imgcodecs/text_pnm.h"

#include <algorithm>
#include <string>
#include <vector>

namespace gyre {

bool IsTextPnm(OtherFormat format, std::string_view file) {
  return format == OtherFormat::kPnm && file[1] <= '3';
}

int64_t NextPnmNumber(std::string_view& rest, int most_digits) {
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

Refusal DecodeTextPnm(std::string_view file, const PictureHeader& header, const Window& stored,
                      RowFunction row) {
  const bool bitmap = file[1] == '1';  // 1 is black there, and no blanks are needed
  const int channels = file[1] == '3' ? 3 : 1;
  std::string_view rest = file.substr(2);
  for (int i = 0; i < 2; ++i) NextPnmNumber(rest);
  const int64_t most = bitmap ? 1 : NextPnmNumber(rest);
  const int64_t samples = header.width * channels;
  std::vector<uint8_t> pixels(static_cast<size_t>(samples));
  for (int64_t y = 0; y < stored.top + stored.height; ++y) {
    for (int64_t i = 0; i < samples; ++i) {
      const int64_t number = NextPnmNumber(rest, bitmap ? 1 : kMostPnmDigits);
      if (number < 0) {
        return Damaged("expected a PNM of " + std::to_string(header.height * samples) +
                       " numbers, got " + std::to_string(y * samples + i) +
                       ": it is truncated or damaged");
      }
      if (number > most) {
        return Damaged("expected a PNM of numbers up to " + std::to_string(most) + ", got " +
                       std::to_string(number) + " in row " + std::to_string(y) + ", column " +
                       std::to_string(i / channels));
      }
      const auto shown = static_cast<uint8_t>((number * 510 + most) / (2 * most));  // rounded
      pixels[static_cast<size_t>(i)] = bitmap ? static_cast<uint8_t>(255 - shown) : shown;
    }
    if (y >= stored.top) row(pixels.data() + stored.left * channels, channels);
  }
  return {};
}

}  // namespace gyre
