// What --plan warns about: each suspicion with its place, and texts that deserve none.
#include "engine/training/run/lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "models/schema/parse.h"

namespace gyre {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The net begins at line 3 of its file.
std::vector<std::string> Warnings(const std::string& layers, bool test = true,
                                  const std::string& optimizer = "sgd {}",
                                  const std::string& rate = "base: 0.1", int ranks = 1,
                                  int64_t batch = 4, const std::string& data = "") {
  const auto net = *ParseNetText(absl::StrCat("name: 't' input { name: 'image' dims: [6, 6, 2] }\n"
                                              "input { name: 'label' type: LABEL }\n",
                                              layers),
                                 "n");
  const auto trainer =
      *ParseTrainerText(absl::StrCat("net: 'n' data { train { idx { images: 'a' labels: 'b' } } ",
                                     data, " }\noptimizer { ", optimizer, " }\nlearning_rate { ",
                                     rate, " }\nbatch: 4 steps: 1"),
                        "t");
  const Primitives primitives(DeviceKind::kCpu, 1);
  const auto plan = *PlanModel(net, {.shape = {.global = batch, .ranks = ranks},
                                     .test_batch = test ? 4 : 0,
                                     .test_samples = test ? 4 : 0,
                                     .primitives = &primitives});
  return Lint(trainer, net, plan);
}

constexpr char kLoss[] = "layer { name: 'loss' input: ['fc', 'label'] softmax_cross_entropy {} }\n";

std::string Net(const std::string& before, const std::string& after = "") {
  return absl::StrCat(
      before, "layer { name: 'flat' flatten {} } layer { name: 'fc' dense { outputs: 3 } }\n",
      kLoss, after);
}

TEST(Lint, KeepsSilentAboutWhatIsUsual) {
  EXPECT_THAT(
      Warnings(Net("layer { name: 'conv' conv2d { filters: 3 kernel: 3 use_bias: false } }\n"
                   "layer { name: 'norm' batch_norm {} }\n"
                   "layer { name: 'relu' relu {} }\n"
                   "layer { name: 'pool' pool2d { kernel: 2 } }\n"
                   "layer { name: 'drop' dropout {} }\n",
                   "layer { name: 'prob' input: 'fc' softmax {} }\n"
                   "layer { name: 'top' phase: TEST input: ['prob', 'label'] accuracy {} }")),
      IsEmpty());
}

TEST(Lint, AnOutputThatNobodyReads) {
  const std::string why = ", and it is no loss or metric; name it as an input, or remove it";
  // A plan exchanges a ReLU and the pooling after it; the warning is about the text.
  EXPECT_THAT(Warnings(Net("",
                           "layer { name: 'conv' input: 'image' relu {} }\n"
                           "layer { name: 'pool' pool2d { kernel: 2 } }")),
              ElementsAre("n:6:1: layer \"pool\": nobody reads its output" + why));
  EXPECT_THAT(Warnings(Net("layer { name: 'cut' split { parts: 2 } }\n")),
              ElementsAre("n:3:1: layer \"cut\": nobody reads its output 1" + why));
  const std::string rows = "layer { name: 'rows' reshape { dims: [6, 12] } }\n";
  for (const char* type : {"lstm", "gru", "rnn"}) {
    const std::string recurrent =
        absl::StrCat(rows, "layer { name: 'r' ", type, " { hidden: 2 last: true } }\n");
    EXPECT_THAT(Warnings(Net(recurrent + "layer { name: 'end' input: 'r:1' relu {} }\n")),
                IsEmpty());
    EXPECT_THAT(Warnings(Net(recurrent)),
                ElementsAre("n:4:1: layer \"r\": nobody reads its output 1" + why));
  }
  const std::string tested = Net("",
                                 "layer { name: 'prob' input: 'fc' softmax {} }\n"
                                 "layer { name: 'top' phase: TEST input: ['prob', 'label'] "
                                 "accuracy {} }");
  EXPECT_THAT(Warnings(tested), IsEmpty());
  EXPECT_THAT(Warnings(tested, /*test=*/false),
              ElementsAre("n:5:1: layer \"prob\": nobody reads its output" + why));
}

TEST(Lint, OneLayerBeforeAnother) {
  const std::string bias =
      "its bias has no effect, because \"norm\" subtracts each channel's mean; write use_bias: "
      "false";
  const struct {
    std::string layers, warning;
  } cases[] = {
      {Net("layer { name: 'conv' conv2d { filters: 3 kernel: 3 } }\n"
           "layer { name: 'norm' batch_norm {} }\n"),
       "n:3:1: layer \"conv\": " + bias},
      {Net("layer { name: 'rows' flatten {} }\n"
           "layer { name: 'hidden' dense { outputs: 3 } }\n"
           "layer { name: 'norm' batch_norm {} }\n"),
       "n:4:1: layer \"hidden\": " + bias},
      {Net("",
           "layer { name: 'prob' input: 'fc' softmax {} }\n"
           "layer { name: 'twice' input: ['prob', 'label'] softmax_cross_entropy {} }"),
       "n:5:1: layer \"prob\": the loss \"twice\" applies softmax itself; feed it what this layer "
       "takes"},
      {"layer { name: 'flat' flatten {} } layer { name: 'scores' dense { outputs: 3 } }\n"
       "layer { name: 'fc' dropout {} }\n" +
           std::string(kLoss),
       "n:4:1: layer \"fc\": it zeroes what the loss \"loss\" measures; put it before the last "
       "layer with weights"},
  };
  for (const auto& c : cases) EXPECT_THAT(Warnings(c.layers), ElementsAre(c.warning));
  // Another reader sees the bias.
  EXPECT_THAT(Warnings(Net("layer { name: 'conv' conv2d { filters: 3 kernel: 3 } }\n"
                           "layer { name: 'norm' batch_norm {} }\n"
                           "layer { name: 'sum' input: ['conv', 'norm'] add {} }\n")),
              IsEmpty());
  // And another layer uses it.
  EXPECT_THAT(Warnings("layer { name: 'flat' flatten {} }\n"
                       "layer { name: 'hidden' dense { outputs: 3 bias { name: 'b' } } }\n"
                       "layer { name: 'norm' batch_norm {} }\n"
                       "layer { name: 'fc' dense { outputs: 3 bias { name: 'b' } } }\n" +
                       std::string(kLoss)),
              IsEmpty());
  EXPECT_THAT(
      Warnings("layer { name: 'flat' flatten {} } layer { name: 'scores' dense { outputs: 3 "
               "} }\nlayer { name: 'fc' dropout { rate: 0 } }\n" +
               std::string(kLoss)),
      IsEmpty());
}

TEST(Lint, BatchNormOfOneValue) {
  const std::string in_all =
      "n:3:35: layer \"fc\": a channel has one value in the batch, which is its own mean; raise "
      "the batch";
  const std::string on_a_rank =
      "n:3:35: layer \"fc\": a channel has one value in a rank's batch, which is its own mean; "
      "raise the batch, or write synchronised: true";
  const struct {
    std::string fields;
    int64_t batch;
    int ranks;
    std::string warning;
  } cases[] = {
      {"", 4, 2, ""},
      {"", 4, 4, on_a_rank},
      {"", 3, 2, on_a_rank},  // of the second
      {"", 1, 1, in_all},
      {"synchronised: true", 4, 4, ""},
      {"synchronised: true", 1, 1, in_all},
  };
  for (const auto& c : cases) {
    const std::vector<std::string> warnings =
        Warnings("layer { name: 'flat' flatten {} } layer { name: 'fc' batch_norm { " + c.fields +
                     " } }\n" + kLoss,
                 /*test=*/true, "sgd {}", "base: 0.1", c.ranks, c.batch);
    EXPECT_EQ(absl::StrJoin(warnings, "; "), c.warning) << c.fields << c.batch << c.ranks;
  }
}

TEST(Lint, RowsThatMeetUnrelatedSamples) {
  const auto warnings = [](const std::string& carry, const std::string& data) {
    return Warnings(Net(absl::StrCat("layer { name: 'rows' reshape { dims: [6, 12] } }\n"
                                     "layer { name: 'lstm' lstm { hidden: 2 ",
                                     carry, " } }\n")),
                    /*test=*/true, "sgd {}", "base: 0.1", /*ranks=*/1, /*batch=*/4, data);
  };
  EXPECT_THAT(
      warnings("carry: true", ""),
      ElementsAre("n:4:1: layer \"lstm\": the rows that it carries from batch to batch meet "
                  "unrelated samples, since these are shuffled; write order: CONTIGUOUS in "
                  "the trainer's data"));
  EXPECT_THAT(warnings("carry: true", "order: CONTIGUOUS"), IsEmpty());
  EXPECT_THAT(warnings("", ""), IsEmpty());
}

TEST(Lint, AParameterServerOfOneRank) {
  const auto warnings = [](const std::string& sync, int ranks) {
    return Warnings(Net(""), /*test=*/true, "sgd {}", "base: 0.1 } distributed { sync: " + sync,
                    ranks);
  };
  EXPECT_THAT(warnings("SSP", 1),
              ElementsAre("t:3:43: distributed.sync: a parameter server takes several ranks; this "
                          "one trains without"));
  EXPECT_THAT(warnings("ALLREDUCE", 1), IsEmpty());
  EXPECT_THAT(warnings("SSP", 2), IsEmpty());
}

TEST(Lint, BlocksNameBothPlaces) {
  const std::string why = "-norm\" subtracts each channel's mean; write use_bias: false";
  EXPECT_THAT(
      Warnings(Net("block { name: 'cell'\n"
                   "  layer { name: 'conv' conv2d { filters: 3 kernel: 1 } }\n"
                   "  layer { name: 'norm' batch_norm {} } }\n"
                   "layer { name: 'body' use { block: 'cell' repeat: 2 } }\n")),
      ElementsAre("n:4:3, used at n:6:1: layer \"body-1-conv\": its bias has no effect, because "
                  "\"body-1" +
                      why,
                  "n:4:3, used at n:6:1: layer \"body-2-conv\": its bias has no effect, because "
                  "\"body-2" +
                      why));
}

TEST(Lint, LearningRatesFarFromUsual) {
  const struct {
    const char *optimizer, *rate, *warning;
  } cases[] = {
      {"sgd {}", "base: 10", ""},
      {"sgd {}", "base: 1e-7", ""},
      {"sgd {}", "constant {} base: 10.5",
       "t:3:29: learning_rate.base: with sgd rates are usually 1e-07 to 10, got 10.5"},
      {"sgd {}", "base: 0",
       "t:3:17: learning_rate.base: with sgd rates are usually 1e-07 to 10, got 0"},
      {"adam {}", "base: 0.1", ""},
      {"adam {}", "base: 0.2",
       "t:3:17: learning_rate.base: with adam rates are usually 1e-07 to 0.1, got 0.2"},
      {"adamw {}", "base: 1e-8",
       "t:3:17: learning_rate.base: with adamw rates are usually 1e-07 to 0.1, got 1e-08"},
  };
  for (const auto& c : cases) {
    const std::vector<std::string> warnings = Warnings(Net(""), true, c.optimizer, c.rate);
    EXPECT_EQ(warnings.empty() ? "" : warnings.front(), c.warning) << c.optimizer << c.rate;
  }
}

TEST(LintData, MoreOutputsThanClasses) {
  const auto trainer = *ParseTrainerText(
      "net: 'n' data { train { images { folder: 'a' } } }\noptimizer { sgd {} }\n"
      "learning_rate { base: 0.1 } batch: 4 steps: 1",
      "t");
  const DataLook look{.digest = "",
                      .large = {},
                      .takers = {{"text", "embedding", 999}, {"label", "n:3:1: loss", 2}}};
  const auto warnings = [&](const std::vector<std::string>& classes) {
    return LintData(trainer, look, classes);
  };
  EXPECT_THAT(warnings({"a", "b"}),
              ElementsAre("n:3:1: loss takes 3 classes, but data.train has 2; write 2 outputs"));
  EXPECT_THAT(warnings({"a", "b", "c"}), IsEmpty());
  EXPECT_THAT(warnings({}), IsEmpty());
}

}  // namespace
}  // namespace gyre
