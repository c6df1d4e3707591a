#include "engine/runtime/primitives/onednn/bf16.h"

#include <algorithm>

#include "engine/runtime/primitives/onednn/pointwise.h"
#include "oneapi/dnnl/dnnl.hpp"

namespace gyre {
namespace {

bool Any(const Conv2dSpec&) { return true; }

bool IsDepthwise(const Conv2dSpec& spec) { return spec.groups == spec.c && spec.groups > 1; }

bool FillsTiles(const Conv2dSpec& spec) { return AmxTakes(spec); }

bool IsPointwiseOfTiles(const Conv2dSpec& spec) { return AmxTakes(spec) && IsPointwise(spec); }

struct Bf16Row {
  Bf16Unit unit;
  bool (*takes)(const Conv2dSpec&);
  Bf16Way way;
};

// The first row that applies.  Rows of kAmx are arithmetic from whole steps of nets on a machine
// with 2 threads; no single convolution was timed there.  To correct them, time each way there:
//
//   bazel-bin/tools/bench/bench_ops --precisions=BF16 --threads=2
//       --nets=models/resnet50/net.textproto:8,models/vgg/net.textproto:16
constexpr Bf16Row kRows[] = {
    // oneDNN 2.6 has no BF16 below AVX-512.  Without BF16 instructions AVX-512 takes five
    // instructions for what two of F32 do; the conversions take one pass over each operand.
    {Bf16Unit::kNone, Any, Bf16Way::kF32},
    // Source: 3x3, 64 to 64, 56x56, 16 images, one thread: 7.9, 8.2 and 9.8 ms for the three
    // passes, in F32 16.4, 18.3 and 20.4.
    {Bf16Unit::kAvx512, Any, Bf16Way::kConvolution},
    // Few operations a byte: one pass over 16 bits.  It has no tiles.
    {Bf16Unit::kAmx, IsDepthwise, Bf16Way::kConvolution},
    // Source: ResNet-50, half of whose operations these are, took 1,045 ms by oneDNN's convolutions
    // and 776 in F32, while a product has 1,050 GFLOP/s, five times F32's.
    {Bf16Unit::kAmx, IsPointwiseOfTiles, Bf16Way::kProducts},
    // Source: VGG-11, which has these and little else: 1,215 ms, and 4.0 s without AMX.
    {Bf16Unit::kAmx, FillsTiles, Bf16Way::kConvolution},
    // Source: the same 4.0 s.  Beside AMX the AVX-512 instructions for BF16 have F32's rate.
    {Bf16Unit::kAmx, Any, Bf16Way::kF32},
};

}  // namespace

Bf16Unit CurrentBf16Unit() {
  const auto set = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto has = [set](dnnl::cpu_isa other) {
    const auto bits = static_cast<unsigned>(other);
    return (set & bits) == bits;
  };
  if (has(dnnl::cpu_isa::avx512_core_amx)) return Bf16Unit::kAmx;
  return has(dnnl::cpu_isa::avx512_core_bf16) ? Bf16Unit::kAvx512 : Bf16Unit::kNone;
}

Bf16Way Bf16WayOf(const Conv2dSpec& spec, Bf16Unit unit) {
  const Bf16Row* const row =
      std::find_if(std::begin(kRows), std::end(kRows),
                   [&](const Bf16Row& r) { return r.unit == unit && r.takes(spec); });
  return row->way;
}

bool AmxTakes(const GemmSpec& spec, int threads) {
  // Two faults of oneDNN 2.6's brgemm_matmul, each an illegal instruction by a tile that is not
  // configured: a last block of k of 31 elements beside a last block of rows or columns, and the
  // sum over threads that share out k, which 16 threads or more do for more than 1,024.
  constexpr int kThreadsSharingK = 16;
  constexpr int64_t kMostUnshared = 1024;
  const bool whole = spec.k % 2 == 0 && (threads < kThreadsSharingK || spec.k <= kMostUnshared);
  return spec.dtype == DType::kBF16 && whole;
}

// A tile is 32 channels deep: none is cut off.
bool AmxTakes(const Conv2dSpec& spec) {
  constexpr int64_t kTile = 32;
  return spec.groups == 1 && spec.c % kTile == 0 && spec.filters % kTile == 0;
}

}  // namespace gyre
