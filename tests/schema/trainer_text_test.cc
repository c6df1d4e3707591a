// What a user reads after a mistake in a trainer's text.
#include <gtest/gtest.h>

#include "models/schema/parse.h"
#include "models/schema/trainer.pb.h"

namespace gyre {
namespace {

// One field a line, so that a case can take one away.
const std::vector<std::string>& Good() {
  static const std::vector<std::string> lines = {
      "net: \"net.textproto\"",
      "data { train { idx { images: \"i\" labels: \"l\" } } }",
      "optimizer { sgd { momentum: 0.9 } }",
      "learning_rate { base: 0.1 }",
      "batch: 64",
      "epochs: 1.5",
  };
  return lines;
}

// Good() with line `index` (from 0) replaced; then `more`.
std::string Text(int index, const std::string& line, const std::string& more = "") {
  std::string text;
  for (size_t i = 0; i < Good().size(); ++i) {
    text += (static_cast<int>(i) == index ? line : Good()[i]) + "\n";
  }
  return text + more;
}

std::string ErrorOf(const std::string& text) {
  const auto trainer = ParseTrainerText(text, "t");
  if (trainer.ok()) return "";
  EXPECT_EQ(trainer.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(trainer.status().message());
}

// What follows the override in the error about Good() with it.
std::string ErrorOfSet(const std::string& path, const std::string& value) {
  // A gamma needs the first.
  const std::vector<std::string> overrides = {"learning_rate.step.every=1", path + "=" + value};
  const auto trainer = ParseTrainerText(Text(-1, ""), "t", overrides);
  if (trainer.ok()) return "";
  const std::string start = "--set " + overrides[1] + ": ";
  const std::string error(trainer.status().message());
  EXPECT_TRUE(error.starts_with(start)) << error;
  return error.substr(std::min(start.size(), error.size()));
}

TEST(TrainerText, Good) {
  const auto trainer = ParseTrainerText(Text(-1, ""), "t").value();
  EXPECT_EQ(trainer.message->batch(), 64);
  EXPECT_EQ(trainer.source->Where(*trainer.message, "batch"), "t:5:1");
  EXPECT_EQ(trainer.source->Where(trainer.message->optimizer().sgd(), "momentum"), "t:3:19");
  EXPECT_EQ(trainer.source->Where(trainer.message->optimizer().sgd(), "nesterov"), "t:3:13");
}

TEST(TrainerText, Missing) {
  const struct {
    int line;
    std::string replaced, error;
  } cases[] = {
      {0, "", "t:1:1: missing net; write net: \"net.textproto\""},
      {0, "net: ''", "t:1:1: net is empty; write net: \"net.textproto\""},
      {1, "",
       "t:1:1: missing data; write data { train { idx { images: \"...\" labels: \"...\" } } }"},
      {1, "data { }",
       "t:2:1: missing data.train; write data { train { idx { images: \"...\" labels: "
       "\"...\" } } }"},
      {1, "data { train { } }",
       "t:2:8: missing one of idx, arrays, text, reviews, shots, images, table, records; write "
       "data { train { idx { images: \"...\" labels: \"...\" } } }"},
      {1, "data { train { idx { labels: 'l' } } }",
       "t:2:16: missing data.train.idx.images; write images: \"train-images-idx3-ubyte.gz\""},
      {1, "data { train { idx { images: 'i' labels: '' } } }",
       "t:2:34: data.train.idx.labels is empty; write labels: \"train-labels-idx1-ubyte.gz\""},
      {1, "data { train { idx { images: 'i' labels: 'l' } } test { } }",
       "t:2:50: missing one of idx, arrays, text, reviews, shots, images, table, records; write "
       "test { idx { images: \"...\" labels: \"...\" } }"},
      {1, "data { train { idx { images: 'i' labels: 'l' } } test { idx { images: 'i' } } }",
       "t:2:57: missing data.test.idx.labels; write labels: \"t10k-labels-idx1-ubyte.gz\""},
      {1, "data { train { arrays { } } }",
       "t:2:16: missing data.train.arrays.array; write array { input: \"image\" file: "
       "\"images.npy\" }"},
      {1, "data { train { arrays { array { file: 'x' } } } }",
       "t:2:25: missing data.train.arrays.array.input; write array { input: \"image\" file: "
       "\"images.npy\" }"},
      {1,
       "data { train { idx { images: 'i' labels: 'l' } } test { arrays { array { input: 'x' } } } "
       "}",
       "t:2:66: missing data.test.arrays.array.file; write array { input: \"image\" file: "
       "\"images.npy\" }"},
      {2, "", "t:1:1: missing optimizer; write optimizer { sgd { momentum: 0.9 } }"},
      {2, "optimizer { weight_decay: 1e-4 }",
       "t:3:1: missing one of sgd, adam, adamw, lars, lamb; write optimizer { sgd { momentum: 0.9 "
       "} }"},
      {3, "", "t:1:1: missing learning_rate; write learning_rate { base: 0.01 }"},
      {3, "learning_rate { }",
       "t:4:1: missing learning_rate.base; write learning_rate { base: 0.01 }"},
      {3, "learning_rate { base: 1 step { } }",
       "t:4:25: missing learning_rate.step.every; write every: 1000"},
      {3, "learning_rate { base: 1 batch_scaling { } }",
       "t:4:25: missing learning_rate.batch_scaling.base_batch; write base_batch: 256"},
      {4, "", "t:1:1: missing batch; write batch: 64"},
      {5, "", "t:1:1: missing one of epochs, steps; write epochs: 10"},
      {5, "steps: 1 loss_scale { }",
       "t:6:10: missing one of fixed, dynamic; write loss_scale { dynamic {} }"},
  };
  for (const auto& c : cases) EXPECT_EQ(ErrorOf(Text(c.line, c.replaced)), c.error);
}

TEST(TrainerText, Sequences) {
  const struct {
    std::string data, error;
  } cases[] = {
      {"train { text { file: 'a' length: 4 } } test { text { file: ['b', 'c'] } } order: "
       "CONTIGUOUS",
       ""},
      {"train { reviews { file: 'a' length: 4 } } test { reviews { folder: 'b' } } order: BUCKETED",
       ""},
      {"train { shots { folder: 'a' profile: 'te' length: 4 warning: 1 } } test { shots { folder: "
       "'b' } }",
       ""},
      {"train { text { length: 4 } }",
       "t:2:16: missing data.train.text.file; write file: \"text.txt\""},
      {"train { text { file: 'a' } }", "t:2:16: missing data.train.text.length; write length: 64"},
      {"train { text { file: 'a' length: 0 } }",
       "t:2:33: data.train.text.length must be >= 1, got 0"},
      {"train { text { file: 'a' length: 4 unit: WORD words: 1 } }",
       "t:2:54: data.train.text.words must be >= 2, got 1"},
      {"train { text { file: 'a' length: 4 words: 9 } }",
       "t:2:43: data.train.text.words: is of unit: WORD, but the unit is CHARACTER, all of which "
       "are known; leave it out, or write unit: WORD"},
      {"train { text { file: 'a' length: 4 } } test { text { } }",
       "t:2:54: missing data.test.text.file; write file: \"text.txt\""},
      {"train { text { file: 'a' length: 4 } } test { text { file: 'b' length: 4 } }",
       "t:2:71: data.test.text.length: is as data.train has it; leave it out"},
      {"train { text { file: 'a' length: 4 } } test { reviews { file: 'b' } }",
       "t:2:47: data.test is of reviews, but data.train is of text"},
      {"train { text { file: 'a' length: 4 } } order: BUCKETED",
       "t:2:47: data.order: BUCKETED is of texts with lengths, which data.train.reviews has"},
      {"train { text { file: 'a' length: 4 } } order: CONTIGUOUS augmentation { repeated: 2 }",
       "t:2:80: data.augmentation.repeated is of the orders SHUFFLED and BALANCED, but data.order "
       "is CONTIGUOUS; leave one out"},
      {"train { images { list: 'a' } } augmentation { random_crop { least_area: 0.35 most_area: "
       "0.1 } }",
       "t:2:68: data.augmentation.random_crop: expected least_area of at most most_area, got 0.35 "
       "and 0.1"},
      {"train { reviews { length: 4 } }",
       "t:2:16: data.train.reviews: write one of folder and file"},
      {"train { reviews { length: 4 folder: 'a' file: 'b' } }",
       "t:2:16: data.train.reviews: write one of folder and file"},
      {"train { shots { signal: 'ip' length: 4 warning: 1 } }",
       "t:2:16: missing data.train.shots.folder; write folder: \"shots/train\""},
      {"train { shots { folder: 'a' length: 4 warning: 1 } }",
       "t:2:16: missing data.train.shots.signal; write signal: [\"current\", \"density\"]"},
      {"train { shots { folder: 'a' signal: 'ip' length: 4 } }",
       "t:2:16: missing data.train.shots.warning; write warning: 0.2"},
      {"train { shots { folder: 'a' signal: 'ip' length: 4 warning: 0 } }",
       "t:2:59: data.train.shots.warning must be > 0, got 0"},
      {"train { shots { folder: 'a' signal: 'ip' length: 4 warning: 1 clip: 0 } }",
       "t:2:70: data.train.shots.clip must be > 0, got 0"},
  };
  for (const auto& c : cases) EXPECT_EQ(ErrorOf(Text(1, "data { " + c.data + " }")), c.error);
}

TEST(TrainerText, SourcesSideBySide) {
  const std::string pair =
      "train { images { list: 'a' } beside { images { list: 'b' input: 'right' } } } ";
  const struct {
    std::string data, error;
  } cases[] = {
      {pair + "test { images { list: 'c' } beside { images { list: 'd' } } }", ""},
      {pair + "split { test: 0.1 }", ""},
      {"train { images { list: 'a' } beside { } }",
       "t:2:37: missing one of idx, arrays, text, reviews, shots, images, table, records; write "
       "data { train { idx { images: \"...\" labels: \"...\" } } }"},
      {"train { images { list: 'a' } beside { images { } } }",
       "t:2:46: data.train.beside.images: write one of folder and list"},
      {"train { images { list: 'a' } beside { images { list: 'b' shortest: 0 } } }",
       "t:2:65: images.shortest must be >= 1, got 0"},
      {"train { images { list: 'a' } beside { text { file: 'a' } } }",
       "t:2:46: missing text.length; write length: 64"},
      {"train { images { list: 'a' } beside { images { list: 'b' } beside { } } }",
       "t:2:67: data.train.beside: write this source beside the first one, not in it"},
      {pair + "test { images { list: 'c' } }",
       "t:2:86: data.test has 0 sources beside its first, but data.train has 1; write them in the "
       "same order"},
      {pair + "test { images { list: 'c' } beside { text { file: 'd' } } }",
       "t:2:114: data.test.beside is of text, but data.train.beside is of images"},
      {pair + "test { images { list: 'c' } beside { images { list: 'd' input: 'right' } } }",
       "t:2:142: data.test.beside.images.input: is as data.train has it; leave it out"},
      {"train { arrays { array { input: 'a' file: 'b' } } beside { text { file: 'a' length: 2 } } "
       "} split { test: 0.1 }",
       "t:2:100: data.split is of samples, but those of a text or of shots continue one another; "
       "write data.test"},
      {"train { reviews { folder: 'a' length: 2 } } split { test: 0.1 by: CLASS }", ""},
      {"train { images { list: 'a' } } split { test: 0.1 by: TIME }", ""},
      {"train { images { folder: 'a' } } split { test: 0.1 by: TIME }",
       "t:2:59: data.split.by: TIME holds back the last samples, which of a folder are its last "
       "class; use SAMPLE or CLASS, or a list in the order of time"},
  };
  for (const auto& c : cases) EXPECT_EQ(ErrorOf(Text(1, "data { " + c.data + " }")), c.error);
}

TEST(TrainerText, Tables) {
  const auto error = [](const std::string& table, const std::string& test = "") {
    const std::string text = "data { train { table { " + table + " } } " + test + " }";
    const std::string error = ErrorOf(Text(1, text));
    return error.substr(std::min(error.size(), error.find(' ') + 1));  // without the position
  };
  const std::string file = "file: 't.csv' ";
  EXPECT_EQ(error(file + "label: 'y'"), "");
  EXPECT_EQ(error("label: 'y'"), "missing data.train.table.file; write file: \"houses.csv\"");
  EXPECT_EQ(error("file: ''"), "data.train.table.file: is empty");
  EXPECT_EQ(error(file, "test { table {} }"),
            "missing data.test.table.file; write file: \"houses.csv\"");
  EXPECT_EQ(error(file, "test { table { file: 't' label: 'y' } }"),
            "data.test.table.label: is as data.train has it; leave it out");
  EXPECT_EQ(error(file + "label: 'y' column: ['x', 'y']"),
            "data.train.table.column: column \"y\" is already in label");
  EXPECT_EQ(error(file + "index: 'x' text: 'x' length: 3"),
            "data.train.table.text: column \"x\" is already in index");
  EXPECT_EQ(error(file + "label: ['y', 'y']"),
            "data.train.table.label: column \"y\" is already in label");
  EXPECT_EQ(error(file + "ignore: ''"), "data.train.table.ignore: a column without a name");
  EXPECT_EQ(error(file + "group: 'y' label: 'y'"),
            "data.train.table.group: column \"y\" is already in label");
  EXPECT_EQ(error(file + "weight: 'y' label: 'y'"),
            "data.train.table.weight: column \"y\" is already in label");
  EXPECT_EQ(error(file + "column: 't' time: 't'"), "");
  EXPECT_EQ(error(file + "time: ''"), "data.train.table.time: is empty");
  EXPECT_EQ(error(file + "category: 'x'"), "");
  EXPECT_EQ(error(file + "category: 'x' index: 'x'"),
            "data.train.table.category: expected a column of \"columns\", got \"x\", which is in "
            "index");
  EXPECT_EQ(error(file + "category: 'x' column: 'z'"),
            "data.train.table.category: expected a column of \"columns\", got \"x\"; add it to "
            "column");
  for (const char* bad : {"''", "';;'", "'\"'", "'a'", "'1'", "'\\n'", "'.'", "'-'", "'\\303'"}) {
    EXPECT_EQ(error(file + "separator: " + bad),
              "data.train.table.separator: expected one character, such as \";\" or \"\\t\"");
  }
  EXPECT_EQ(error(file + "separator: '\\t'"), "");
  EXPECT_EQ(error(file + "decimal: ';'"), "data.train.table.decimal: expected \".\" or \",\"");
  EXPECT_EQ(error(file + "decimal: ','"),
            "data.train.table.decimal: separator and decimal are both \",\"; a table of decimal "
            "commas has another separator, such as \";\"");
  EXPECT_EQ(error(file + "comment: ','"),
            "data.train.table.comment: expected one character, such as \"#\"");
  EXPECT_EQ(error(file + "text: 'x'"),
            "data.train.table.text: columns of texts need length, words of a text; write length: "
            "64");
  EXPECT_EQ(error(file + "length: 3"),
            "data.train.table.length: is the words of a text, but no text is named; leave it out");
  EXPECT_EQ(error(file + "words: 3"),
            "data.train.table.words: is the vocabulary of texts, but no text is named; leave it "
            "out");
  EXPECT_EQ(error(file + "text: 'x' length: 3 window: 3"),
            "data.train.table.text: a series in windows has no texts; leave window out, or text");
  EXPECT_EQ(error(file + "window: 0"), "data.train.table.window must be >= 1, got 0");
  EXPECT_EQ(error(file + "text: 'x' length: 0"), "data.train.table.length must be >= 1, got 0");
  const std::string bucketed = "order: BUCKETED";
  EXPECT_EQ(error(file + "text: 'x' length: 3", bucketed), "");
  EXPECT_NE(error(file + "text: ['x', 'y'] length: 3", bucketed), "");
}

TEST(TrainerText, Records) {
  const auto error = [](const std::string& records, const std::string& more = "") {
    return ErrorOf(Text(1, "data { train { records { " + records + " } } " + more + " }"));
  };
  EXPECT_EQ(error("file: 'a' window: 10 images { fit: STRETCH }", "test { records { file: 'b' } }"),
            "");
  EXPECT_EQ(error("window: 10"),
            "t:2:16: missing data.train.records.file; write file: \"train-*.rec\"");
  EXPECT_EQ(error("file: ['a', '']"), "t:2:26: data.train.records.file: is empty");
  EXPECT_EQ(error("file: 'a' window: 0"), "t:2:36: data.train.records.window must be >= 1, got 0");
  for (const std::string field : {"folder", "list", "input", "label"}) {
    EXPECT_EQ(error("file: 'a' images { " + field + ": 'x' }"),
              "t:2:45: data.train.records.images." + field +
                  ": the shards have the pictures and the inputs that they feed; leave it out");
  }
  EXPECT_EQ(error("file: 'a' window: 9", "order: CONTIGUOUS"),
            "t:2:36: data.train.records.window: is of data.order: SHUFFLED, got CONTIGUOUS; leave "
            "it out");
  EXPECT_EQ(error("file: 'a'", "test { records { file: 'b' window: 9 } }"),
            "t:2:67: data.test.records.window: is as data.train has it; leave it out");
  EXPECT_EQ(error("file: 'a'", "test { images { list: 'b' } }"),
            "t:2:40: data.test is of images, but data.train is of records");
}

TEST(TrainerText, OutOfRange) {
  const struct {
    std::string path, value, must;
  } cases[] = {
      {"batch", "0", ">= 1"},
      {"test_batch", "-3", ">= 1"},
      {"epochs", "0", "> 0 and < 1000000000"},
      {"epochs", "inf", "finite"},
      {"steps", "0", ">= 1"},
      {"evaluate_every", "0", ">= 1"},
      {"checkpoint_every", "-1", ">= 1"},
      {"keep_checkpoints", "0", ">= 1"},
      {"distributed.bucket_bytes", "0", ">= 1"},
      {"data.normalization.std", "0", "> 0"},
      {"data.augmentation.shift", "-1", ">= 0"},
      {"data.augmentation.mixup.alpha", "0", "> 0"},
      {"data.augmentation.repeated", "0", ">= 1"},
      {"data.augmentation.gray", "2", ">= 0 and <= 1"},
      {"data.max_bad_samples", "-1", ">= 0"},
      {"optimizer.sgd.momentum", "1", ">= 0 and < 1"},
      {"optimizer.sgd.momentum", "1e+99", ">= 0 and < 1"},
      {"optimizer.sgd.momentum", "-0.5", ">= 0 and < 1"},
      {"optimizer.adam.beta1", "1", ">= 0 and < 1"},
      {"optimizer.adam.beta2", "-1", ">= 0 and < 1"},
      {"optimizer.adam.epsilon", "0", "> 0"},
      {"optimizer.weight_decay", "-1", ">= 0"},
      {"optimizer.clip_norm", "0", "> 0"},
      {"optimizer.ema.decay", "0", "> 0 and < 1"},
      {"optimizer.ema.decay", "1", "> 0 and < 1"},
      {"learning_rate.base", "-1", ">= 0"},
      {"learning_rate.warmup_steps", "-1", ">= 0"},
      {"learning_rate.step.every", "0", ">= 1"},
      {"learning_rate.step.gamma", "0", "> 0"},
      {"learning_rate.cosine.final", "-1", ">= 0"},
      {"learning_rate.epoch_decay", "0", "> 0"},
      {"learning_rate.rank_damping", "-2", "> 0"},
      {"learning_rate.batch_scaling.base_batch", "0", ">= 1"},
      {"loss_scale.fixed", "0", ">= 1e-30 and < 1e+30"},
      {"loss_scale.fixed", "-10", ">= 1e-30 and < 1e+30"},
      {"loss_scale.dynamic.initial", "0", ">= 1e-06 and < 1e+30"},
      {"loss_scale.dynamic.growth_interval", "0", ">= 1"},
  };
  for (const auto& [path, value, must] : cases) {
    EXPECT_EQ(ErrorOfSet(path, value), path + " must be " + must + ", got " + value);
  }
}

TEST(TrainerText, Lists) {
  const struct {
    std::string data, error;
  } cases[] = {
      {"data { normalization { std: [1, -1] } train { idx { images: 'i' labels: 'l' } } }",
       "t:2:24: data.normalization.std must be > 0, got -1"},
      {"data { normalization { } normalization { input: 'image' } train { idx { images: 'i' "
       "labels: 'l' } } }",
       "t:2:26: data.normalization: there are two of \"image\""},
      {"data { normalization { auto: true mean: 1 } train { idx { images: 'i' labels: 'l' } } }",
       "t:2:24: data.normalization: auto takes mean and std from the training samples; leave out "
       "auto, or mean and std"},
      {"data { normalization { std: 2 auto: true } train { idx { images: 'i' labels: 'l' } } }",
       "t:2:31: data.normalization: auto takes mean and std from the training samples; leave out "
       "auto, or mean and std"},
      {"data { train { arrays { array { input: 'x' file: 'y' } array { input: 'x' file: 'z' } } } "
       "}",
       "t:2:64: data.train.arrays: two arrays feed \"x\""},
  };
  for (const auto& c : cases) EXPECT_EQ(ErrorOf(Text(1, c.data)), c.error);
}

TEST(TrainerText, IntegersEndAt31Bits) {
  for (const std::string path :
       {"batch", "test_batch", "steps", "evaluate_every", "checkpoint_every", "keep_checkpoints",
        "distributed.bucket_bytes", "learning_rate.warmup_steps", "learning_rate.step.every"}) {
    EXPECT_EQ(ErrorOfSet(path, "2147483647"), "");
    for (const std::string value : {"2147483648", "4294967297", "9223372036854775807"}) {
      EXPECT_EQ(ErrorOfSet(path, value), path + " must be at most 2^31 - 1, got " + value);
    }
  }
}

// A float would make 1 of the first and 0 of the second.
TEST(TrainerText, NumbersAreDoubles) {
  const auto trainer = *ParseTrainerText(
      Text(2, "optimizer { sgd { momentum: 0.99999999 } weight_decay: 1e-50 }"), "t");
  EXPECT_EQ(trainer.message->optimizer().sgd().momentum(), 0.99999999);
  EXPECT_EQ(trainer.message->optimizer().weight_decay(), 1e-50);
  EXPECT_EQ(trainer.message->learning_rate().base(), 0.1);
}

TEST(TrainerText, TheEndsOfTheRangesAreIn) {
  EXPECT_EQ(ErrorOf(Text(4, "batch: 1 test_batch: 1")), "");
  EXPECT_EQ(ErrorOf(Text(5, "epochs: 1e-9")), "");
  EXPECT_EQ(ErrorOf(Text(2, "optimizer { sgd { momentum: 0 } clip_norm: 1e-6 }")), "");
  EXPECT_EQ(ErrorOf(Text(2, "optimizer { adam { beta1: 0 beta2: 0.999999 } }")), "");
  EXPECT_EQ(ErrorOf(Text(3, "learning_rate { base: 0 warmup_steps: 0 constant { } }")), "");
  for (const std::string scale : {"fixed: 10", "fixed: 0.5", "dynamic { }"}) {
    EXPECT_EQ(ErrorOf(Text(5, "steps: 1 loss_scale { " + scale + " }")), "") << scale;
  }
}

TEST(TrainerText, Grammar) {
  EXPECT_EQ(ErrorOf(Text(5, "epochs: 1 steps: 5")),
            "t:6:11: both epochs (at t:6:1) and steps; keep one");
  EXPECT_EQ(ErrorOf(Text(4, "batch_size: 64")),
            "t:5:1: unknown field \"batch_size\"; did you mean \"batch\"?");
  EXPECT_EQ(ErrorOf("name: \"lenet\" input { name: \"image\" }"),
            "t:1:1: unknown field \"name\" in a trainer; it belongs in a net: is this file a net?");
}

}  // namespace
}  // namespace gyre
