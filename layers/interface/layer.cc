#include "layers/interface/layer.h"

#include <cstring>

#include "engine/runtime/check.h"

namespace gyre {
namespace {

absl::Status Copy(const Tensor& from, const Tensor& to) {
  GYRE_CHECK(from.dtype == to.dtype && from.bytes() == to.bytes());
  if (to.bytes() > 0) std::memcpy(to.data, from.data, to.bytes());
  return absl::OkStatus();
}

}  // namespace

absl::Status Layer::Pack(int, Tensor canonical, Tensor opaque) const {
  return Copy(canonical, opaque);
}

absl::Status Layer::Unpack(int, Tensor opaque, Tensor canonical) const {
  return Copy(opaque, canonical);
}

absl::Status Layer::ToOnnx(OnnxWriter&) const {
  return absl::UnimplementedError("ONNX has no form of a loss or a metric");
}

}  // namespace gyre
