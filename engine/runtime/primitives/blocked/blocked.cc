// The blocked library: GEMM, and the door to the convolution and pooling beside it.  It is the F64
// path, and takes what oneDNN leaves of F32; and all pooling.
#include "engine/runtime/primitives/blocked/blocked.h"

#include "engine/runtime/primitives/activation.h"
#include "engine/runtime/primitives/blocked/blocked_gemm.h"

namespace gyre {
namespace {

template <typename T>
class TiledGemm : public UnpreparedGemm {
 public:
  using UnpreparedGemm::UnpreparedGemm;

 private:
  absl::Status RunSpec(Stream& stream, const GemmSpec& spec, const void* a, const void* b,
                       const void* bias, void* c) const override {
    return stream.Call([=] {
      ForEachProduct(spec, [&](int64_t at_a, int64_t at_b, int64_t at_c) {
        Multiply(spec, static_cast<const T*>(a) + at_a, static_cast<const T*>(b) + at_b,
                 static_cast<const T*>(bias), static_cast<T*>(c) + at_c);
      });
      return absl::OkStatus();
    });
  }

  static void Multiply(const GemmSpec& spec, const T* a, const T* b, const T* bias, T* c) {
    const int64_t row_a = spec.row_a(), row_b = spec.row_b(), row_c = spec.row_c();
    const int64_t a_row = spec.transpose_a ? 1 : row_a, a_k = spec.transpose_a ? row_a : 1;
    const int64_t b_k = spec.transpose_b ? 1 : row_b, b_column = spec.transpose_b ? row_b : 1;
    BlockedGemm<T>(
        spec.m, spec.n, spec.k,
        [=](int64_t row, int64_t k0, int64_t count, T* to) {
          const T* from = a + row * a_row + k0 * a_k;
          for (int64_t i = 0; i < count; ++i) to[i] = from[i * a_k];
        },
        [=](int64_t k, int64_t column0, int64_t count, T* to) {
          const T* from = b + k * b_k + column0 * b_column;
          for (int64_t i = 0; i < count; ++i) to[i] = from[i * b_column];
        },
        [=, &spec](int64_t row, int64_t column0, int64_t count, const T* from) {
          T* to = c + row * row_c + column0;
          for (int64_t i = 0; i < count; ++i) {
            T sum = spec.bias ? from[i] + bias[column0 + i] : from[i];
            if (spec.accumulate) sum += to[i];
            to[i] = Activate(spec.activation, sum);
          }
        });
  }
};

class BlockedLibrary : public PrimitiveLibrary {
 public:
  std::string_view name() const override { return "blocked"; }

  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    if (!IsComputeType(spec.dtype)) return LeaveToOthers(spec);
    RETURN_IF_ERROR(Validate(spec));
    return VisitComputeType(spec.dtype, [&]<typename T>() -> std::unique_ptr<Gemm> {
      return std::make_unique<TiledGemm<T>>(spec);
    });
  }

  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    if (!IsComputeType(spec.dtype)) return LeaveToOthers(spec);
    RETURN_IF_ERROR(Validate(spec));
    return PrepareBlockedConv2d(spec);
  }

  // oneDNN 2.6 drops NaNs from maxima, and takes four times as long for the few channels of a small
  // net.
  absl::StatusOr<std::unique_ptr<Pool2d>> Prepare(const Pool2dSpec& spec) const override {
    if (!IsReal(spec.dtype)) return LeaveToOthers(spec);
    RETURN_IF_ERROR(Validate(spec));
    return PrepareBlockedPool2d(spec);
  }
};

}  // namespace

std::unique_ptr<PrimitiveLibrary> NewBlockedLibrary() { return std::make_unique<BlockedLibrary>(); }

}  // namespace gyre
