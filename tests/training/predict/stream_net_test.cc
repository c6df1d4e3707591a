// A stream's steps against its whole sequence, and the nets that have none.
#include "engine/training/predict/stream_net.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/runtime/primitives/primitives.h"
#include "engine/training/parameter.h"
#include "engine/training/predict/predict.h"

namespace gyre {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;

constexpr int64_t kSteps = 7;

Parsed<NetConfig> Parse(const std::string& text) {
  return ParseNetText(text, "net.textproto").value();
}

DataConfig Data(const std::string& text = "") {
  auto trainer = *ParseTrainerText(
      absl::StrCat("net: \"n\" data { train { arrays { array { input: \"x\" file: \"x.npy\" } } } ",
                   text, " } optimizer { sgd {} } learning_rate { base: 1 } batch: 1 steps: 1"),
      "trainer.textproto");
  return trainer.message->data();
}

// A net cut to its first output, with random weights.
class Streamed {
 public:
  Streamed(const std::string& text, Device& device, const Primitives& primitives,
           const std::string& precision = "")
      : net_(Parse(absl::StrCat(precision, text))), device_(device), primitives_(primitives) {
    predictions_ = CutToPredict({}, "", net_).value();
  }

  Parsed<NetConfig>& net() { return net_; }
  std::span<const Prediction> predictions() const { return predictions_; }

  const TrainedNet& Load() {
    ModelOptions options{.train = false,
                         .shape = ShapeOf(TrainerConfig(), *net_.message, 0, 1),
                         .test_batch = 1,
                         .test_samples = 1,
                         .primitives = &primitives_};
    for (const InputConfig& input : net_.message->input()) {
      options.feed.inputs.push_back(
          {.name = input.name(), .label = input.type() == InputConfig::LABEL});
    }
    const auto plan = PlanModel(net_, options).value();
    std::mt19937 random(1);
    std::vector<NamedTensor> tensors;
    std::vector<std::vector<double>> memory;
    for (const Parameter& parameter : plan.parameters.all()) {
      Tensor tensor{nullptr, CanonicalShape(parameter, ""), FileDType(parameter)};
      memory.emplace_back(static_cast<size_t>(tensor.elements()) + 1);
      tensor.data = memory.back().data();
      for (int64_t i = 0; i < tensor.elements(); ++i) {
        const double value = std::uniform_real_distribution<double>(-0.7, 0.7)(random);
        if (tensor.dtype == DType::kF64) {
          tensor.as<double>()[i] = value;
        } else {
          tensor.as<float>()[i] = static_cast<float>(value);
        }
      }
      tensors.push_back({CanonicalName(parameter, ""), tensor});
    }
    trained_ = LoadTrained(net_, options, TensorFile().With(tensors), "w", device_).value();
    return trained_;
  }

  // Of whole sequences, whose arrays `fill` fills.
  template <typename Fill>
  std::vector<double> Whole(Fill fill) {
    Load();
    const Net& net = *trained_.model->test().front();
    auto iteration = *TestIteration::Create(device_, net, nullptr);
    const std::vector<Tensor> arrays = BatchArrays(net.plan());
    Buffer memory = *Buffer::Allocate(device_, MemoryKind::kPinnedHost, BatchBytes(arrays));
    Batch batch = BatchAt(memory.data(), arrays);
    batch.samples = {0};
    fill(batch.arrays);
    const absl::Status run =
        iteration.Run(batch, *trained_.stream,
                      [](Stream&, absl::string_view, Tensor) { return absl::OkStatus(); });
    EXPECT_TRUE(run.ok()) << run;
    const Tensor records =
        iteration.results().records(RecorderOf(net.plan().spec, predictions_[0]));
    return {records.as<double>(), records.as<double>() + records.elements()};
  }

 private:
  Parsed<NetConfig> net_;
  Device& device_;
  const Primitives& primitives_;
  std::vector<Prediction> predictions_;
  TrainedNet trained_;
};

class StreamNetTest : public testing::Test {
 protected:
  std::unique_ptr<StreamNet> Open(Streamed& streamed, const DataConfig& data = Data(),
                                  const Fit& fit = {}) {
    inputs_.push_back(CutToStep(data, fit, streamed.net()).value());
    return *StreamNet::Create(streamed.Load(), inputs_.back(), streamed.predictions(), *device_);
  }
  static std::string Refusal(StreamNet& stream, const std::string& line) {
    return std::string(stream.Step(line).status().message());
  }
  std::vector<double> Steps(StreamNet& stream, const std::vector<std::string>& lines) {
    std::vector<double> all;
    for (const std::string& line : lines) {
      const Tensor value = stream.Step(line).value()[0];
      all.insert(all.end(), value.as<double>(), value.as<double>() + value.elements());
    }
    return all;
  }

  std::unique_ptr<Device> device_ = NewCpuDevice({.threads = 1});
  std::deque<StreamInputs> inputs_;  // of the streams
  std::unique_ptr<Primitives> primitives_ = std::make_unique<Primitives>(DeviceKind::kCpu, 1);
};

TEST_F(StreamNetTest, StepsAreThoseOfTheWholeSequence) {
  const std::string text = absl::StrCat(
      "name: \"t\" input { name: \"x\" dims: [", kSteps,
      ", 3] } input { name: \"length\" type: LABEL } input { name: \"reset\" dims: ", kSteps,
      " type: LABEL } input { name: \"y\" dims: ", kSteps,
      " type: LABEL } layer { name: \"before\" input: \"x\" dense { outputs: 5 } } layer { name: "
      "\"act\" tanh {} } layer { name: \"r\" input: [\"act\", \"length\", \"reset\"] RECURRENT } "
      "layer { name: \"fc\" dense { outputs: 4 } } layer { name: \"loss\" input: [\"fc\", \"y\"] "
      "softmax_cross_entropy {} }");
  std::mt19937 random(2);
  for (const std::string recurrent :
       {"lstm { hidden: 6 layers: 2 }", "lstm { hidden: 6 projection: 4 }",
        "gru { hidden: 17 layers: 2 dropout: 0.5 }", "rnn { hidden: 5 nonlinearity: RELU }"}) {
    for (const std::string precision : {"precision: F32 ", "precision: F64 "}) {
      SCOPED_TRACE(precision + recurrent);
      const std::string own = absl::StrReplaceAll(text, {{"RECURRENT", recurrent}});
      double x[kSteps][3];
      std::vector<std::string> lines;
      for (auto& row : x) {
        // Exact in the six digits of StrJoin.
        for (double& value : row) value = static_cast<int>(random() % 128) / 16.0 - 4;
        lines.push_back(absl::StrJoin(row, " "));
      }
      Streamed whole(own, *device_, *primitives_, precision);
      const std::vector<double> expected = whole.Whole([&](const std::vector<Tensor>& arrays) {
        for (int64_t i = 0; i < kSteps * 3; ++i) {
          const double value = (x[i / 3][i % 3] - 0.5) / 2;
          if (arrays[0].dtype == DType::kF64) {
            arrays[0].as<double>()[i] = value;
          } else {
            arrays[0].as<float>()[i] = static_cast<float>(value);
          }
        }
        *arrays[1].as<int32_t>() = kSteps;
        for (int64_t s = 0; s < kSteps; ++s) arrays[2].as<int32_t>()[s] = s == 0;
      });
      Streamed streamed(own, *device_, *primitives_, precision);
      const auto stream =
          Open(streamed, Data("normalization { input: \"x\" mean: [0.5, 0.5, 0.5] std: 2 }"));
      const std::vector<double> got = Steps(*stream, lines);
      // A product of one row may add in another order than one of several.
      const double tolerance = precision == "precision: F64 " ? 1e-13 : 1e-5;
      EXPECT_THAT(got, Pointwise(DoubleNear(tolerance), expected));
      EXPECT_GT(std::abs(Steps(*stream, lines)[0] - expected[0]), 2e-5);  // it has gone on
      ASSERT_TRUE(stream->Begin().ok());
      EXPECT_EQ(Steps(*stream, lines), got);
    }
  }
}

constexpr char kTokens[] = R"(
    name: "t" input { name: "text" dims: 7 type: LABEL } input { name: "y" dims: 7 type: LABEL }
    layer { name: "words" input: "text" embedding { vocabulary: 3 width: 4 } }
    layer { name: "r" gru { hidden: 5 } }
    layer { name: "fc" dense { outputs: 3 } }
    layer { name: "loss" input: ["fc", "y"] softmax_cross_entropy {} })";

TEST_F(StreamNetTest, TakesTokens) {
  Streamed whole(kTokens, *device_, *primitives_);
  const int32_t numbers[kSteps] = {1, 2, 0, 1, 1, 2, 0};
  const std::vector<double> expected = whole.Whole([&](const std::vector<Tensor>& arrays) {
    std::copy_n(numbers, kSteps, arrays[0].as<int32_t>());
  });
  Streamed streamed(kTokens, *device_, *primitives_);
  const auto stream = Open(streamed, Data(), {{"vocabulary.txt", "<unk>\na\nb\n"}});
  EXPECT_THAT(Steps(*stream, {"a", "B", "other", "a", " a ", "b", "<unk>"}),
              Pointwise(DoubleNear(1e-5), expected));
  EXPECT_EQ(Refusal(*stream, "a b"), "expected one word, got 2 in \"a b\"; write a line for each");
  EXPECT_EQ(Refusal(*stream, ""), "expected one word, got 0 in \"\"; write a line for each");
  EXPECT_EQ(Refusal(*stream, "\xff"), "not UTF-8");
}

// A text's own words keep their capitals, and a text of characters has its lines' ends.
TEST_F(StreamNetTest, TakesTokensAsTheTextHasThem) {
  for (const bool characters : {false, true}) {
    Streamed streamed(kTokens, *device_, *primitives_);
    DataConfig data = Data();
    TextConfig& text = *data.mutable_train()->mutable_text();
    text.set_unit(characters ? TextConfig::CHARACTER : TextConfig::WORD);
    const auto stream =
        Open(streamed, data,
             {{"vocabulary.txt", characters ? "<unk>\n\\n\n\xc3\xa9\n" : "<unk>\n<eos>\nB\n"}});
    EXPECT_EQ(inputs_.back().characters(), characters);
    // Tokens 1, 2 and 0, which is unknown.
    const std::vector<std::string> lines = characters
                                               ? std::vector<std::string>{"", "\xc3\xa9", "x"}
                                               : std::vector<std::string>{"<eos>", "B", "b"};
    Streamed other(kTokens, *device_, *primitives_);
    EXPECT_EQ(Steps(*stream, lines), Steps(*Open(other), {"1", "2", "0"}));
    EXPECT_THAT(Refusal(*stream, "xy z"), HasSubstr(characters ? "expected one character, got 4"
                                                               : "expected one word, got 2"));
  }
}

TEST_F(StreamNetTest, RefusesLines) {
  Streamed streamed(kTokens, *device_, *primitives_);
  const auto stream = Open(streamed);
  const auto refusal = [&](const std::string& line) { return Refusal(*stream, line); };
  EXPECT_EQ(refusal("1 2"), "expected 1 number of a step, got 2");
  EXPECT_EQ(refusal("a"), "expected numbers, got \"a\"");
  EXPECT_EQ(refusal("nan"), "expected numbers, got \"nan\"");
  EXPECT_EQ(refusal("0.5"), "expected an integer, got 0.5");
  EXPECT_THAT(refusal("3"), HasSubstr("words"));
  EXPECT_EQ(refusal(" 2,"), "");
}

TEST_F(StreamNetTest, RefusesNetsThatNeedWholeSequences) {
  const auto refusal = [&](const std::string& layers, const std::string& more = "") {
    Parsed<NetConfig> net =
        Parse(absl::StrCat("name: \"t\" input { name: \"x\" dims: [7, 3] } ", more, layers));
    return std::string(CutToStep(Data(), {}, net).status().message());
  };
  const std::string gru = "layer { name: \"r\" input: \"x\" gru { hidden: 2 } } ";
  EXPECT_EQ(refusal(gru), "");
  EXPECT_THAT(refusal("layer { name: \"a\" dense { outputs: 2 } }"),
              HasSubstr("--stream is of nets with an lstm, gru or rnn"));
  EXPECT_THAT(refusal("layer { name: \"r\" lstm { hidden: 2 bidirectional: true } }"),
              HasSubstr("layer \"r\": goes in both directions, so it needs whole sequences"));
  EXPECT_THAT(refusal(gru + "layer { name: \"f\" flatten {} }"),
              HasSubstr("layer \"f\": looks at several steps at once"));
  EXPECT_THAT(refusal(gru + "layer { name: \"s\" slice { axis: 0 end: 2 } }"),
              HasSubstr("layer \"s\": may join or cut steps; expected axis: -1"));
  EXPECT_THAT(refusal(gru + "layer { name: \"s\" reshape { dims: [14] } }"),
              HasSubstr("layer \"s\": joins steps; expected dims: [7, ...]"));
  EXPECT_THAT(refusal(gru, "input { name: \"z\" dims: [6, 3] } "),
              HasSubstr("input \"z\": expected dims: [7, ...], a row for each step"));
  Streamed along(
      "name: \"t\" input { name: \"x\" dims: [7, 3] } input { name: \"y\" dims: [7, 2] } layer { "
      "name: \"c\" input: \"x\" conv1d { filters: 2 kernel: 1 } } layer { name: \"r\" rnn { "
      "hidden: 2 } } layer { name: \"l\" input: [\"r\", \"y\"] mean_squared_error {} }",
      *device_, *primitives_);
  const auto inputs = CutToStep(Data(), {}, along.net()).value();
  EXPECT_THAT(
      StreamNet::Create(along.Load(), inputs, along.predictions(), *device_).status().message(),
      HasSubstr("layer \"c\": goes along the steps, so it needs whole sequences"));
}

}  // namespace
}  // namespace gyre
