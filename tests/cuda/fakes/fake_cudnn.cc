// Descriptors: what may be set on each kind, what must be, and what is read back.  Their meaning is
// in fake_cudnn_graph.cc.
#include "tests/cuda/fakes/fake_cudnn.h"

#include <algorithm>
#include <cstring>

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
  int64_t least, most;
  bool required = true;
};

constexpr int64_t kMany = 100;

#define CONVOLUTION_RULES(descriptor, name, first, second, third)                                  \
  {descriptor, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, \
   1, 1},                                                                                          \
      {descriptor, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##first,                              \
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},                                                       \
      {descriptor, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##second,                             \
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},                                                       \
      {descriptor, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##third,                              \
       CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},                                                       \
      {descriptor, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA, CUDNN_TYPE_FLOAT, 1, 1}, {     \
    descriptor, CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA, CUDNN_TYPE_FLOAT, 1, 1             \
  }

#define NORM_RULE(pass, name, required)                                                     \
  {                                                                                         \
    CUDNN_BACKEND_OPERATION_NORM_##pass##WARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_NORM_##name, \
        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, required                                       \
  }

const Rule kRules[] = {
    {CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_NORM_FWD_MODE,
     CUDNN_TYPE_NORM_MODE, 1, 1},
    {CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE,
     CUDNN_TYPE_NORM_FWD_PHASE, 1, 1},
    NORM_RULE(FOR, FWD_XDESC, true),
    NORM_RULE(FOR, FWD_YDESC, true),
    NORM_RULE(FOR, FWD_SCALE_DESC, true),
    NORM_RULE(FOR, FWD_BIAS_DESC, true),
    NORM_RULE(FOR, FWD_MEAN_DESC, true),
    NORM_RULE(FOR, FWD_INV_VARIANCE_DESC, true),
    NORM_RULE(FOR, FWD_EPSILON_DESC, true),
    NORM_RULE(FOR, FWD_EXP_AVG_FACTOR_DESC, false),
    NORM_RULE(FOR, FWD_INPUT_RUNNING_MEAN_DESC, false),
    NORM_RULE(FOR, FWD_INPUT_RUNNING_VAR_DESC, false),
    NORM_RULE(FOR, FWD_OUTPUT_RUNNING_MEAN_DESC, false),
    NORM_RULE(FOR, FWD_OUTPUT_RUNNING_VAR_DESC, false),
    {CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_NORM_BWD_MODE,
     CUDNN_TYPE_NORM_MODE, 1, 1},
    NORM_RULE(BACK, BWD_XDESC, true),
    NORM_RULE(BACK, BWD_DYDESC, true),
    NORM_RULE(BACK, BWD_SCALE_DESC, true),
    NORM_RULE(BACK, BWD_MEAN_DESC, true),
    NORM_RULE(BACK, BWD_INV_VARIANCE_DESC, true),
    NORM_RULE(BACK, BWD_DSCALE_DESC, true),
    NORM_RULE(BACK, BWD_DBIAS_DESC, true),
    NORM_RULE(BACK, BWD_DXDESC, true),
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, 1,
     false},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 1, 8},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 1, 8},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, 1},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, 1,
     false},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
     1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_CONV_MODE,
     CUDNN_TYPE_CONVOLUTION_MODE, 1, 1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1,
     1},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 1,
     6},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64,
     1, 6},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 1,
     6},
    {CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64,
     1, 6},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1,
     1},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1,
     1},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION,
     CUDNN_TYPE_NAN_PROPOGATION, 1, 1, false},
    CONVOLUTION_RULES(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, FORWARD, X, W, Y),
    CONVOLUTION_RULES(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, BWD_DATA, DX, W,
                      DY),
    CONVOLUTION_RULES(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, BWD_FILTER, X,
                      DW, DY),
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1, false},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE,
     1, 1},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, kMany},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE,
     1, 1},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, 1},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 1,
     kMany},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
     CUDNN_TYPE_VOID_PTR, 1, kMany},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
     1, 1},
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
  REQUIRE(count >= rule->least && count <= rule->most, CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND);
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
  const auto is = [&](cudnnBackendDescriptorType_t descriptor_type,
                      cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t value_type) {
    return of->type == descriptor_type && attribute == name && type == value_type;
  };
  if (is(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_RESULTS,
         CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    return AnswerResults(*of, most, count, to);
  }
  if (is(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE,
         CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    return AnswerDescriptor(*of, CUDNN_BACKEND_ENGINE_DESCRIPTOR, most, count, to);
  }
  if (is(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
         CUDNN_TYPE_BACKEND_DESCRIPTOR)) {
    return AnswerDescriptor(*of, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, most, count, to);
  }
  if (is(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64)) {
    return Answer<int64_t>({of->engine.index}, most, count, to);
  }
  if (is(CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
         CUDNN_TYPE_NUMERICAL_NOTE)) {
    return Answer(of->engine.notes, most, count, to);
  }
  if (is(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
         CUDNN_TYPE_KNOB_TYPE)) {
    return Answer<int>({CUDNN_KNOB_TYPE_TILE_SIZE}, most, count, to);
  }
  if (is(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
         CUDNN_TYPE_INT64)) {
    return Answer<int64_t>({of->engine.index + 100}, most, count, to);
  }
  if (is(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
         CUDNN_TYPE_INT64)) {
    return Answer<int64_t>({static_cast<int64_t>(of->engine.workspace_bytes)}, most, count, to);
  }
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
