#include "engine/data/batches/mix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

// The logarithm of a deviate of Gamma(alpha, 1), because those of a small alpha vanish.  A deviate
// of alpha is one of alpha + 1, times a power of a uniform one.
// Source: Marsaglia and Tsang 2000, "A simple method for generating gamma variables", ACM TOMS 26.
double LogGammaDeviate(const SampleDraw& draw, std::string_view purpose, double alpha) {
  const double d = alpha + 1 - 1. / 3, c = 1 / std::sqrt(9 * d);
  const auto uniform = [&](uint64_t n) { return 1 - draw.Uniform(purpose, n); };  // above 0
  const double power = std::log(uniform(0)) / alpha;
  for (uint64_t attempt = 1;; ++attempt) {
    const double normal = Normals(draw.Bits(purpose, 2 * attempt)).first;
    const double root = 1 + c * normal;
    if (!(root > 0)) continue;
    const double log_v = 3 * std::log(root), v = root * root * root;
    if (std::log(uniform(2 * attempt + 1)) < normal * normal / 2 + d - d * v + d * log_v) {
      return std::log(d) + log_v + power;
    }
  }
}

// As torchvision's: half the window's sides are a root of its share, rounded down.
void CutWindow(const Mixing& mixing, const SampleDraw& draw, double share, Mix& mix) {
  const RandomBits bits = draw.Bits("cutmix window");
  const double half = 0.5 * std::sqrt(1 - share);
  const auto cut = [half](int64_t centre, int64_t extent, int64_t& first, int64_t& last) {
    const auto reach = static_cast<int64_t>(half * static_cast<double>(extent));
    first = std::max<int64_t>(centre - reach, 0);
    last = std::min(centre + reach, extent);
  };
  cut(UniformBelow(bits.v[0], mixing.width), mixing.width, mix.left, mix.right);
  cut(UniformBelow(bits.v[1], mixing.height), mixing.height, mix.top, mix.bottom);
  const auto pixels = static_cast<double>((mix.right - mix.left) * (mix.bottom - mix.top));
  mix.window = true;
  mix.share = 1 - pixels / static_cast<double>(mixing.height * mixing.width);
}

// The weight of bytes' means, of 16 bits.
constexpr uint32_t kOne = 65536;

}  // namespace

double SymmetricBeta(const SampleDraw& draw, double alpha) {
  GYRE_CHECK(alpha > 0);
  alpha = std::max(alpha, 1e-300);  // all is 0 or 1 long before, and below it a logarithm overflows
  const double first = LogGammaDeviate(draw, "mix share", alpha);
  const double second = LogGammaDeviate(draw, "mix share of the other", alpha);
  return 1 / (1 + std::exp(second - first));
}

Mix MixAt(const Mixing& mixing, const SampleDraw& draw) {
  if (!mixing.any()) return {};
  const bool both = mixing.mixup > 0 && mixing.cutmix > 0;
  const bool cuts = both ? draw.Uniform("mix kind") < 0.5 : mixing.cutmix > 0;
  if (!(draw.Uniform("mix") < (cuts ? mixing.cutmix : mixing.mixup))) return {};
  Mix mix{.mixes = true};
  const double share = SymmetricBeta(draw, cuts ? mixing.cutmix_alpha : mixing.mixup_alpha);
  if (cuts) {
    CutWindow(mixing, draw, share, mix);
  } else {
    mix.share = std::nearbyint(share * kOne) / kOne;
  }
  return mix;
}

void MixPicture(const Mix& mix, const Tensor& other, const Tensor& sample) {
  const Shape& shape = sample.shape;
  GYRE_CHECK(shape.rank() == 3 && other.shape == shape && other.dtype == sample.dtype);
  if (mix.window) {
    const size_t pixel = static_cast<size_t>(shape[2]) * SizeOf(sample.dtype);
    const size_t row = static_cast<size_t>(mix.right - mix.left) * pixel;
    for (int64_t y = mix.top; y < mix.bottom; ++y) {
      const size_t at = static_cast<size_t>(y * shape[1] + mix.left) * pixel;
      std::memcpy(static_cast<std::byte*>(sample.data) + at,
                  static_cast<const std::byte*>(other.data) + at, row);
    }
    return;
  }
  if (sample.dtype != DType::kU8) return MixValues(mix.share, other, sample);
  const auto own = static_cast<uint32_t>(mix.share * kOne), rest = kOne - own;
  auto* const to = sample.as<uint8_t>();
  const auto* const from = other.as<uint8_t>();
  for (int64_t i = 0; i < shape.elements(); ++i) {
    to[i] = static_cast<uint8_t>((own * to[i] + rest * from[i] + kOne / 2) / kOne);
  }
}

void MixValues(double share, const Tensor& other, const Tensor& sample) {
  VisitReal(sample.dtype, [&]<typename T>() {
    T* const to = sample.as<T>();
    const T* const from = other.as<T>();
    for (int64_t i = 0; i < sample.elements(); ++i) {
      const double mean =
          share * static_cast<double>(to[i]) + (1 - share) * static_cast<double>(from[i]);
      to[i] = static_cast<T>(static_cast<AccumulateType<T>>(mean));
    }
  });
}

}  // namespace gyre
