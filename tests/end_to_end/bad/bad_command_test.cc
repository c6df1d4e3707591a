// Mistakes on the command line, and checkpoints that do not fit.

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "absl/strings/match.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/end_to_end/bad_input.h"

namespace gyre {
namespace {

namespace fs = std::filesystem;

class BadCommandTest : public testing::TestWithParam<BadInput> {};

TEST_P(BadCommandTest, EndsWithOneMessage) { ExpectOneMessage(GetParam()); }

const BadInput kFlags[] = {
    {.name = "UnknownFlag",
     .message = "unknown flag \"trainr\"; did you mean \"trainer\"? (see --help)",
     .arguments = {"--trainr=x"},
     .ranks = {1, 2}},
    {.name = "FlagOfWrongType",
     .message = "--threads=many: expected an integer (see --help)",
     .arguments = {"--threads=many"}},
    {.name = "FlagWithoutValue",
     .message = "--seed: expected a value after it (see --help)",
     .arguments = {"--seed"}},
    {.name = "SwitchWithValue",
     .message = "--plan=perhaps: expected on or off (see --help)",
     .arguments = {"--plan=perhaps"}},
    {.name = "NoFlag",
     .message = "unexpected argument \"trainer.textproto\"; flags begin with -- (see --help)",
     .arguments = {"trainer.textproto"}},
    {.name = "EmptyValue",
     .message = "--sync=: expected a value (see --help)",
     .arguments = {"--sync="}},
    {.name = "SetWrongType",
     .message = "--seed=-3: expected for seed a 64-bit integer >= 0, got \"-3\"",
     .arguments = {"--seed=-3"}},
    {.name = "MoreRanksThanSamples",
     .message = "--batch=1: batch 1 is smaller than the 2 ranks; each rank needs a sample: "
                "raise batch or start fewer ranks",
     .arguments = {"--batch=1"},
     .ranks = {2}},
    {.name = "BatchBeyondTheData",
     .message = "--batch=2147483647: batch 2147483647 is more than the 20 samples of "
                "data.train; lower batch to 20 or less",
     .arguments = {"--batch=2147483647"},
     .ranks = {1, 2}},
    {.name = "BatchBeyondAllIntegers",
     .message = "--batch=4294967296: batch must be at most 2^31 - 1, got 4294967296",
     .arguments = {"--batch=4294967296"}},
    {.name = "EpochsAndSteps",
     .message = "--steps: is in place of --epochs; leave one out",
     .arguments = {"--epochs=1", "--steps=3"}},
    {.name = "UnknownDevice",
     .message = "--device: unknown device \"gpu\"; expected cpu, sim or cuda",
     .arguments = {"--device=gpu"}},
    {.name = "BoundedCpu",
     .message = "--device_memory: the memory of --device=cpu has no bound; leave it out, or use "
                "--device=sim",
     .arguments = {"--device_memory=1M"}},
    {.name = "BadDeviceMemory",
     .message = "--device_memory=1X: expected bytes, such as 1048576, 64M or 1.5G",
     .arguments = {"--device=sim", "--device_memory=1X"}},
    {.name = "PagesOfTheCpu",
     .message = "--host_memory: with --device=cpu nothing is paged; leave it out, or use "
                "--device=sim",
     .arguments = {"--host_memory=1M"}},
    {.name = "PictureOfAnotherKind",
     .message = "--plan_picture=@/plan.pdf: expected a name that ends in .svg or .html",
     .arguments = {"--plan", "--plan_picture=@/plan.pdf"}},
    {.name = "PlannerOfTheCpu",
     .message = "--planner: with --device=cpu nothing is paged; leave it out, or use --device=sim",
     .arguments = {"--planner=geeps"}},
    {.name = "PageActivationsOfTheCpu",
     .message = "--page_activations: with --device=cpu nothing is paged; leave it out, or use "
                "--device=sim",
     .arguments = {"--page_activations=BF16"}},
    {.name = "PageFolderAlone",
     .message = "--page_folder: without --host_memory nothing lies on disk; give that too, or "
                "leave it out",
     .arguments = {"--device=sim", "--page_folder=@"}},
    {.name = "LargestBatchOfTheCpu",
     .message = "--batch=auto: the memory of --device=cpu has no bound; say how many samples, or "
                "use --device=sim",
     .arguments = {"--batch=auto"}},
    {.name = "TooManyThreads",
     .message = "--threads=1000000: expected 1 to 1024, or 0 for cores / ranks",
     .arguments = {"--threads=1000000"}},
    {.name = "TooManyThreadsOfAllRanks",
     .message = "--threads=1024: expected 1 to 16 for each of these ranks, or 0 for cores / ranks",
     .arguments = {"--threads=1024", "--ranks=64"}},
    {.name = "ThreadsBeyondOpenMpsLimit",
     .message = "--threads=2: OMP_THREAD_LIMIT allows 1 in this environment; unset it, or ask for "
                "fewer",
     .arguments = {"--threads=2"},
     .env = {{"OMP_THREAD_LIMIT", "1"}}},
    {.name = "NoRanks", .message = "--ranks=0: expected 1 to 256", .arguments = {"--ranks=0"}},
    {.name = "RanksTwice",
     .message = "--ranks=3: mpirun has started 2 ranks already; leave one of the two out",
     .arguments = {"--ranks=3"},
     .ranks = {2}},
};

// What flags name, and how the tool was started.
const BadInput kStarts[] = {
    {.name = "MistypedTrainer",
     .message = "--trainer: @/trainr.textproto: No such file or directory; did you mean "
                "@/trainer.textproto?",
     .arguments = {"--trainer=@/trainr.textproto"}},
    {.name = "SetIsWhole",
     .message =
         "@/trainer.textproto:3:3: data.train: cannot open @/a,b=c: No such file or directory",
     .arguments = {"--set=seed=1", "--set", "data.train.idx.images=a,b=c", "--set=seed=2"}},
    {.name = "TooLittleDeviceMemory",
     .message = "device memory: expected at least ...",
     .arguments = {"--device=sim", "--device_memory=20000"},
     .ranks = {1, 2}},
    {.name = "StartedBySrun",
     .message =
         "srun has started this process as one of several (SLURM_STEP_NUM_TASKS=8), and each "
         "would run alone; ranks come from Open MPI's mpirun, from srun --mpi=pmix, or from "
         "--ranks (for one process, unset SLURM_STEP_NUM_TASKS)",
     .env = {{"SLURM_STEP_NUM_TASKS", "8"}}},
    {.name = "StartedByAnotherMpiexec",
     .message = "another mpiexec has started this process as one of several (PMI_SIZE=4), ...",
     .env = {{"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_SIZE", "4"}}},
    {.name = "StartedByPmix",
     .message = "PMIx has started this process as one of several (PMIX_RANK=0), ...",
     .env = {{"PMIX_RANK", "0"}}},
    {.name = "MpiOfAnotherMpirun",
     .message = "MPI does not start: mpirun has announced 2 ranks, and MPI found 1; is it that of "
                "another MPI library?",
     .env = {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "2"}}},
    {.name = "UnwritableOut",
     .message = "cannot create @/train-images.idx/a/checkpoints: Not a directory",
     .arguments = {"--out=@/train-images.idx/a"},
     .ranks = {1, 2}},
    {.name = "PlanOfAnUnwritableOut",
     .message = "cannot create @/train-images.idx/checkpoints: Not a directory",
     .arguments = {"--out=@/train-images.idx", "--plan"}},
};

// The good run's weights, one of which is not a number.
void WriteNaN(const std::string& folder) {
  const auto weights =
      *TensorFile::Read(folder + "/run/checkpoints/step_00000004/weights.safetensors");
  weights.Find("fc.bias")->as<float>()[1] = std::nanf("");
  ASSERT_TRUE(WriteSafetensors(folder + "/nan.safetensors", weights.tensors()).ok());
}

const BadInput kCheckpoints[] = {
    {.name = "OutHasCheckpoints",
     .message = "@/run already holds checkpoints; go on with --resume=latest, or choose another "
                "--out",
     .arguments = {"--out=@/run"},
     .ranks = {1, 2}},
    {.name = "ResumeWithoutCheckpoint",
     .message = "--resume=latest: no checkpoint in @/out/checkpoints; leave --resume out to start "
                "anew, or give --resume=auto, which does what it can",
     .arguments = {"--resume=latest"},
     .ranks = {1, 2}},
    {.name = "ResumeFromNoCheckpoint",
     .message = "--resume=@/run: @/run/state.pb: missing; in @/run/checkpoints there are "
                "step_00000004, step_00000002; give one of them",
     .arguments = {"--resume=@/run"}},
    {.name = "ResumeFromAnotherStep",
     .message = "--resume=@/run/checkpoints/step_00000003: no checkpoint folder "
                "@/run/checkpoints/step_00000003; in @/run/checkpoints there are step_00000004, "
                "step_00000002; give one of them",
     .arguments = {"--resume=@/run/checkpoints/step_00000003"}},
    {.name = "ResumeFromAWord",
     .message = "--resume=lates: no checkpoint folder lates; give latest (the newest of --out), "
                "auto (that, or a new run), or a checkpoint's folder, such as "
                "runs/a/checkpoints/step_00000200",
     .arguments = {"--resume=lates"}},
    {.name = "ResumeAndWeights",
     .message = "--weights starts a new run and --resume goes on with one that has weights; give "
                "one",
     .arguments = {"--out=@/run", "--resume=latest", "--weights=@/nowhere"},
     .exit_code = 2},
    {.name = "ResumeWithAnotherSeed",
     .message = "@/run/checkpoints/step_00000004: was made with seed 1, not 9; pass --seed=1",
     .arguments = {"--out=@/run", "--resume=latest", "--seed=9"},
     .ranks = {1, 2}},
    {.name = "ResumeAnotherNet",
     .message = "@/run/checkpoints/step_00000004: its tensor \"fc.weight\" is F32 [3, 144], the "
                "net expects F32 [5, 144], so it belongs to another net or precision",
     .arguments = {"--out=@/run", "--resume=latest"},
     .net = {"outputs: 3", "outputs: 5"}},
    {.name = "ResumeAnotherOptimizer",
     .message = "@/run/checkpoints/step_00000004: it holds no tensor \"fc.weight.first_moment\", "
                "so it belongs to another net or optimizer",
     .arguments = {"--out=@/run", "--resume=latest"},
     .trainer = {"sgd { momentum: 0.9 }", "adam {}"}},
    {.name = "AllCheckpointsBroken",
     .message =
         "--resume=latest: each of the 2 checkpoints in @/run/checkpoints is broken; the newest: "
         "@/run/checkpoints/step_00000004/weights.safetensors: expected a safetensors file; ...",
     .arguments = {"--out=@/run", "--resume=latest"},
     .prepare =
         [](const std::string& folder) {
           for (const char* step : {"step_00000002", "step_00000004"}) {
             fs::resize_file(folder + "/run/checkpoints/" + step + "/weights.safetensors", 300);
           }
         },
     .ranks = {1, 2}},
    {.name = "MistypedWeightsFile",
     .message = "--weights: cannot open @/rn/checkpoints: No such file or directory; did you mean "
                "@/run/checkpoints?",
     .arguments = {"--weights=@/rn/checkpoints"}},
    {.name = "ResumeFromAMistypedFolder",
     .message = "--resume=@/rnu: no checkpoint folder @/rnu; did you mean @/run?",
     .arguments = {"--resume=@/rnu"}},
    {.name = "WeightsNotFinite",
     .message = "@/nan.safetensors: \"fc.bias\" holds a value that is not finite",
     .arguments = {"--weights=@/nan.safetensors"},
     .prepare = WriteNaN,
     .ranks = {1, 2}},
    {.name = "MetricsAreALink",
     .message = "@/run/metrics.jsonl: is a symbolic link, which is not followed; remove it",
     .arguments = {"--out=@/run", "--resume=latest"},
     .prepare =
         [](const std::string& folder) {
           fs::rename(folder + "/run/metrics.jsonl", folder + "/elsewhere");
           fs::create_symlink(folder + "/elsewhere", folder + "/run/metrics.jsonl");
         }},
    {.name = "WeightsMapWithoutWeights",
     .message = "--weights_map renames the tensors of --weights; give that, too",
     .arguments = {"--weights_map=fc=head"},
     .exit_code = 2},
};

const BadInput kOtherTools[] = {
    {.name = "EvaluateWithoutWeights",
     .message = "--weights is missing; see --help",
     .exit_code = 2,
     .tool = "evaluate"},
    {.name = "EvaluateWithoutTestData",
     .message = "@/trainer.textproto:2:1: has no test data",
     .arguments = {"--weights=@/run"},
     .trainer = {"  test {", "# test {"},
     .tool = "evaluate"},
    {.name = "EvaluateToNoNumber",
     .message = "test: loss is not finite",
     .arguments = {"--weights=@/huge.safetensors"},
     .prepare =
         [](const std::string& folder) {
           const auto weights =
               TensorFile::Read(folder + "/run/checkpoints/step_00000004/weights.safetensors");
           std::ranges::fill_n(weights->Find("fc.weight")->as<float>(), 3 * 144, 3e38f);
           ASSERT_TRUE(WriteSafetensors(folder + "/huge.safetensors", weights->tensors()).ok());
         },
     .ranks = {1, 2},
     .tool = "evaluate"},
    {.name = "ExportFromNoCheckpoint",
     .message = "--weights: @ holds neither checkpoints nor a checkpoint's state.pb; give a run's "
                "folder, a checkpoint's folder, or a safetensors or npz file",
     .arguments = {"--weights=@", "--to=@/a.npz"},
     .tool = "export"},
    {.name = "ExportToNowhere",
     .message = "--to is missing; see --help",
     .arguments = {"--weights=@/run"},
     .exit_code = 2,
     .tool = "export"},
    {.name = "ExportToUnknownFormat",
     .message = "--to=@/a.pt: expected a name that ends in .gyre, .onnx, .safetensors or .npz",
     .arguments = {"--weights=@/run", "--to=@/a.pt"},
     .exit_code = 2,
     .tool = "export"},
    {.name = "ExportVerifiesWeights",
     .message = "--verify=true: is of no use with --to=@/a.npz; leave one of them out",
     .arguments = {"--weights=@/run", "--to=@/a.npz", "--verify"},
     .exit_code = 2,
     .tool = "export"},
    {.name = "ExportToNoFolder",
     .message = "cannot create @/nowhere/a.npz: No such file or directory",
     .arguments = {"--weights=@/run", "--to=@/nowhere/a.npz"},
     .tool = "export"},
};

INSTANTIATE_TEST_SUITE_P(Flags, BadCommandTest, testing::ValuesIn(OfFlags(kFlags)), NameOf);
INSTANTIATE_TEST_SUITE_P(Starts, BadCommandTest, testing::ValuesIn(kStarts), NameOf);
INSTANTIATE_TEST_SUITE_P(Checkpoints, BadCommandTest, testing::ValuesIn(kCheckpoints), NameOf);
INSTANTIATE_TEST_SUITE_P(OtherTools, BadCommandTest, testing::ValuesIn(kOtherTools), NameOf);

TEST(Train, WithoutAnyFlag) {
  const ToolResult result = RunTool("train", {});
  EXPECT_EQ(result.exit_code, 2);
  ExpectMessage(result, "--trainer is missing; see --help");
}

TEST(Train, ResumesWithoutOut) {
  const GoodFolder folder;
  const ToolResult result = folder.Run("train", {"--resume=latest"});
  EXPECT_EQ(result.exit_code, 2);
  ExpectMessage(result, "--resume=latest needs --out, the folder to resume in");
}

// What is so on all ranks, one says for all.
TEST(Train, WrongFlagsAreOfNoRank) {
  const ToolResult result = RunTool("train", {"--sync=ssb"}, {.ranks = 2});
  EXPECT_TRUE(result.err.starts_with("error: --sync=ssb: expected allreduce, bsp, ssp or async\n"))
      << result.err;
}

// It has none where it cannot begin.
TEST(Train, SaysItsOutputOnceAllIsChecked) {
  const GoodFolder folder;
  for (const char* wrong : {"--weights=none", "--resume=none", "--out=@/run"}) {
    const ToolResult result = folder.Run("train", {wrong});
    EXPECT_EQ(result.exit_code, 1) << result.ToString();
    EXPECT_FALSE(absl::StrContains(result.out, "output in ")) << result.ToString();
  }
  const ToolResult good = folder.Run("train", {"--out=@/out"});
  EXPECT_TRUE(absl::StrContains(good.out, "\noutput in " + folder / "out\n")) << good.ToString();
}

TEST(Evaluate, SaysHowLessMemoryWouldDo) {
  const GoodFolder folder;
  const ToolResult result =
      folder.Run("evaluate", {"--weights=@/run", "--device=sim", "--device_memory=1K"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_TRUE(result.err.ends_with("; lower test_batch, which is 4 (--set test_batch=...)\n"))
      << result.err;
}

// Whether the build has CUDA or not.
TEST(Train, OnAGpuWhereThereIsNone) {
  if (fs::exists("/dev/nvidiactl")) GTEST_SKIP() << "there may be a GPU";
#if defined(GYRE_WITH_CUDA)
  const char* const message = "cuda: no NVIDIA driver found (libcuda.so.1); this build needs ...";
#else
  const char* const message =
      "this build has no CUDA (WITH_CUDA=0, or no CUDA toolkit where it was built); use "
      "--device=cpu, or build where nvcc is";
#endif
  ExpectOneMessage({.name = "NoGpu", .message = message, .arguments = {"--device=cuda"}});
}

TEST(Train, HelpTeaches) {
  for (const int ranks : {1, 2}) {
    const ToolResult result = Succeeded(RunTool("train", {"--help"}, {.ranks = ranks}));
    EXPECT_EQ(result.err, "");
    EXPECT_EQ(result.out.find("train trains a net.\n"), 0u) << result.out;
    for (const char* taught :
         {"mpirun -np 2 train", "--resume=latest", "\n  --trainer ", "\n  --threads ",
          "Default: cpu.", "Default: the trainer's, or allreduce.", "Exit codes: 0 done"}) {
      const size_t at = result.out.find(taught);
      EXPECT_NE(at, std::string::npos) << taught;
      EXPECT_EQ(result.out.find(taught, at + 1), std::string::npos) << taught << " is there twice";
    }
  }
}

}  // namespace
}  // namespace gyre
