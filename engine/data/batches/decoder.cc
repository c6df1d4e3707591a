#include "engine/data/batches/decoder.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "absl/strings/str_format.h"

namespace gyre {
namespace {

constexpr size_t kBytes = 256;  // values of one

template <typename To>
To Round(double value) {
  return static_cast<To>(static_cast<AccumulateType<To>>(value));
}

// to <- value(element, channel) of the moved sample.  kChannels: the channels, or 0 for any number.
// `value` is copied, so that no store can seem to change what it has.
template <int kChannels, typename From, typename To, typename Value>
void PlaceChannels(const Tensor& sample, const Move& move, const Tensor& result, Value value) {
  const Shape& shape = sample.shape;
  const bool moves = move.flip || move.down != 0 || move.right != 0;
  GYRE_CHECK(!moves || shape.rank() == 2 || shape.rank() == 3);
  const bool is_one = shape.rank() == 0 || (moves && shape.rank() == 2);
  const int64_t channels = kChannels > 0 ? kChannels : is_one ? 1 : shape[shape.rank() - 1];
  To* to = result.as<To>();
  // Places `count` pixels, one every `step` elements.
  const auto place = [&to, channels, value](const From* pixel, int64_t step, int64_t count) {
    To* placed = to;
    for (int64_t i = 0; i < count; ++i, pixel += step, placed += channels) {
      for (int64_t c = 0; c < channels; ++c) placed[c] = value(pixel[c], c);
    }
    to = placed;
  };
  if (!moves) {
    place(sample.as<From>(), channels, shape.elements() / channels);
    return;
  }
  const int64_t height = shape[0], width = shape[1];
  const std::vector<From> zeros(static_cast<size_t>(channels));
  // The columns from `begin` to `end` - 1 lie in the sample.
  const int64_t right = move.flip ? -move.right : move.right;
  const int64_t begin = std::clamp<int64_t>(-right, 0, width);
  const int64_t end = std::clamp<int64_t>(width - right, begin, width);
  for (int64_t row = 0; row < height; ++row) {
    const int64_t y = row + move.down;
    if (y < 0 || y >= height) {
      place(zeros.data(), 0, width);
      continue;
    }
    const From* const from = sample.as<From>() + y * width * channels;
    const int64_t x = move.flip ? width - 1 - begin - right : begin + right;
    place(zeros.data(), 0, begin);
    place(from + x * channels, move.flip ? -channels : channels, end - begin);
    place(zeros.data(), 0, width - end);
  }
}

// Loops over the channels of pictures are unrolled.
template <typename From, typename To, typename Value>
void Place(const Tensor& sample, const Move& move, const Tensor& result, const Value& value) {
  const Shape& shape = sample.shape;
  if constexpr (std::is_same_v<From, uint8_t>) {
    if (shape.rank() == 3 && shape[2] == 3) {
      return PlaceChannels<3, From, To>(sample, move, result, value);
    }
  }
  PlaceChannels<0, From, To>(sample, move, result, value);
}

}  // namespace

std::vector<double> PixelValues(const Normalization& normalization) {
  std::vector<double> values;
  for (size_t c = 0; c < normalization.mean.size(); ++c) {
    for (size_t byte = 0; byte < kBytes; ++byte) {
      values.push_back((static_cast<double>(byte) / 255.0 - normalization.mean[c]) /
                       normalization.std[c]);
    }
  }
  return values;
}

bool Decoder::CanDecode(DType from, DType to) {
  if (to == DType::kU8) return from == DType::kU8;
  if (to == DType::kI32) return from == DType::kU8 || from == DType::kI32;
  return IsReal(to) && (from == DType::kU8 || IsComputeType(from));
}

Decoder::Decoder(DType from, DType to, const Normalization& normalization)
    : normalization_(normalization) {
  GYRE_CHECK(CanDecode(from, to) && normalization.mean.size() == normalization.std.size());
  if (from != DType::kU8 || !IsReal(to)) return;
  const std::vector<double> values = PixelValues(normalization);
  values_.resize(values.size() * SizeOf(to));
  VisitReal(to, [&]<typename To>() {
    std::ranges::transform(values, reinterpret_cast<To*>(values_.data()), Round<To>);
  });
}

absl::Status Decoder::Decode(const Tensor& from, const Move& move, const Tensor& to) const {
  GYRE_CHECK(from.shape == to.shape);
  if (to.dtype == DType::kU8) {
    Place<uint8_t, uint8_t>(from, move, to, [](uint8_t x, int64_t) { return x; });
    return absl::OkStatus();
  }
  if (to.dtype == DType::kI32) {
    const auto widen = [](auto x, int64_t) { return int32_t{x}; };
    from.dtype == DType::kU8 ? Place<uint8_t, int32_t>(from, move, to, widen)
                             : Place<int32_t, int32_t>(from, move, to, widen);
    return absl::OkStatus();
  }
  const size_t step = normalization_.mean.size() > 1 ? 1 : 0;  // from channel to channel
  bool finite = true;
  double bad = 0;
  VisitReal(to.dtype, [&]<typename To>() {
    if (from.dtype == DType::kU8) {
      const auto* values = reinterpret_cast<const To*>(values_.data());
      Place<uint8_t, To>(from, move, to, [values, step](uint8_t x, int64_t channel) {
        return values[static_cast<size_t>(channel) * step * kBytes + x];
      });
    } else {
      VisitComputeType(from.dtype, [&]<typename From>() {
        Place<From, To>(from, move, to, [&](From x, int64_t channel) {
          const size_t c = static_cast<size_t>(channel) * step;
          const To y = Round<To>((double{x} - normalization_.mean[c]) / normalization_.std[c]);
          if (!std::isfinite(static_cast<AccumulateType<To>>(y))) [[unlikely]] {
            finite = false;
            bad = x;
          }
          return y;
        });
      });
    }
  });
  if (finite) return absl::OkStatus();
  if (!std::isfinite(bad)) return absl::InvalidArgumentError(absl::StrFormat("holds %g", bad));
  return absl::InvalidArgumentError(
      absl::StrFormat("holds %g, which normalised is beyond %s", bad, DTypeName(to.dtype)));
}

}  // namespace gyre
