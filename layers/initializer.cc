#include "layers/initializer.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/random.h"

namespace gyre {
namespace {

double Element(const Initializer& initializer, uint64_t key, uint64_t i) {
  if (initializer.kind == Initializer::Kind::kConstant) return initializer.value;
  const RandomBits bits = Philox(key, /*counter_hi=*/0, /*counter_lo=*/i);
  switch (initializer.kind) {
    case Initializer::Kind::kConstant:
      break;
    case Initializer::Kind::kGaussian:
      return initializer.mean + initializer.std * Normals(bits).first;
    case Initializer::Kind::kXavier: {
      const double fans = static_cast<double>(initializer.fan_in + initializer.fan_out);
      return std::sqrt(6.0 / fans) * (2 * UniformDouble(bits.v[0], bits.v[1]) - 1);
    }
    case Initializer::Kind::kMsra:
      return std::sqrt(2.0 / static_cast<double>(initializer.fan_in)) * Normals(bits).first;
  }
  return initializer.value;
}

template <typename T>
void Fill(const Initializer& initializer, uint64_t key, const Tensor& tensor) {
  T* elements = tensor.as<T>();
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double value = Element(initializer, key, static_cast<uint64_t>(i));
    elements[i] = static_cast<T>(static_cast<AccumulateType<T>>(value));
  }
}

absl::Status CheckFinite(const char* field, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("initializer %s: expected a finite number, got %g", field, value));
}

}  // namespace

absl::StatusOr<Initializer> MakeInitializer(const InitializerConfig& config, Initializer fallback) {
  Initializer result = fallback;
  switch (config.kind_case()) {
    case InitializerConfig::kConstant:
      result.kind = Initializer::Kind::kConstant;
      result.value = config.constant().value();
      break;
    case InitializerConfig::kGaussian:
      result.kind = Initializer::Kind::kGaussian;
      result.mean = config.gaussian().mean();
      result.std = config.gaussian().std();
      break;
    case InitializerConfig::kXavier:
      result.kind = Initializer::Kind::kXavier;
      break;
    case InitializerConfig::kMsra:
      result.kind = Initializer::Kind::kMsra;
      break;
    case InitializerConfig::KIND_NOT_SET:
      break;
  }
  RETURN_IF_ERROR(CheckFinite("constant value", result.value));
  RETURN_IF_ERROR(CheckFinite("gaussian mean", result.mean));
  RETURN_IF_ERROR(CheckFinite("gaussian std", result.std));
  if (result.std < 0) {
    return absl::InvalidArgumentError(
        absl::StrFormat("initializer gaussian std: expected 0 or more, got %g", result.std));
  }
  return result;
}

void Initialize(const Initializer& initializer, uint64_t key, Tensor tensor) {
  GYRE_CHECK(IsReal(tensor.dtype));
  GYRE_CHECK(initializer.fan_in >= 1 && initializer.fan_out >= 1);
  VisitReal(tensor.dtype, [&]<typename T>() { Fill<T>(initializer, key, tensor); });
}

}  // namespace gyre
