// Runs that the device cannot hold, nor the host memory they may have, with state of every kind,
// tests in between, interrupted and resumed: the bits of those that it can.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

const SyntheticData kData{.samples = 56};
constexpr int64_t kTestSamples = 30;
constexpr char kLength[] = "batch: 6 evaluate_every: 5 checkpoint_every: 7 steps: 14";

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

// Of a table of which a step touches few rows.
constexpr char kTable[] = R"(
  name: "table"
  input { name: "image" dims: [12, 12, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" flatten {} }
  layer { name: "fc1" dense { outputs: 16 } }
  layer { name: "table" input: "label" embedding { vocabulary: 3000 width: 16 } }
  layer { name: "sum" input: "fc1" input: "table" add {} }
  layer { name: "relu" relu {} }
  layer { name: "fc2" dense { outputs: 10 } }
  layer { name: "loss" input: "fc2" input: "label" softmax_cross_entropy {} })";

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
  const char* optimizer = "adam {} ema { decay: 0.9 }";  // tests are by averages
};

// Paged in memory, and to the disk.
const Case kCases[] = {
    {"Convolutions", kConvolutions, ""},
    {"ConvolutionsInBF16", kConvolutions, " accumulate: 2", {"--precision=BF16"}},
    {"RecurrentInF16",
     kRecurrent,
     " loss_scale { dynamic { initial: 16777216 } }",
     {"--precision=F16", "--set=data.order=CONTIGUOUS"}},
    {"ALargeWeight", WideNet(60000), "", {}, 1, "lamb {} weight_decay: 0.01"},
    {"RanksOfATable", kTable, " accumulate: 2 distributed { allreduce: \"direct\" }", {}, 2},
    {"RanksShareOutTheOptimizer",
     kRecurrent,
     "",
     {"--shard_optimizer", "--set=data.order=CONTIGUOUS"},
     2},
    {"ServedRanksThatClipInBF16",
     kConvolutions,
     " accumulate: 2 distributed { sync: BSP servers: 1 bucket_bytes: 1000 }",
     {"--precision=BF16", "--set=optimizer.clip_norm=0.5"},
     3},
    {"AStaleWorkerThatClips",
     kConvolutions,
     " accumulate: 2 distributed { sync: SSP staleness: 1 servers: 1 bucket_bytes: 2000 }",
     {"--set=optimizer.clip_norm=0.5"},
     2}};
// In memory alone: to the disk they show nothing that the others do not.  Of the last but one the
// least is all that it takes where tests are small.
const Case kCasesOfMemory[] = {
    {"RecurrentOverBatches", kRecurrent, " accumulate: 5", {"--set=data.order=CONTIGUOUS"}},
    {"RanksOverBatches",
     kConvolutions,
     " accumulate: 3 distributed { allreduce: \"direct\" }",
     {},
     2},
    {"RanksThatClipInBF16",
     kRecurrent,
     " distributed { allreduce: \"recursive_doubling\" bucket_bytes: 1000 }",
     {"--precision=BF16", "--set=optimizer.clip_norm=0.5", "--set=data.order=CONTIGUOUS"},
     3},
    {"RanksInOneMemory",
     kConvolutions,
     " distributed { allreduce: \"shared\" bucket_bytes: 2000 }",
     {},
     2},
    {"RanksSumOnTheDevice", kConvolutions, "", {}, 2},
    {"RanksScaleByNorms",
     kConvolutions,
     " distributed { allreduce: \"direct\" bucket_bytes: 2000 }",
     {"--shard_optimizer"},
     2,
     "lars { coefficient: 0.1 }"},
    {"ServedRanksOverBatches",
     kConvolutions,
     " accumulate: 3 distributed { sync: BSP bucket_bytes: 2000 }",
     {},
     2},
    {"ServedRanksOfATableInBF16", kTable, " distributed { sync: BSP }", {"--wire=BF16"}, 3},
    {"ServedByTheHostInBF16",
     kConvolutions,
     " distributed { sync: BSP server_memory: HOST bucket_bytes: 2000 }",
     {"--precision=BF16"},
     2},
    {"ConvolutionsAsGeeps", kConvolutions, "", {"--planner=geeps"}},
    {"ALargeWeightInBF16", WideNet(120000), " accumulate: 2", {"--precision=BF16"}, 1, "adam {}"}};

class Paging : public testing::TestWithParam<Case> {
 public:
  static std::string Name(const testing::TestParamInfo<Case>& info) { return info.param.name; }
};
class PagingToDisk : public Paging {};

INSTANTIATE_TEST_SUITE_P(, Paging, testing::ValuesIn(kCases), Paging::Name);
INSTANTIATE_TEST_SUITE_P(MemoryAlone, Paging, testing::ValuesIn(kCasesOfMemory), Paging::Name);
INSTANTIATE_TEST_SUITE_P(, PagingToDisk, testing::ValuesIn(kCases), Paging::Name);

// With the flags of the case.
std::vector<std::string> CaseOnSim(int64_t bytes, const std::vector<std::string>& more = {}) {
  const Case& of = Paging::GetParam();
  return OnSim(bytes, Joined(Joined(more, of.flags), {absl::StrCat("--ranks=", of.ranks)}));
}

int64_t LeastDeviceMemory(const TrainingFolder& folder) {
  return NumberIn(folder.Train("refused", CaseOnSim(1)).err, kLeastDeviceMemory);
}

// test_batch: of 30, it is longer than several of training, and needs most memory.
void Write(const TrainingFolder& folder, int test_batch) {
  WriteTrainer(
      folder / "", Paging::GetParam().net,
      {.optimizer = Paging::GetParam().optimizer,
       .rest = absl::StrCat(kLength, " test_batch: ", test_batch, Paging::GetParam().rest)});
}

TEST_P(Paging, ChangesNoBits) {
  const TrainingFolder folder(kData, kTestSamples);
  Write(folder, 30);
  const int64_t least = LeastDeviceMemory(folder);
  const std::string expected = folder.Digest("resident", CaseOnSim(int64_t{1} << 30));
  EXPECT_EQ(folder.Digest("paged", CaseOnSim(least)), expected);
  EXPECT_EQ(folder.Metrics("paged", "test_loss"), folder.Metrics("resident", "test_loss"));
  folder.Digest("parted", CaseOnSim(least, {"--steps=8"}));
  EXPECT_EQ(folder.Digest("parted", CaseOnSim(least + least / 5, {"--resume=latest"})), expected);
  EXPECT_EQ(folder.Metrics("parted", "test_loss").back(),
            folder.Metrics("resident", "test_loss").back());
}

// What is paged out has half of the host memory that it takes.
TEST_P(PagingToDisk, ChangesNoBits) {
  const TrainingFolder folder(kData, kTestSamples);
  Write(folder, 6);
  const int64_t least = LeastDeviceMemory(folder);
  const int64_t pages = NumberIn(folder.Train("none", CaseOnSim(least, {"--plan", "--json"})).out,
                                 "\"pages\":([0-9]+)");
  const auto on_disk = [&](const std::vector<std::string>& more = {}) {
    return CaseOnSim(least, Joined(more, {absl::StrCat("--host_memory=", pages / 2)}));
  };
  EXPECT_GT(NumberIn(folder.Train("none", on_disk({"--plan", "--json"})).out, "\"disk\":([0-9]+)"),
            0);
  const std::string expected = folder.Digest("resident", CaseOnSim(int64_t{1} << 30));
  EXPECT_EQ(folder.Digest("paged", on_disk()), expected);
  EXPECT_EQ(folder.Metrics("paged", "test_loss"), folder.Metrics("resident", "test_loss"));
  folder.Digest("parted", CaseOnSim(least, {"--steps=8"}));
  EXPECT_EQ(folder.Digest("parted", on_disk({"--resume=latest"})), expected);
}

// What two ranks' gradients, or their owners, take beside what pages, and with what it is less.
TEST(PagingTold, WhatIsReserved) {
  const TrainingFolder folder(kData);
  WriteTrainer(folder / "", kConvolutions, {.optimizer = "adam {}", .rest = kLength});
  const auto refused = [&](const std::vector<std::string>& more) {
    return folder.Train("refused", OnSim(1, Joined(more, {"--ranks=2"}))).err;
  };
  const std::string summed = refused({"--allreduce=ring"}), served = refused({"--sync=bsp"});
  EXPECT_THAT(summed, HasSubstr("; reserved is what several ranks' gradients are summed in, on the "
                                "device by ring; it is less with --shard_optimizer or --set "
                                "distributed.allreduce=direct; "));
  EXPECT_THAT(served, HasSubstr("and the parameter server's; it is less with "
                                "--server_memory=host; "));
  const int64_t least = NumberIn(summed, kLeastDeviceMemory);
  EXPECT_LT(NumberIn(refused({"--shard_optimizer"}), kLeastDeviceMemory), least);
  EXPECT_LT(NumberIn(refused({"--set=distributed.allreduce=direct"}), kLeastDeviceMemory), least);
  const std::string hosted = refused({"--sync=bsp", "--server_memory=host"});
  EXPECT_LT(NumberIn(hosted, kLeastDeviceMemory), NumberIn(served, kLeastDeviceMemory));
  EXPECT_THAT(hosted, Not(HasSubstr("reserved")));
}

// What a user sees: the plan and its picture, the batch that was chosen, and how it went.
TEST(PagingTold, PlanBatchAndRun) {
  // So that a dense layer's scratch, and with it what fits, is that of any CPU: with AVX-512 oneDNN
  // takes four times as much.
  setenv("ONEDNN_MAX_CPU_ISA", "AVX2", /*overwrite=*/1);
  const TrainingFolder folder(kData, kTestSamples);
  WriteTrainer(folder / "", kConvolutions,
               {.optimizer = "adam {}", .rest = absl::StrCat(kLength, " test_batch: 30")});
  const auto on_sim = [](const std::string& bytes, const std::vector<std::string>& more = {}) {
    return Joined(more, {"--device=sim", "--device_memory=" + bytes});
  };
  const std::string page = folder / "plan.html";
  const ToolResult plan = Succeeded(
      folder.Train("plan", on_sim("400K", {"--plan", "--verbose", "--plan_picture=" + page})));
  EXPECT_THAT(plan.out, HasSubstr("an iteration, step by step:\n     0  upload\n     1  forward "));
  EXPECT_THAT(plan.out, HasSubstr("\n          fetched       "));
  EXPECT_THAT(plan.out, HasSubstr("\n          written back  "));
  EXPECT_THAT(plan.out, HasSubstr("in host memory between"));
  EXPECT_THAT(plan.out, HasSubstr("less than the largest step needs"));
  const std::string html = ReadFile(page).value_or("");
  EXPECT_THAT(html, HasSubstr("convolutions, 6 samples in 0.4 MiB"));
  EXPECT_THAT(html, HasSubstr("less than the largest step needs"));
  EXPECT_THAT(folder.Train("plan", on_sim("400K", {"--plan_picture=" + page})).err,
              HasSubstr("--plan_picture needs --plan"));

  // Of the numbers that an error names, the next larger is too large.
  const ToolResult refused = folder.Train("refused", on_sim("400K", {"--batch=56"}));
  std::smatch match;
  ASSERT_TRUE(std::regex_search(refused.err, match,
                                std::regex("; the largest batch that fits is ([0-9]+)")))
      << refused.ToString();
  const int largest = std::stoi(match[1]);
  const auto batch = [](int64_t samples) { return absl::StrCat("--batch=", samples); };
  EXPECT_EQ(folder.Train("fits", on_sim("400K", {"--plan", batch(largest)})).exit_code, 0);
  EXPECT_EQ(folder.Train("fits", on_sim("400K", {"--plan", batch(largest + 1)})).exit_code, 1);
  EXPECT_THAT(folder.Train("none", on_sim("1K", {"--plan"})).err,
              EndsWith("; no batch fits; give more --device_memory\n"));
  EXPECT_THAT(folder.Train("none", on_sim("400K", {"--plan", "--planner=none", batch(56)})).err,
              EndsWith(absl::StrCat("; with --planner=auto one of ", largest,
                                    " does, or give more --device_memory\n")));
  EXPECT_THAT(
      folder.Train("none", on_sim("400K", {"--plan", "--planner=none", batch(largest)})).err,
      EndsWith(", or give more --device_memory, or leave --planner=none out\n"));
  const int64_t least =
      NumberIn(folder.Train("none", on_sim("1", {"--plan"})).err, kLeastDeviceMemory);
  const std::string below = absl::StrCat(least - 1);
  EXPECT_THAT(folder.Train("test", on_sim(below, {"--plan"})).err,
              HasSubstr("; training alone fits: lower test_batch, which is 30 (--set "
                        "test_batch=...), or give more --device_memory\n"));

  const ToolResult chosen = folder.Train("chosen", on_sim("2M", {"--batch=auto", "--steps=2"}));
  ASSERT_TRUE(std::regex_search(
      chosen.out, match, std::regex("batch: ([0-9]+) samples, the largest with which nothing")))
      << chosen.ToString();
  const int resident = std::stoi(match[1]);
  const auto none = [&](int64_t samples) {
    return folder.Train("none", on_sim("2M", {"--plan", "--planner=none", batch(samples)}));
  };
  EXPECT_EQ(none(resident).exit_code, 0);
  EXPECT_EQ(resident == kData.samples || none(resident + 1).exit_code == 1, true);
  // As if it had been given.
  EXPECT_EQ(folder.Digest("given", on_sim("2M", {batch(resident), "--steps=2"})), DigestOf(chosen));
  EXPECT_EQ(
      folder.Digest("chosen", on_sim("2M", {batch(resident), "--steps=3", "--resume=latest"})),
      folder.Digest("straight", on_sim("2M", {batch(resident), "--steps=3"})));

  const ToolResult paged = Succeeded(folder.Train("paged", on_sim("400K", {"--steps=30"})));
  EXPECT_THAT(paged.out, AllOf(HasSubstr("of which it waited for copies"), HasSubstr("(expected")));
  EXPECT_GT(folder.Metrics("paged", "fetched_bytes").at(0), 0);
  EXPECT_GT(folder.Metrics("paged", "iteration_seconds").at(0),
            folder.Metrics("paged", "stalled_seconds").at(0));
  EXPECT_EQ(folder.Metrics("paged", "expected_iteration_seconds").size(), 1);
  // Its buffer holds each step twice; it times nothing.
  const ToolResult geeps = folder.Train(
      "geeps", on_sim("400K", {"--steps=30", "--planner=geeps", "--set=test_batch=6"}));
  EXPECT_THAT(geeps.out, AllOf(HasSubstr("(by FLOPs alone"), Not(HasSubstr("expected"))));
  EXPECT_EQ(folder.Metrics("geeps", "expected_iteration_seconds").size(), 0);
}

}  // namespace
}  // namespace gyre
