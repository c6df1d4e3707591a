// What leaves a run comes back the same: exported weights evaluate as the checkpoint does, and
// training starts from them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/data/tensors/tensor_file.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const SyntheticData kData{.samples = 50};

class Weights : public testing::Test {
 protected:
  Weights() {
    WriteTrainer(folder_ / "", ConvNetText(kData),
                 {.rest = "batch: 8 test_batch: 10 evaluate_every: 5 steps: 20"});
    folder_.Digest("out");
  }
  std::string Export(const std::string& weights, const std::string& to) {
    Succeeded(RunTool("export", {"--weights=" + folder_ / weights, "--to=" + folder_ / to}));
    return folder_ / to;
  }

  TrainingFolder folder_{kData};
};

TEST_F(Weights, EvaluateAlikeFromEveryPlace) {
  const std::string metrics = folder_.Evaluate(folder_ / "out");
  EXPECT_EQ(folder_.Evaluate(folder_ / "out/checkpoints/step_00000020"), metrics);
  EXPECT_EQ(folder_.Evaluate(Export("out", "model.safetensors")), metrics);
  EXPECT_EQ(folder_.Evaluate(folder_ / "out", {"--device=sim"}), metrics);
  // And as training saw them, which prints more digits than evaluate does.
  const double loss = folder_.Metrics("out", "test_loss").back();
  EXPECT_THAT(metrics, HasSubstr(absl::StrFormat("test loss %.6f\n", loss)));
  EXPECT_THAT(metrics, HasSubstr(absl::StrFormat("test accuracy %.6f\n",
                                                 folder_.Metrics("out", "test_accuracy").back())));
  // For a program all digits.
  const ToolResult json =
      RunTool("evaluate", {"--trainer=" + folder_ / "trainer.textproto",
                           "--weights=" + folder_ / "out", "--threads=1", "--json"});
  const auto object = nlohmann::json::parse(json.out, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(object.is_object()) << json.ToString();
  EXPECT_EQ(object["loss"].get<double>(), loss);
  EXPECT_EQ(object["accuracy"].get<double>(), folder_.Metrics("out", "test_accuracy").back());
}

// A run with `ema` trains as one without, and is tested, evaluated and exported by averages.
TEST(Averages, AreTakenUnlessTheLastWeightsAreAskedFor) {
  const TrainingFolder folder(kData);
  const auto write = [&](const std::string& average, const std::string& length) {
    WriteTrainer(folder / "", ConvNetText(kData),
                 {.optimizer = "sgd { momentum: 0.9 }" + average,
                  .rest = "batch: 8 test_batch: 10 " + length});
  };
  const std::string ema = " ema { decay: 0.8 }";
  write("", "evaluate_every: 20 steps: 20");
  const std::string digest = folder.Digest("plain");
  const std::vector<std::string> narrow = {"--precision=BF16"};
  const std::string narrow_digest = folder.Digest("narrow_plain", narrow);
  write(ema, "evaluate_every: 3 steps: 20");
  const ToolResult run = folder.Train("out");
  EXPECT_EQ(DigestOf(run), digest);
  EXPECT_THAT(run.out, HasSubstr("tests are by averages of the weights: ema { decay: 0.8 }\n"));

  EXPECT_EQ(folder.Digest("narrow", narrow), narrow_digest);
  // Ranks of a shard and a copy of the parameters each, which give each other averages and values.
  const std::vector<std::string> ranks = {"--ranks=2", "--allreduce=direct"};
  EXPECT_EQ(folder.Digest("shards", Joined(ranks, {"--shard_optimizer", "--device=sim"})),
            folder.Digest("ranks", ranks));
  EXPECT_EQ(folder.Metrics("shards", "test_loss"), folder.Metrics("ranks", "test_loss"));

  const auto tested = [&](const std::string& out) {
    return StartsWith(absl::StrFormat("test loss %.6f\n", folder.Metrics(out, "test_loss").back()));
  };
  EXPECT_THAT(folder.Evaluate(folder / "narrow", narrow), tested("narrow"));
  const std::string averages = folder.Evaluate(folder / "out");
  const std::string last = folder.Evaluate(folder / "out", {"--last_weights"});
  EXPECT_THAT(averages, tested("out"));
  EXPECT_EQ(last, folder.Evaluate(folder / "plain"));
  EXPECT_NE(averages, last);
  const auto told = [&](const std::vector<std::string>& more) {
    return Unwrapped(RunTool("evaluate", Joined({"--run=" + folder / "out"}, more)).err);
  };
  EXPECT_THAT(told({}), HasSubstr("weights: the averages (ema) of " + folder / "out"));
  EXPECT_THAT(told({"--last_weights"}), Not(HasSubstr("averages")));

  for (const bool takes_last : {false, true}) {
    const std::string to = folder / absl::StrCat(takes_last, ".gyre");
    std::vector<std::string> arguments = {"--weights=" + folder / "out", "--to=" + to};
    if (takes_last) arguments.emplace_back("--last_weights");
    Succeeded(RunTool("export", arguments));
    EXPECT_EQ(folder.Evaluate(to), takes_last ? last : averages);
  }

  // Another run starts from averages, and this one goes on without them.  One without any cannot
  // go on with them.
  const ToolResult started = folder.Train("started", {"--weights=" + folder / "out", "--steps=1"});
  EXPECT_THAT(started.out, HasSubstr("weights: the averages (ema) of " + folder / "out"));
  const ToolResult begun = folder.Train("plain", {"--resume=latest", "--steps=25"});
  EXPECT_EQ(begun.exit_code, 1);
  EXPECT_THAT(Unwrapped(begun.err), HasSubstr(".average\", so it "
                                              "belongs to another net or optimizer"));
  write("", "evaluate_every: 20 steps: 20");
  EXPECT_EQ(folder.Digest("out", {"--resume=latest", "--steps=25"}),
            folder.Digest("plain", {"--resume=latest", "--steps=25"}));
}

// evaluate makes batch_norm part of the layers ahead of it.  Its "loss" is the total, too.
TEST(Folded, EvaluatesAsTrainingSaw) {
  const TrainingFolder folder(kData);
  WriteTrainer(folder / "", R"(
    name: "folded"
    input { name: "image" dims: [12, 12, 1] }
    input { name: "label" type: LABEL }
    layer { name: "conv" conv2d { filters: 4 kernel: 3 use_bias: false } }
    layer { name: "norm" batch_norm {} }
    layer { name: "relu" relu {} }
    layer { name: "twice" conv2d { filters: 4 kernel: 3 padding: 1 } }
    layer { name: "norm2" batch_norm {} }
    layer { name: "sum" input: ["norm2", "relu"] add {} }
    layer { name: "norm3" batch_norm {} }
    layer { name: "flat" flatten {} }
    layer { name: "fc" dense { outputs: 10 } }
    layer { name: "norm4" batch_norm {} }
    layer { name: "side" input: ["norm4", "label"] softmax_cross_entropy { loss_weight: 0.3 } }
    layer { name: "loss" input: ["norm4", "label"] softmax_cross_entropy {} })",
               {.rest = "batch: 8 test_batch: 10 evaluate_every: 20 steps: 20 precision: F64"});
  folder.Digest("out");
  EXPECT_EQ(
      folder.Evaluate(folder / "out"),
      absl::StrFormat("test loss %.6f\ntest side %.6f\n", folder.Metrics("out", "test_loss").back(),
                      folder.Metrics("out", "test_side").back()));
}

TEST_F(Weights, ExportIsDeterministicAndComplete) {
  const std::string path = Export("out", "a.safetensors");
  EXPECT_EQ(ReadBytes(path), ReadBytes(Export("out", "b.safetensors")));
  EXPECT_EQ(ReadBytes(path), ReadBytes(Export("a.safetensors", "c.safetensors")));
  const auto file = TensorFile::Read(path).value();
  std::vector<std::string> names;
  for (const NamedTensor& tensor : file.tensors()) names.push_back(tensor.name);
  EXPECT_THAT(names,
              testing::ElementsAre("conv1.bias", "conv1.weight", "conv2.bias", "conv2.weight",
                                   "fc1.bias", "fc1.weight", "scores.bias", "scores.weight"));
  EXPECT_EQ(file.Find("conv2.weight")->shape, Shape({9, 6, 3, 3}));  // O,I,H,W

  const std::string npz = ReadBytes(Export("out", "a.npz"));
  EXPECT_EQ(npz, ReadBytes(Export("a.safetensors", "b.npz")));
  EXPECT_THAT(npz, StartsWith("PK"));
  // Which is read as well, and has no texts.
  const std::string trainer = "--trainer=" + folder_ / "trainer.textproto";
  const ToolResult of_npz = RunTool("evaluate", {trainer, "--weights=" + folder_ / "a.npz"});
  EXPECT_EQ(of_npz.out, folder_.Evaluate(folder_ / "out")) << of_npz.ToString();
  EXPECT_THAT(Unwrapped(RunTool("evaluate", {"--run=" + folder_ / "a.npz"}).err),
              HasSubstr("a.npz: has no texts of a net and its trainer; give --trainer"));
  for (const NamedTensor& tensor : file.tensors()) {
    EXPECT_THAT(npz, HasSubstr(tensor.name + ".npy"));
    // Entries are stored: the tensor's very bytes are in the archive.
    const std::string bytes(static_cast<const char*>(tensor.tensor.data), tensor.tensor.bytes());
    EXPECT_TRUE(npz.find(bytes) != std::string::npos) << tensor.name;
  }
}

// A tensor of a type that cannot be read is left out of an export and named by a net that needs it.
TEST_F(Weights, ATensorThatCannotBeReadIsNamed) {
  const std::string path = Export("out", "model.safetensors");
  std::string bytes = ReadBytes(path);
  bytes.replace(bytes.find("gyre.crc32"), 10, "other.name");  // of the bytes that it had
  bytes.replace(bytes.find("gyre.metadata_crc32"), 19, "other.metadata_name");
  bytes.replace(bytes.find("F32", bytes.find("\"conv1.bias\"")), 3, "I16");
  WriteBytes(path, bytes);
  const std::string what = "\"conv1.bias\" has the unknown dtype \"I16\"\n";
  EXPECT_THAT(
      RunTool("evaluate", {"--trainer=" + folder_ / "trainer.textproto", "--weights=" + path}).err,
      HasSubstr("its tensor " + what));
  EXPECT_THAT(RunTool("export", {"--weights=" + path, "--to=" + folder_ / "rest.npz"}).err,
              HasSubstr("left out: " + what));
}

// A new last layer over what the run has learnt, of which the convolutions stay as they are.
TEST_F(Weights, FineTuneAnotherNet) {
  const std::string said = folder_.Evaluate(folder_ / "out");
  const std::string weights = Export("out", "model.safetensors");
  const std::string frozen =
      "weight { learning_rate_multiplier: 0 } bias { learning_rate_multiplier: 0 }";
  std::string net = absl::StrReplaceAll(ConvNetText(kData), {{"kernel: 3", "kernel: 3 " + frozen},
                                                             {"\"fc1\"", "\"hidden\""},
                                                             {"\"scores\"", "\"head\""}});
  WriteTrainer(folder_ / "", net, {.rest = "batch: 8 test_batch: 10 evaluate_every: 5 steps: 20"});
  const std::vector<std::string> flags = {"--weights=" + folder_ / "out",
                                          "--weights_map=fc1=hidden"};
  const ToolResult tuned = folder_.Train("tuned", flags);
  const std::string digest = DigestOf(tuned);
  EXPECT_THAT(tuned.out, HasSubstr("\nweights matched 6\n"
                                   "weights initial [\"head.bias\",\"head.weight\"]\n"
                                   "weights unused [\"scores.bias\",\"scores.weight\"]\n"));
  // The old net's weights under the new net's names.
  EXPECT_EQ(
      RunTool("evaluate", {"--trainer=" + folder_ / "trainer.textproto",
                           "--weights=" + folder_ / "out", "--weights_map=fc1=hidden,scores=head"})
          .out,
      said);
  std::vector<std::string> two_ranks = flags;
  two_ranks.push_back("--ranks=2");
  EXPECT_EQ(folder_.Digest("ranks", two_ranks), folder_.Digest("again", two_ranks));
  EXPECT_EQ(folder_.Digest("on", {"--resume=" + folder_ / "tuned/checkpoints/step_00000020"}),
            digest);

  const auto before = TensorFile::Read(weights).value();
  const auto after = TensorFile::Read(Export("tuned", "tuned.safetensors")).value();
  const auto same = [&](const std::string& old_name, const std::string& new_name) {
    const Tensor &a = *before.Find(old_name), &b = *after.Find(new_name);
    return a.shape == b.shape && std::memcmp(a.data, b.data, a.bytes()) == 0;
  };
  for (const char* name : {"conv1.bias", "conv1.weight", "conv2.bias", "conv2.weight"}) {
    EXPECT_TRUE(same(name, name)) << name;
  }
  EXPECT_FALSE(same("fc1.weight", "hidden.weight"));
  // It has begun with fc1's.
  EXPECT_EQ(folder_
                .Train("still", {"--weights=" + weights, flags[1], "--steps=1",
                                 "--set=learning_rate.base=1e-30"})
                .exit_code,
            0);
  const auto still = TensorFile::Read(Export("still", "still.safetensors")).value();
  const Tensor &fc1 = *before.Find("fc1.weight"), &hidden = *still.Find("hidden.weight");
  EXPECT_EQ(std::memcmp(fc1.data, hidden.data, fc1.bytes()), 0);
}

}  // namespace
}  // namespace gyre
