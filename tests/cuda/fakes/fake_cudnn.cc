// Descriptors: what may be set on each kind, what must be, and what is read back.  Their meaning is
// in fake_cudnn_graph.cc.
#include "tests/cuda/fakes/fake_cudnn.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/runtime/check.h"
#include "tests/cuda/fakes/fake_cudnn_graph.h"

namespace gyre {

using fake_cudnn::Descriptor;

namespace {

FakeCudnn* fake = nullptr;

struct Handle : FakeLibrary::Object {
  cudaStream_t stream = nullptr;
  bool has_stream = false;
};

cudnnStatus_t Fail(cudnnStatus_t code, const std::string& why) {
  fake->complaint = why;
  return code;
}

#define BEGIN_CALL() \
  if (!fake->Call(__func__)) return CUDNN_STATUS_INTERNAL_ERROR
#define REQUIRE(condition, code) \
  if (!(condition)) return Fail(code, std::string(__func__) + " wants " #condition)

struct Rule {
  cudnnBackendDescriptorType_t descriptor;
  cudnnBackendAttributeName_t attribute;
  cudnnBackendAttributeType_t type;
  int64_t most = 1;  // values; one at least
  bool required = true;
};

constexpr int64_t kMany = 100;
constexpr bool kOptional = false;

#define RULE_OF(descriptor, attributes, name, type, ...)                       \
  {                                                                            \
    CUDNN_BACKEND_##descriptor##_DESCRIPTOR, CUDNN_ATTR_##attributes##_##name, \
        CUDNN_TYPE_##type __VA_OPT__(, ) __VA_ARGS__                           \
  }
#define RULE(descriptor, ...) RULE_OF(descriptor, descriptor, __VA_ARGS__)
#define NORM_RULE(pass, attributes, ...) \
  RULE_OF(OPERATION_NORM_##pass, OPERATION_NORM_##attributes, __VA_ARGS__)
#define CONVOLUTION_RULE(pass, attributes, ...) \
  RULE_OF(OPERATION_CONVOLUTION_##pass, OPERATION_CONVOLUTION_##attributes, __VA_ARGS__)
#define CONVOLUTION_RULES(pass, attributes, first, second, third)     \
  CONVOLUTION_RULE(pass, attributes, CONV_DESC, BACKEND_DESCRIPTOR),  \
      CONVOLUTION_RULE(pass, attributes, first, BACKEND_DESCRIPTOR),  \
      CONVOLUTION_RULE(pass, attributes, second, BACKEND_DESCRIPTOR), \
      CONVOLUTION_RULE(pass, attributes, third, BACKEND_DESCRIPTOR),  \
      CONVOLUTION_RULE(pass, attributes, ALPHA, FLOAT),               \
      CONVOLUTION_RULE(pass, attributes, BETA, FLOAT)

const Rule kRules[] = {
    NORM_RULE(FORWARD, FWD, MODE, NORM_MODE),
    NORM_RULE(FORWARD, FWD, PHASE, NORM_FWD_PHASE),
    NORM_RULE(FORWARD, FWD, XDESC, BACKEND_DESCRIPTOR),
    NORM_RULE(FORWARD, FWD, YDESC, BACKEND_DESCRIPTOR),
    NORM_RULE(FORWARD, FWD, SCALE_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(FORWARD, FWD, BIAS_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(FORWARD, FWD, MEAN_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(FORWARD, FWD, INV_VARIANCE_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(FORWARD, FWD, EPSILON_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(FORWARD, FWD, EXP_AVG_FACTOR_DESC, BACKEND_DESCRIPTOR, 1, kOptional),
    NORM_RULE(FORWARD, FWD, INPUT_RUNNING_MEAN_DESC, BACKEND_DESCRIPTOR, 1, kOptional),
    NORM_RULE(FORWARD, FWD, INPUT_RUNNING_VAR_DESC, BACKEND_DESCRIPTOR, 1, kOptional),
    NORM_RULE(FORWARD, FWD, OUTPUT_RUNNING_MEAN_DESC, BACKEND_DESCRIPTOR, 1, kOptional),
    NORM_RULE(FORWARD, FWD, OUTPUT_RUNNING_VAR_DESC, BACKEND_DESCRIPTOR, 1, kOptional),
    NORM_RULE(BACKWARD, BWD, MODE, NORM_MODE),
    NORM_RULE(BACKWARD, BWD, XDESC, BACKEND_DESCRIPTOR),
    NORM_RULE(BACKWARD, BWD, DYDESC, BACKEND_DESCRIPTOR),
    NORM_RULE(BACKWARD, BWD, SCALE_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(BACKWARD, BWD, MEAN_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(BACKWARD, BWD, INV_VARIANCE_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(BACKWARD, BWD, DSCALE_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(BACKWARD, BWD, DBIAS_DESC, BACKEND_DESCRIPTOR),
    NORM_RULE(BACKWARD, BWD, DXDESC, BACKEND_DESCRIPTOR),
    RULE(TENSOR, IS_BY_VALUE, BOOLEAN, 1, kOptional),
    RULE(TENSOR, UNIQUE_ID, INT64),
    RULE(TENSOR, DATA_TYPE, DATA_TYPE),
    RULE(TENSOR, DIMENSIONS, INT64, 8),
    RULE(TENSOR, STRIDES, INT64, 8),
    RULE(TENSOR, BYTE_ALIGNMENT, INT64),
    RULE(TENSOR, IS_VIRTUAL, BOOLEAN, 1, kOptional),
    RULE(CONVOLUTION, COMP_TYPE, DATA_TYPE),
    RULE(CONVOLUTION, CONV_MODE, CONVOLUTION_MODE),
    RULE(CONVOLUTION, SPATIAL_DIMS, INT64),
    RULE(CONVOLUTION, DILATIONS, INT64, 6),
    RULE(CONVOLUTION, FILTER_STRIDES, INT64, 6),
    RULE(CONVOLUTION, PRE_PADDINGS, INT64, 6),
    RULE(CONVOLUTION, POST_PADDINGS, INT64, 6),
    RULE(POINTWISE, MODE, POINTWISE_MODE),
    RULE(POINTWISE, MATH_PREC, DATA_TYPE),
    RULE(POINTWISE, NAN_PROPAGATION, NAN_PROPOGATION, 1, kOptional),
    CONVOLUTION_RULES(FORWARD, FORWARD, X, W, Y),
    CONVOLUTION_RULES(BACKWARD_DATA, BWD_DATA, DX, W, DY),
    CONVOLUTION_RULES(BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
    RULE(OPERATION_POINTWISE, PW_DESCRIPTOR, BACKEND_DESCRIPTOR),
    RULE(OPERATION_POINTWISE, XDESC, BACKEND_DESCRIPTOR),
    RULE(OPERATION_POINTWISE, BDESC, BACKEND_DESCRIPTOR, 1, kOptional),
    RULE(OPERATION_POINTWISE, YDESC, BACKEND_DESCRIPTOR),
    RULE(OPERATIONGRAPH, HANDLE, HANDLE),
    RULE(OPERATIONGRAPH, OPS, BACKEND_DESCRIPTOR, kMany),
    RULE(ENGINEHEUR, OPERATION_GRAPH, BACKEND_DESCRIPTOR),
    RULE(ENGINEHEUR, MODE, HEUR_MODE),
    RULE(EXECUTION_PLAN, HANDLE, HANDLE),
    RULE(EXECUTION_PLAN, ENGINE_CONFIG, BACKEND_DESCRIPTOR),
    RULE(VARIANT_PACK, UNIQUE_IDS, INT64, kMany),
    RULE(VARIANT_PACK, DATA_POINTERS, VOID_PTR, kMany),
    RULE(VARIANT_PACK, WORKSPACE, VOID_PTR),
};

size_t SizeOf(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN:
      return sizeof(bool);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
      return 8;
    default:  // float and enumerations
      return 4;
  }
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  BEGIN_CALL();
  REQUIRE(handle != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  fake->on_create();
  *handle = reinterpret_cast<cudnnHandle_t>(fake->New<Handle>());
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  REQUIRE(fake->Find<Handle>(handle) != nullptr, CUDNN_STATUS_BAD_PARAM);
  fake->Destroy(handle);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  BEGIN_CALL();
  auto* const found = fake->Find<Handle>(handle);
  REQUIRE(found != nullptr, CUDNN_STATUS_BAD_PARAM);
  found->stream = stream;
  found->has_stream = true;
  return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion() { return 91900; }

const char* cudnnGetErrorString(cudnnStatus_t) { return "CUDNN_STATUS_OF_THE_FAKE"; }

void cudnnGetLastErrorString(char* message, size_t bytes) {
  if (bytes == 0) return;
  std::strncpy(message, fake->complaint.c_str(), bytes - 1);
  message[bytes - 1] = '\0';
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  BEGIN_CALL();
  REQUIRE(descriptor != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  auto* const made = fake->New<Descriptor>();
  made->type = type;
  *descriptor = made;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  REQUIRE(fake->Find<Descriptor>(descriptor) != nullptr, CUDNN_STATUS_BAD_PARAM);
  fake->Destroy(descriptor);
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                       cudnnBackendAttributeName_t attribute,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  BEGIN_CALL();
  auto* const to = fake->Find<Descriptor>(descriptor);
  REQUIRE(to != nullptr, CUDNN_STATUS_BAD_PARAM);
  REQUIRE(!to->finalized, CUDNN_STATUS_NOT_INITIALIZED);
  const auto* const rule = std::find_if(std::begin(kRules), std::end(kRules), [&](const Rule& r) {
    return r.descriptor == to->type && r.attribute == attribute;
  });
  REQUIRE(rule != std::end(kRules), CUDNN_STATUS_NOT_SUPPORTED);
  REQUIRE(type == rule->type, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE);
  REQUIRE(count >= 1 && count <= rule->most, CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
  REQUIRE(values != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    for (int64_t i = 0; i < count; ++i) {
      const auto* const value =
          fake->Find<Descriptor>(static_cast<const cudnnBackendDescriptor_t*>(values)[i]);
      REQUIRE(value != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
      REQUIRE(value->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
    }
    to->of_children.insert(attribute);
  }
  if (type == CUDNN_TYPE_HANDLE) {
    REQUIRE(fake->Find<Handle>(*static_cast<const cudnnHandle_t*>(values)) != nullptr,
            CUDNN_STATUS_BAD_PARAM);
  }
  const auto* const bytes = static_cast<const std::byte*>(values);
  to->attributes[attribute].assign(bytes, bytes + static_cast<size_t>(count) * SizeOf(type));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t FinalizePlan(Descriptor* plan) {
  const auto* const configuration = plan->Child(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  REQUIRE(!configuration->engine.refuses, CUDNN_STATUS_NOT_SUPPORTED);
  const size_t operations = configuration->graph->Children(CUDNN_ATTR_OPERATIONGRAPH_OPS).size();
  REQUIRE(configuration->engine.fuses || operations == 1, CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN);
  plan->engine = configuration->engine;
  plan->graph = configuration->graph;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  BEGIN_CALL();
  auto* const to = fake->Find<Descriptor>(descriptor);
  REQUIRE(to != nullptr, CUDNN_STATUS_BAD_PARAM);
  REQUIRE(!to->finalized, CUDNN_STATUS_BAD_PARAM);
  for (const Rule& rule : kRules) {
    if (rule.descriptor != to->type || !rule.required) continue;
    if (to->attributes.count(rule.attribute) == 0) {
      return Fail(CUDNN_STATUS_BAD_PARAM,
                  "attribute " + std::to_string(rule.attribute) + " is missing");
    }
  }
  if (to->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR) {
    REQUIRE(!fake->knows_nothing, CUDNN_STATUS_NOT_SUPPORTED);
  }
  if (to->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    const cudnnStatus_t code = FinalizePlan(to);
    if (code != CUDNN_STATUS_SUCCESS) return code;
  }
  const std::string error = fake_cudnn::Check(*to);
  if (!error.empty()) return Fail(CUDNN_STATUS_BAD_PARAM, error);
  to->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

// The answers to cudnnBackendGetAttribute.
template <typename T>
cudnnStatus_t Answer(const std::vector<T>& values, int64_t most, int64_t* count, void* to) {
  *count = static_cast<int64_t>(values.size());
  const auto written = std::min(most, *count);
  if (written > 0) std::memcpy(to, values.data(), static_cast<size_t>(written) * sizeof(T));
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t AnswerResults(const Descriptor& heuristics, int64_t most, int64_t* count, void* to) {
  const auto mode = heuristics.Value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
  const auto& engines = mode == CUDNN_HEUR_MODE_A ? fake->engines : fake->fallback_engines;
  // As the real one, which may announce more than it has.
  *count = static_cast<int64_t>(engines.size()) + (most == 0 ? 1 : 0);
  for (int64_t i = 0; i < std::min(most, static_cast<int64_t>(engines.size())); ++i) {
    auto* const configuration =
        fake->Find<Descriptor>(static_cast<cudnnBackendDescriptor_t*>(to)[i]);
    REQUIRE(configuration != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
    REQUIRE(configuration->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
            CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
    configuration->engine = engines[static_cast<size_t>(i)];
    configuration->graph = heuristics.Child(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
    configuration->finalized = true;
  }
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t AnswerDescriptor(const Descriptor& of, cudnnBackendDescriptorType_t type,
                               int64_t most, int64_t* count, void* to) {
  *count = most == 0 ? 0 : 1;  // as the real one, asked for the number of knobs
  if (most == 0) return CUDNN_STATUS_SUCCESS;
  auto* const value = fake->Find<Descriptor>(*static_cast<cudnnBackendDescriptor_t*>(to));
  REQUIRE(value != nullptr, CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
  REQUIRE(value->type == type, CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE);
  value->engine = of.engine;
  value->finalized = true;
  return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                       cudnnBackendAttributeName_t attribute,
                                       cudnnBackendAttributeType_t type, int64_t most,
                                       int64_t* count, void* to) {
  BEGIN_CALL();
  const auto* const of = fake->Find<Descriptor>(descriptor);
  REQUIRE(of != nullptr, CUDNN_STATUS_BAD_PARAM);
  REQUIRE(of->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  REQUIRE(count != nullptr && (most == 0 || to != nullptr), CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
#define ASKS(descriptor, name, value)                                                   \
  (of->type == CUDNN_BACKEND_##descriptor##_DESCRIPTOR && type == CUDNN_TYPE_##value && \
   attribute == CUDNN_ATTR_##descriptor##_##name)
  if (ASKS(ENGINEHEUR, RESULTS, BACKEND_DESCRIPTOR)) return AnswerResults(*of, most, count, to);
  if (ASKS(ENGINECFG, ENGINE, BACKEND_DESCRIPTOR)) {
    return AnswerDescriptor(*of, CUDNN_BACKEND_ENGINE_DESCRIPTOR, most, count, to);
  }
  if (ASKS(ENGINECFG, KNOB_CHOICES, BACKEND_DESCRIPTOR)) {
    return AnswerDescriptor(*of, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, most, count, to);
  }
  if (ASKS(ENGINE, NUMERICAL_NOTE, NUMERICAL_NOTE)) {
    return Answer(of->engine.notes, most, count, to);
  }
  if (ASKS(KNOB_CHOICE, KNOB_TYPE, KNOB_TYPE)) {
    return Answer<int>({CUDNN_KNOB_TYPE_TILE_SIZE}, most, count, to);
  }
  std::optional<int64_t> number;
  if (ASKS(ENGINE, GLOBAL_INDEX, INT64)) number = of->engine.index;
  if (ASKS(KNOB_CHOICE, KNOB_VALUE, INT64)) number = of->engine.index + 100;
  if (ASKS(EXECUTION_PLAN, WORKSPACE_SIZE, INT64)) number = of->engine.workspace_bytes;
#undef ASKS
  if (number.has_value()) return Answer<int64_t>({*number}, most, count, to);
  return Fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
              "no attribute " + std::to_string(attribute) + " of that type");
}

// Whether a descriptor and all that it was made of are alive.
bool AllAlive(const Descriptor* descriptor) {
  if (fake->Find<Descriptor>(descriptor) == nullptr) return false;
  for (const Descriptor* child : descriptor->AllChildren()) {
    if (!AllAlive(child)) return false;
  }
  return true;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  BEGIN_CALL();
  const auto* const with = fake->Find<Handle>(handle);
  REQUIRE(with != nullptr, CUDNN_STATUS_BAD_PARAM);
  REQUIRE(with->has_stream, CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
  const auto* const run = fake->Find<Descriptor>(plan);
  const auto* const pack = fake->Find<Descriptor>(variant_pack);
  REQUIRE(run != nullptr && run->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
          CUDNN_STATUS_BAD_PARAM);
  REQUIRE(pack != nullptr && pack->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR,
          CUDNN_STATUS_BAD_PARAM);
  REQUIRE(run->finalized && pack->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED);
  REQUIRE(AllAlive(run) && AllAlive(run->graph), CUDNN_STATUS_BAD_PARAM);
  std::map<int64_t, void*> pointers;
  const std::string error = fake_cudnn::Bind(*run, *pack, &pointers);
  if (!error.empty()) return Fail(CUDNN_STATUS_BAD_PARAM, error);
  const auto numbers = fake_cudnn::TakeNumbers(*run, &pointers);

  fake->streams.push_back(with->stream);
  fake->runs.push_back(run->engine.index);
  void* const workspace = run->engine.workspace_bytes == 0
                              ? nullptr
                              : pack->Value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  // The plan outlives the work, as Gyre's operations do.
  const auto execute = [run, workspace, pointers, numbers, view = fake->host_view]() mutable {
    std::map<int64_t, void*> host;
    for (const auto& [id, pointer] : pointers) host[id] = view(pointer);
    // All that was declared is written to.
    if (workspace != nullptr) std::memset(view(workspace), 0xA5, run->engine.workspace_bytes);
    fake_cudnn::Run(*run, host, numbers);
  };
  const int failed =
      fake->Enqueue(with->stream, "cudnnBackendExecute", run->engine.launches, execute);
  return failed == 0 ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

constexpr Cudnn kTable = {
#define GYRE_ENTRY(function) .function = function,
    GYRE_CUDNN_FUNCTIONS(GYRE_ENTRY)
#undef GYRE_ENTRY
};

}  // namespace

FakeCudnn::FakeCudnn()
    : engines{{.index = 1, .notes = {CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}},
              {.index = 2, .notes = {CUDNN_NUMERICAL_NOTE_TENSOR_CORE}, .workspace_bytes = 131},
              {.index = 3, .workspace_bytes = size_t{1} << 40},
              {.index = 4, .notes = {CUDNN_NUMERICAL_NOTE_WINOGRAD}},
              {.index = 5, .refuses = true},
              {.index = 6, .workspace_bytes = 1000}},
      fallback_engines{{.index = 7}} {
  GYRE_CHECK(fake == nullptr);
  fake = this;
}

FakeCudnn::~FakeCudnn() {
  GYRE_CHECK(Alive() == 0);
  fake = nullptr;
}

const Cudnn& FakeCudnn::table() const { return kTable; }

}  // namespace gyre
