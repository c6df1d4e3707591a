// What a net says may travel in 16 bits, and how measured speeds reach the plan: of copies, of
// conversions and of a disk.
#include "engine/training/model/page_speeds.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/half.h"
#include "engine/training/model/model.h"
#include "memory/report/paging_text.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

// Large enough for its activations to have pages of several sectors.
constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [16, 16, 8] }
  input { name: "label" type: LABEL }
  layer { name: "part" input: "image" slice { axis: 3 end: 4 } }
  layer { name: "conv" conv2d { filters: 8 kernel: 3 padding: 1 } }
  layer { name: "norm" batch_norm {} }
  layer { name: "relu" relu {} }
  layer { name: "around" lrn {} }
  layer { name: "pool" pool2d { kind: MAX kernel: 2 stride: 2 } }
  layer { name: "rows" reshape { dims: [8, 64] } }
  layer { name: "lstm" lstm { hidden: 16 carry: true } }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 4 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

ModelOptions Options(const Primitives& primitives, DType page_activations,
                     DType compute = DType::kF32) {
  return {.shape = {.global = 4, .compute = compute, .page_activations = page_activations},
          .slots = {"momentum"},
          .pages = {.planner = PlannerKind::kAuto},
          .primitives = &primitives};
}

std::set<std::string> MayNarrow(const ModelOptions& options) {
  const Parsed<NetConfig> net = *ParseNetText(kNet, "test.textproto");
  const auto plan = PlanModel(net, options).value();
  std::set<std::string> names;
  for (const TraceState& state : plan.train->trace.trace.states) {
    if (state.may_narrow) names.insert(state.name);
  }
  return names;
}

// Nothing of a batch, of parameters or gradients, no statistics, positions or carried rows; nor
// what no gradient comes to, for it may be a part of the batch.
TEST(PageSpeeds, ActivationsMayTravelIn16Bits) {
  const Primitives primitives(DeviceKind::kSim, 1);
  const std::set<std::string> names = MayNarrow(Options(primitives, DType::kBF16));
  for (const char* name :
       {"conv", "norm", "relu", "around", "pool", "rows", "lstm", "flat", "fc"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
  for (const std::string& name : names) {
    for (const char* never :
         {"image", "part", "label", "ahead", "bucket", "weight", "bias", "mean", "deviation",
          "coefficients", "pool.saved", "next_", "step", "gradient", "running"}) {
      EXPECT_EQ(name.find(never), std::string::npos) << name;
    }
  }
  EXPECT_TRUE(names.contains("loss.log_softmax"));
  EXPECT_TRUE(MayNarrow(Options(primitives, DType::kF32)).empty());
  EXPECT_TRUE(MayNarrow(Options(primitives, DType::kBF16, DType::kF64)).empty());
}

// In the least that does, or in more.
struct PagedModel {
  PagedModel(DType page_activations, size_t host_bytes, size_t more = 0) {
    ModelOptions options = Options(primitives, page_activations);
    const ModelPlan resident = *PlanModel(net, options);
    options.capacity_bytes = LeastCapacity(resident) + more;
    options.pages.host_bytes = host_bytes;
    options.pages.folder = testing::TempDir();
    device = NewSimDevice({.capacity_bytes = options.capacity_bytes});
    stream = *device->NewStream();
    model = *Model::Create(PlanModel(net, options).value(), *device, *stream);
    EXPECT_TRUE(model->Initialize(*stream).ok());
  }
  const PagingPlan& paging() const { return *model->plan().train->paging; }
  std::vector<double> StepSeconds() const {
    return std::vector<double>(model->plan().train->trace.trace.steps.size(), 1e-3);
  }

  const Parsed<NetConfig> net = *ParseNetText(kNet, "test.textproto");
  const Primitives primitives{DeviceKind::kSim, 1};
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Model> model;
};

TEST(PageSpeeds, MeasuredOnesReachThePlan) {
  for (const DType page_activations : {DType::kF32, DType::kBF16}) {
    const PagedModel paged(page_activations, /*host_bytes=*/64 << 10);
    ASSERT_GT(paged.paging().disk_read_bytes, 0u);
    const std::string before = *paged.model->Sha256OfWeights(*paged.stream);
    const bool rounds = page_activations != DType::kF32;
    EXPECT_EQ(paged.paging().rounds(), rounds);
    ASSERT_TRUE(paged.model->PlanPagesAnew(*paged.stream, paged.StepSeconds()).ok());
    const PagingCosts assumed, &costs = paged.model->plan().options.paging;
    EXPECT_NE(costs.to_device_bytes_per_s, assumed.to_device_bytes_per_s);
    EXPECT_NE(costs.to_host_bytes_per_s, assumed.to_host_bytes_per_s);
    EXPECT_NE(costs.disk_read_bytes_per_s, assumed.disk_read_bytes_per_s);
    EXPECT_NE(costs.disk_write_bytes_per_s, assumed.disk_write_bytes_per_s);
    EXPECT_EQ(costs.convert_bytes_per_s != assumed.convert_bytes_per_s, rounds);
    // What is expected is by these.
    const AccessTrace& trace = paged.model->plan().train->trace.trace;
    const PagingPlan& now = paged.paging();
    EXPECT_EQ(now.seconds, PredictTimes(trace, now, SchedulePaging(now), costs).seconds);
    PagingCosts slow = costs;
    slow.disk_read_bytes_per_s /= 100;
    EXPECT_LT(now.seconds, PredictTimes(trace, now, SchedulePaging(now), slow).seconds);
    EXPECT_EQ(*paged.model->Sha256OfWeights(*paged.stream), before);
  }
}

// Measured times decide when things move, and of what is rounded that would be what they are.
TEST(PageSpeeds, WhatIsRoundedIsNotPlannedAnew) {
  const auto planned_anew = [](DType page_activations) {
    int anew = 0;
    for (unsigned seed = 1; seed <= 8; ++seed) {
      const PagedModel paged(page_activations, ~size_t{0}, /*more=*/1 << 14);
      const PagingPlan first = paged.paging();
      std::mt19937 random(seed);
      std::vector<double> seconds = paged.StepSeconds();
      for (double& one : seconds) one *= 1e-2 * static_cast<double>(random() % 100);
      const bool done = paged.model->PlanPagesAnew(*paged.stream, seconds).value();
      anew += done;
      EXPECT_TRUE(done || RoundingText(paged.paging()) == RoundingText(first));
    }
    return anew;
  };
  EXPECT_GT(planned_anew(DType::kF32), 0);
  EXPECT_EQ(planned_anew(DType::kBF16), 0);
}

TEST(PageSpeeds, WithoutPagesOnDiskNoFileIsMade) {
  const PagedModel paged(DType::kF32, ~size_t{0});
  const PagingCosts assumed;
  std::vector<std::byte> none;
  const auto costs = *MeasureCosts(*paged.device, *paged.stream, paged.paging(),
                                   {.arena = none, .pages = none, .folder = "/nowhere"}, {}, {});
  EXPECT_EQ(costs.disk_read_bytes_per_s, assumed.disk_read_bytes_per_s);
}

TEST(PageSpeeds, KernelsRoundAndWiden) {
  const auto device = NewSimDevice({});
  const auto stream = *device->NewStream();
  const std::vector<float> values = {1, -2.5F, 3.1415926F, 65519, 65520, -1e30F, 0};
  const auto count = static_cast<int64_t>(values.size());
  const Buffer wide = *Buffer::Allocate(*device, MemoryKind::kDevice, 64);
  const Buffer narrow = *Buffer::Allocate(*device, MemoryKind::kDevice, 64);
  const auto there_and_back = [&](DType type) {
    std::vector<float> back(values.size());
    const NarrowKernels kernels = KernelsTo(type);
    EXPECT_TRUE(stream->Copy(wide.data(), values.data(), 4 * values.size()).ok());
    EXPECT_TRUE(kernels.narrow(*stream, wide.data(), narrow.data(), count).ok());
    EXPECT_TRUE(kernels.widen(*stream, narrow.data(), wide.data(), count).ok());
    EXPECT_TRUE(stream->Copy(back.data(), wide.data(), 4 * values.size()).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return back;
  };
  // Beyond 65504 F16 has nothing but the infinite.
  std::vector<float> half, brain;
  for (const float value : values) {
    half.push_back(Half(value));
    brain.push_back(BFloat16(value));
  }
  EXPECT_EQ(there_and_back(DType::kF16), half);
  EXPECT_TRUE(std::isinf(half[4]) && half[3] == 65504);
  EXPECT_EQ(there_and_back(DType::kBF16), brain);
  EXPECT_EQ(KernelsTo(DType::kF32).narrow, nullptr);
}

}  // namespace
}  // namespace gyre
