// Valid texts with random damage: reading them never crashes or hangs, and what is refused is
// refused with a position and words of our own, never protobuf's.
#include <gtest/gtest.h>

#include <random>
#include <regex>

#include "absl/strings/str_split.h"
#include "models/schema/graph.h"
#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {
namespace {

using std::string_literals::operator""s;

constexpr char kNet[] = R"(# a net
name: "lenet"
input { name: "image" dims: [28, 28, 1] }
input { name: "label" type: LABEL }
layer { name: "conv1" conv2d { filters: 20 kernel: 5 weight { initializer { msra {} } } } }
layer { name: "pool1" pool2d { kernel: 2 stride: [2, 2] kind: MAX } }
layer { name: "fc1" dense { outputs: 500 use_bias: true } }
layer { name: "drop" phase: TRAIN dropout { rate: 0.5 } }
layer { name: "fc2" dense { outputs: 10 bias { decay_multiplier: 0 } } }
layer { name: "loss" input: ["fc2", "label"] softmax_cross_entropy { ignore_label: -1 } }
layer { name: "acc" input: "fc2" input: "label" phase: TEST accuracy { top_k: 5 } }
)";

constexpr char kTrainer[] = R"(net: "net.textproto"
data {
  train { idx { images: "a.gz" labels: 'b.gz' } }
  normalization { mean: .5 std: 25e-2f }
}
optimizer { adam { beta1: 0.9 } weight_decay: 5e-4 }
learning_rate { base: 0.01 step { every: 100 gamma: 0.1 } }
batch: 64; epochs: 3, seed: 0x1f
precision: F64
)";

// Pieces that a text is made of, or spoiled by.
const std::vector<std::string> kPieces = absl::StrSplit(
    "{|}|[|]|<|>|:|,|;|\"|'|-|layer|conv2d|inf|nan|1e9|input|\\|#|0x|010|1e-400|"
    "\xef\xbb\xbf|\n| |name: \"fc1\"|999999999999999999999|\xff|\0|kernel: -1"s,
    '|');

std::string Mutate(std::string text, std::mt19937& random) {
  for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
    const size_t at = random() % (text.size() + 1);
    const size_t length = std::min<size_t>(random() % 12, text.size() - at);
    switch (random() % 5) {
      case 0:
        text.erase(at, length);
        break;
      case 1:
        text.insert(at, kPieces[random() % kPieces.size()]);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 3:
        text.insert(random() % (text.size() + 1), text.substr(at, length));
        break;
      case 4:
        text.resize(at);
        break;
    }
    if (text.empty()) break;
  }
  return text;
}

class Mutation : public testing::Test {
 protected:
  template <typename Result>
  void Expect(const Result& result, const std::string& text) {
    if (result.ok()) {
      ++accepted_;
      return;
    }
    ++refused_;
    const std::string message(result.status().message());
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    static const std::regex* const place = new std::regex("f:[1-9][0-9]*:[1-9][0-9]*: ");
    EXPECT_TRUE(std::regex_search(message, *place, std::regex_constants::match_continuous))
        << message << "\n"
        << text;
    // protobuf's own messages speak of types by their full names.
    EXPECT_EQ(message.find("gyre."), std::string::npos) << message << "\n" << text;
    EXPECT_EQ(message.find("Expected"), std::string::npos) << message << "\n" << text;
  }

  std::mt19937 random_{7};
  int accepted_ = 0, refused_ = 0;
};

TEST_F(Mutation, Nets) {
  ASSERT_TRUE(ParseNetText(kNet, "f").ok());
  for (int i = 0; i < 5000; ++i) {
    const std::string text = Mutate(kNet, random_);
    const auto net = ParseNetText(text, "f");
    Expect(net, text);
    if (net.ok()) {
      for (const auto phase : {LayerConfig::TRAIN, LayerConfig::TEST}) {
        Expect(BuildGraph(*net, phase), text);
      }
    }
  }
  EXPECT_GT(accepted_, 100);
  EXPECT_GT(refused_, 1000);
}

TEST_F(Mutation, Trainers) {
  ASSERT_TRUE(ParseTrainerText(kTrainer, "f").ok());
  for (int i = 0; i < 5000; ++i) {
    const std::string text = Mutate(kTrainer, random_);
    Expect(ParseTrainerText(text, "f"), text);
  }
  EXPECT_GT(accepted_, 100);
  EXPECT_GT(refused_, 1000);
}

TEST_F(Mutation, Overrides) {
  const std::string valid[] = {"layer.conv1.conv2d.kernel=3,5",
                               "layer.0.conv2d.filters=32",
                               "layer.fc1.dense.weight.initializer.xavier={}",
                               "input.image.dims=28,28,3",
                               "name=x",
                               "layer.acc.phase=ALWAYS"};
  for (const std::string& override : valid) {
    ASSERT_TRUE(ParseNetText(kNet, "f", std::span(&override, 1)).ok()) << override;
    for (int i = 0; i < 300; ++i) {
      const std::string mutant = Mutate(override, random_);
      const auto net = ParseNetText(kNet, "f", std::span(&mutant, 1));
      if (!net.ok()) {
        EXPECT_NE(net.status().message().find("--set net."), absl::string_view::npos)
            << net.status();
      }
    }
  }
}

}  // namespace
}  // namespace gyre
