#include "layers/interface/initializer.h"

#include <cmath>

#include "absl/strings/str_format.h"
#include "engine/runtime/parallel/parallel.h"
#include "engine/runtime/random.h"

namespace gyre {
namespace {

struct Constant {
  double value;
  double operator()(const RandomBits&) const { return value; }
};

struct Gaussian {
  double mean, std;
  double operator()(const RandomBits& bits) const { return mean + std * Normals(bits).first; }
};

struct Uniform {
  double bound;  // in +-bound
  double operator()(const RandomBits& bits) const {
    return bound * (2 * UniformDouble(bits.v[0], bits.v[1]) - 1);
  }
};

template <typename T, typename Source>
struct FillElement {
  Source source;
  uint64_t key;
  int64_t first;
  T* to;
  void operator()(int64_t i) const {
    const double value = source(Philox(key, /*counter_hi=*/0, static_cast<uint64_t>(first + i)));
    to[i] = static_cast<T>(static_cast<AccumulateType<T>>(value));
  }
};

template <typename Source>
void Fill(const Source& source, uint64_t key, int64_t first, const Tensor& tensor) {
  VisitReal(tensor.dtype, [&]<typename T>() {
    ForEachOnHost(tensor.elements(), FillElement<T, Source>{source, key, first, tensor.as<T>()});
  });
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

void Initialize(const Initializer& initializer, uint64_t key, Tensor tensor, int64_t first) {
  GYRE_CHECK(IsReal(tensor.dtype));
  GYRE_CHECK(initializer.fan_in >= 1 && initializer.fan_out >= 1);
  const auto fan_in = static_cast<double>(initializer.fan_in);
  const auto fans = static_cast<double>(initializer.fan_in + initializer.fan_out);
  switch (initializer.kind) {
    case Initializer::Kind::kConstant:
      return Fill(Constant{initializer.value}, key, first, tensor);
    case Initializer::Kind::kGaussian:
      return Fill(Gaussian{initializer.mean, initializer.std}, key, first, tensor);
    case Initializer::Kind::kXavier:
      return Fill(Uniform{std::sqrt(6 / fans)}, key, first, tensor);
    case Initializer::Kind::kMsra:
      return Fill(Gaussian{0, std::sqrt(2 / fan_in)}, key, first, tensor);
  }
}

}  // namespace gyre
