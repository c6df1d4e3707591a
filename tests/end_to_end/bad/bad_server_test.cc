// Mistakes around a parameter server: flags and fields, nets, checkpoints of other runs, and ranks
// that differ.

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/bad_input.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

class BadServerTest : public testing::TestWithParam<BadInput> {};

TEST_P(BadServerTest, EndsWithOneMessage) { ExpectOneMessage(GetParam()); }

constexpr char kNone[] = "so that one is left to train, got ";

const BadInput kFlags[] = {
    {.name = "StalenessOfSums",
     .message = "--staleness=2: bounds sync ssp alone, and sync is allreduce; leave one out",
     .arguments = {"--staleness=2"}},
    {.name = "StalenessBelowZero",
     .message = "--staleness=-1: expected 0 steps or more, got -1",
     .arguments = {"--staleness=-1", "--sync=ssp"}},
    {.name = "ServerMemoryOfSums",
     .message = "--server_memory=host: is of a parameter server, and sync is allreduce; "
                "make sync bsp, ssp or async, or leave server_memory out",
     .arguments = {"--server_memory=host"}},
    {.name = "ServerMemoryThatIsNone",
     .message = "--server_memory=gpu: expected device or host",
     .arguments = {"--server_memory=gpu", "--sync=bsp"}},
    {.name = "ServersOfSums",
     .message = "--servers=1: is of a parameter server, and sync is allreduce; make "
                "sync bsp, ssp or async, or leave servers out",
     .arguments = {"--servers=1"}},
    {.name = "ServersBelowZero",
     .message = "--servers=-1: expected 0 ranks or more, got -1",
     .arguments = {"--servers=-1", "--sync=bsp"}},
    {.name = "SumsOfAServer",
     .message = "--allreduce=ring: sums no gradients, because sync is bsp; leave it out, or make "
                "it direct, shared or auto, by which a parameter server's ranks sum metrics and "
                "statistics",
     .arguments = {"--sync=bsp", "--allreduce=ring"}},
    {.name = "ServerOfShards",
     .message = "--shard_optimizer: is of sync allreduce; owners of a parameter server have the "
                "optimizer's state of their part in any case; leave one out",
     .arguments = {"--sync=bsp", "--shard_optimizer"}},
    {.name = "StaleServerWithAWireThatClips",
     .message = "--sync=async: parameter server, async, as F16: gradients that a "
                "rank clips or skips itself travel without the loss's scale, in which those of F16 "
                "would be lost; BF16, bsp and loss_scale.fixed lose none; train with sync "
                "allreduce (shard_optimizer shares out the same)",
     .arguments = {"--sync=async", "--wire=F16", "--ranks=2", "--set=optimizer.clip_norm=1"}},
    {.name = "StalenessBeyondAllSteps",
     .message = "--staleness=4294967296: expected at most 2^31 - 1 steps, got 4294967296",
     .arguments = {"--staleness=4294967296", "--sync=ssp"}},
    {.name = "NoneLeftToTrain",
     .message = absl::StrCat("--servers=2: expected fewer than the ranks, which are 2, ", kNone,
                             "2; lower servers or start more ranks"),
     .arguments = {"--sync=bsp", "--servers=2", "--ranks=2"}},
    {.name = "MoreWorkersThanSamples",
     .message = "--batch=2: batch 2 is smaller than the 3 ranks that train; each rank needs a "
                "sample: raise batch or start fewer ranks",
     .arguments = {"--sync=bsp", "--servers=1", "--ranks=4", "--batch=2"}},
    {.name = "StaleServerOf16BitsWithAScale",
     .message = "--sync=ssp: parameter server, ssp 2: gradients that a rank clips "
                "or skips itself travel without the loss's scale, in which those of F16 would be "
                "lost; BF16, bsp and loss_scale.fixed lose none; train with sync allreduce "
                "(shard_optimizer shares out the same)",
     .arguments = {"--sync=ssp", "--staleness=2", "--precision=F16", "--ranks=2",
                   "--set=loss_scale.dynamic.initial=8"}},
    {.name = "NoStallTimeout",
     .message = "--stall_timeout_s=0: expected 1 to 1000000",
     .arguments = {"--sync=bsp", "--ranks=2", "--stall_timeout_s=0"}},
};

// Three weights are all that trains.
const Edit kThreeWeights = {
    "conv2d { filters: 4 kernel: 3 } } layer { name: \"flat\" flatten {} }\n"
    "layer { name: \"fc\" dense { outputs: 3 } }",
    "pool2d { kernel: 8 } } layer { name: \"flat\" flatten {} }\n"
    "layer { name: \"fc\" dense { outputs: 3 use_bias: false } }"};

const BadInput kNets[] = {
    {.name = "MoreServersThanThereIsToOwn",
     .message = "--servers=4: expected so few that each owns some of the 3 "
                "elements of gradient buckets, got 4; lower servers to 3",
     .arguments = {"--sync=bsp", "--servers=4", "--ranks=5"},
     .net = kThreeWeights},
    {.name = "LazyTable",
     .message = "--sync=bsp: parameter server, bsp: \"token.weight\" is lazy, and owners update "
                "whole tables; train with sync allreduce (shard_optimizer shares out the same)",
     .arguments = {"--sync=bsp", "--ranks=2"},
     .net = {"layer { name: \"fc\" dense { outputs: 3 } }",
             "layer { name: \"token\" input: \"label\" embedding { vocabulary: 3 width: 144 lazy: "
             "true } }\n"
             "layer { name: \"sum\" input: \"flat\" input: \"token\" add {} }\n"
             "layer { name: \"fc\" dense { outputs: 3 } }"}},
    {.name = "ServersOfStatistics",
     .message = "--sync=bsp: parameter server, bsp, 1 rank only serves: with "
                "servers no rank waits for others' statistics, as \"norm\" does; train with sync "
                "allreduce (shard_optimizer shares out the same)",
     .arguments = {"--sync=bsp", "--servers=1", "--ranks=3"},
     .net = {"layer { name: \"flat\" flatten {} }",
             "layer { name: \"norm\" batch_norm { synchronised: true } } layer { name: \"flat\" "
             "flatten {} }"}},
};

// @/parts: the run of three ranks of a server, whose last checkpoint is step 4's.
std::string Part(int part) {
  return absl::StrCat("/optimizer-0000", part, "-of-00003.safetensors");
}

void RunServer(const std::string& folder, const std::string& out,
               const std::vector<std::string>& more = {}) {
  Succeeded(RunTool("train", Joined({"--trainer=" + folder + "/trainer.textproto",
                                     "--out=" + folder + out, "--ranks=3", "--sync=bsp"},
                                    more)));
}

const std::vector<std::string> kResume = {"--out=@/parts", "--resume=latest", "--ranks=3",
                                          "--sync=bsp"};
constexpr char kBroken[] =
    "--resume=latest: the only checkpoint in @/parts/checkpoints is broken: "
    "@/parts/checkpoints/step_00000004";

const BadInput kFiles[] = {
    {.name = "MoreServersThanRanks",
     .message = absl::StrCat("@/trainer.textproto:9:43: expected fewer than the ranks, which are "
                             "2, ",
                             kNone, "9999999999; lower servers or start more ranks"),
     .trainer = {"steps: 4", "steps: 4 distributed { sync: BSP servers: 9999999999 }"},
     .ranks = {2}},
    {.name = "APartIsMissing",
     .message = absl::StrCat(kBroken, Part(2), ": missing; choose another --out to start anew"),
     .arguments = kResume,
     .prepare =
         [](const std::string& folder) {
           RunServer(folder, "/parts");
           fs::remove(folder + "/parts/checkpoints/step_00000004" + Part(2));
         }},
    {.name = "TheStateOfAnotherRun",
     .message = absl::StrCat(kBroken, "/weights.safetensors: the file has crc32 ..."),
     .arguments = kResume,
     .prepare =
         [](const std::string& folder) {
           RunServer(folder, "/parts");
           RunServer(folder, "/other", {"--seed=9"});
           const std::string state = "/checkpoints/step_00000004/state.pb";
           fs::copy_file(folder + "/other" + state, folder + "/parts" + state,
                         fs::copy_options::overwrite_existing);
         }},
};

INSTANTIATE_TEST_SUITE_P(Flags, BadServerTest, testing::ValuesIn(OfFlags(kFlags)), NameOf);
INSTANTIATE_TEST_SUITE_P(Nets, BadServerTest, testing::ValuesIn(OfFlags(kNets)), NameOf);
INSTANTIATE_TEST_SUITE_P(Files, BadServerTest, testing::ValuesIn(kFiles), NameOf);

// Ranks that were started with different commands or files: rank 2 has `arguments` beside.
TEST(BadRanks, AreNamedWithWhatDiffers) {
  const GoodFolder folder;
  fs::create_directory(folder / "b");
  for (const char* file : {"net.textproto", "trainer.textproto", "train-images.idx",
                           "train-labels.idx", "test-images.idx", "test-labels.idx"}) {
    fs::copy_file(folder / file, folder / absl::StrCat("b/", file));
  }
  std::string images = ReadBytes(folder / "b/train-images.idx");
  images.back() ^= 1;
  WriteBytes(folder / "b/train-images.idx", images);
  const std::string trainer = "the trainer file with its overrides", command = "the command";
  const std::string data = "the training data";  // whose digests are each time others
  const struct {
    std::vector<std::string> arguments;
    std::string what, difference;
  } kRanks[] = {
      {{"--seed=6"}, trainer, "expected \"seed: 5\", got \"seed: 6\""},
      {{"--set=net.layer.fc.dense.outputs=5"},
       "the net file with its overrides",
       "expected \"outputs: 3\", got \"outputs: 5\""},
      {{"--trainer=@/b/trainer.textproto"}, data, "expected ..."},
      {{"--plan"}, command, "expected \"no --plan\", got \"--plan\""},
      {{"--staleness=2", "--sync=ssp"}, command, "expected \"--sync=bsp\", got \"--sync=ssp\""},
      {{"--device=sim"}, command, "expected \"--device=cpu\", got \"--device=sim\""},
      {{"--out=other"},
       command,
       "expected \"" + ("--out=" + folder / "out").substr(0, 100) + "\", got \"--out=other\""},
  };
  for (const auto& differs : kRanks) {
    // Commands are compared as one text.
    if (kSanitized && differs.what == command && differs.arguments[0] != "--device=sim") continue;
    const std::vector<std::string> common = {"--out=@/out", "--sync=bsp", "--seed=5"};
    const ToolResult result = folder.Run(
        "train", Joined(Joined(Joined(common, {":"}), common), differs.arguments), {.ranks = 2});
    EXPECT_EQ(result.exit_code, 1) << result.ToString();
    ExpectMessage(
        result,
        absl::StrCat(
            differs.what, ": rank 2 is the first that differs from rank 0: ", differs.difference,
            differs.what == data ? "" : "; give all ranks the same program, flags and files"));
    EXPECT_FALSE(fs::exists(folder / "out/metrics.jsonl"));
  }
}

}  // namespace
}  // namespace gyre
