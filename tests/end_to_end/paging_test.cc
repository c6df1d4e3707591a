// Runs that the device cannot hold, with state of every kind, tests in between, interrupted and
// resumed: the bits of those that it can.

#include <gtest/gtest.h>

#include <regex>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

const SyntheticData kData{.samples = 56};
constexpr int64_t kTestSamples = 30;
// The test's batches are longer than several of training.
constexpr char kLength[] =
    "batch: 6 test_batch: 30 evaluate_every: 5 checkpoint_every: 7 steps: 14";

constexpr char kConvolutions[] = R"(
  name: "convolutions"
  input { name: "image" dims: [12, 12, 1] }
  input { name: "label" type: LABEL }
  layer { name: "conv1" conv2d { filters: 8 kernel: 3 padding: 1 } }
  layer { name: "norm1" batch_norm {} }
  layer { name: "relu1" relu {} }
  layer { name: "conv2" conv2d { filters: 8 kernel: 3 padding: 1 } }
  layer { name: "norm2" batch_norm {} }
  layer { name: "sum" input: "norm2" input: "relu1" add {} }
  layer { name: "relu2" relu {} }
  layer { name: "drop" dropout { rate: 0.2 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 10 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

constexpr char kRecurrent[] = R"(
  name: "recurrent"
  input { name: "image" dims: [12, 12, 1] }
  input { name: "label" type: LABEL }
  layer { name: "rows" reshape { dims: [12, 12] } }
  layer { name: "lstm" lstm { hidden: 9 layers: 2 carry: true } }
  layer { name: "gru" gru { hidden: 5 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 10 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

// Of a weight so wide that dense cuts it into pieces: 34 MB of F32.
std::string WideNet(int64_t outputs) {
  return absl::StrCat(R"(
  name: "wide"
  input { name: "image" dims: [12, 12, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" flatten {} }
  layer { name: "wide" dense { outputs: )",
                      outputs, R"( } }
  layer { name: "relu" relu {} }
  layer { name: "fc" dense { outputs: 10 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })");
}

struct Case {
  const char* name;
  std::string net;
  const char* rest;
  std::vector<std::string> flags = {};
  int ranks = 1;
};

class Paging : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(
    , Paging,
    testing::Values(
        Case{"Convolutions", kConvolutions, ""},
        Case{"ConvolutionsInBF16", kConvolutions, " accumulate: 2", {"--precision=BF16"}},
        Case{"ConvolutionsAsGeeps", kConvolutions, "", {"--planner=geeps"}},
        Case{"ConvolutionsNaively", kConvolutions, "", {"--planner=naive"}},
        Case{"RecurrentInF16",
             kRecurrent,
             " loss_scale { dynamic { initial: 16777216 } }",
             {"--precision=F16", "--set=data.order=CONTIGUOUS"}},
        Case{"ALargeWeight", WideNet(60000), ""},
        Case{"ALargeWeightInBF16", WideNet(60000), " accumulate: 2", {"--precision=BF16"}},
        Case{"RanksShareOutTheOptimizer",
             kRecurrent,
             "",
             {"--shard_optimizer", "--set=data.order=CONTIGUOUS"},
             2}),
    [](const auto& info) { return info.param.name; });

TEST_P(Paging, ChangesNoBits) {
  const TrainingFolder folder(kData, kTestSamples);
  WriteTrainer(folder / "", GetParam().net,
               {.optimizer = "adam {}", .rest = absl::StrCat(kLength, GetParam().rest)});
  const auto on_sim = [&](int64_t bytes, std::vector<std::string> more = {}) {
    more.insert(more.end(), GetParam().flags.begin(), GetParam().flags.end());
    if (GetParam().ranks > 1) more.push_back(absl::StrCat("--ranks=", GetParam().ranks));
    more.push_back("--device=sim");
    more.push_back(absl::StrCat("--device_memory=", bytes));
    return more;
  };
  const ToolResult refused = folder.Train("refused", on_sim(1));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(
      refused.err, match,
      std::regex("the smallest that would do is [^(,.]*\\.?[^(,]*\\(([0-9]+) bytes\\)")))
      << refused.ToString();
  const int64_t least = std::stoll(match[1]);
  const std::string expected = folder.Digest("resident", on_sim(int64_t{1} << 30));
  EXPECT_EQ(folder.Digest("paged", on_sim(least)), expected);
  EXPECT_EQ(folder.Metrics("paged", "test_loss"), folder.Metrics("resident", "test_loss"));
  folder.Digest("parted", on_sim(least, {"--steps=8"}));
  EXPECT_EQ(folder.Digest("parted", on_sim(least + least / 5, {"--resume=latest"})), expected);
  EXPECT_EQ(folder.Metrics("parted", "test_loss").back(),
            folder.Metrics("resident", "test_loss").back());
}

}  // namespace
}  // namespace gyre
