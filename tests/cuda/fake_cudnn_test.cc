// The fake cuDNN against the real one, described a GPU: what the real one refuses, it refuses.
#include "tests/cuda/fakes/fake_cudnn.h"

#include <gtest/gtest.h>

#include "engine/runtime/device/cuda/cuda_libraries.h"
#include "tests/cuda/fakes/described_gpu.h"

namespace gyre {
namespace {

// What a case may spoil of a convolution with bias, [2, 4, 5, 6] by 8 filters of 3 x 2.
struct Description {
  std::vector<int64_t> x = {2, 4, 5, 6}, x_strides = {120, 1, 24, 4};
  std::vector<int64_t> w = {8, 4, 3, 2}, y = {2, 8, 4, 5}, bias = {1, 8, 1, 1};
  std::vector<int64_t> before = {0, 0}, after = {1, 0}, stride = {1, 1}, dilation = {1, 1};
  int64_t alignment = 16, spatial = 2, x_id = 1, w_id = 2, y_id = 3, bias_id = 4, products_id = 5;
  cudnnDataType_t x_type = CUDNN_DATA_FLOAT, w_type = CUDNN_DATA_FLOAT;
  cudnnBackendAttributeType_t id_type = CUDNN_TYPE_INT64;
  bool products_virtual = true, has_bias_operand = true, finalize_w = true, set_x_type = true;
  bool set_after_finalize = false, get_before_finalize = false;
};

// What a case may spoil of a batch norm of [2, 4, 5, 6].
struct NormDescription {
  std::vector<int64_t> y = {2, 4, 5, 6};
  int64_t scale = 4, bias = 4, mean = 4, running = 4;  // channels
  bool has_mean = true, has_epsilon = true, epsilon_by_value = true, has_next_variance = true;
};

// Makes the graph; the first error, and what it was of.
class Maker {
 public:
  explicit Maker(const Cudnn& cudnn) : cudnn_(cudnn) {}
  ~Maker() {
    for (cudnnBackendDescriptor_t made : made_) cudnn_.cudnnBackendDestroyDescriptor(made);
    if (handle_ != nullptr) cudnn_.cudnnDestroy(handle_);
  }

  cudnnStatus_t Make(const Description& d) {
    Check(cudnn_.cudnnCreate(&handle_));
    const auto x = Tensor(d.x_id, d.x, d.x_strides, d.x_type, false, d, d.set_x_type);
    const auto w = Tensor(d.w_id, d.w, Dense(d.w), d.w_type, false, d, true, d.finalize_w);
    const auto bias = Tensor(d.bias_id, d.bias, Dense(d.bias), CUDNN_DATA_FLOAT, false, d);
    const auto y = Tensor(d.y_id, d.y, Dense(d.y), CUDNN_DATA_FLOAT, false, d);
    const auto products =
        Tensor(d.products_id, d.y, Dense(d.y), CUDNN_DATA_FLOAT, d.products_virtual, d);

    const auto window = New(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    Set(window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    Set(window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
        CUDNN_CROSS_CORRELATION);
    Set(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, d.spatial);
    SetAll(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, d.before);
    SetAll(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, d.after);
    SetAll(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, d.stride);
    SetAll(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, d.dilation);
    Finalize(window);

    const auto convolve = New(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    SetChild(convolve, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, window);
    SetChild(convolve, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    SetChild(convolve, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    SetChild(convolve, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, products);
    Set(convolve, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0f);
    Set(convolve, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 0.0f);
    Finalize(convolve);

    const auto pointwise = New(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    Set(pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD);
    Set(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT);
    Finalize(pointwise);
    const auto add = New(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    SetChild(add, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, pointwise);
    SetChild(add, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, products);
    if (d.has_bias_operand) SetChild(add, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
    SetChild(add, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    Finalize(add);

    MakeGraph({convolve, add});
    return first_;
  }

  cudnnStatus_t Make(const NormDescription& d) {
    Check(cudnn_.cudnnCreate(&handle_));
    const std::vector<int64_t> extents = {2, 4, 5, 6};
    const auto channels = [&](int64_t id, int64_t count) {
      const std::vector<int64_t> per_channel = {1, count, 1, 1};
      return Tensor(id, per_channel, Dense(per_channel), CUDNN_DATA_FLOAT, false, {});
    };
    const auto number = [&](int64_t id, bool by_value) {
      const auto tensor =
          Tensor(id, {1, 1, 1, 1}, {1, 1, 1, 1}, CUDNN_DATA_FLOAT, false, {}, true, false);
      Set(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, by_value);
      Finalize(tensor);
      return tensor;
    };
    const auto norm = New(CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR);
    Set(norm, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, CUDNN_BATCH_NORM);
    Set(norm, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE,
        CUDNN_NORM_FWD_TRAINING);
    SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC,
             Tensor(1, extents, Dense(extents), CUDNN_DATA_FLOAT, false, {}));
    SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC,
             Tensor(2, d.y, Dense(d.y), CUDNN_DATA_FLOAT, false, {}));
    SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, channels(3, d.scale));
    SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, channels(4, d.bias));
    if (d.has_mean) {
      SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, channels(5, d.mean));
    }
    SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, channels(6, 4));
    if (d.has_epsilon) {
      SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, number(7, d.epsilon_by_value));
    }
    SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, number(8, true));
    int64_t id = 9;
    for (const auto attribute : {CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
                                 CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
                                 CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC}) {
      SetChild(norm, attribute, channels(id++, d.running));
    }
    if (d.has_next_variance) {
      SetChild(norm, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
               channels(id, d.running));
    }
    Finalize(norm);
    MakeGraph({norm});
    return first_;
  }

 private:
  void MakeGraph(const std::vector<cudnnBackendDescriptor_t>& operations) {
    const auto graph = New(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    Set(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, handle_);
    Check(cudnn_.cudnnBackendSetAttribute(
        graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        static_cast<int64_t>(operations.size()), operations.data()));
    Finalize(graph);
  }

  // Channels innermost.
  static std::vector<int64_t> Dense(const std::vector<int64_t>& e) {
    return {e[1] * e[2] * e[3], 1, e[1] * e[3], e[1]};
  }

  cudnnBackendDescriptor_t Tensor(int64_t id, const std::vector<int64_t>& extents,
                                  const std::vector<int64_t>& strides, cudnnDataType_t type,
                                  bool is_virtual, const Description& d, bool set_type = true,
                                  bool finalize = true) {
    const auto tensor = New(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    Set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, d.id_type, id);
    if (set_type) Set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, type);
    SetAll(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, extents);
    SetAll(tensor, CUDNN_ATTR_TENSOR_STRIDES, strides);
    Set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, d.alignment);
    Set(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, is_virtual);
    if (d.get_before_finalize) {
      int64_t count = 0, got = 0;
      Check(cudnn_.cudnnBackendGetAttribute(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64,
                                            1, &count, &got));
    }
    if (finalize) Finalize(tensor);
    if (d.set_after_finalize) Set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, id);
    return tensor;
  }

  cudnnBackendDescriptor_t New(cudnnBackendDescriptorType_t type) {
    cudnnBackendDescriptor_t made = nullptr;
    Check(cudnn_.cudnnBackendCreateDescriptor(type, &made));
    made_.push_back(made);
    return made;
  }
  template <typename T>
  void Set(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t attribute,
           cudnnBackendAttributeType_t type, T value) {
    Check(cudnn_.cudnnBackendSetAttribute(to, attribute, type, 1, &value));
  }
  void SetAll(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t attribute,
              const std::vector<int64_t>& values) {
    Check(cudnn_.cudnnBackendSetAttribute(to, attribute, CUDNN_TYPE_INT64,
                                          static_cast<int64_t>(values.size()), values.data()));
  }
  void SetChild(cudnnBackendDescriptor_t to, cudnnBackendAttributeName_t attribute,
                cudnnBackendDescriptor_t child) {
    Set(to, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, child);
  }
  void Finalize(cudnnBackendDescriptor_t descriptor) {
    Check(cudnn_.cudnnBackendFinalize(descriptor));
  }
  void Check(cudnnStatus_t code) {
    if (first_ == CUDNN_STATUS_SUCCESS) first_ = code;
  }

  const Cudnn& cudnn_;
  cudnnHandle_t handle_ = nullptr;
  std::vector<cudnnBackendDescriptor_t> made_;
  cudnnStatus_t first_ = CUDNN_STATUS_SUCCESS;
};

// real_refuses: by the time the graph is finalized.
const struct ConvolutionCase {
  const char* name;
  Description description;
  bool real_refuses = true;
} kSpoiltConvolutions[] = {
    {"three extents", {.x = {2, 4, 5}}},
    {"three strides", {.x_strides = {120, 1, 24}}},
    {"an extent of 0", {.x = {0, 4, 5, 6}}},
    {"strides that overlap", {.x_strides = {60, 1, 24, 4}}},
    {"alignment 0", {.alignment = 0}},
    {"alignment 6", {.alignment = 6}},
    {"no type", {.set_x_type = false}, false},
    {"an id that is no integer", {.id_type = CUDNN_TYPE_FLOAT}},
    {"setting what is finalized", {.set_after_finalize = true}},
    {"getting what is not finalized", {.get_before_finalize = true}},
    {"an operand that is not finalized", {.finalize_w = false}},
    {"stride 0", {.stride = {0, 1}}},
    {"dilation 0", {.dilation = {1, 0}}},
    {"a negative padding", {.after = {-1, 0}}},
    {"three paddings", {.before = {0, 0, 0}}},
    {"three spatial dimensions", {.spatial = 3}},
    {"no padding after", {.after = {0, 0}}},
    {"another stride", {.stride = {2, 1}}},
    {"another dilation", {.dilation = {1, 2}}},
    {"y's images", {.y = {3, 8, 4, 5}}},
    {"y's channels", {.y = {2, 7, 4, 5}}},
    {"w's channels", {.w = {8, 3, 3, 2}}},
    {"groups that do not divide the filters",
     {.w = {6, 1, 3, 2}, .y = {2, 6, 4, 5}, .bias = {1, 6, 1, 1}}},
    {"x and w of two types", {.w_type = CUDNN_DATA_HALF}, false},
    {"two tensors with one id", {.w_id = Description{}.x_id}, false},
    {"no operand to add", {.has_bias_operand = false}},
    {"a bias that cannot be broadcast", {.bias = {1, 4, 1, 1}}, false},
};

const struct NormCase {
  const char* name;
  NormDescription description;
  bool real_refuses = true;
} kSpoiltNorms[] = {
    {"y's extents", {.y = {2, 4, 5, 7}}},
    {"scale's channels", {.scale = 3}},
    {"bias's channels", {.bias = 3}},
    {"mean's channels", {.mean = 3}},
    {"running statistics' channels", {.running = 3}},
    {"no mean", {.has_mean = false}},
    {"no epsilon", {.has_epsilon = false}},
    {"an epsilon in memory", {.epsilon_by_value = false}},
    {"three running statistics of four", {.has_next_variance = false}, false},
};

// Makes what is well, which the library takes, and each case; f(case, whether it was refused).
template <typename F>
void MakeAll(const Cudnn& cudnn, const F& f) {
  EXPECT_EQ(Maker(cudnn).Make(Description{}), CUDNN_STATUS_SUCCESS);
  EXPECT_EQ(Maker(cudnn).Make(NormDescription{}), CUDNN_STATUS_SUCCESS);
  const auto make = [&](const auto& cases) {
    for (const auto& c : cases) {
      SCOPED_TRACE(c.name);
      f(c, Maker(cudnn).Make(c.description) != CUDNN_STATUS_SUCCESS);
    }
  };
  make(kSpoiltConvolutions);
  make(kSpoiltNorms);
}

TEST(FakeCudnnTest, RefusesWhatIsSpoilt) {
  FakeCudnn fake;
  MakeAll(fake.table(), [](const auto&, bool refused) { EXPECT_TRUE(refused); });
}

// The fake makes up none of its rules but those that are marked so.
TEST(FakeCudnnTest, RealOneRefusesTheSame) {
  const auto real = LoadDescribedCudnn();
  if (!real.ok()) GTEST_SKIP() << real.status();
  MakeAll(**real, [](const auto& c, bool refused) { EXPECT_EQ(refused, c.real_refuses); });
}

}  // namespace
}  // namespace gyre
