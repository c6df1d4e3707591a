// "path=value": what it sets, what it refuses and in which words, and that errors about the result
// name the override.
#include "models/schema/overrides.h"

#include <gtest/gtest.h>

#include "google/protobuf/text_format.h"
#include "models/schema/trainer.pb.h"

namespace gyre {
namespace {

constexpr char kNet[] =
    "input { name: \"image\" dims: 4 }\n"
    "layer { name: \"conv1\" conv2d { filters: 2 kernel: 3 } }\n"
    "layer { name: \"0\" pool2d { kernel: [2, 2] } }\n"
    "layer { name: \"fc\" dense { outputs: 10 } }\n";
constexpr char kTrainer[] =
    "net: \"net.textproto\"\n"
    "data { train { idx { images: \"i\" labels: \"l\" } } }\n"
    "optimizer { sgd { momentum: 0.9 } }\n"
    "learning_rate { base: 0.1 cosine { final: 0.01 } }\n"
    "batch: 64 epochs: 2\n";

// The message after the override, or the error.
template <typename Config>
std::string Result(const std::string& text, const std::string& path, const std::string& value) {
  Config config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
  std::vector<Touched> touched;
  const absl::Status status = Set(config, path, value, "", &touched);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  return config.ShortDebugString();
}
std::string Trainer(const std::string& path, const std::string& value) {
  return Result<TrainerConfig>("batch: 64 optimizer { sgd { momentum: 0.5 } }", path, value);
}
std::string Net(const std::string& path, const std::string& value) {
  return Result<NetConfig>("layer { name: 'c' conv2d { kernel: [1, 2] } } layer { name: '0' }",
                           path, value);
}

TEST(Set, Scalars) {
  EXPECT_EQ(Trainer("batch", "8"), "optimizer { sgd { momentum: 0.5 } } batch: 8");
  EXPECT_EQ(Trainer("seed", "18446744073709551615"),
            "optimizer { sgd { momentum: 0.5 } } batch: 64 seed: 18446744073709551615");
  EXPECT_EQ(Trainer("precision", "F64"),
            "optimizer { sgd { momentum: 0.5 } } batch: 64 precision: F64");
  EXPECT_EQ(Trainer("net", "a=b.c"),
            "net: \"a=b.c\" optimizer { sgd { momentum: 0.5 } } batch: 64");
  EXPECT_EQ(Trainer("optimizer.sgd.nesterov", "true"),
            "optimizer { sgd { momentum: 0.5 nesterov: true } } batch: 64");
  EXPECT_EQ(Trainer("epochs", "1.5e-1"),
            "optimizer { sgd { momentum: 0.5 } } batch: 64 epochs: 0.15");
  EXPECT_EQ(Trainer("optimizer.clip_norm", "-3"),
            "optimizer { sgd { momentum: 0.5 } clip_norm: -3 } batch: 64");
}

TEST(Set, MakesMessagesAndSwitchesOneofs) {
  EXPECT_EQ(Trainer("optimizer.adam.beta1", "0.8"), "optimizer { adam { beta1: 0.8 } } batch: 64");
  EXPECT_EQ(Trainer("optimizer.adam", "{}"), "optimizer { adam { } } batch: 64");
  EXPECT_EQ(Trainer("optimizer.sgd", "{}"), "optimizer { sgd { } } batch: 64");
  EXPECT_EQ(Trainer("learning_rate.constant", "{}"),
            "optimizer { sgd { momentum: 0.5 } } learning_rate { constant { } } batch: 64");
}

TEST(Set, RepeatedScalarsAreReplaced) {
  EXPECT_EQ(Net("layer.c.conv2d.kernel", "5"),
            "layer { name: \"c\" conv2d { kernel: 5 } } layer { name: \"0\" }");
  EXPECT_EQ(Net("layer.c.conv2d.kernel", "3, 5"),
            "layer { name: \"c\" conv2d { kernel: 3 kernel: 5 } } layer { name: \"0\" }");
  EXPECT_EQ(Net("layer.c.input", "a,b"),
            "layer { name: \"c\" input: \"a\" input: \"b\" conv2d { kernel: 1 kernel: 2 } } layer "
            "{ name: \"0\" }");
}

TEST(Set, ElementsByNameThenIndex) {
  EXPECT_EQ(Net("layer.0.phase", "TEST"),
            "layer { name: \"c\" conv2d { kernel: 1 kernel: 2 } } layer { name: \"0\" phase: TEST "
            "}");
  EXPECT_EQ(Net("layer.1.phase", "TRAIN"),
            "layer { name: \"c\" conv2d { kernel: 1 kernel: 2 } } layer { name: \"0\" phase: TRAIN "
            "}");
}

TEST(Set, OfOneElementNeitherNameNorIndexNeedBeSaid) {
  const std::string before = "optimizer { sgd { momentum: 0.5 } } batch: 64";
  const auto set = [](const std::string& data, const std::string& path, const std::string& value) {
    return Result<DataConfig>(data, path, value);
  };
  EXPECT_EQ(Trainer("data.normalization.std", "2,3"),
            "data { normalization { std: 2 std: 3 } } " + before);
  EXPECT_EQ(set("normalization { mean: 1 std: 1 }", "normalization.mean", "0.5"),
            "normalization { mean: 0.5 std: 1 }");
  EXPECT_EQ(set("normalization { mean: 1 } normalization { mean: 2 }", "normalization.1.mean", "3"),
            "normalization { mean: 1 } normalization { mean: 3 }");
  EXPECT_EQ(set("normalization { mean: 1 } normalization { mean: 2 }", "normalization.mean", "3"),
            "normalization is a list of 2; go on with the index of one of them");
}

TEST(Set, Refuses) {
  const struct {
    std::string path, value, error;
  } cases[] = {
      {"batch", "ten", "expected for batch a 64-bit integer, got \"ten\""},
      {"batch", "", "expected for batch a 64-bit integer, got \"\""},
      {"batch", "64x", "expected for batch a 64-bit integer, got \"64x\""},
      {"batch", "6.4", "expected for batch a 64-bit integer, got \"6.4\""},
      {"batch", "9223372036854775808",
       "expected for batch a 64-bit integer, got \"9223372036854775808\""},
      {"seed", "-1", "expected for seed a 64-bit integer >= 0, got \"-1\""},
      {"epochs", "1.5x", "expected for epochs a number, got \"1.5x\""},
      {"batch", "1,5", "expected for batch a 64-bit integer, got \"1,5\""},
      {"optimizer.sgd.momentum", "0,02",
       "expected for momentum a number, got \"0,02\"; a decimal has a point: 0.02"},
      {"data.normalization.mean", "0,02",
       "02: a number with a leading 0 is octal to some readers; leave the 0 out; a decimal has a "
       "point: 0.02"},
      {"optimizer.sgd.nesterov", "maybe", "expected for nesterov true or false, got \"maybe\""},
      {"precision", "f64", "expected for precision F32, F64, F16 or BF16, got \"f64\""},
      {"bacth", "1", "unknown field \"bacth\"; did you mean \"batch\"?"},
      {"optimizer.adam.gamma", "1", "unknown field \"gamma\"; choose from beta1, beta2, epsilon"},
      {"optimizer.momentum", "1",
       "unknown field \"momentum\" here; it belongs in sgd or lars { ... }"},
      {"optimizer", "sgd",
       "optimizer has fields of its own; go on with one of sgd, adam, adamw, lars, lamb, "
       "weight_decay, clip_norm, ema"},
      {"batch.size", "1", "batch has no fields, so nothing can follow it"},
      {"", "1",
       "unknown field \"\"; choose from net, data, optimizer, learning_rate, batch, test_batch, "
       "epochs, steps, evaluate_every, checkpoint_every, log_norms_every, keep_checkpoints, seed, "
       "precision, distributed, accumulate, tf32, loss_scale, players, page_activations"},
      {"optimizer..momentum", "1",
       "unknown field \"\"; choose from sgd, adam, adamw, lars, lamb, weight_decay, "
       "clip_norm, ema"},
  };
  for (const auto& c : cases) EXPECT_EQ(Trainer(c.path, c.value), c.error) << c.path;
  const struct {
    std::string path, value, error;
  } net_cases[] = {
      {"layer", "c", "layer is a list; go on with the name or the index of one of them"},
      {"input.image", "{}", "unknown input \"image\"; there is none"},
      {"layer.cc.phase", "TEST", "unknown layer \"cc\"; did you mean \"c\"?"},
      {"layer.2.phase", "TEST", "no layer 2; there are 2, counted from 0"},
      {"layer.-1.phase", "TEST", "no layer -1; there are 2, counted from 0"},
      {"input.image.dims", "1", "unknown input \"image\"; there is none"},
      {"layer.c.conv2d.kernel", "", "expected for kernel a 64-bit integer, got \"\""},
      {"layer.c.conv2d.kernel", "3,", "expected for kernel a 64-bit integer, got \"\""},
      {"layer.c.dense.outputs", "5", "layer \"c\" is of type conv2d, not dense"},
      {"layer.c.relu", "{}", "layer \"c\" is of type conv2d, not relu"},
  };
  for (const auto& c : net_cases) EXPECT_EQ(Net(c.path, c.value), c.error) << c.path;
}

TEST(Set, AnElementIsNoValue) {
  const std::string error = Net("layer.c", "{}");
  const std::string start = "c has fields of its own; go on with one of name, input";
  EXPECT_EQ(error.substr(0, start.size()), start);
}

TEST(Split, ByPrefix) {
  const SplitOverrides split = Split(std::vector<std::string>{"batch=1", "net.layer.a.phase=TEST",
                                                              "net=other.textproto", "seed=a=b"});
  EXPECT_EQ(split.trainer,
            (std::vector<std::string>{"batch=1", "net=other.textproto", "seed=a=b"}));
  EXPECT_EQ(split.net, std::vector<std::string>{"layer.a.phase=TEST"});
}

std::string TrainerError(const std::vector<std::string>& overrides) {
  const auto trainer = ParseTrainerText(kTrainer, "t", overrides);
  return trainer.ok() ? "" : std::string(trainer.status().message());
}

TEST(Overrides, AnErrorNamesTheOverride) {
  EXPECT_EQ(TrainerError({}), "");
  EXPECT_EQ(TrainerError({"batch=0"}), "--set batch=0: batch must be >= 1, got 0");
  EXPECT_EQ(TrainerError({"batch=0", "batch=1"}), "");
  EXPECT_EQ(TrainerError({"batch=1", "batch=0"}), "--set batch=0: batch must be >= 1, got 0");
  EXPECT_EQ(TrainerError({"steps=0"}), "--set steps=0: steps must be >= 1, got 0");
  EXPECT_EQ(TrainerError({"net="}), "--set net=: net is empty; write net: \"net.textproto\"");
  EXPECT_EQ(TrainerError({"epochs=nan"}), "--set epochs=nan: epochs must be finite, got nan");
  EXPECT_EQ(TrainerError({"bacth=1"}),
            "--set bacth=1: unknown field \"bacth\"; did you mean \"batch\"?");
  for (const std::string bad : {"batch", "=1", ""}) {
    EXPECT_EQ(TrainerError({bad}), "--set " + bad + ": expected path=value, such as batch=64");
  }
  // Of a message that an override made, too.
  EXPECT_EQ(TrainerError({"learning_rate.step.gamma=0.5"}),
            "--set learning_rate.step.gamma=0.5: missing learning_rate.step.every; write every: "
            "1000");
  EXPECT_EQ(TrainerError({"learning_rate.step.every=2", "data.test.idx.images=x"}),
            "--set data.test.idx.images=x: missing data.test.idx.labels; write labels: "
            "\"t10k-labels-idx1-ubyte.gz\"");
}

TEST(Overrides, AnErrorOfAShortFlagNamesTheFlag) {
  const std::vector<std::string> overrides = {"seed=2", "batch=0"};
  EXPECT_EQ(
      ParseTrainerText(kTrainer, "t", overrides, {{"batch=0", "--batch=0"}}).status().message(),
      "--batch=0: batch must be >= 1, got 0");
  EXPECT_EQ(ParseNetText(kNet, "n", std::vector<std::string>{"x=1"}, {{"net.x=1", "--x=1"}})
                .status()
                .message(),
            "--x=1: unknown field \"x\"; choose from name, input, layer, block, precision");
}

// One reader for both: what a file takes for a number, --set does, with the same value.
TEST(Overrides, NumbersAreThoseOfFiles) {
  const struct {
    std::string field, value, error;
  } cases[] = {
      {"batch", "0x10", ""},
      {"batch", "010", "010: a number with a leading 0 is octal to some readers; leave the 0 out"},
      {"batch", "08", "08: a number with a leading 0 is octal to some readers; leave the 0 out"},
      {"epochs", ".5", ""},
      {"epochs", "0.1f", ""},
      {"epochs", "1e-300", ""},
      {"epochs", "1e-400", "1e-400: expected 0, or at least 4.9e-324"},
      {"epochs", "1e400", "1e400: expected at most 1.8e308"},
      {"epochs", "0x1p-3", "?"},
      {"epochs", "1_000", "?"},
      {"batch", "+5", "?"},
      {"batch", "5 6", "?"},
      {"batch", "1e3", "?"},
      {"tf32", "yes", "?"},
      {"tf32", "True", ""},
      {"learning_rate.base", "-0e-999", ""},
  };
  for (const auto& [field, value, error] : cases) {
    const std::string set = field + "=" + value;
    const auto by_set = ParseTrainerText(kTrainer, "t", std::vector<std::string>{set});
    std::string text = kTrainer;
    if (field == "learning_rate.base") {
      text.replace(text.find("base: 0.1"), 9, "base: " + value);
    } else {
      const size_t old = text.find(field + ": ");
      if (old != text.npos)
        text.erase(old, text.find_first_of(" \n", old + field.size() + 2) - old);
      text += field + ": " + value + "\n";
    }
    const auto by_file = ParseTrainerText(text, "t");
    EXPECT_EQ(by_file.ok(), by_set.ok()) << set << by_file.status() << by_set.status();
    EXPECT_EQ(by_set.ok(), error.empty()) << set << by_set.status();
    if (by_set.ok() && by_file.ok()) {
      EXPECT_EQ(by_file->message->ShortDebugString(), by_set->message->ShortDebugString()) << set;
    } else if (error != "?") {
      EXPECT_EQ(by_set.status().message(), "--set " + set + ": " + error);
      EXPECT_TRUE(std::string(by_file.status().message()).ends_with(error)) << by_file.status();
    }
  }
}

TEST(Overrides, ThoseOfTheNetShowTheirPrefix) {
  const auto net =
      ParseNetText(kNet, "n", std::vector<std::string>{"layer.conv1.conv2d.fliters=1"});
  EXPECT_EQ(net.status().message(),
            "--set net.layer.conv1.conv2d.fliters=1: unknown field \"fliters\"; did you mean "
            "\"filters\"?");
  const auto clash = ParseNetText(kNet, "n", std::vector<std::string>{"layer.conv1.name=fc"});
  EXPECT_EQ(clash.status().message(),
            "n:4:9: layer \"fc\": the name is already that of the layer at --set "
            "net.layer.conv1.name=fc");
}

TEST(Overrides, PositionsOfTheRestStay) {
  const auto net = *ParseNetText(
      kNet, "n",
      std::vector<std::string>{"layer.conv1.conv2d.kernel=3,5",
                               "layer.fc.dense.weight.decay_multiplier=0", "layer.0.pool2d={}"});
  const SourceMap& source = *net.source;
  const LayerConfig& conv = net.message->layer(0);
  EXPECT_EQ(conv.conv2d().kernel(1), 5);
  EXPECT_EQ(source.Where(conv.conv2d(), "filters"), "n:2:32");
  for (const int index : {0, 1}) {
    EXPECT_EQ(source.Where(conv.conv2d(), "kernel", index),
              "--set net.layer.conv1.conv2d.kernel=3,5");
  }
  const LayerConfig& pool = net.message->layer(1);
  EXPECT_EQ(source.Where(pool), "n:3:1");
  EXPECT_EQ(source.Where(pool.pool2d()), "--set net.layer.0.pool2d={}");
  EXPECT_EQ(source.Where(pool, "pool2d"), "--set net.layer.0.pool2d={}");
  const DenseConfig& dense = net.message->layer(2).dense();
  EXPECT_EQ(source.Where(dense), "n:4:20");
  EXPECT_EQ(source.Where(dense.weight(), "learning_rate_multiplier"),
            "--set net.layer.fc.dense.weight.decay_multiplier=0");
}

// A message that was freed may lend its address to the next one, which must not inherit positions.
TEST(Overrides, NothingIsSaidOfFreedMessages) {
  std::vector<std::string> overrides;
  for (int i = 0; i < 50; ++i) {
    overrides.push_back("optimizer.adam.beta1=0.5");
    overrides.push_back("optimizer.sgd.momentum=0.5");
  }
  overrides.push_back("optimizer.sgd={}");
  const auto trainer = ParseTrainerText(kTrainer, "t", overrides).value();
  const OptimizerConfig& optimizer = trainer.message->optimizer();
  EXPECT_FALSE(optimizer.sgd().has_momentum());
  EXPECT_EQ(trainer.source->Where(optimizer), "t:3:1");
  EXPECT_EQ(trainer.source->Where(optimizer.sgd()), "--set optimizer.sgd={}");
}

}  // namespace
}  // namespace gyre
