// Metrics of a whole test set that are no means of its samples', on any number of ranks and in any
// batches, against all pairs and all steps, one after another.  Scores are data here, so that the
// test knows them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSteps = 3, kSamples = 37;

constexpr char kNet[] = R"(
  name: "watch"
  input { name: "x" dims: [3, 1] }
  input { name: "time" dims: [3] }
  input { name: "soon" dims: [3] type: LABEL }
  input { name: "reset" dims: [3] type: LABEL }
  layer { name: "score" input: "x" dense { outputs: 1 } }
  layer { name: "loss" input: ["score", "soon"] binary_cross_entropy { ignore_label: -1 } }
  layer { name: "auc" input: ["x", "soon"] roc_auc { ignore_label: -1 } }
  layer { name: "alarm" input: ["x", "time", "reset"] alarm { threshold: 3 earliest: 2 before: 1 } }
  layer { name: "two" input: "x" dense { outputs: 2 } }
  layer {
    name: "entropy"
    input: ["two", "soon"]
    softmax_cross_entropy { ignore_label: -1 perplexity: true bits_per_character: true }
  })";

struct Data {
  std::vector<float> x, time;
  std::vector<int32_t> soon, reset;
};

Data RandomData(uint32_t seed) {
  std::mt19937 random(seed);
  Data data;
  for (int64_t i = 0; i < kSamples * kSteps; ++i) {
    data.x.push_back(static_cast<float>(random() % 6));
    data.soon.push_back(static_cast<int32_t>(random() % 3) - 1);
    data.reset.push_back(random() % 7 == 0);
    const auto time = static_cast<float>(random() % 5);
    data.time.push_back(data.soon.back() < 0 ? -1 : time == 0 ? 1000 : time / 4);
  }
  return data;
}

class RecordMetrics : public testing::Test {
 protected:
  RecordMetrics() {
    Write("train", RandomData(1));
    std::string text = "net: \"net.textproto\"\ndata {\n order: CONTIGUOUS\n";
    for (const std::string set : {"train", "test"}) {
      absl::StrAppend(&text, set, " { arrays {");
      for (const char* input : {"x", "time", "soon", "reset"}) {
        absl::StrAppendFormat(&text, " array { input: \"%s\" file: \"%s.npz\" entry: \"%s\" }",
                              input, set, input);
      }
      absl::StrAppend(&text, " } }\n");
    }
    absl::StrAppend(&text, "}\noptimizer { sgd {} }\nlearning_rate { base: 0.05 }\nseed: 1\n",
                    "batch: 6 steps: 4 evaluate_every: 2 test_batch: 5\n");
    WriteBytes(folder_ / "trainer.textproto", text);
    WriteBytes(folder_ / "net.textproto", kNet);
  }

  void Write(const std::string& set, Data data) {
    const Shape steps{kSamples, kSteps};
    const NamedTensor tensors[] = {
        {"x", {data.x.data(), {kSamples, kSteps, 1}, DType::kF32}},
        {"time", {data.time.data(), steps, DType::kF32}},
        {"soon", {data.soon.data(), steps, DType::kI32}},
        {"reset", {data.reset.data(), steps, DType::kI32}},
    };
    ASSERT_TRUE(WriteNpz(folder_ / absl::StrCat(set, ".npz"), tensors).ok());
  }

  // A line of what evaluate says.
  static std::string Line(const std::string& name, double value) {
    return absl::StrFormat("test %s %.6f\n", name, value);
  }

  const TrainingFolder folder_{SyntheticData{.samples = 1}, 1};
};

// Of `rows` pieces of the test set, each one row of its batches.
std::vector<std::vector<int64_t>> SequencesOf(const Data& data, int64_t rows) {
  std::vector<std::vector<int64_t>> sequences;
  const int64_t length = kSamples / rows;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = row * length * kSteps; i < (row + 1) * length * kSteps; ++i) {
      if (i == row * length * kSteps || data.reset[i] == 1) sequences.emplace_back();
      sequences.back().push_back(i);
    }
  }
  return sequences;
}

TEST_F(RecordMetrics, AreThoseOfAllSamples) {
  const Data data = RandomData(2);
  Write("test", data);
  folder_.Digest("out");
  for (const int64_t batch : {5, 7, 37}) {
    const int64_t tested = kSamples / batch * batch * kSteps;
    int64_t pairs = 0, halves = 0;
    for (int64_t i = 0; i < tested; ++i) {
      for (int64_t j = 0; j < tested; ++j) {
        if (data.soon[i] != 1 || data.soon[j] != 0) continue;
        ++pairs;
        halves += data.x[i] > data.x[j] ? 2 : data.x[i] == data.x[j];
      }
    }
    int64_t in_time = 0, missed = 0, false_alarms = 0, quiet = 0;
    for (const auto& sequence : SequencesOf(data, batch)) {
      bool any = false, event = false, alarm = false;
      for (const int64_t i : sequence) {
        if (data.time[i] < 0) continue;
        any = true;
        event = event || data.time[i] <= 2;
        alarm = alarm || data.x[i] > 3;
      }
      if (!any) continue;
      ++(event ? alarm ? in_time : missed : alarm ? false_alarms : quiet);
    }
    std::string first;
    for (const int ranks : {1, 2, 3}) {
      const std::string said = folder_.Evaluate(
          folder_ / "out",
          {absl::StrCat("--set=test_batch=", batch), absl::StrCat("--ranks=", ranks)});
      EXPECT_THAT(said, HasSubstr(Line("auc", static_cast<double>(halves) / (2. * pairs))));
      EXPECT_THAT(said, HasSubstr(Line("alarm_missed", static_cast<double>(missed))));
      EXPECT_THAT(said, HasSubstr(Line("alarm_false", static_cast<double>(false_alarms))));
      EXPECT_THAT(said, HasSubstr(Line("alarm_quiet", static_cast<double>(quiet))));
      EXPECT_THAT(said, HasSubstr("test alarm_auc_1000ms "));
      const std::string records = said.substr(said.find("test auc "));
      if (first.empty()) first = records;
      EXPECT_EQ(records, first) << batch << " " << ranks;
    }
  }
}

TEST_F(RecordMetrics, TrainingTellsMeansAndTestsTellAll) {
  Write("test", RandomData(2));
  folder_.Digest("out");
  EXPECT_EQ(folder_.Metrics("out", "test_auc").size(), 2u);
  EXPECT_EQ(folder_.Metrics("out", "test_alarm_early").size(), 2u);
  EXPECT_TRUE(folder_.Metrics("out", "auc").empty());
  for (const std::string before : {"", "test_"}) {
    const auto entropy = folder_.Metrics("out", before + "entropy");
    const auto perplexity = folder_.Metrics("out", before + "entropy_perplexity");
    const auto bits = folder_.Metrics("out", before + "entropy_bits_per_character");
    ASSERT_EQ(entropy.size(), before.empty() ? 4u : 2u);
    ASSERT_EQ(perplexity.size(), entropy.size());
    ASSERT_EQ(bits.size(), entropy.size());
    for (size_t i = 0; i < entropy.size(); ++i) {
      EXPECT_DOUBLE_EQ(perplexity[i], std::exp(entropy[i]));
      EXPECT_DOUBLE_EQ(bits[i], entropy[i] / std::log(2));
    }
  }
  const ToolResult plan = folder_.Train("plan", {"--plan", "--json"});
  EXPECT_THAT(plan.out,
              HasSubstr(absl::StrFormat("\"test\":%d,", 35 * kSteps * (2 + 3) * sizeof(double))));
}

TEST_F(RecordMetrics, OfA16BitRunReadInputsInF32) {
  Data data = RandomData(2);
  for (int64_t i = 0; i < kSamples * kSteps; ++i) {  // beyond what 16 bits tell apart
    data.x[i] += 1e-5f * static_cast<float>(i);
    if (data.time[i] > 0) data.time[i] += 1e-5f * static_cast<float>(i);
  }
  Write("test", data);
  folder_.Digest("out");
  const auto records = [&](const std::string& precision) {
    const std::string said = folder_.Evaluate(folder_ / "out", {"--precision=" + precision});
    return said.substr(said.find("test auc "));
  };
  EXPECT_EQ(records("F16"), records("F32"));
}

TEST_F(RecordMetrics, SequencesOfSamplesInAnyOrderAreRefused) {
  Write("test", RandomData(2));
  const ToolResult result = folder_.Train("out", {"--set=data.order=SHUFFLED"});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_THAT(result.err,
              HasSubstr("layer \"alarm\": its sequences go on from sample to sample in a row; "
                        "write order: CONTIGUOUS in the trainer's data"));
}

TEST_F(RecordMetrics, OneClassHasNoArea) {
  Data data = RandomData(2);
  for (int32_t& label : data.soon) label = 0;
  for (float& time : data.time) time = 1000;
  Write("test", data);
  folder_.Digest("out");
  EXPECT_TRUE(folder_.Metrics("out", "test_auc").empty());
  EXPECT_EQ(folder_.Metrics("out", "test_alarm_missed").back(), 0);
  const std::string said = folder_.Evaluate(folder_ / "out");
  EXPECT_THAT(said, HasSubstr("test auc undefined: all 105 labels are 0\n"));
  EXPECT_THAT(said, HasSubstr("sequences, 0 have an event up to 2 seconds away\n"));
  EXPECT_THAT(said, Not(HasSubstr("nan")));
}

TEST_F(RecordMetrics, AWrongResetIsNamed) {
  Write("test", RandomData(2));
  folder_.Digest("out");
  Data data = RandomData(2);
  data.reset[7 * kSteps + 1] = 3;
  Write("test", data);
  const ToolResult result = RunTool("evaluate", {"--trainer=" + folder_ / "trainer.textproto",
                                                 "--weights=" + folder_ / "out", "--threads=1"});
  EXPECT_EQ(result.exit_code, 1) << result.ToString();
  EXPECT_THAT(result.err, HasSubstr(": layer \"alarm\" takes reset from 0 to 1, got 3"));
}

// A test whose numbers are beyond F32 says so; what trains is as it was.
TEST_F(RecordMetrics, ATestThatIsNotFiniteEndsNoTraining) {
  // A score of 6e38.
  Write("test", RandomData(2));
  const std::string twice = "--set=net.layer.score.dense.weight.initializer.constant.value=2";
  const std::string expected = folder_.Digest("untested", {twice, "--set=evaluate_every=1000"});
  Data data = RandomData(2);
  std::ranges::fill(data.x, 3e38F);
  Write("test", data);
  for (const int ranks : {1, 2}) {
    const std::string out = absl::StrCat("out", ranks);
    const ToolResult result = folder_.Train(out, {twice, absl::StrCat("--ranks=", ranks)});
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    if (ranks == 1) {
      EXPECT_EQ(DigestOf(result), expected);
    }
    EXPECT_THAT(result.out,
                HasSubstr("warning: step 2: test loss is not finite; training goes on"));
    EXPECT_THAT(folder_.MetricLines(out), testing::Contains(HasSubstr("\"test_loss\":null")));
  }
}

}  // namespace
}  // namespace gyre
