// Parameters of 16 bits and their masters, and nets whose layers differ in precision.

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/training/optimizers/optimizer.h"
#include "tests/training/net/net_rank.h"

namespace gyre {
namespace {

constexpr DType kNarrow[] = {DType::kF16, DType::kBF16};

template <typename T>
Tensor View(std::vector<T>& values) {
  return {values.data(), Shape({static_cast<int64_t>(values.size())}), kDTypeOf<T>};
}

// The optimizer on F32, handed the same gradients, says what masters are; a value is its master,
// rounded.
template <typename S>
void ExpectMasters(const std::string& text) {
  SCOPED_TRACE(absl::StrCat(text, " ", std::string(DTypeName(kDTypeOf<S>))));
  constexpr size_t kElements = 1003;
  OptimizerConfig config;
  ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  const auto optimizer = NewOptimizer(config);
  const auto device = NewCpuDevice({});
  const auto stream = *device->NewStream();
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> wide(kElements), wide_gradient(kElements), master;
  for (float& value : wide) value = normal(random);
  master = wide;
  std::vector<S> value(kElements), gradient(kElements);
  std::vector<std::vector<float>> slots(2 * optimizer->slot_names().size(),
                                        std::vector<float>(kElements));
  std::vector<Tensor> wide_slots, narrow_slots;
  for (size_t s = 0; s < slots.size(); ++s) {
    (s % 2 == 0 ? wide_slots : narrow_slots).push_back(View(slots[s]));
  }
  for (uint64_t step = 0; step < 20; ++step) {
    for (size_t i = 0; i < kElements; ++i) {
      gradient[i] = S(normal(random));
      wide_gradient[i] = gradient[i];
    }
    UpdateScalars update{.learning_rate = 0.01, .gradient_scale = 1 / 3.0};
    update.skip = step == 7;
    optimizer->Prepare(step, update);
    const std::vector<float> master_before = master;
    const std::vector<std::vector<float>> slots_before = slots;
    const ParameterViews in_f32{
        .value = View(wide), .gradient = View(wide_gradient), .slots = wide_slots};
    const ParameterViews in_16{.value = View(value),
                               .gradient = View(gradient),
                               .slots = narrow_slots,
                               .master = View(master)};
    ASSERT_TRUE(optimizer->Update(*stream, &update, {&in_f32, 1}).ok());
    ASSERT_TRUE(optimizer->Update(*stream, &update, {&in_16, 1}).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    ASSERT_EQ(master, wide) << step;
    ASSERT_EQ(master == master_before, update.skip) << step;
    if (update.skip) {
      ASSERT_EQ(slots, slots_before);
    }
    for (size_t s = 0; s < slots.size(); s += 2) ASSERT_EQ(slots[s], slots[s + 1]) << step;
    for (size_t i = 0; i < kElements; ++i) ASSERT_EQ(value[i].bits, S(wide[i]).bits) << i;
  }
}

TEST(Masters, MoveAsF32Does) {
  for (const char* optimizer :
       {"sgd {} weight_decay: 0.1", "sgd { momentum: 0.9 } weight_decay: 0.01",
        "sgd { momentum: 0.9 nesterov: true }", "adam {} weight_decay: 0.01",
        "adamw {} weight_decay: 0.1", "sgd {} ema { decay: 0.9 }"}) {
    ExpectMasters<Half>(optimizer);
    ExpectMasters<BFloat16>(optimizer);
  }
}

// Wide enough that libraries store its weights in a layout of theirs.
constexpr char kBlockedNet[] = R"(
  layer { name: "conv1" conv2d { filters: 32 kernel: 3 padding: 1 } }
  layer { name: "conv2" conv2d { filters: 32 kernel: 3 } }
  layer { name: "norm" batch_norm {} }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 5 bias { learning_rate_multiplier: 0 } } }
  layer { name: "out" dense { outputs: 4 } }
  layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })";

struct Saved {
  Buffer copy;
  Model::UnpackedState state;
};

std::unique_ptr<Saved> Save(NetRank& rank) {
  auto saved = std::make_unique<Saved>();
  EXPECT_TRUE(rank.model().CopyState(rank.stream(), saved->copy).ok());
  EXPECT_TRUE(
      rank.model().UnpackState({saved->copy.data(), saved->copy.bytes()}, saved->state).ok());
  return saved;
}

std::map<std::string, std::vector<float>> Weights(const Saved& saved) {
  std::map<std::string, std::vector<float>> weights;
  for (const auto& [name, tensor] : saved.state.weights.tensors) {
    weights[name] = {tensor.as<float>(), tensor.as<float>() + tensor.elements()};
  }
  return weights;
}

// Every trained parameter of 16 bits is its master, rounded.
void ExpectRounded(NetRank& rank) {
  const NetPlan& plan = rank.net().plan();
  size_t seen = 0;
  for (const BucketedGradient& gradient : plan.order.gradients) {
    const Tensor value = rank.parameter(static_cast<size_t>(gradient.parameter));
    if (!plan.slots.has_master(static_cast<size_t>(gradient.bucket))) continue;
    const Tensor master = Slice(rank.net().master(gradient.bucket), gradient.at, value.elements());
    const auto bytes = ToType({static_cast<const std::byte*>(master.data), master.bytes()},
                              DType::kF32, value.dtype);
    EXPECT_EQ(std::memcmp(bytes.data(), value.data, bytes.size()), 0)
        << rank.parameters()[static_cast<size_t>(gradient.parameter)].name();
    ++seen;
  }
  EXPECT_GT(seen, 0u);
}

TEST(Masters, FilesHoldThemWhateverTheLayout) {
  const auto wide = Weights(*Save(*std::make_unique<NetRank>(kBlockedNet, DType::kF32)));
  bool blocked = false;
  for (const DType dtype : kNarrow) {
    NetRank rank(kBlockedNet, dtype);
    for (const Parameter& parameter : rank.parameters()) blocked |= !parameter.spec.layout.empty();
    ExpectRounded(rank);
    const auto narrow = Weights(*Save(rank));
    ASSERT_EQ(narrow.size(), wide.size());
    for (const auto& [name, values] : wide) {
      // A frozen one has no master: it is what is computed with.
      if (name == "fc.bias") continue;
      EXPECT_EQ(narrow.at(name), values) << name << " " << DTypeName(dtype);
    }
  }
  EXPECT_TRUE(blocked);
}

TEST(Masters, LoadingSetsValuesToo) {
  for (const DType dtype : kNarrow) {
    NetRank from(kBlockedNet, dtype), to(kBlockedNet, dtype);
    const auto saved = Save(from);
    for (const NamedTensor& named : saved->state.weights.tensors) {
      for (int64_t i = 0; i < named.tensor.elements(); ++i) named.tensor.as<float>()[i] += 0.3f;
    }
    const auto expected = Weights(*saved);
    const std::string folder = testing::TempDir();
    const std::string path = absl::StrCat(folder, "/weights.safetensors");
    ASSERT_TRUE(WriteSafetensors(path, saved->state.weights.tensors, {}).ok());
    ASSERT_TRUE(to.model().LoadSome(to.stream(), *TensorFile::Read(path)).ok());
    ExpectRounded(to);
    auto loaded = Weights(*Save(to));
    loaded.erase("fc.bias");
    for (const auto& [name, values] : loaded) EXPECT_EQ(values, expected.at(name)) << name;
  }
}

// `layers`, these of them in another precision.
std::string With(const std::string& layers, const std::vector<std::string>& names,
                 const std::string& precision) {
  std::string text = layers;
  for (const std::string& name : names) {
    const std::string head = absl::StrCat("name: \"", name, "\"");
    EXPECT_EQ(absl::StrReplaceAll({{head, absl::StrCat(head, " precision: ", precision)}}, &text),
              1)
        << name;
  }
  return text;
}

// Gradients of the net with layers of another precision are about those of the net without, which
// other tests compare with differences.
void ExpectMixed(const std::string& layers, const std::vector<std::string>& names,
                 const std::string& precision, double tolerance) {
  NetRank plain(layers), mixed(With(layers, names, precision));
  EXPECT_NEAR(mixed.Loss(), plain.Loss(), tolerance * plain.Loss());
  plain.Backward();
  mixed.Backward();
  ASSERT_EQ(mixed.parameters().size(), plain.parameters().size());
  for (size_t p = 0; p < plain.parameters().size(); ++p) {
    if (!plain.parameters()[p].trained()) continue;
    const std::vector<double> a = plain.Gradient(p);
    double scale = 1e-2;
    for (const double g : a) scale = std::max(scale, std::abs(g));
    EXPECT_THAT(mixed.Gradient(p), testing::Pointwise(testing::DoubleNear(tolerance * scale), a))
        << plain.parameters()[p].name() << " " << layers << precision;
  }
}

TEST(MixedNet, HasTheGradientsOfOnePrecision) {
  constexpr char kCarryNet[] = R"(
    layer { name: "rows" reshape { dims: [6, 10] } }
    layer { name: "lstm" lstm { hidden: 4 carry: true } }
    layer { name: "flat" flatten {} }
    layer { name: "out" dense { outputs: 4 } }
    layer { name: "loss" input: "out" input: "label" softmax_cross_entropy {} })";
  const std::pair<const char*, double> kPrecisions[] = {{"F32", 1e-5}, {"F16", 2e-2}};
  for (const auto& [precision, tolerance] : kPrecisions) {
    ExpectMixed(kConvNet, {"pool"}, precision, tolerance);
    ExpectMixed(kForkedNet, {"relu", "b2"}, precision, tolerance);
    ExpectMixed(kForkedNet, {"trunk", "a", "loss_b"}, precision, tolerance);
    ExpectMixed(kSharedNet, {"a", "b", "d"}, precision, tolerance);
    ExpectMixed(kJoinedNet, {"sequence", "joined", "low"}, precision, tolerance);
    ExpectMixed(kNormNet, {"norm"}, precision, tolerance);
    ExpectMixed(kNormNet, {"relu"}, precision, tolerance);
    ExpectMixed(kCarryNet, {"lstm"}, precision, tolerance);
  }
}

TEST(MixedNet, ConvertsAValueOnceAndLossesAreOfF32) {
  NetRank rank(With(kForkedNet, {"b1"}, "F32"), DType::kBF16);
  const NetSpec& net = rank.spec();
  std::vector<std::string> conversions;
  for (const auto& config : net.conversions) conversions.push_back(config->name());
  // "a" has two losses, and "relu" b1 beside a.
  EXPECT_THAT(conversions, testing::UnorderedElementsAre("image as BF16", "a as F32", "relu as F32",
                                                         "b1 as BF16", "b2 as F32", "c as F32"));
  EXPECT_EQ(ValueNamed(net, "loss_a").dtype, DType::kF32);
  EXPECT_EQ(ValueNamed(net, "b1").dtype, DType::kF32);
  EXPECT_EQ(ValueNamed(net, "a").dtype, DType::kBF16);
  EXPECT_EQ(ValueNamed(net, "image").dtype, DType::kF32);
  // Buckets, of gradients of one type.
  const GradientOrder& order = rank.net().plan().order;
  std::set<DType> types;
  for (size_t b = 0; b < order.buckets.size(); ++b) {
    for (int g = order.buckets[b].first; g < order.buckets[b].last; ++g) {
      const auto p = static_cast<size_t>(order.gradients[g].parameter);
      EXPECT_EQ(rank.parameters()[p].spec.dtype, order.buckets[b].dtype);
      EXPECT_EQ(order.gradients[g].bucket, static_cast<int>(b));
    }
    types.insert(order.buckets[b].dtype);
  }
  EXPECT_EQ(types, (std::set<DType>{DType::kF32, DType::kBF16}));
}

// Shares and weights of 16 bits would be rounded, and make others the largest.
TEST(MixedNet, AccuracyTakesSharesInF32) {
  NetRank rank(R"(
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 60 } }
    layer { name: "loss" input: ["fc", "label"] softmax_cross_entropy {} }
    layer { name: "hits" input: ["fc", "label"] accuracy {} }
    layer { name: "near" input: ["fc", "flat"] accuracy {} })",
               DType::kBF16);
  EXPECT_EQ(NodeNamed(rank.spec(), "hits").spec.states[0].dtype, DType::kBF16);
  EXPECT_EQ(NodeNamed(rank.spec(), "near").spec.states[1].dtype, DType::kF32);
}

}  // namespace
}  // namespace gyre
