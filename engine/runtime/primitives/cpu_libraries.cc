// The libraries of a CPU and their order.
#include "engine/runtime/primitives/onednn/bf16.h"
#include "engine/runtime/primitives/primitives.h"

namespace gyre {

Primitives::Primitives(DeviceKind device, int threads) : device_(device) {
  GYRE_CHECK(device != DeviceKind::kCuda);
  libraries_.push_back(NewDepthwiseLibrary());
  const PrimitiveLibrary* depthwise = libraries_.back().get();
  libraries_.push_back(NewAmxProductsLibrary(threads));
  libraries_.push_back(NewAvx512Library());
  libraries_.push_back(NewOneDnnLibrary(threads));
  const PrimitiveLibrary* onednn = libraries_.back().get();
  auto blocked = NewBlockedLibrary();
  libraries_.push_back(NewConvertingLibrary({depthwise, onednn, blocked.get()}));
  libraries_.push_back(std::move(blocked));
  libraries_.push_back(NewReferenceLibrary());
}

Primitives::Primitives(DeviceKind device, std::vector<std::unique_ptr<PrimitiveLibrary>> libraries)
    : device_(device), libraries_(std::move(libraries)) {}

std::string Primitives::choices() const {
  std::string all;
  for (const auto& library : libraries_) all += library->choices();
  return all;
}

}  // namespace gyre
