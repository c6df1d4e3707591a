// GEMM by cuBLASLt.
//
// cuBLASLt's matrices are column-major: a row-major [r, c] is its [c, r].  So c = op(a) op(b) is
// computed as c^T = op(b)^T op(a)^T: b comes first, and c^T has n rows, along which cuBLASLt's bias
// epilogue runs.  It knows one batch; the other is a loop.  Its ReLU may make 0 of a NaN, so one in
// its epilogue is only offered to a selector, which looks.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/runtime/primitives/cuda/context.h"

namespace gyre {
namespace {

// cuBLASLt ranks what it would run; beyond the first few its suggestions are slow.
constexpr int kSuggestions = 16;

// Candidates of the kind that comes first, with the epilogue fused or apart.
constexpr size_t kMostOfFirstKind = 6;

// How sums that are split along k may come together: not at all, or as partial sums of the compute
// type in the workspace, added in a fixed order by a second kernel.  The other two schemes keep
// partial sums in the output's type, which rounds them to 16 bits for the half types.
constexpr uint32_t kReductionSchemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

cudaDataType_t DataType(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CUDA_R_64F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

cublasComputeType_t ComputeType(DType dtype, bool tf32) {
  if (dtype == DType::kF64) return CUBLAS_COMPUTE_64F;
  return dtype == DType::kF32 && tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

cublasLtEpilogue_t Epilogue(const GemmSpec& spec) {
  if (spec.activation == Activation::kRelu) {
    return spec.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  }
  return spec.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

class CublasLtGemm : public Gemm {
 public:
  CublasLtGemm(std::shared_ptr<CudaContext> context, const GemmSpec& spec)
      : context_(std::move(context)), lt_(context_->cublaslt), spec_(spec) {}
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  ~CublasLtGemm() override {
    if (operation_ != nullptr) lt_.cublasLtMatmulDescDestroy(operation_);
    for (cublasLtMatrixLayout_t layout : {a_, b_, c_}) {
      if (layout != nullptr) lt_.cublasLtMatrixLayoutDestroy(layout);
    }
  }

  absl::Status Describe() {
    const bool f64 = spec_.dtype == DType::kF64;
    RETURN_IF_ERROR(Status(
        lt_.cublasLtMatmulDescCreate(&operation_, ComputeType(spec_.dtype, context_->options.tf32),
                                     f64 ? CUDA_R_64F : CUDA_R_32F),
        "cublasLtMatmulDescCreate"));
    RETURN_IF_ERROR(SetTransposed(CUBLASLT_MATMUL_DESC_TRANSA, spec_.transpose_b));
    RETURN_IF_ERROR(SetTransposed(CUBLASLT_MATMUL_DESC_TRANSB, spec_.transpose_a));
    const GemmBatch& batch = spec_.inner;
    RETURN_IF_ERROR(CreateLayout(spec_.dtype, spec_.transpose_b ? spec_.n : spec_.k,
                                 spec_.transpose_b ? spec_.k : spec_.n, spec_.row_b(), batch.b,
                                 &b_));
    RETURN_IF_ERROR(CreateLayout(spec_.dtype, spec_.transpose_a ? spec_.k : spec_.m,
                                 spec_.transpose_a ? spec_.m : spec_.k, spec_.row_a(), batch.a,
                                 &a_));
    return CreateLayout(spec_.c_type(), spec_.m, spec_.n, spec_.row_c(), batch.c, &c_);
  }

  // Chooses among algorithms with the epilogue fused and without.  The latter are there where none
  // has it, and to be compared with.  A ReLU is apart first.  Candidates are numbered alike,
  // however many are made.
  absl::Status Choose() {
    const size_t most = context_->most_candidates();
    absl::Status refused;
    const bool relu = spec_.activation == Activation::kRelu;
    if (Epilogue(spec_) == CUBLASLT_EPILOGUE_DEFAULT) {
      RETURN_IF_ERROR(Search(/*fused=*/true, most, &refused));
    } else {
      RETURN_IF_ERROR(Search(/*fused=*/!relu, std::min(most, kMostOfFirstKind), &refused));
      if (!relu || !candidates_.empty()) {
        RETURN_IF_ERROR(Search(/*fused=*/relu, most, &refused));
      }
    }

    const GemmBatch &outer = spec_.outer, &inner = spec_.inner;
    // From the first element to the last.
    const auto bytes = [&](DType dtype, int64_t rows, int64_t row, int64_t columns,
                           int64_t in_outer, int64_t in_inner) {
      const int64_t last = (rows - 1) * row + columns - 1 + (outer.count - 1) * in_outer +
                           (inner.count - 1) * in_inner;
      return static_cast<size_t>(last + 1) * SizeOf(dtype);
    };
    const DType type = spec_.dtype;
    const bool ta = spec_.transpose_a, tb = spec_.transpose_b;
    const int64_t m = spec_.m, n = spec_.n, k = spec_.k;
    CudaTrial trial{
        .what = ToString(spec_),
        .dtype = spec_.dtype,
        .relu = spec_.activation == Activation::kRelu,
        .operands = {{0, bytes(type, ta ? k : m, spec_.row_a(), ta ? m : k, outer.a, inner.a)},
                     {1, bytes(type, tb ? n : k, spec_.row_b(), tb ? k : n, outer.b, inner.b)},
                     {2, bytes(type, 1, n, n, 0, 0)},
                     {3, bytes(spec_.c_type(), m, spec_.row_c(), n, outer.c, inner.c)}},
        .candidates = {}};
    for (const GemmCandidate& candidate : candidates_) {
      trial.candidates.push_back(
          {.choice = candidate.choice,
           .scratch_bytes = ScratchFor(candidate.workspace_bytes),
           .run = [this, &candidate](Stream& stream, std::span<void* const> operands,
                                     void* scratch) {
             return Run(candidate, stream, operands[0], operands[1], operands[2], operands[3],
                        scratch);
           }});
    }
    if (candidates_.empty()) return refused;
    ASSIGN_OR_RETURN(const size_t index, context_->Select(trial));
    candidates_ = {candidates_[index]};
    return absl::OkStatus();
  }

  size_t scratch_bytes() const override { return ScratchFor(candidates_[0].workspace_bytes); }

  absl::Status Run(Stream& stream, const void* a, const void* b, const void* bias, void* c,
                   void* scratch) const override {
    return Run(candidates_[0], stream, a, b, bias, c, scratch);
  }

 private:
  struct GemmCandidate {
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    bool fused;  // bias and activation are the epilogue's
    std::string choice;
  };

  absl::Status Run(const GemmCandidate& candidate, Stream& stream, const void* a, const void* b,
                   const void* bias, void* c, void* scratch) const {
    RETURN_IF_ERROR(CheckAligned(a, "a"));
    RETURN_IF_ERROR(CheckAligned(b, "b"));
    RETURN_IF_ERROR(CheckAligned(c, "c"));
    RETURN_IF_ERROR(CheckAligned(scratch, "scratch"));
    if (spec_.bias && candidate.fused) RETURN_IF_ERROR(CheckAligned(bias, "bias"));
    RETURN_IF_ERROR(SetEpilogue(candidate.fused, bias));
    // In the scale type: double for F64, else float.
    const double one = 1, zero = 0;
    const float one_float = 1, zero_float = 0;
    const bool f64 = spec_.dtype == DType::kF64;
    const void* alpha = f64 ? static_cast<const void*>(&one) : &one_float;
    const void* beta = f64 ? static_cast<const void*>(&zero) : &zero_float;
    if (spec_.accumulate) beta = alpha;
    for (int64_t i = 0; i < spec_.outer.count; ++i) {
      const void* const at_a = At(a, spec_.dtype, i * spec_.outer.a);
      const void* const at_b = At(b, spec_.dtype, i * spec_.outer.b);
      void* const at_c = const_cast<void*>(At(c, spec_.c_type(), i * spec_.outer.c));
      RETURN_IF_ERROR(Status(
          lt_.cublasLtMatmul(context_->cublaslt_handle, operation_, alpha, at_b, b_, at_a, a_, beta,
                             at_c, c_, at_c, c_, &candidate.algorithm, WorkspaceIn(scratch),
                             candidate.workspace_bytes, static_cast<cudaStream_t>(stream.native())),
          "cublasLtMatmul"));
    }
    if (candidate.fused) return absl::OkStatus();
    return AddBiasAndActivate(stream, spec_.dtype, spec_.activation, spec_.m, spec_.n,
                              spec_.bias ? bias : nullptr, c);
  }

  static const void* At(const void* data, DType dtype, int64_t element) {
    return static_cast<const std::byte*>(data) + element * static_cast<int64_t>(SizeOf(dtype));
  }

  absl::Status Status(cublasStatus_t code, const char* call) const {
    return CublasLtStatus(lt_, code, call);
  }

  template <typename T>
  absl::Status Set(cublasLtMatmulDescAttributes_t attribute, const T& value) const {
    return Status(lt_.cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)),
                  "cublasLtMatmulDescSetAttribute");
  }

  absl::Status SetTransposed(cublasLtMatmulDescAttributes_t attribute, bool transposed) const {
    return Set(attribute, transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
  }

  // Row-major matrices of rows x columns, as they are stored, `step` elements apart.
  absl::Status CreateLayout(DType dtype, int64_t rows, int64_t columns, int64_t row, int64_t step,
                            cublasLtMatrixLayout_t* layout) {
    RETURN_IF_ERROR(Status(
        lt_.cublasLtMatrixLayoutCreate(layout, DataType(dtype), static_cast<uint64_t>(columns),
                                       static_cast<uint64_t>(rows), row),
        "cublasLtMatrixLayoutCreate"));
    if (spec_.inner.count == 1) return absl::OkStatus();
    const auto set = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) {
      return Status(lt_.cublasLtMatrixLayoutSetAttribute(*layout, attribute, &value, sizeof(value)),
                    "cublasLtMatrixLayoutSetAttribute");
    };
    RETURN_IF_ERROR(
        set(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(spec_.inner.count)));
    return set(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, step);
  }

  // bias: used with the epilogue alone.
  absl::Status SetEpilogue(bool fused, const void* bias) const {
    RETURN_IF_ERROR(
        Set(CUBLASLT_MATMUL_DESC_EPILOGUE, fused ? Epilogue(spec_) : CUBLASLT_EPILOGUE_DEFAULT));
    if (!spec_.bias || !fused) return absl::OkStatus();
    return Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }

  // Adds algorithms to candidates_, `most` in all; *refused: why there are no more.
  absl::Status Search(bool fused, size_t most, absl::Status* refused) {
    if (candidates_.size() >= most) return absl::OkStatus();
    // The search takes the bias's alignment from a pointer that it does not follow.
    RETURN_IF_ERROR(SetEpilogue(fused, reinterpret_cast<const void*>(kOperandAlignment)));
    cublasLtMatmulPreference_t preference = nullptr;
    RETURN_IF_ERROR(
        Status(lt_.cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate"));
    const absl::Status searched = Search(fused, most, preference, refused);
    lt_.cublasLtMatmulPreferenceDestroy(preference);
    return searched;
  }

  absl::Status Search(bool fused, size_t most, cublasLtMatmulPreference_t preference,
                      absl::Status* refused) {
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, auto value) {
      return Status(
          lt_.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
          "cublasLtMatmulPreferenceSetAttribute");
    };
    RETURN_IF_ERROR(
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kSplitWorkspaceBytes}));
    RETURN_IF_ERROR(prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kReductionSchemes));
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      RETURN_IF_ERROR(prefer(attribute, uint32_t{kOperandAlignment}));
    }

    std::array<cublasLtMatmulHeuristicResult_t, kSuggestions> suggestions = {};
    int found = 0;
    const absl::Status searched = Status(
        lt_.cublasLtMatmulAlgoGetHeuristic(context_->cublaslt_handle, operation_, b_, a_, c_, c_,
                                           preference, kSuggestions, suggestions.data(), &found),
        "cublasLtMatmulAlgoGetHeuristic");
    // Whatever the search fails of, the other epilogue or the kernels may do.
    *refused = absl::UnimplementedError(
        absl::StrCat(ToString(spec_), ": cuBLASLt has no deterministic algorithm for it",
                     searched.ok() ? "" : ": ", std::string(searched.message())));
    if (!searched.ok()) return absl::OkStatus();
    for (int i = 0; i < found && candidates_.size() < most; ++i) {
      if (!IsAcceptable(suggestions[i])) continue;
      candidates_.push_back({suggestions[i].algo, suggestions[i].workspaceSize, fused,
                             Describe(suggestions[i].algo, fused)});
    }
    return absl::OkStatus();
  }

  // An attribute of an algorithm; nullopt where this one does not have it.
  template <typename T>
  std::optional<T> Get(const cublasLtMatmulAlgo_t& algorithm,
                       cublasLtMatmulAlgoConfigAttributes_t attribute) const {
    T value = {};
    size_t written = 0;
    if (lt_.cublasLtMatmulAlgoConfigGetAttribute(&algorithm, attribute, &value, sizeof(value),
                                                 &written) != CUBLAS_STATUS_SUCCESS ||
        written != sizeof(value)) {
      return std::nullopt;
    }
    return value;
  }

  bool IsAcceptable(const cublasLtMatmulHeuristicResult_t& candidate) const {
    if (candidate.state != CUBLAS_STATUS_SUCCESS) return false;
    if (candidate.workspaceSize > kSplitWorkspaceBytes) return false;
    const auto scheme = Get<uint32_t>(candidate.algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME);
    return scheme.has_value() && (*scheme & ~kReductionSchemes) == 0;
  }

  std::string Describe(const cublasLtMatmulAlgo_t& algorithm, bool fused) const {
    const bool apart = !fused && Epilogue(spec_) != CUBLASLT_EPILOGUE_DEFAULT;
    std::string line = absl::StrFormat(
        "cublaslt %d%s%s, epilogue %d", lt_.cublasLtGetVersion(),
        spec_.dtype == DType::kF32 && context_->options.tf32 ? ", tf32" : "",
        apart ? ", epilogue apart" : "", fused ? Epilogue(spec_) : CUBLASLT_EPILOGUE_DEFAULT);
    const auto append = [&]<typename T>(const char* what, std::optional<T> value) {
      absl::StrAppend(&line, ", ", what, " ");
      if (value.has_value()) absl::StrAppend(&line, *value);
    };
    append("algorithm", Get<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID));
    append("tile", Get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID));
    append("stages", Get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID));
    append("splits", Get<int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM));
    append("reduction", Get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME));
    append("swizzle", Get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING));
    append("option", Get<uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION));
    append("inner", Get<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID));
    append("cluster", Get<uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
    return line;
  }

  const std::shared_ptr<CudaContext> context_;
  const CublasLt& lt_;
  const GemmSpec spec_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_ = nullptr, b_ = nullptr, c_ = nullptr;
  std::vector<GemmCandidate> candidates_;  // the one chosen, after Choose
};

}  // namespace

absl::StatusOr<std::unique_ptr<Gemm>> PrepareCudaGemm(std::shared_ptr<CudaContext> context,
                                                      const GemmSpec& spec) {
  auto gemm = std::make_unique<CublasLtGemm>(std::move(context), spec);
  RETURN_IF_ERROR(gemm->Describe());
  RETURN_IF_ERROR(gemm->Choose());
  return gemm;
}

}  // namespace gyre
