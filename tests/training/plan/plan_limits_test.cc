// Nets of extreme numbers and of many layers: planning ends with a plan or with an error that names
// a layer or the memory, never in a crash, and soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/training/model/model.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

constexpr char kInputs[] =
    "input { name: \"image\" dims: [8, 8, 3] }\n"
    "input { name: \"label\" type: LABEL }\n";
constexpr char kHead[] =
    "layer { name: \"flat\" flatten {} }\n"
    "layer { name: \"head\" dense { outputs: 2 } }\n"
    "layer { name: \"loss\" input: \"head\" input: \"label\" softmax_cross_entropy {} }\n";

absl::Status Plan(const std::string& text, int64_t batch) {
  const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  const auto net = ParseNetText(text, "net");
  if (!net.ok()) return net.status();
  return PlanModel(*net, {.shape = {.global = batch},
                          .test_batch = batch,
                          .test_samples = batch,
                          .slots = {"momentum"},
                          .capacity_bytes = size_t{1} << 40,
                          .primitives = &primitives})
      .status();
}

class Extremes {
 public:
  explicit Extremes(uint64_t seed) : random_(seed) {}

  // About a power of two, which is small half of the time.
  int64_t Number() {
    const int bits = static_cast<int>(random_() % (random_() % 2 == 0 ? 4 : 32));
    return std::max<int64_t>(1, (int64_t{1} << bits) - 1 - static_cast<int64_t>(random_() % 2));
  }

  // "name: 3" or, for as many as `most`, "name: [3, 65536]"; rarely nothing.
  std::string Field(const std::string& name, int most = 1) {
    const int count = most == 1 ? 1 : 1 << random_() % 3;
    if (random_() % 4 == 0) return "";
    std::vector<int64_t> numbers;
    for (int i = 0; i < std::min(count, most); ++i) numbers.push_back(Number());
    return absl::StrCat(name, ": [", absl::StrJoin(numbers, ", "), "] ");
  }

  std::string One(const std::string& name) { return absl::StrCat(name, ": ", Number(), " "); }

  std::string Layer() {
    switch (random_() % 4) {
      case 0:
        return absl::StrCat("dense { ", One("outputs"), "}");
      case 1:
        return absl::StrCat("conv2d { ", One("filters"), "kernel: ", Number(), " ",
                            Field("stride", 2), Field("padding", 4), Field("dilation", 2),
                            random_() % 3 == 0 ? One("groups") : "", "}");
      case 2:
        return absl::StrCat("pool2d { kernel: ", Number(), " ", Field("stride", 2),
                            Field("padding", 4), "kind: ", random_() % 2 ? "MAX" : "AVERAGE", " }");
      default:
        return "relu {}";
    }
  }

 private:
  std::mt19937_64 random_;
};

TEST(PlanLimits, ExtremeNumbersEndInWords) {
  int planned = 0, refused = 0, beyond = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Extremes extremes(seed);
    std::string text = kInputs;
    if (seed % 2) {
      text = absl::StrCat("input { name: \"image\" dims: [", extremes.Number(), ", ",
                          extremes.Number(), ", ", extremes.Number(),
                          "] }\ninput { name: \"label\" type: LABEL }\n");
    }
    for (uint64_t i = 0; i < 1 + seed % 3; ++i) {
      absl::StrAppend(&text, "layer { name: \"l", i, "\" ", extremes.Layer(), " }\n");
    }
    SCOPED_TRACE(text);
    const absl::Status status = Plan(text + kHead, seed % 5 == 0 ? extremes.Number() : 2);
    if (status.ok()) {
      ++planned;
    } else if (absl::IsResourceExhausted(status)) {
      ++beyond;
      EXPECT_THAT(std::string(status.message()),
                  testing::AnyOf(testing::StartsWith("device memory: "),
                                 testing::HasSubstr("lower the batch")));
    } else {
      ++refused;
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()),
                  testing::AnyOf(testing::StartsWith("net:"), testing::HasSubstr("2^60 bytes")));
    }
  }
  EXPECT_GT(planned, 20);
  EXPECT_GT(refused, 20);
  EXPECT_GT(beyond, 20);
}

// Of the device's memory 4 MB is the layer's scratch, 4 MB each of its seven activations and their
// gradients, and 12 MB of parameters; the T x T scores of one of its heads would be 256 MB.
TEST(PlanLimits, LongAttention) {
  const Primitives primitives(DeviceKind::kCpu, /*threads=*/1);
  const auto net = *ParseNetText(
      R"(input { name: "tokens" dims: 8192 type: LABEL }
         input { name: "label" dims: 8192 type: LABEL }
         layer { name: "token" input: "tokens" embedding { vocabulary: 70 width: 128 } }
         layer { name: "x" positional_embedding { length: 8192 } }
         layer { name: "y" input: ["x", "x", "x"] attention { heads: 4 causal: true } }
         layer { name: "head" dense { outputs: 2 } }
         layer { name: "loss" input: ["head", "label"] softmax_cross_entropy {} })",
      "net");
  const auto plan = PlanModel(net, {.shape = {.global = 1}, .primitives = &primitives}).value();
  EXPECT_LT(plan.device_bytes(), size_t{48} << 20);
}

// Each takes well under a second, and many if a part of the plan looks at all layers for each.
TEST(PlanLimits, ManyLayers) {
  for (const std::string layer : {"flatten {}", "relu {}", "dropout {}", "dense { outputs: 1 }"}) {
    for (const bool chain : {true, false}) {
      SCOPED_TRACE(absl::StrCat(layer, chain ? ", each on the one before" : ", all on the first"));
      std::string text = absl::StrCat(kInputs, "layer { name: \"first\" dense { outputs: 1 } }\n");
      for (int i = 0; i < 5'000; ++i) {
        absl::StrAppend(&text, "layer { name: \"l", i, "\" ", chain ? "" : "input: \"first\" ",
                        layer, " }\n");
      }
      const absl::Status status = Plan(text + kHead, 1);
      const bool idle = !chain && layer.starts_with("dense");  // no loss depends on its weights
      EXPECT_EQ(status.ok(), !idle) << status;
    }
  }
}

}  // namespace
}  // namespace gyre
