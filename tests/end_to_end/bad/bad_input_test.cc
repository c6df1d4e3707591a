// Mistakes in the net's text, the trainer's text and the data, and in what is asked of the tools
// that make data: a row for each way by which a run ends.  tests/schema, tests/layers, tests/data
// and tests/training have each message of their own.

#include "tests/end_to_end/bad_input.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/data/array_bytes.h"

namespace gyre {
namespace {

class BadInputTest : public testing::TestWithParam<BadInput> {};

TEST_P(BadInputTest, EndsWithOneMessage) { ExpectOneMessage(GetParam()); }

const BadInput kNetTexts[] = {
    {.name = "UnknownField",
     .message = "@/net.textproto:4:31: layer \"conv\": unknown field \"filterz\"; did you mean "
                "\"filters\"?",
     .net = {"filters", "filterz"},
     .ranks = {1, 2}},
    {.name = "PerplexityOfASmoothedLoss",
     .message =
         "@/net.textproto:6:1: layer \"loss\": label_smoothing: the mean of a smoothed loss has "
         "no perplexity; leave one of them out",
     .net = {"softmax_cross_entropy {}",
             "softmax_cross_entropy { label_smoothing: 0.1 perplexity: true }"}},
    {.name = "LayerBeyondAllExtents",
     .message = "@/net.textproto:5:1: layer \"fc\": outputs: expected at most 2^31 - 1, "
                "got 1000000000000",
     .net = {"outputs: 3", "outputs: 1000000000000"}},
    {.name = "FiltersBeyondMemory",
     .message = "device memory: expected at least ...",
     .net = {"filters: 4 kernel: 3", "filters: 2147483647 kernel: 8"}},
};

const BadInput kTrainerTexts[] = {
    {.name = "FieldMissing",
     .message = "@/trainer.textproto:1:1: missing batch; write batch: 64",
     .trainer = {"batch: 4", ""},
     .ranks = {1, 2}},
    {.name = "NcclWithoutAGpu",
     .message = "@/trainer.textproto:9:33: allreduce \"nccl\" sums the memory of GPUs, and this is "
                "--device=cpu; use \"ring\", or --device=cuda",
     .trainer = {"steps: 4", "steps: 4 distributed { allreduce: \"nccl\" }"}},
    {.name = "NoCalibration",
     .message = "@/trainer.textproto:9:33: cannot open @/none: No such file or directory",
     .trainer = {"steps: 4", "steps: 4 distributed { calibration: \"none\" }"}},
    {.name = "CalibrationOfAnotherKind",
     .message = "@/trainer.textproto:9:33: @/net.textproto: not what bench_allreduce --calibrate "
                "writes: no JSON",
     .trainer = {"steps: 4", "steps: 4 distributed { calibration: \"net.textproto\" }"}},
    {.name = "WireOfF64",
     .message = "--wire=BF16: carries gradients of F32, and precision is F64; leave one out",
     .arguments = {"--wire=BF16", "--precision=F64", "--set=distributed.allreduce=direct"},
     .exit_code = 2},
    {.name = "ShardsWithAWire",
     .message = "--shard_optimizer: sums gradients as they are, and "
                "distributed.wire rounds them; leave one out",
     .arguments = {"--shard_optimizer", "--wire=F16", "--set=distributed.allreduce=direct"},
     .exit_code = 2},
    {.name = "NoNetFile",
     .message = "@/trainer.textproto:1:1: net: @/wrong.textproto: No such file or directory",
     .trainer = {"net.textproto", "wrong.textproto"}},
};

// Of the first sample; the others' are from 0 to 2.
void WriteLabel9(const std::string& folder) {
  WriteIdx(folder, "train",
           {.samples = 20, .height = 8, .width = 8, .classes = 3, .labels = {{0, 9}}});
}

// Reals in place of a set's images.
Edit RealImages(const std::string& set) {
  const std::string labels = set + "-labels.idx\"";
  return {"idx { images: \"" + set + "-images.idx\" labels: \"" + labels,
          "arrays { array { input: \"image\" file: \"reals.npy\" } array { input: \"label\" "
          "file: \"" +
              labels + " }"};
}

// The first sample's first value is no number.
void WriteNan(const std::string& folder, int samples) {
  std::vector<float> reals(static_cast<size_t>(samples) * 64);
  reals[0] = std::nanf("");
  const auto* bytes = reinterpret_cast<const char*>(reals.data());
  WriteBytes(folder + "/reals.npy", Npy("<f4", "(" + std::to_string(samples) + ", 8, 8, 1)",
                                        {bytes, reals.size() * sizeof(float)}));
}

// Samples weigh -2 each, in the loss by the layer `by`.
void WriteWeights(const std::string& folder, const std::string& by) {
  for (const auto& [set, samples] : {std::pair("train", 20), {"test", 10}}) {
    const std::vector<float> weights(static_cast<size_t>(samples), -2);
    const auto* bytes = reinterpret_cast<const char*>(weights.data());
    WriteBytes(absl::StrCat(folder, "/", set, ".npy"),
               Npy("<f4", absl::StrCat("(", samples, ",)"), {bytes, sizeof(float) * samples}));
  }
  const std::string net = absl::StrReplaceAll(
      ReadBytes(folder + "/net.textproto"),
      {{"input { name: \"image\"", "input { name: 'weight' } input { name: \"image\""},
       {"layer { name: \"conv\"",
        "layer { name: 'signs' input: 'weight' tanh {} } layer { name: 'conv' input: 'image'"},
       {"input: \"label\" softmax", absl::StrCat("input: 'label' input: '", by, "' softmax")}});
  WriteTrainer(folder, net,
               {.rest = "batch: 4 steps: 4",
                .source = "arrays { array { input: 'image' file: 'SET-images.idx' } array { input: "
                          "'label' file: 'SET-labels.idx' } array { input: 'weight' file: "
                          "'SET.npy' } }"});
}

const BadInput kData[] = {
    {.name = "NoDataFile",
     .message = "@/trainer.textproto:3:3: data.train: cannot open @/nowhere.idx: No such file or "
                "directory",
     .trainer = {"train-images.idx", "nowhere.idx"},
     .ranks = {1, 2}},
    {.name = "TruncatedIdx",
     .message = "@/trainer.textproto:4:3: data.test: @/cut.idx: extents [10, 8, 8] make 656 "
                "bytes, but the file ends after 655",
     .trainer = {"test-images.idx", "cut.idx"},
     .prepare =
         [](const std::string& folder) {
           WriteBytes(folder + "/cut.idx", ReadBytes(folder + "/test-images.idx").substr(0, 655));
         }},
    {.name = "LabelOutOfRange",
     .message = "training data: @/train-labels.idx: sample 0 (the first is 0): "
                "@/net.textproto:6:1: layer \"loss\" takes labels from 0 to 2, got 9; correct the "
                "data, or the layer",
     .prepare = WriteLabel9,
     .ranks = {1, 2}},
    {.name = "IndexOutOfRange",
     .message = "training data: @/train-labels.idx: sample 0 (the first is 0): "
                "@/net.textproto:5:1: layer \"token\" takes indices from 0 to 2, got 9; correct "
                "the data, or the layer",
     .net = {"layer { name: \"fc\" dense { outputs: 3 } }",
             "layer { name: \"token\" input: \"label\" embedding { vocabulary: 3 width: 144 } }\n"
             "layer { name: \"sum\" input: \"flat\" input: \"token\" add {} }\n"
             "layer { name: \"fc\" dense { outputs: 3 } }"},
     .prepare = WriteLabel9},
    {.name = "LengthOutOfRange",
     .message = "training data: @/train-labels.idx: sample 0 (the first is 0): "
                "@/net.textproto:5:1: layer \"mix\" takes lengths from 0 to 4, got 9; correct the "
                "data, or the layer",
     .net =
         {"layer { name: \"flat\" flatten {} }",
          "layer { name: \"rows\" reshape { dims: [4, 36] } }\n"
          "layer { name: \"mix\" input: [\"rows\", \"rows\", \"rows\", \"label\"] attention {} }\n"
          "layer { name: \"flat\" flatten {} }"},
     .prepare = WriteLabel9},
    {.name = "WeightBelowZero",
     .message = "training data: @/train.npy: sample 0 (the first is 0): @/net.textproto:6:1: "
                "layer \"loss\" takes weights of 0 or more, got -2; correct the data",
     .prepare = [](const std::string& folder) { WriteWeights(folder, "weight"); },
     .ranks = {1, 2}},
    {.name = "NanInTheData",
     .message = "training data: @/reals.npy: sample 0 (the first is 0) holds nan",
     .trainer = RealImages("train"),
     .prepare = [](const std::string& folder) { WriteNan(folder, 20); },
     .ranks = {1, 2}},
    {.name = "NanInTheTestData",
     .message = "test data: @/reals.npy: sample 0 (the first is 0) holds nan",
     .trainer = RealImages("test"),
     .prepare = [](const std::string& folder) { WriteNan(folder, 10); },
     .ranks = {1, 2}},
};

// A slice of the text is beyond the table, which only the step that reads it finds.
void WriteSlicedText(const std::string& folder) {
  WriteBytes(folder + "/a.txt", "abcabcab");
  WriteBytes(folder + "/net.textproto", R"(name: "text"
input { name: "text" dims: 4 type: LABEL }
input { name: "next" dims: 4 type: LABEL }
layer { name: "cut" input: "text" slice { axis: 1 begin: 1 } }
layer { name: "after" input: "next" slice { axis: 1 begin: 1 } }
layer { name: "token" input: "cut" embedding { vocabulary: 3 width: 3 } }
layer { name: "fc" dense { outputs: 9 } }
layer { name: "loss" input: ["fc", "after"] softmax_cross_entropy { ignore_label: -1 } }
)");
  WriteBytes(folder + "/trainer.textproto",
             "net: \"net.textproto\"\n"
             "data { train { text { file: \"a.txt\" length: 4 } } }\n"
             "optimizer { sgd {} } learning_rate { base: 0.1 } batch: 2 steps: 3\n");
}

const BadInput kSteps[] = {
    {.name = "LossNotFinite",
     // And others, where one rank has all of them in a bucket.
     .message = "step 2: a gradient is not finite: one of fc.weight...",
     .trainer = {"0.05", "1e30"},
     .begins = true,
     .ranks = {1, 2}},
    {.name = "SquaresOverflow",
     .message = "step 2: a gradient is not finite, or beyond 1e154: one of fc.weight, ...",
     .arguments = {"--precision=F64"},
     .trainer = {"0.05", "1e200"},
     .begins = true},
    {.name = "TokenBeyondTheEmbeddingOfASlice",
     .message = "step 1: training data: sample 1 (the first is 0): @/net.textproto:6:1: layer "
                "\"token\" takes indices "
                "from 0 to 2, got one beyond; correct the data, or the layer",
     .prepare = WriteSlicedText,
     .begins = true},
    {.name = "WeightOfALayerBelowZero",
     .message = "step 1: training data: sample 5 (the first is 0): @/net.textproto:6:1: layer "
                "\"loss\" takes labels from 0 to 2 and weights of 0 or more, got one beyond; "
                "correct the data, or the layer",
     .prepare = [](const std::string& folder) { WriteWeights(folder, "signs"); },
     .begins = true},
};

const BadInput kGenerators[] = {
    {.name = "NoShots",
     .message = "--train=0: expected 1 to 100000",
     .arguments = {"--out=@/made", "--train=0"},
     .exit_code = 2,
     .tool = "make_shots"},
    {.name = "MoreDisruptionsThanShots",
     .message = "--disrupted=1.5: expected 0 to 1",
     .arguments = {"--out=@/made", "--disrupted=1.5"},
     .exit_code = 2,
     .tool = "make_shots"},
    {.name = "ShotsOfNoDifficulty",
     .message = "--difficulty=nan: expected a number above 0",
     .arguments = {"--out=@/made", "--difficulty=nan"},
     .exit_code = 2,
     .tool = "make_shots"},
    {.name = "ShotsWithoutAFolder",
     .message = "--out is missing; see --help",
     .exit_code = 2,
     .tool = "make_shots"},
    {.name = "ShotsOverAnotherFolder",
     .message = "@/run is there already; remove it, or choose another --out",
     .arguments = {"--out=@/run"},
     .tool = "make_shots"},
    {.name = "OneReview",
     .message = "--train=1: expected 2 to 1000000",
     .arguments = {"--out=@/made", "--train=1"},
     .exit_code = 2,
     .tool = "make_reviews"},
    {.name = "ReviewsOfNoSentence",
     .message = "--sentences=0: expected 1 to 1000",
     .arguments = {"--out=@/made", "--sentences=0"},
     .exit_code = 2,
     .tool = "make_reviews"},
    {.name = "ReviewsInAFile",
     .message = "cannot create @/test-images.idx: Not a directory",
     .arguments = {"--out=@/test-images.idx/made"},
     .tool = "make_reviews"},
};

INSTANTIATE_TEST_SUITE_P(Net, BadInputTest, testing::ValuesIn(kNetTexts), NameOf);
INSTANTIATE_TEST_SUITE_P(Trainer, BadInputTest, testing::ValuesIn(kTrainerTexts), NameOf);
INSTANTIATE_TEST_SUITE_P(Data, BadInputTest, testing::ValuesIn(kData), NameOf);
INSTANTIATE_TEST_SUITE_P(Steps, BadInputTest, testing::ValuesIn(kSteps), NameOf);
INSTANTIATE_TEST_SUITE_P(Generators, BadInputTest, testing::ValuesIn(kGenerators), NameOf);

}  // namespace
}  // namespace gyre
