#include "layers/interface/layer.h"

#include <cstring>

#include "absl/strings/str_format.h"

namespace gyre {
namespace {

absl::Status CopyOnlyPart(int state, std::span<const Tensor> parts, Tensor opaque, bool pack) {
  if (parts.size() != 1 || parts[0].dtype != opaque.dtype || parts[0].bytes() != opaque.bytes()) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "state %d is one part of %d bytes of %s, got %d parts%s", state, opaque.bytes(),
        DTypeName(opaque.dtype), parts.size(),
        parts.empty() ? ""
                      : absl::StrFormat(", the first of %d bytes of %s", parts[0].bytes(),
                                        DTypeName(parts[0].dtype))));
  }
  if (opaque.bytes() == 0) return absl::OkStatus();
  std::memcpy(pack ? opaque.data : parts[0].data, pack ? parts[0].data : opaque.data,
              opaque.bytes());
  return absl::OkStatus();
}

}  // namespace

absl::Status Layer::Pack(int state, std::span<const Tensor> parts, Tensor opaque) const {
  return CopyOnlyPart(state, parts, opaque, /*pack=*/true);
}

absl::Status Layer::Unpack(int state, Tensor opaque, std::span<const Tensor> parts) const {
  return CopyOnlyPart(state, parts, opaque, /*pack=*/false);
}

}  // namespace gyre
