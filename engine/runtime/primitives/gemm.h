// gemm.h: matrix multiplication.  primitives.h has the rules of all primitives.
#pragma once

#include <string>
#include <string_view>

#include "engine/runtime/device/device.h"

namespace gyre {

enum class Activation : uint8_t { kNone, kRelu };  // kRelu is max(x, 0), NaN stays NaN

// `count` matrices of each operand.  a, b and c are elements from the begin of one matrix to that
// of the next.  With 0 all products share the matrix, which c must not.
struct GemmBatch {
  int64_t count = 1, a = 0, b = 0, c = 0;
};

// c[m,n] = activation(op(a) op(b) + bias[n]), accumulated in AccumulateType of dtype.
//   a  [m,k], or [k,m] if transpose_a
//   b  [k,n], or [n,k] if transpose_b
// Matrices may be slices of arrays, as a batch of heads in a batch of samples [N, T, heads, d].
struct GemmSpec {
  DType dtype = DType::kF32;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false, bias = false;
  Activation activation = Activation::kNone;
  // Elements from one stored row to the next.  0: rows are contiguous.
  int64_t lda = 0, ldb = 0, ldc = 0;
  GemmBatch outer = {}, inner = {};  // outer.count x inner.count products; one bias for all
  bool accumulate = false;           // c is added to the sum, else not read
  // Causal attention's savings.  With lower_c, c may hold anything right of its diagonal.  With
  // lower_a, the stored a is 0 right of its diagonal.
  bool lower_c = false, lower_a = false;
  // Many products share b.  An operation that gains from another layout of b sets packed_bytes.
  bool packs_b = false;
  // c holds sums in F32, although dtype has 16 bits.  Precondition: no bias, no activation.
  bool wide_c = false;

  int64_t row_a() const { return lda != 0 ? lda : transpose_a ? m : k; }
  int64_t row_b() const { return ldb != 0 ? ldb : transpose_b ? k : n; }
  int64_t row_c() const { return ldc != 0 ? ldc : n; }
  int64_t products() const { return outer.count * inner.count; }
  DType c_type() const { return wide_c ? DType::kF32 : dtype; }
  // True for one product of whole arrays that assigns c.
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

// Rows of another product, of contiguous arrays, with as many columns and a factor packed alike.
// Calls of RunBeside compute rows_beside of them.
struct RowsBeside {
  int64_t k = 0;
  const void* a = nullptr;  // its first row
  const void* b = nullptr;  // packed
  void* c = nullptr;
  int64_t part = 0;  // of the columns, which are cut into rows_beside parts
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual size_t scratch_bytes() const = 0;  // may be 0
  // If not 0, Run takes as b the output of Pack, of this many bytes, aligned as scratch.
  virtual size_t packed_bytes() const { return 0; }
  virtual absl::Status Pack(Stream&, const void* /*b*/, void* /*packed*/) const {
    return absl::OkStatus();
  }
  // Names what Pack makes, if n, k and transpose_b alone decide it.  Then b can be stored packed.
  virtual std::string_view packed_layout() const { return ""; }
  // Pack, with zeros where it leaves gaps, and its inverse, in host memory, on the calling thread.
  // Precondition: packed_layout() is not empty.
  virtual absl::Status PackHere(const void* /*b*/, void* /*packed*/) const {
    return absl::UnimplementedError("no product of a stored packed factor");
  }
  virtual absl::Status UnpackHere(const void* /*packed*/, void* /*b*/) const {
    return absl::UnimplementedError("no product of a stored packed factor");
  }
  virtual absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                           void* scratch) const = 0;
  // As Run with `rows` in place of m, or of k if transpose_a, for partly filled arrays.  cpu and
  // sim.  Preconditions: at most the spec's rows, no bias, no activation, not both transposed.
  virtual absl::Status RunRows(Stream&, int64_t /*rows*/, const void* /*a*/, const void* /*b*/,
                               void* /*c*/, void* /*scratch*/) const {
    return absl::UnimplementedError("no product of a part of the rows");
  }
  // Rows of `other` that as many calls of RunBeside compute.  0: it cannot.
  virtual int64_t rows_beside(const Gemm& /*other*/) const { return 0; }
  // Run of one row, and beside it a part of `rows`.  One row waits for the cache that b comes from,
  // many rows for multiply-adds.  Both give the bits that they give alone.
  virtual absl::Status RunBeside(Stream&, const void* /*a*/, const void* /*b*/, void* /*c*/,
                                 const RowsBeside& /*rows*/) const {
    return absl::UnimplementedError("no product beside another");
  }
};

// Returns the spec of RunRows.
inline GemmSpec OfRows(GemmSpec spec, int64_t rows) {
  (spec.transpose_a ? spec.k : spec.m) = rows;
  return spec;
}

// A Gemm that prepares nothing for its spec, and so runs with any number of rows.
class UnpreparedGemm : public Gemm {
 public:
  explicit UnpreparedGemm(const GemmSpec& spec) : spec_(spec) {}
  size_t scratch_bytes() const final { return 0; }
  absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                   void* /*scratch*/) const final {
    return RunSpec(stream, spec_, a, b, spec_.bias ? bias : nullptr, c);
  }
  absl::Status RunRows(Stream& stream, int64_t rows, const void* a, const void* b, void* c,
                       void* /*scratch*/) const final {
    return RunSpec(stream, OfRows(spec_, rows), a, b, nullptr, c);
  }

 protected:
  // bias is null if the spec has none.
  virtual absl::Status RunSpec(Stream& stream, const GemmSpec& spec, const void* a, const void* b,
                               const void* bias, void* c) const = 0;

  const GemmSpec spec_;
};

absl::Status Validate(const GemmSpec& spec);
std::string ToString(const GemmSpec& spec);

}  // namespace gyre
