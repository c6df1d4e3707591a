// All nets of a run planned together: over one set of parameters, and on ranks whose shares differ.
#include "engine/training/model/model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [6, 6, 2] }
  input { name: "label" type: LABEL }
  layer { name: "conv" conv2d { filters: 3 kernel: 3 padding: 1 } }
  layer { name: "relu" relu {} }
  layer { name: "pool" pool2d { kind: AVERAGE kernel: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 4 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} }
  layer { name: "acc" input: "fc" input: "label" accuracy {} })";

// The reference library, which writes down what it is asked for as a choice, as a GPU's do.
class RecordingLibrary : public PrimitiveLibrary {
  template <typename Spec>
  auto Record(const Spec& spec) const {
    specs_.insert(ToString(spec));
    return reference_->Prepare(spec);
  }
  const std::unique_ptr<PrimitiveLibrary> reference_ = NewReferenceLibrary();
  mutable std::set<std::string> specs_;

 public:
  std::string_view name() const override { return "recording"; }
  std::string choices() const override {
    std::string all;
    for (const std::string& spec : specs_) all += spec + "\n";
    return all;
  }
  absl::StatusOr<std::unique_ptr<Gemm>> Prepare(const GemmSpec& spec) const override {
    return Record(spec);
  }
  absl::StatusOr<std::unique_ptr<Conv2d>> Prepare(const Conv2dSpec& spec) const override {
    return Record(spec);
  }
  absl::StatusOr<std::unique_ptr<Pool2d>> Prepare(const Pool2dSpec& spec) const override {
    return Record(spec);
  }
};

// Ranks compare the algorithms that libraries chose, shape by shape, so all must have asked for the
// same, whatever their own shares.
TEST(Model, RanksWithUnequalSharesAskLibrariesForTheSame) {
  const Parsed<NetConfig> net = *ParseNetText(kNet, "test.textproto");
  std::set<std::string> choices;
  for (int rank = 0; rank < 3; ++rank) {
    std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
    libraries.push_back(std::make_unique<RecordingLibrary>());
    const Primitives primitives(DeviceKind::kCpu, std::move(libraries));
    const auto plan = *PlanModel(net, {.shape = {.global = 7, .rank = rank, .ranks = 3},
                                       .test_batch = 5,
                                       .test_samples = 12,
                                       .slots = {"momentum"},
                                       .primitives = &primitives});
    EXPECT_EQ(plan.train->spec.shape.local, rank == 0 ? 3 : 2);
    EXPECT_EQ(plan.test[1]->spec.shape.local, rank == 2 ? 0 : 1);
    choices.insert(primitives.choices());
  }
  EXPECT_EQ(choices.size(), 1u);
}

TEST(Model, TestNetsShareTheParametersMemory) {
  const Parsed<NetConfig> net = *ParseNetText(kNet, "test.textproto");
  const Primitives primitives(DeviceKind::kCpu, 1);
  const auto plan = *PlanModel(net, {.shape = {.global = 5},
                                     .test_batch = 3,
                                     .test_samples = 7,
                                     .slots = {"momentum"},
                                     .primitives = &primitives});
  ASSERT_EQ(plan.test.size(), 2u);
  EXPECT_EQ(plan.test[1]->spec.shape.global, 1);
  for (const auto& test : plan.test) {
    for (size_t p = 0; p < plan.parameters.all().size(); ++p) {
      EXPECT_EQ(test->memory.placements[test->trace.parameters[p]].offset,
                plan.train->memory.placements[plan.train->trace.parameters[p]].offset);
    }
  }
}

// A larger testing net moves all nets to a larger arena, with the parameters' values.
TEST(Model, AddTestKeepsTheParameters) {
  const Parsed<NetConfig> net = *ParseNetText(kNet, "test.textproto");
  const Primitives primitives(DeviceKind::kSim, 1);
  const auto device = NewSimDevice({.capacity_bytes = 1 << 20});
  const auto stream = *device->NewStream();
  auto plan = *PlanModel(net, {.train = false,
                               .shape = {},
                               .test_batch = 2,
                               .test_samples = 2,
                               .capacity_bytes = device->capacity_bytes(),
                               .primitives = &primitives});
  const auto model = *Model::Create(std::move(plan), *device, *stream);
  ASSERT_TRUE(model->Initialize(*stream).ok());
  const std::string digest = *model->Sha256OfWeights(*stream);
  const size_t small = model->plan().device_bytes();
  ASSERT_TRUE(model->AddTest(net, 1, *stream).ok());
  EXPECT_EQ(model->plan().device_bytes(), small);
  ASSERT_TRUE(model->AddTest(net, 50, *stream).ok());
  EXPECT_GT(model->plan().device_bytes(), small);
  EXPECT_EQ(*model->Sha256OfWeights(*stream), digest);
  ASSERT_EQ(model->test().size(), 3u);
  EXPECT_EQ(model->test()[2]->plan().spec.shape.global, 50);
  // What does not fit changes nothing.
  EXPECT_TRUE(absl::IsResourceExhausted(model->AddTest(net, 100'000, *stream)));
  EXPECT_EQ(model->test().size(), 3u);
  EXPECT_EQ(*model->Sha256OfWeights(*stream), digest);
}

// A frozen layer has no gradient to compute, send or count in a norm, and where nothing below it is
// trained, no backward.
TEST(Model, FrozenLayersCostNoBackward) {
  const auto frozen = [](const std::string& names) {
    std::string text;
    for (absl::string_view name : absl::StrSplit(names, ',', absl::SkipEmpty())) {
      absl::StrAppend(&text, name, " { learning_rate_multiplier: 0 } ");
    }
    return text;
  };
  const struct {
    const char *conv, *fc1;
    std::vector<std::string> backward, gradients;
  } cases[] = {
      {"weight,bias",
       "",
       {"fc1", "fc2", "loss"},
       {"fc2.weight", "fc2.bias", "fc1.weight", "fc1.bias"}},
      {"weight,bias", "weight,bias", {"fc2", "loss"}, {"fc2.weight", "fc2.bias"}},
      {"weight,bias", "weight", {"fc1", "fc2", "loss"}, {"fc2.weight", "fc2.bias", "fc1.bias"}},
      {"weight",
       "weight,bias",
       {"conv", "pool", "flat", "fc1", "fc2", "loss"},
       {"fc2.weight", "fc2.bias", "conv.bias"}}};
  const Primitives primitives(DeviceKind::kCpu, 1);
  for (const auto& c : cases) {
    const Parsed<NetConfig> net = *ParseNetText(
        absl::StrCat(R"(name: "t" input { name: "image" dims: [6, 6, 2] }
                        input { name: "label" type: LABEL }
                        layer { name: "conv" conv2d { filters: 3 kernel: 3 )",
                     frozen(c.conv), R"(} } layer { name: "pool" pool2d { kernel: 2 } }
                        layer { name: "flat" flatten {} }
                        layer { name: "fc1" dense { outputs: 6 )",
                     frozen(c.fc1), R"(} } layer { name: "fc2" dense { outputs: 4 } }
                        layer { name: "loss" input: "fc2" input: "label" softmax_cross_entropy {} }
                        )"),
        "test.textproto");
    const auto plan = *PlanModel(net, {.shape = {.global = 5},
                                       .test_batch = 3,
                                       .test_samples = 7,
                                       .slots = {"momentum"},
                                       .primitives = &primitives});
    std::vector<std::string> backward, gradients;
    for (const NetNode& node : plan.train->spec.nodes) {
      if (node.backward) backward.push_back(node.config->name());
    }
    EXPECT_EQ(backward, c.backward);
    for (const BucketedGradient& gradient : plan.train->order.gradients) {
      gradients.push_back(plan.parameters.all()[gradient.parameter].name());
    }
    EXPECT_EQ(gradients, c.gradients);
    for (size_t p = 0; p < plan.parameters.all().size(); ++p) {
      EXPECT_EQ(plan.train->trace.gradients.parameters[p] >= 0, plan.parameters.all()[p].trained());
    }
  }
}

TEST(Model, MayComputeTwiceOnlyWhereMemoryLacks) {
  const Parsed<NetConfig> net = *ParseNetText(
      R"(name: "t" input { name: "x" dims: [50] } input { name: "label" type: LABEL }
         layer { name: "fc" dense { outputs: 60 } }
         layer { name: "norm" layer_norm {} }
         layer { name: "fc2" dense { outputs: 200 } }
         layer { name: "gelu" gelu {} }
         layer { name: "out" dense { outputs: 300 } }
         layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })",
      "test.textproto");
  const Primitives primitives(DeviceKind::kCpu, 1);
  const auto plan = [&](bool recompute, size_t capacity) {
    return *PlanModel(net, {.shape = {.global = 64},
                            .recompute = recompute,
                            .capacity_bytes = capacity,
                            .pages = {.planner = PlannerKind::kAuto},
                            .primitives = &primitives});
  };
  const auto recomputes = [](const ModelPlan& of) {
    return std::ranges::any_of(of.train->spec.nodes, &NetNode::recomputed);
  };
  const ModelPlan less = plan(true, ~size_t{0}), faster = plan(false, ~size_t{0});
  EXPECT_TRUE(recomputes(less));
  EXPECT_FALSE(recomputes(faster));
  ASSERT_LT(less.resident_bytes, faster.resident_bytes);
  EXPECT_FALSE(recomputes(plan(false, faster.resident_bytes)));
  for (const size_t capacity : {faster.resident_bytes - 1, less.resident_bytes}) {
    const ModelPlan lacking = plan(false, capacity);
    EXPECT_TRUE(recomputes(lacking));
    EXPECT_FALSE(lacking.pages());
    EXPECT_EQ(lacking.resident_bytes, less.resident_bytes);
  }
  EXPECT_TRUE(plan(false, less.resident_bytes - 1).pages());
}

// Wherever it is, and beside the largest number.
TEST(CheckFiniteTensors, FindsWhatIsNot) {
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16}) {
    VisitReal(dtype, [dtype]<typename T>() {
      using Wide = std::numeric_limits<AccumulateType<T>>;
      std::vector<T> values(131, static_cast<T>(dtype == DType::kF16 ? 65504 : 1e38));
      const auto check = [&] {
        const NamedTensor named = {"w", {values.data(), Shape({131}), dtype}};
        return std::string(CheckFiniteTensors({&named, 1}).message());
      };
      EXPECT_EQ(check(), "");
      for (size_t at = 0; at < values.size(); ++at) {
        for (const auto bad : {Wide::infinity(), -Wide::infinity(), Wide::quiet_NaN()}) {
          const T good = std::exchange(values[at], static_cast<T>(bad));
          EXPECT_EQ(check(), "\"w\" holds a value that is not finite") << at;
          values[at] = good;
        }
      }
    });
  }
  const NamedTensor none = {"w", {nullptr, Shape({0, 3}), DType::kF32}};
  EXPECT_TRUE(CheckFiniteTensors({&none, 1}).ok());
}

}  // namespace
}  // namespace gyre
