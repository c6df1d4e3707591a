// What data hold against what layers take, told as a run is planned and as it starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "engine/training/feed/data_check.h"
#include "engine/training/run/trainer.h"
#include "tests/data/temp_folder.h"
#include "tests/distributed/process_group_ranks.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class SequenceCheck : public testing::Test {
 protected:
  // A run of one step of this net on this data; all that it says.
  struct Said {
    absl::Status status;  // of its plan
    std::string plan, run;
  };
  Said Run(const std::string& layers, const std::string& data) {
    const auto net = ParseNetText("name: \"n\"\n" + layers, "n").value();
    const auto trainer = *ParseTrainerText(
        absl::StrCat("net: 'n' batch: 2 steps: 1 optimizer { sgd {} } learning_rate { base: 0.1 } "
                     "data { ",
                     data, " }"),
        folder_ / "t");
    auto opened = OpenData(trainer, net, /*train=*/true).value();
    const auto communication = GroupOfOne();
    const auto device = NewCpuDevice({.threads = 1});
    const Primitives primitives(device->kind(), 1);
    TrainingOptions options;
    options.out = folder_ / absl::StrCat("out", runs_++);
    const auto run = Trainer::Prepare(trainer, net, std::move(opened), *device, primitives,
                                      *communication, options);
    Said said{.status = run.status(), .plan = "", .run = ""};
    if (!run.ok()) return said;
    said.plan = absl::StrJoin((*run)->Summary().warnings, "\n");
    testing::internal::CaptureStdout();
    EXPECT_TRUE((*run)->Run().ok());
    said.run = testing::internal::GetCapturedStdout();
    return said;
  }

  TempFolder folder_;
  int runs_ = 0;
};

TEST_F(SequenceCheck, AnEmbeddingHasARowForEachToken) {
  std::string text;
  for (char c = 'a'; c <= 'z'; ++c) text += c;
  WriteBytes(folder_ / "text", text + text);
  WriteBytes(folder_ / "short", "abcabcabc");
  const auto net = [](int rows) {
    return absl::StrCat(R"(input { name: "text" dims: 4 type: LABEL }
input { name: "next" dims: 4 type: LABEL }
layer { name: "rows" embedding { vocabulary: )",
                        rows, R"( width: 2 } }
layer { name: "out" dense { outputs: 40 } }
layer { name: "loss" input: ["out", "next"] softmax_cross_entropy { ignore_label: -1 } })");
  };
  const std::string data = "train { text { file: 'text' length: 4 unit: CHARACTER } }";
  const Said few = Run(net(20), data);
  const int64_t tokens = 27;  // 0 is for what is unknown
  EXPECT_EQ(
      absl::StrReplaceAll(few.status.message(), {{folder_.path(), "@"}}),
      absl::StrCat("n:4:1: layer \"rows\": vocabulary: 20 rows, but \"text\" of data.train "
                   "(@/text) has tokens from 0 to ",
                   tokens - 1, "; set vocabulary to ", tokens, " or more, or keep fewer tokens"));
  EXPECT_TRUE(Run(net(static_cast<int>(tokens)), data).status.ok());
  EXPECT_THAT(std::string(Run(net(static_cast<int>(tokens) - 1), data).status.message()),
              testing::HasSubstr("vocabulary: 26 rows"));
  // The test alone may have more tokens, where the vocabulary is of other texts.
  std::string vocabulary = "<unk>\n";
  for (const char c : text) absl::StrAppend(&vocabulary, std::string(1, c), "\n");
  WriteBytes(folder_ / "vocabulary", vocabulary);
  const std::string of_test =
      "train { text { file: 'short' length: 4 unit: CHARACTER vocabulary: 'vocabulary' } } "
      "test { text { file: 'text' } }";
  EXPECT_THAT(Run(net(20), of_test).status.message(), HasSubstr("\"text\" of data.test ("));
}

TEST_F(SequenceCheck, AnEmbeddingHasARowForEachWordOfAColumn) {
  WriteBytes(folder_ / "t.csv", "city,y\nUlm,1\nBonn,2\nKiel,3\n");
  const auto net = [](int rows) {
    return absl::StrCat(
        "input { name: 'city' type: LABEL }\ninput { name: 'label' dims: 1 }\n"
        "layer { name: 'rows' input: 'city' embedding { width: 2 vocabulary: ",
        rows, R"( } }
layer { name: "out" dense { outputs: 1 } }
layer { name: "loss" input: ["out", "label"] mean_squared_error {} })");
  };
  const std::string data = "train { table { file: 't.csv' label: 'y' index: 'city' } }";
  EXPECT_EQ(absl::StrReplaceAll(Run(net(3), data).status.message(), {{folder_.path(), "@"}}),
            "n:4:1: layer \"rows\": vocabulary: 3 rows, but \"city\" of data.train (@/t.csv) has "
            "words from 0 to 3; set vocabulary to 4 or more");
  const Said enough = Run(net(4), data);
  ASSERT_TRUE(enough.status.ok()) << enough.status;
  EXPECT_THAT(enough.run, HasSubstr("\"city\" is from 0 to 3, for 3 words"));
}

TEST_F(SequenceCheck, PaddingThatIsReadAsTokensIsWarnedOf) {
  WriteBytes(folder_ / "lines", "pos\ta good film\nneg\tbad\nneg\tworse\n");
  const std::string data = "train { reviews { file: 'lines' length: 4 } }";
  const auto net = [](const std::string& layers) {
    return absl::StrCat(R"(input { name: "text" dims: 4 type: LABEL }
input { name: "length" type: LABEL }
input { name: "label" type: LABEL }
layer { name: "words" input: "text" embedding { vocabulary: 9 width: 2 } }
layer { name: "relu" relu {} }
)",
                        layers, R"(
layer { name: "score" dense { outputs: 1 } }
layer { name: "loss" input: ["score", "label"] binary_cross_entropy {} })");
  };
  const auto warning = [](const char* at) {
    return absl::StrCat("warning: n:", at,
                        ": reads the zeros that samples are filled up with as\n"
                        "  tokens: those of data.train have 1 to 3 of their own; an lstm, gru or "
                        "rnn that\n  is given \"length\" leaves them out\n");
  };
  for (const std::string layers :
       {"layer { name: \"flat\" flatten {} }",
        "layer { name: \"flat\" pool1d { kernel: 4 } }\nlayer { name: \"row\" flatten {} }",
        "layer { name: \"a\" input: ['relu', 'relu', 'relu', 'length'] attention {} } "
        "layer { name: \"flat\" flatten {} }"}) {
    const Said said = Run(net(layers), data);
    ASSERT_TRUE(said.status.ok()) << said.status;
    const std::string at = "layer \"flat\": reads the zeros";
    EXPECT_THAT(said.plan, HasSubstr(at)) << layers;
    EXPECT_THAT(said.run, HasSubstr(at)) << layers;
  }
  EXPECT_THAT(Run(net("layer { name: \"flat\" flatten {} }"), data).run,
              HasSubstr(warning("7:1: layer \"flat\"")));
  // A bag of words: over the axis of the words itself.
  EXPECT_THAT(Run(net("layer { name: \"one\" dense { outputs: 1 } } "
                      "layer { name: \"bag\" reshape { dims: 4 } }"),
                  data)
                  .plan,
              HasSubstr("layer \"score\": reads the zeros"));
  const Said told = Run(net("layer { name: \"lstm\" input: ['relu', 'length'] "
                            "lstm { hidden: 3 last: true } }\n"
                            "layer { name: \"end\" input: \"lstm:1\" relu {} }"),
                        data);
  ASSERT_TRUE(told.status.ok()) << told.status;
  EXPECT_THAT(told.plan, Not(HasSubstr("reads the zeros")));
}

// What --plan warns of, a run says, too, when it starts.
TEST_F(SequenceCheck, WhatIsLikelyAMistakeIsSaidAtTheStart) {
  WriteBytes(folder_ / "text", "abcdefgh");
  const Said said = Run(R"(input { name: "text" dims: 2 type: LABEL }
input { name: "next" dims: 2 type: LABEL }
layer { name: "rows" embedding { vocabulary: 9 width: 9 } }
layer { name: "prob" softmax {} }
layer { name: "loss" input: ["prob", "next"] softmax_cross_entropy { ignore_label: -1 } })",
                        "train { text { file: 'text' length: 2 unit: CHARACTER } }");
  ASSERT_TRUE(said.status.ok()) << said.status;
  EXPECT_THAT(said.run, HasSubstr("warning: n:5:1: layer \"prob\": the loss \"loss\" applies "
                                  "softmax itself; feed it\n  what this layer takes\n"));
}

}  // namespace
}  // namespace gyre
