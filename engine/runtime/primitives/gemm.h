// gemm.h: matrix multiplication.  The rules of all primitives: primitives.h.
#pragma once

#include <string>

#include "engine/runtime/device/device.h"

namespace gyre {

// What an operation applies to its result before it stores it.
enum class Activation : uint8_t { kNone, kRelu };  // kRelu: max(x, 0), NaN stays NaN

// `count` matrices of each operand, so many elements from the begin of one to that of the next; a
// and b may repeat one.
struct GemmBatch {
  int64_t count = 1, a = 0, b = 0, c = 0;
};

// c[m,n] = activation(op(a) op(b) + bias), with a: [m,k] ([k,m] if transpose_a), b: [k,n] ([n,k] if
// transpose_b), bias: [n].  Accumulates in AccumulateType of dtype.
//
// Matrices may be parts of larger arrays: heads within [N, T, heads, d], say, are a batch of heads
// in a batch of samples, and no copy.
struct GemmSpec {
  DType dtype = DType::kF32;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, bias = false;
  Activation activation = Activation::kNone;
  // Elements from one row of what is stored to the next; 0: rows lie end to end.
  int64_t lda = 0, ldb = 0, ldc = 0;
  GemmBatch outer = {}, inner = {};  // outer.count x inner.count products; one bias for all
  bool accumulate = false;           // c is added to the sum; otherwise it is not read
  // What causal attention lets a product leave out: c right of its diagonal, which may then hold
  // anything; a, as it is stored, right of its, where it is 0.
  bool lower_c = false, lower_a = false;
  // Many products have the same b: who profits from another layout of it says so in packed_bytes.
  bool packs_b = false;
  // c is F32 although dtype has 16 bits: sums as they are.  With neither bias nor activation.
  bool wide_c = false;

  int64_t row_a() const { return lda != 0 ? lda : transpose_a ? m : k; }
  int64_t row_b() const { return ldb != 0 ? ldb : transpose_b ? k : n; }
  int64_t row_c() const { return ldc != 0 ? ldc : n; }
  int64_t products() const { return outer.count * inner.count; }
  DType c_type() const { return wide_c ? DType::kF32 : dtype; }
  // Whether it is one product of whole arrays that assigns c.
  bool IsPlain() const {
    return lda == 0 && ldb == 0 && ldc == 0 && products() == 1 && !accumulate && !wide_c;
  }
};

// Calls f(a, b, c) with the element at which each product's operands begin, in order.
template <typename F>
void ForEachProduct(const GemmSpec& spec, const F& f) {
  const GemmBatch &outer = spec.outer, &inner = spec.inner;
  for (int64_t i = 0; i < outer.count; ++i) {
    for (int64_t j = 0; j < inner.count; ++j) {
      f(i * outer.a + j * inner.a, i * outer.b + j * inner.b, i * outer.c + j * inner.c);
    }
  }
}

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual size_t scratch_bytes() const = 0;  // may be 0
  // Not 0: Run takes as b what Pack makes of it, so many bytes, aligned as scratch.
  virtual size_t packed_bytes() const { return 0; }
  virtual absl::Status Pack(Stream&, const void* /*b*/, void* /*packed*/) const {
    return absl::OkStatus();
  }
  virtual absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                           void* scratch) const = 0;
  // As Run, for a spec with neither bias nor activation nor both factors transposed, were its m, or
  // its k if transpose_a, `rows`, at most as many: of arrays of which a part is there.  cpu and
  // sim.
  virtual absl::Status RunRows(Stream&, int64_t /*rows*/, const void* /*a*/, const void* /*b*/,
                               void* /*c*/, void* /*scratch*/) const {
    return absl::UnimplementedError("no product of a part of the rows");
  }
};

// The spec of RunRows.
inline GemmSpec OfRows(GemmSpec spec, int64_t rows) {
  (spec.transpose_a ? spec.k : spec.m) = rows;
  return spec;
}

absl::Status Validate(const GemmSpec& spec);
std::string ToString(const GemmSpec& spec);

}  // namespace gyre
