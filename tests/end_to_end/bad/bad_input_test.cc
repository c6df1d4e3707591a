// Mistakes in the net's text, the trainer's text, and the data.

#include "tests/end_to_end/bad_input.h"

#include <cmath>
#include <filesystem>

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
    {.name = "WrongType",
     .message = "@/net.textproto:4:40: layer \"conv\": expected for filters a 64-bit integer, got "
                "\"four\"",
     .net = {"filters: 4", "filters: \"four\""}},
    {.name = "UnknownLayerType",
     .message = "@/net.textproto:4:22: layer \"conv\": unknown layer type \"conv3d\"; did you mean "
                "\"conv2d\"?",
     .net = {"conv2d", "conv3d"}},
    {.name = "NameTwice",
     .message = "@/net.textproto:5:9: layer \"conv\": the name is already that of the layer at "
                "@/net.textproto:4:9",
     .net = {"name: \"fc\"", "name: \"conv\""}},
    {.name = "Cycle",
     .message = "@/net.textproto:5:20: layer \"fc\": cycle: \"fc\" -> \"loss\" -> \"fc\"",
     .net = {"name: \"fc\"", "name: \"fc\" input: \"loss\""}},
    {.name = "MissingInput",
     .message = "@/net.textproto:5:20: layer \"fc\": unknown input \"cov\"; did you mean "
                "\"conv\"?",
     .net = {"name: \"fc\"", "name: \"fc\" input: \"cov\""}},
    {.name = "TooFewInputs",
     .message = "@/net.textproto:6:1: layer \"loss\": expects 2 inputs (scores, labels), got 1",
     .net = {" input: \"label\"", ""}},
    {.name = "InputsSwapped",
     .message = "@/net.textproto:6:1: layer \"loss\": expects scores of type F32, got I32",
     .net = {"input: \"fc\" input: \"label\"", "input: \"label\" input: \"fc\""}},
    {.name = "ShapeMismatch",
     .message = "@/net.textproto:2:1: input \"image\": has dims [28, 28, 1], but the samples "
                "of @/train-images.idx are [8, 8, 1]",
     .net = {"[8, 8, 1]", "[28, 28, 1]"},
     .ranks = {1, 2}},
    {.name = "TooManyDims",
     .message = "@/net.textproto:2:1: input \"image\": has dims [8, 8, 1, 1, 1, 1, 1], but the "
                "samples of @/train-images.idx are [8, 8, 1]",
     .net = {"[8, 8, 1]", "[8, 8, 1, 1, 1, 1, 1]"}},
    {.name = "InputFedByNothing",
     .message = "@/net.textproto:2:1: input \"img\": nothing feeds it; data.train feeds "
                "\"image\", \"label\" (data.image_input and data.label_input)",
     .net = {"\"image\"", "\"img\""}},
    {.name = "AreaOfSeveralScores",
     .message =
         "@/net.textproto:7:1: layer \"auc\": expects scores [..., 1], one for each label, got "
         "[4, 3]",
     .net = {"softmax_cross_entropy {} }",
             "softmax_cross_entropy {} }\n"
             "layer { name: \"auc\" input: [\"fc\", \"label\"] roc_auc {} }"}},
    {.name = "AlarmWithoutAWindow",
     .message = "@/net.textproto:6:76: layer \"alarm\": earliest: expected more than latest, 0.03 "
                "seconds, got 0",
     .net = {"softmax_cross_entropy {} }",
             "softmax_cross_entropy {} } layer { name: \"alarm\" input: [\"fc\", \"label\"] alarm "
             "{} }"}},
    {.name = "PerplexityOfASmoothedLoss",
     .message =
         "@/net.textproto:6:1: layer \"loss\": label_smoothing: the mean of a smoothed loss has "
         "no perplexity; leave one of them out",
     .net = {"softmax_cross_entropy {}",
             "softmax_cross_entropy { label_smoothing: 0.1 perplexity: true }"}},
    {.name = "InputOfALayerWithoutOutput",
     .message = "@/net.textproto:8:23: layer \"after\": input \"auc:0\": \"auc\" has 0 outputs, "
                "numbered from 0",
     .net = {"layer { name: \"fc\" dense { outputs: 3 } }\n",
             "layer { name: \"fc\" dense { outputs: 3 } }\n"
             "layer { name: \"one\" dense { outputs: 1 } }\n"
             "layer { name: \"auc\" input: [\"one\", \"label\"] roc_auc {} }\n"
             "layer { name: \"after\" input: \"auc\" relu {} }\n"}},
    {.name = "KernelLargerThanInput",
     .message = "@/net.textproto:4:1: layer \"conv\": kernel 9 exceeds padded input 8 (height)",
     .net = {"kernel: 3", "kernel: 9"},
     .ranks = {1, 2}},
    {.name = "NoLoss",
     .message = "@/net.textproto: the net has no loss to train with; add a layer such as "
                "softmax_cross_entropy",
     .net = {"layer { name: \"loss\" input: \"fc\" input: \"label\" softmax_cross_entropy {} }",
             ""}},
    {.name = "NothingToTrain",
     .message = "@/net.textproto: the net has no parameter to train: add a layer such as dense, or "
                "give one a learning_rate_multiplier above 0",
     .net = {"conv2d { filters: 4 kernel: 3 } } layer { name: \"flat\" flatten {} }\n"
             "layer { name: \"fc\" dense { outputs: 3 } }",
             "flatten {} }\nlayer { name: \"fc\" relu {} }"}},
    {.name = "LayerBeyondAllExtents",
     .message = "@/net.textproto:5:1: layer \"fc\": outputs: expected at most 2^31 - 1, "
                "got 1000000000000",
     .net = {"outputs: 3", "outputs: 1000000000000"}},
    {.name = "LayerBeyondAllBytes",
     .message = "@/net.textproto:4:1: layer \"conv\": output [4, 4000000006, 4000000006, 4] has "
                "more than 2^56 elements; make it smaller",
     .net = {"kernel: 3", "kernel: 3 padding: 2000000000"}},
    {.name = "FiltersBeyondMemory",
     .message = "device memory: expected at least ...",
     .net = {"filters: 4 kernel: 3", "filters: 2147483647 kernel: 8"}},
    {.name = "PaddingBeyondMemory",
     .message = "device memory: expected at least ...",
     .net = {"filters: 4 kernel: 3", "filters: 1 kernel: [3, 8] padding: [1000000000, 0]"}},
    {.name = "NameBeyondItsFolder",
     .message =
         "@/net.textproto:1:1: net \"../../tiny\": a name has at most 100 characters, each an "
         "ASCII letter, a digit, \"_\" or \"-\"",
     .net = {"\"tiny\"", "\"../../tiny\""}},
    {.name = "ImplicitInputOfTheWrongType",
     .message =
         "@/net.textproto:4:1: layer \"conv\": expects images of type F32, got I32; it names "
         "no input, and so takes \"label\"",
     .net = {"input { name: \"image\" dims: [8, 8, 1] }\ninput { name: \"label\" type: LABEL }",
             "input { name: \"label\" type: LABEL }\ninput { name: \"image\" dims: [8, 8, 1] }"}},
    {.name = "MetricOfTheNameOfAnother",
     .message =
         "@/net.textproto:7:1: layer \"step\": its value would be \"step\" in metrics.jsonl, "
         "which says something else about a run; rename the layer",
     .net = {"softmax_cross_entropy {} }\n",
             "softmax_cross_entropy {} }\n"
             "layer { name: \"step\" input: \"fc\" input: \"label\" accuracy {} }\n"}},
    {.name = "LayerBeyondMemory",
     .message = "device memory: expected at least ...",
     .arguments = {"--device=sim"},
     .net = {"outputs: 3", "outputs: 2000000000"}},
};

const BadInput kTrainerTexts[] = {
    {.name = "FieldMissing",
     .message = "@/trainer.textproto:1:1: missing batch; write batch: 64",
     .trainer = {"batch: 4", ""},
     .ranks = {1, 2}},
    {.name = "OutOfRange",
     .message = "@/trainer.textproto:7:19: optimizer.sgd.momentum must be >= 0 and < 1, got 1.5",
     .trainer = {"0.9", "1.5"}},
    {.name = "TwoLengths",
     .message = "@/trainer.textproto:9:19: both steps (at @/trainer.textproto:9:10) and epochs; "
                "keep one",
     .trainer = {"steps: 4", "steps: 4 epochs: 2"}},
    {.name = "UnknownAllreduce",
     .message = "@/trainer.textproto:9:33: no allreduce algorithm \"rinng\"; there are: ring, "
                "direct, halving_doubling, recursive_doubling, shared, hierarchical, mpi, auto, "
                "naive, nccl",
     .trainer = {"steps: 4", "steps: 4 distributed { allreduce: \"rinng\" }"}},
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
    {.name = "WireOfTheRing",
     .message = "@/trainer.textproto:9:51: allreduce \"ring\" cannot carry F32 as F16; use "
                "\"direct\", which rounds each sum once",
     .trainer = {"steps: 4", "steps: 4 distributed { allreduce: \"ring\" wire: F16 }"}},
    {.name = "WireOfF64",
     .message = "--wire=BF16: carries gradients of F32, and precision is F64; "
                "leave one out",
     .arguments = {"--wire=BF16", "--precision=F64", "--set=distributed.allreduce=direct"},
     .exit_code = 2},
    {.name = "WireOf16Bits",
     .message = "--wire=BF16: carries gradients of F32, and precision is F16; "
                "leave one out",
     .arguments = {"--wire=BF16", "--precision=F16", "--set=distributed.allreduce=direct"},
     .exit_code = 2},
    {.name = "ShardsWithoutHalves",
     .message = "--shard_optimizer: allreduce \"mpi\" does not come in halves, "
                "with an update between them; those that do: ring, direct, shared, auto",
     .arguments = {"--shard_optimizer", "--set=distributed.allreduce=mpi"},
     .exit_code = 2},
    {.name = "ShardsWithAWire",
     .message = "--shard_optimizer: sums gradients as they are, and "
                "distributed.wire rounds them; leave one out",
     .arguments = {"--shard_optimizer", "--wire=F16", "--set=distributed.allreduce=direct"},
     .exit_code = 2},
    {.name = "NoNetFile",
     .message = "@/trainer.textproto:1:1: net: @/wrong.textproto: No such file or directory",
     .trainer = {"net.textproto", "wrong.textproto"}},
    {.name = "NetIsAFolder",
     .message = "@/trainer.textproto:1:1: net: @/run: is a folder, not a model's file",
     .trainer = {"net.textproto", "run"}},
    {.name = "NetIsADevice",
     .message =
         "@/trainer.textproto:1:1: net: /dev/zero: is a pipe or a device, not a model's file",
     .trainer = {"net.textproto", "/dev/zero"}},
    {.name = "NoTrainerFile",
     .message = "--trainer: @/nowhere: No such file or directory",
     .arguments = {"--trainer=@/nowhere"}},
    {.name = "TrainerIsAFolder",
     .message = "--trainer: @: is a folder, not a model's file; did you mean @/trainer.textproto?",
     .arguments = {"--trainer=@"}},
    {.name = "TrainerIsBinary",
     .message = "@/train-images.idx:1:1: the byte 0x00 is no text; expected a file in protobuf's "
                "text format",
     .arguments = {"--trainer=@/train-images.idx"}},
    {.name = "TrainerIsEmpty",
     .message = "@/empty:1:1: missing net; write net: \"net.textproto\"",
     .arguments = {"--trainer=@/empty"},
     .prepare = [](const std::string& folder) { WriteBytes(folder + "/empty", ""); }},
};

// Of sample 7; the others' are from 0 to 2.
void WriteTestLabel3(const std::string& folder) {
  WriteIdx(folder, "test",
           {.samples = 10, .height = 8, .width = 8, .classes = 3, .labels = {{7, 3}}});
}

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

const BadInput kData[] = {
    {.name = "NoDataFile",
     .message = "@/trainer.textproto:3:3: data.train: cannot open @/nowhere.idx: No such file or "
                "directory",
     .trainer = {"train-images.idx", "nowhere.idx"},
     .ranks = {1, 2}},
    {.name = "TruncatedGzip",
     .message = "@/trainer.textproto:3:3: data.train: @/cut.idx.gz: the gzip data is truncated: "
                "it ends after ...",
     .trainer = {"train-images.idx", "cut.idx.gz"},
     .prepare =
         [](const std::string& folder) {
           WriteIdx(folder, "packed", {.samples = 20, .height = 8, .width = 8, .gzip = true});
           const std::string packed = ReadBytes(folder + "/packed-images.idx.gz");
           WriteBytes(folder + "/cut.idx.gz", packed.substr(0, packed.size() / 2));
         }},
    {.name = "TruncatedIdx",
     .message = "@/trainer.textproto:4:3: data.test: @/cut.idx: extents [10, 8, 8] make 656 "
                "bytes, but the file ends after 655",
     .trainer = {"test-images.idx", "cut.idx"},
     .prepare =
         [](const std::string& folder) {
           WriteBytes(folder + "/cut.idx", ReadBytes(folder + "/test-images.idx").substr(0, 655));
         }},
    {.name = "MistypedData",
     .message = "@/trainer.textproto:3:3: data.train: cannot open @/train-imges.idx: No such file "
                "or directory; did you mean @/train-images.idx?",
     .trainer = {"train-images.idx", "train-imges.idx"}},
    {.name = "DataIsADevice",
     .message = "@/trainer.textproto:3:3: data.train: cannot read /dev/zero: it is a pipe or a "
                "device, expected a file",
     .trainer = {"train-images.idx", "/dev/zero"}},
    {.name = "EmptyDataSet",
     .message = "@/trainer.textproto:3:3: data.train: @/train-images.idx: no samples",
     .prepare =
         [](const std::string& folder) {
           WriteIdx(folder, "train", {.samples = 0, .height = 8, .width = 8});
         }},
    {.name = "CountsDiffer",
     .message = "@/trainer.textproto:3:3: data.train: @/train-images.idx holds 20 samples, but "
                "@/test-labels.idx holds 10",
     .trainer = {"train-labels.idx", "test-labels.idx"}},
    {.name = "ImagesForLabels",
     .message = "@/trainer.textproto:3:3: data.train: @/test-images.idx: holds images (IDX magic "
                "0x00000803), expected labels (0x00000801); name the file of labels here, and this "
                "one as images",
     .trainer = {"train-labels.idx", "test-images.idx"}},
    {.name = "LabelsForImages",
     .message = "@/trainer.textproto:3:3: data.train: @/train-labels.idx: holds labels (IDX magic "
                "0x00000801), expected images (0x00000803 or 0x00000804); name the file of images "
                "here, and this one as labels",
     .trainer = {"train-images.idx", "train-labels.idx"}},
    {.name = "LabelOutOfRange",
     .message = "training data: @/train-labels.idx: sample 0 (the first is 0): "
                "@/net.textproto:6:1: layer \"loss\" "
                "takes labels "
                "from 0 to 2, got 9; correct the data, or the layer",
     .prepare = WriteLabel9,
     .ranks = {1, 2}},
    {.name = "IndexOutOfRange",
     .message = "training data: @/train-labels.idx: sample 0 (the first is 0): "
                "@/net.textproto:5:1: layer \"token\" "
                "takes indices "
                "from 0 to 2, got 9; correct the data, or the layer",
     .net = {"layer { name: \"fc\" dense { outputs: 3 } }",
             "layer { name: \"token\" input: \"label\" embedding { vocabulary: 3 width: 144 } }\n"
             "layer { name: \"sum\" input: \"flat\" input: \"token\" add {} }\n"
             "layer { name: \"fc\" dense { outputs: 3 } }"},
     .prepare = WriteLabel9},
    {.name = "LengthOutOfRange",
     .message = "training data: @/train-labels.idx: sample 0 (the first is 0): "
                "@/net.textproto:5:1: layer \"mix\" "
                "takes lengths "
                "from 0 to 4, got 9; correct the data, or the layer",
     .net =
         {"layer { name: \"flat\" flatten {} }",
          "layer { name: \"rows\" reshape { dims: [4, 36] } }\n"
          "layer { name: \"mix\" input: [\"rows\", \"rows\", \"rows\", \"label\"] attention {} }\n"
          "layer { name: \"flat\" flatten {} }"},
     .prepare = WriteLabel9},
    {.name = "TestLabelOutOfRange",
     .message = "test data: @/test-labels.idx: sample 7 (the first is 0): @/net.textproto:6:1: "
                "layer \"loss\" takes labels "
                "from 0 to 2, got 3; correct the data, or the layer",
     .prepare = WriteTestLabel3,
     .ranks = {1, 2}},
    {.name = "NanInTheData",
     .message = "training data: @/reals.npy: sample 0 (the first is 0) holds nan",
     .trainer = RealImages("train"),
     .prepare = [](const std::string& folder) { WriteNan(folder, 20); },
     .ranks = {1, 2}},
    {.name = "NanInTheTestData",
     .message = "test data: @/reals.npy: sample 0 (the first is 0) holds nan",
     .trainer = RealImages("test"),
     .prepare = [](const std::string& folder) { WriteNan(folder, 10); }},
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
};

INSTANTIATE_TEST_SUITE_P(Net, BadInputTest, testing::ValuesIn(kNetTexts), NameOf);
INSTANTIATE_TEST_SUITE_P(Trainer, BadInputTest, testing::ValuesIn(kTrainerTexts), NameOf);
INSTANTIATE_TEST_SUITE_P(Data, BadInputTest, testing::ValuesIn(kData), NameOf);

}  // namespace
}  // namespace gyre
