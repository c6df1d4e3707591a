#include "tests/cuda/fakes/fake_cublaslt.h"

#include <cmath>
#include <cstring>
#include <optional>

#include "engine/runtime/check.h"
#include "engine/runtime/device/cuda/cuda_libraries.h"

namespace gyre {
namespace {

FakeCublasLt* fake = nullptr;

struct Handle : FakeLibrary::Object {};

struct Operation : FakeLibrary::Object {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cudaDataType_t scale = CUDA_R_32F;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};

struct Layout : FakeLibrary::Object {
  cudaDataType_t type = CUDA_R_32F;
  uint64_t rows = 0, columns = 0;
  int64_t leading = 0, batch_step = 0;
  int32_t batch = 1;
};

struct Preference : FakeLibrary::Object {
  uint64_t workspace_bytes = 0;
  uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  uint32_t alignments[4] = {256, 256, 256, 256};  // a, b, c, d
};

// What the fake keeps in the opaque words of an algorithm.
struct Chosen {
  uint64_t index;
  uint64_t problem;
  uint32_t alignments[4];
  uint64_t bias_alignment;
};
static_assert(sizeof(Chosen) <= sizeof(cublasLtMatmulAlgo_t));

Chosen ChosenOf(const cublasLtMatmulAlgo_t& algorithm) {
  Chosen chosen;
  std::memcpy(&chosen, &algorithm, sizeof(chosen));
  return chosen;
}

cublasStatus_t Invalid(const std::string& why) {
  fake->complaint = why;
  return CUBLAS_STATUS_INVALID_VALUE;
}

#define BEGIN_CALL() \
  if (!fake->Call(__func__)) return CUBLAS_STATUS_INTERNAL_ERROR
#define REQUIRE(condition) \
  if (!(condition)) return Invalid(std::string(__func__) + " wants " #condition)

bool HasBias(cublasLtEpilogue_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
bool HasRelu(cublasLtEpilogue_t epilogue) { return (epilogue & CUBLASLT_EPILOGUE_RELU) != 0; }

DType TypeOf(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_64F:
      return DType::kF64;
    case CUDA_R_16F:
      return DType::kF16;
    case CUDA_R_16BF:
      return DType::kBF16;
    default:
      return DType::kF32;
  }
}

// The matrices of a call, checked against each other.
struct Problem {
  const Operation* operation;
  const Layout *a, *b, *c, *d;
  uint64_t m, n, k;

  // Of everything that an algorithm is chosen for.
  uint64_t Fingerprint() const {
    uint64_t hash = 14695981039346656037u;  // FNV-1a
    const auto mix = [&](uint64_t word) { hash = (hash ^ word) * 1099511628211u; };
    for (const Layout* layout : {a, b, c, d}) {
      for (const uint64_t word :
           {static_cast<uint64_t>(layout->type), layout->rows, layout->columns,
            static_cast<uint64_t>(layout->leading), static_cast<uint64_t>(layout->batch),
            static_cast<uint64_t>(layout->batch_step)}) {
        mix(word);
      }
    }
    for (const int word :
         {static_cast<int>(operation->compute), static_cast<int>(operation->transpose_a),
          static_cast<int>(operation->transpose_b), static_cast<int>(operation->epilogue)}) {
      mix(static_cast<uint64_t>(word));
    }
    return hash;
  }
};

// Empty if all is well.
std::string Check(const Problem& p) {
  const auto rows = [](const Layout& layout, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? layout.rows : layout.columns;
  };
  const auto columns = [](const Layout& layout, cublasOperation_t op) {
    return op == CUBLAS_OP_N ? layout.columns : layout.rows;
  };
  const Operation& operation = *p.operation;
  if (rows(*p.a, operation.transpose_a) != p.m) return "rows of op(A) are not those of D";
  if (columns(*p.b, operation.transpose_b) != p.n) return "columns of op(B) are not those of D";
  if (columns(*p.a, operation.transpose_a) != rows(*p.b, operation.transpose_b)) {
    return "op(A) and op(B) differ in k";
  }
  if (p.c->rows != p.m || p.c->columns != p.n) return "C is not like D";
  for (const Layout* layout : {p.a, p.b, p.c}) {
    if (layout->batch != p.d->batch) return "the matrices differ in their batch";
  }
  if (p.a->type != p.b->type || p.c->type != p.d->type) return "the matrices differ in type";
  // Factors of 16 bits may have a result of F32, by the table of cublasLtMatmul's types.
  const bool narrow = p.a->type == CUDA_R_16F || p.a->type == CUDA_R_16BF;
  if (p.a->type != p.d->type && !(narrow && p.d->type == CUDA_R_32F)) {
    return "the result's type does not suit the factors'";
  }
  const bool f64 = operation.compute == CUBLAS_COMPUTE_64F;
  if (f64 != (p.d->type == CUDA_R_64F)) return "the compute type does not suit the matrices";
  if (operation.scale != (f64 ? CUDA_R_64F : CUDA_R_32F)) return "scale and compute type differ";
  if (operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && p.a->type != CUDA_R_32F) {
    return "TF32 is for F32";
  }
  if (HasBias(operation.epilogue) && operation.bias == nullptr) return "there is no bias";
  return "";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  BEGIN_CALL();
  REQUIRE(handle != nullptr);
  *handle = reinterpret_cast<cublasLtHandle_t>(fake->New<Handle>());
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t Destroy(const void* object) {
  REQUIRE(fake->Find<T>(object) != nullptr);
  fake->Destroy(object);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return Destroy<Handle>(handle); }
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return Destroy<Operation>(operation);
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return Destroy<Layout>(layout);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  return Destroy<Preference>(preference);
}

size_t cublasLtGetVersion() { return 130100; }

const char* cublasLtGetStatusString(cublasStatus_t) { return fake->complaint.c_str(); }

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  BEGIN_CALL();
  REQUIRE(operation != nullptr);
  auto* const made = fake->New<Operation>();
  made->compute = compute;
  made->scale = scale;
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}

// As the real one, which checks the size but not the value.
template <typename T>
cublasStatus_t Read(const void* from, size_t bytes, T* to) {
  REQUIRE(from != nullptr);
  REQUIRE(bytes == sizeof(T));
  std::memcpy(to, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t bytes) {
  BEGIN_CALL();
  auto* const to = fake->Find<Operation>(operation);
  REQUIRE(to != nullptr);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Read(value, bytes, &to->transpose_a);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Read(value, bytes, &to->transpose_b);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Read(value, bytes, &to->epilogue);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Read(value, bytes, &to->bias);
    default:
      return Invalid("an attribute of operations that the fake does not know");
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  BEGIN_CALL();
  REQUIRE(layout != nullptr);
  REQUIRE(rows > 0 && columns > 0);
  REQUIRE(leading >= static_cast<int64_t>(rows));
  auto* const made = fake->New<Layout>();
  made->type = type;
  made->rows = rows;
  made->columns = columns;
  made->leading = leading;
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(made);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void* value, size_t bytes) {
  BEGIN_CALL();
  auto* const to = fake->Find<Layout>(layout);
  REQUIRE(to != nullptr);
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return Read(value, bytes, &to->batch);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return Read(value, bytes, &to->batch_step);
    default:
      return Invalid("an attribute of layouts that the fake does not know");
  }
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  BEGIN_CALL();
  REQUIRE(preference != nullptr);
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(fake->New<Preference>());
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  BEGIN_CALL();
  auto* const to = fake->Find<Preference>(preference);
  REQUIRE(to != nullptr);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Read(value, bytes, &to->workspace_bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Read(value, bytes, &to->reductions);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Read(value, bytes, &to->alignments[0]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Read(value, bytes, &to->alignments[1]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Read(value, bytes, &to->alignments[2]);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Read(value, bytes, &to->alignments[3]);
    default:
      return Invalid("an attribute of preferences that the fake does not know");
  }
}

cublasStatus_t FindProblem(cublasLtMatmulDesc_t operation, cublasLtMatrixLayout_t a,
                           cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c,
                           cublasLtMatrixLayout_t d, Problem* problem) {
  problem->operation = fake->Find<Operation>(operation);
  problem->a = fake->Find<Layout>(a);
  problem->b = fake->Find<Layout>(b);
  problem->c = fake->Find<Layout>(c);
  problem->d = fake->Find<Layout>(d);
  REQUIRE(problem->operation != nullptr);
  REQUIRE(problem->a != nullptr && problem->b != nullptr);
  REQUIRE(problem->c != nullptr && problem->d != nullptr);
  problem->m = problem->d->rows;
  problem->n = problem->d->columns;
  problem->k =
      problem->operation->transpose_a == CUBLAS_OP_N ? problem->a->columns : problem->a->rows;
  const std::string error = Check(*problem);
  return error.empty() ? CUBLAS_STATUS_SUCCESS : Invalid(error);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* found) {
  BEGIN_CALL();
  REQUIRE(fake->Find<Handle>(handle) != nullptr);
  const auto* const preferred = fake->Find<Preference>(preference);
  REQUIRE(preferred != nullptr);
  REQUIRE(wanted > 0 && results != nullptr && found != nullptr);
  Problem problem;
  const cublasStatus_t checked = FindProblem(operation, a, b, c, d, &problem);
  if (checked != CUBLAS_STATUS_SUCCESS) return checked;

  *found = 0;
  for (size_t i = 0; i < fake->algorithms.size() && *found < wanted; ++i) {
    const FakeCublasLt::Algorithm& algorithm = fake->algorithms[i];
    if ((algorithm.reduction & ~preferred->reductions) != 0) continue;
    if (algorithm.workspace_bytes > preferred->workspace_bytes) continue;
    if (!algorithm.epilogues && problem.operation->epilogue != CUBLASLT_EPILOGUE_DEFAULT) continue;
    const auto bias = reinterpret_cast<uintptr_t>(problem.operation->bias);
    Chosen chosen = {i, problem.Fingerprint(), {}, bias & (~bias + 1)};
    std::memcpy(chosen.alignments, preferred->alignments, sizeof(chosen.alignments));
    cublasLtMatmulHeuristicResult_t& result = results[(*found)++];
    std::memset(&result, 0, sizeof(result));
    std::memcpy(&result.algo, &chosen, sizeof(chosen));
    result.workspaceSize = algorithm.workspace_bytes;
  }
  if (*found > 0) return CUBLAS_STATUS_SUCCESS;
  fake->complaint = "nothing found";
  return CUBLAS_STATUS_NOT_SUPPORTED;
}

template <typename T>
cublasStatus_t Write(T value, void* to, size_t bytes, size_t* written) {
  REQUIRE(bytes == sizeof(T));
  std::memcpy(to, &value, sizeof(T));
  *written = sizeof(T);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t attribute,
                                                    void* value, size_t bytes, size_t* written) {
  BEGIN_CALL();
  REQUIRE(algorithm != nullptr && value != nullptr && written != nullptr);
  const Chosen chosen = ChosenOf(*algorithm);
  REQUIRE(chosen.index < fake->algorithms.size());
  const FakeCublasLt::Algorithm& of = fake->algorithms[chosen.index];
  switch (attribute) {
    case CUBLASLT_ALGO_CONFIG_ID:
      return Write(int32_t{of.id}, value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_SPLITK_NUM:
      return Write(int32_t{of.splits}, value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME:
      return Write(uint32_t{of.reduction}, value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_TILE_ID:
    case CUBLASLT_ALGO_CONFIG_STAGES_ID:
    case CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING:
    case CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION:
      return Write(static_cast<uint32_t>(attribute), value, bytes, written);
    case CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID:
    case CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID:
      return Write(static_cast<uint16_t>(attribute), value, bytes, written);
    default:
      return Invalid("an attribute of algorithms that the fake does not know");
  }
}

// Of matrix `i` of the batch.
int64_t IndexOf(const Layout& layout, int32_t i, uint64_t row, uint64_t column) {
  return i * layout.batch_step + static_cast<int64_t>(row) +
         static_cast<int64_t>(column) * layout.leading;
}

double Element(const Layout& layout, const void* data, cublasOperation_t op, int32_t i,
               uint64_t row, uint64_t column) {
  if (op != CUBLAS_OP_N) std::swap(row, column);
  return LoadElement(TypeOf(layout.type), data, IndexOf(layout, i, row, column));
}

struct Operands {
  const void *a, *b, *c, *bias;
  void* d;
  double alpha, beta;
  bool swallows_nan;
};

// Matrix `of` of the batch; operation: as it was when the product was enqueued.
void Multiply(const Problem& p, const Operation& operation, const Operands& operands, int32_t of) {
  const DType type = TypeOf(p.d->type);
  for (uint64_t column = 0; column < p.n; ++column) {
    for (uint64_t row = 0; row < p.m; ++row) {
      double sum = 0;
      for (uint64_t i = 0; i < p.k; ++i) {
        sum += Element(*p.a, operands.a, operation.transpose_a, of, row, i) *
               Element(*p.b, operands.b, operation.transpose_b, of, i, column);
      }
      double value = operands.alpha * sum;
      if (operands.beta != 0) {
        value += operands.beta * Element(*p.c, operands.c, CUBLAS_OP_N, of, row, column);
      }
      if (HasBias(operation.epilogue)) {
        value += LoadElement(type, operands.bias, static_cast<int64_t>(row));
      }
      if (HasRelu(operation.epilogue) &&
          (value < 0 || (operands.swallows_nan && std::isnan(value)))) {
        value = 0;
      }
      StoreElement(type, operands.d, IndexOf(*p.d, of, row, column), value);
    }
  }
}

bool IsAligned(const void* data, uint64_t alignment) {
  return alignment == 0 || reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, cudaStream_t stream) {
  BEGIN_CALL();
  REQUIRE(fake->Find<Handle>(handle) != nullptr);
  REQUIRE(alpha != nullptr && beta != nullptr && algorithm != nullptr);
  REQUIRE(a != nullptr && b != nullptr && c != nullptr && d != nullptr);
  Problem problem;
  const cublasStatus_t checked =
      FindProblem(operation, a_layout, b_layout, c_layout, d_layout, &problem);
  if (checked != CUBLAS_STATUS_SUCCESS) return checked;
  const Chosen chosen = ChosenOf(*algorithm);
  REQUIRE(chosen.index < fake->algorithms.size());
  REQUIRE(chosen.problem == problem.Fingerprint());
  const FakeCublasLt::Algorithm& of = fake->algorithms[chosen.index];
  REQUIRE(IsAligned(a, chosen.alignments[0]) && IsAligned(b, chosen.alignments[1]));
  REQUIRE(IsAligned(c, chosen.alignments[2]) && IsAligned(d, chosen.alignments[3]));
  const void* const bias = problem.operation->bias;
  const bool has_bias = HasBias(problem.operation->epilogue);
  REQUIRE(!has_bias || IsAligned(bias, chosen.bias_alignment));
  REQUIRE(workspace_bytes >= of.workspace_bytes);
  REQUIRE(workspace_bytes == 0 || (workspace != nullptr && IsAligned(workspace, 256)));

  fake->streams.push_back(stream);
  fake->runs.push_back(of.id);
  fake->compute_types.push_back(problem.operation->compute);
  const DType scale = TypeOf(problem.operation->scale);
  const Operands operands{.a = a,
                          .b = b,
                          .c = c,
                          .bias = has_bias ? bias : nullptr,
                          .d = d,
                          .alpha = LoadElement(scale, alpha, 0),
                          .beta = LoadElement(scale, beta, 0),
                          .swallows_nan = of.swallows_nan};
  const auto multiply = [=, view = fake->host_view, described = *problem.operation,
                         written = of.workspace_bytes] {
    Operands host = operands;
    for (const void** operand : {&host.a, &host.b, &host.c, &host.bias}) {
      if (*operand != nullptr) *operand = view(*operand);
    }
    host.d = view(host.d);
    // All that was declared is written to.
    if (written > 0) std::memset(view(workspace), 0xA5, written);
    for (int32_t i = 0; i < problem.d->batch; ++i) Multiply(problem, described, host, i);
  };
  const int error = fake->Enqueue(stream, "cublasLtMatmul", of.launches, multiply);
  return error == 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

constexpr CublasLt kTable = {
#define GYRE_ENTRY(function) .function = function,
    GYRE_CUBLASLT_FUNCTIONS(GYRE_ENTRY)
#undef GYRE_ENTRY
};

}  // namespace

FakeCublasLt::FakeCublasLt()
    : algorithms{{.id = 70, .splits = 4, .reduction = CUBLASLT_REDUCTION_SCHEME_INPLACE},
                 {.id = 71,
                  .splits = 2,
                  .reduction = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE,
                  .workspace_bytes = 100},
                 {.id = 72, .workspace_bytes = size_t{1} << 40},
                 {.id = 73,
                  .splits = 3,
                  .reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
                  .workspace_bytes = 1000},
                 {.id = 74}} {
  GYRE_CHECK(fake == nullptr);
  fake = this;
}

FakeCublasLt::~FakeCublasLt() {
  GYRE_CHECK(Alive() == 0);
  fake = nullptr;
}

const CublasLt& FakeCublasLt::table() const { return kTable; }

}  // namespace gyre
