// The products and the convolution that are written for AVX-512, as one library.  A CPU without it
// leaves all to others.
#include "absl/strings/str_cat.h"
#include "engine/runtime/parallel/instruction_set.h"
#include "engine/runtime/primitives/blocked/blocked.h"
#include "engine/runtime/primitives/blocked/pairs.h"

namespace gyre {
namespace {

bool HasAvx512() { return CurrentInstructionSet() == InstructionSet::kAvx512; }

class Avx512Library : public PrimitiveLibrary {
 public:
  std::string_view name() const override { return "avx512"; }

  // Sums are fused, and the convolution's in an order of their own.
  std::string choices() const override {
    if (!HasAvx512()) return "";
    return absl::StrCat("narrow avx512\nwinograd avx512\npacked products avx512",
                        HasPairProducts() ? " bf16" : "",
                        "\nsmall products avx512\nfew terms avx512\n");
  }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    RETURN_IF_ERROR(Validate(spec));
    for (const auto prepare : {PreparePackedProduct, PrepareSmallProducts, PrepareFewTerms}) {
      auto gemm = HasAvx512() ? prepare(spec) : nullptr;
      if (gemm != nullptr) return gemm;
    }
    return LeaveToOthers(spec);
  }

  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    RETURN_IF_ERROR(Validate(spec));
    for (const auto prepare : {PrepareNarrow, PrepareWinograd}) {
      auto conv = HasAvx512() ? prepare(spec) : nullptr;
      if (conv != nullptr) return conv;
    }
    return LeaveToOthers(spec);
  }
};

}  // namespace

std::unique_ptr<PrimitiveLibrary> NewAvx512Library() { return std::make_unique<Avx512Library>(); }

}  // namespace gyre
