// Mistakes with sequences (shots, reviews, text), with what reads them, with 16 bits and the loss's
// scale, and in what is asked of the tools that make sequences up.

#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "tests/end_to_end/bad_input.h"

namespace gyre {
namespace {

class BadSequenceTest : public testing::TestWithParam<BadInput> {};

TEST_P(BadSequenceTest, EndsWithOneMessage) { ExpectOneMessage(GetParam()); }

// The folder's net and trainer are these, with files beside them.
std::function<void(const std::string&)> With(const std::string& net, const std::string& data,
                                             std::map<std::string, std::string> files,
                                             const std::string& more = "") {
  return [=](const std::string& folder) {
    for (const auto& [name, bytes] : files) {
      std::filesystem::create_directories(std::filesystem::path(folder + "/" + name).parent_path());
      WriteBytes(folder + "/" + name, bytes);
    }
    WriteBytes(folder + "/net.textproto", net);
    WriteBytes(
        folder + "/trainer.textproto",
        absl::StrCat("net: \"net.textproto\"\ndata { ", data,
                     " }\noptimizer { sgd {} } learning_rate { base: 0.1 } batch: 2 steps: 3\n",
                     more, "\n"));
  };
}

constexpr char kShotsNet[] = R"(name: "shots"
input { name: "signals" dims: [4, 1] }
input { name: "length" type: LABEL }
input { name: "reset" dims: 4 type: LABEL }
input { name: "target" dims: 4 type: LABEL }
layer { name: "lstm" input: ["signals", "length", "reset"] lstm { hidden: 3 carry: true } }
layer { name: "fc" dense { outputs: 2 } }
layer { name: "loss" input: ["fc", "target"] softmax_cross_entropy { ignore_label: -1 } }
)";
constexpr char kShots[] =
    "train { shots { folder: \"shots\" signal: \"ip\" length: 4 warning: 2 } } order: CONTIGUOUS";

// Two of them, the first as said.
std::function<void(const std::string&)> WithShots(const std::string& first,
                                                  const std::string& data = kShots) {
  return With(kShotsNet, data,
              {{"shots/a.csv", first}, {"shots/b.csv", "time,ip\n0,1\n1,2\n2,2\n3,4\n"}});
}
constexpr char kGoodShot[] = "# event 3\ntime,ip\n0,1\n1,3\n2,2\n3,5\n";

constexpr char kReviewsNet[] = R"(name: "reviews"
input { name: "text" dims: 4 type: LABEL }
input { name: "length" type: LABEL }
input { name: "label" type: LABEL }
layer { name: "token" input: "text" embedding { vocabulary: 20 width: 3 } }
layer { name: "gru" input: ["token", "length"] gru { hidden: 3 last: true } }
layer { name: "fc" input: "gru:1" dense { outputs: 2 } }
layer { name: "loss" input: ["fc", "label"] softmax_cross_entropy {} }
)";
std::function<void(const std::string&)> WithReviews(const std::string& lines,
                                                    const std::string& net = kReviewsNet) {
  return With(net,
              "train { reviews { file: \"train.tsv\" length: 4 } } test { reviews { file: "
              "\"test.tsv\" } }",
              {{"train.tsv", lines}, {"test.tsv", "pos\tgood\nfun\tfunny\n"}});
}
constexpr char kGoodReviews[] = "pos\tgood film\nneg\tbad film\npos\tfine\n";

constexpr char kTextNet[] = R"(name: "text"
input { name: "text" dims: 4 type: LABEL }
input { name: "next" dims: 4 type: LABEL }
input { name: "reset" dims: 4 type: LABEL }
layer { name: "token" input: "text" embedding { vocabulary: 3 width: 3 } }
layer { name: "rnn" input: ["token", "reset"] rnn { hidden: 3 } }
layer { name: "fc" dense { outputs: 9 } }
layer { name: "loss" input: ["fc", "next"] softmax_cross_entropy { ignore_label: -1 } }
)";
std::function<void(const std::string&)> WithText(const std::string& text,
                                                 const std::string& more = "",
                                                 const std::string& net = kTextNet) {
  return With(net, "train { text { file: \"a.txt\" length: 4 " + more + " } }", {{"a.txt", text}});
}

const BadInput kSequences[] = {
    {.name = "NanInAShot",
     .message = "@/trainer.textproto:2:8: data.train: @/shots/a.csv: ip holds nan at time 1",
     .prepare = WithShots("# event 3\ntime,ip\n0,1\n1,nan\n2,2\n"),
     .ranks = {1, 2}},
    {.name = "ShotCutShort",
     .message = "@/trainer.textproto:2:8: data.train: @/shots/a.csv:5: 1 columns, but the names "
                "are 2",
     .prepare = WithShots("# event 3\ntime,ip\n0,1\n1,3\n2")},
    {.name = "ShotOfTwoSignalsOfAName",
     .message = "@/trainer.textproto:2:8: data.train: @/shots/a.csv:1: two columns \"ip\"",
     .prepare = WithShots("time,ip,ip\n0,1,2\n")},
    {.name = "ShotWithoutTheSignal",
     .message = "@/trainer.textproto:2:8: data.train: @/shots/a.csv:2: no column \"ip\" among "
                "\"time,li\"",
     .prepare = WithShots("# event 3\ntime,li\n0,1\n")},
    {.name = "ShotsWithoutAnEvent",
     .message = "@/trainer.textproto:2:8: data.train: none of the 2 shots beside @/shots/a.csv has "
                "an event to be learned",
     .prepare = WithShots("time,ip\n0,1\n1,3\n")},
    {.name = "ShotOfNoTimes",
     .message = "@/trainer.textproto:2:8: data.train: @/shots/a.csv: no times",
     .prepare = WithShots("time,ip\n")},
    {.name = "ShotsAreAFile",
     .message =
         "@/trainer.textproto:2:8: data.train: cannot list @/test-images.idx: Not a directory",
     .prepare = WithShots(kGoodShot,
                          "train { shots { folder: \"test-images.idx\" signal: \"ip\" length: 4 "
                          "warning: 2 } }")},
    {.name = "ShotsInBuckets",
     .message = "@/trainer.textproto:2:78: data.order: BUCKETED is of texts with lengths, which "
                "data.train.reviews has",
     .prepare = WithShots(kGoodShot,
                          "train { shots { folder: \"shots\" signal: \"ip\" length: 4 warning: 2 "
                          "} } order: BUCKETED")},
    {.name = "MoreRowsThanShots",
     .message = "--batch=3: 3 contiguous rows are more than the 2 shots of data.train; lower "
                "batch or accumulate",
     .arguments = {"--batch=3"},
     .prepare = WithShots(kGoodShot),
     .exit_code = 2,
     .ranks = {1, 2}},
    {.name = "AlarmByAMask",
     .message = "@/net.textproto:9:58: layer \"alarm\": expects time of type F32, got I32",
     .prepare = With(absl::StrCat(kShotsNet,
                                  "layer { name: \"one\" input: \"lstm\" dense { outputs: 1 } } "
                                  "layer { name: \"alarm\" input: [\"one\", \"reset\"] alarm { "
                                  "earliest: 1 } }"),
                     kShots, {{"shots/a.csv", kGoodShot}, {"shots/b.csv", kGoodShot}})},
    {.name = "EmptyReview",
     .message = "@/trainer.textproto:2:8: data.train: @/train.tsv:2: an empty review",
     .prepare = WithReviews("pos\tgood\nneg\t \n"),
     .ranks = {1, 2}},
    {.name = "ReviewWithoutALabel",
     .message = "@/trainer.textproto:2:8: data.train: @/train.tsv:2: expected LABEL TAB TEXT",
     .prepare = WithReviews("pos\tgood\nneg bad\n")},
    {.name = "ReviewNotUtf8",
     .message = "@/trainer.textproto:2:8: data.train: @/train.tsv:2: not UTF-8",
     .prepare = WithReviews("pos\tgood\nneg\tna\xefve\n")},
    {.name = "ReviewsOfOneClass",
     .message = "@/trainer.textproto:2:8: data.train: @/train.tsv:1 and all others are of class "
                "\"pos\"; there must be two classes",
     .prepare = WithReviews("pos\tgood\npos\tfine\n")},
    {.name = "ReviewOfAnotherClassInTheTest",
     .message = "@/trainer.textproto:2:58: data.test: @/test.tsv:2: is of class \"fun\", but those "
                "trained on are \"neg\", \"pos\"",
     .prepare = WithReviews(kGoodReviews)},
    {.name = "RaggedTextsWithoutLengths",
     .message = "@/net.textproto:5:1: layer \"gru\": the texts of data.train have lengths "
                "of their own, which it is not given; add input { name: \"length\" type: LABEL } "
                "to the net, and \"length\" to the layer's inputs, after the text",
     .prepare = WithReviews(kGoodReviews, R"(name: "reviews"
input { name: "text" dims: 4 type: LABEL }
input { name: "label" type: LABEL }
layer { name: "token" input: "text" embedding { vocabulary: 20 width: 3 } }
layer { name: "gru" gru { hidden: 3 last: true } }
layer { name: "fc" input: "gru:1" dense { outputs: 2 } }
layer { name: "loss" input: ["fc", "label"] softmax_cross_entropy {} }
)"),
     .ranks = {1, 2}},
    {.name = "NoText",
     .message = "@/trainer.textproto:2:8: data.train: @/a.txt: no text in it",
     .prepare = WithText("")},
    {.name = "TextNotUtf8",
     .message = "@/trainer.textproto:2:8: data.train: @/a.txt:2: not UTF-8",
     .prepare = WithText("abc\nna\xefve\n")},
    {.name = "WordsOfCharacters",
     .message =
         "@/trainer.textproto:2:47: data.train.text.words: is of unit: WORD, but the unit is "
         "CHARACTER, all of which are known; leave it out, or write unit: WORD",
     .prepare = WithText("abc", "words: 9")},
    {.name = "VocabularyOfAnotherKind",
     .message = "@/trainer.textproto:2:8: data.train: @/net.textproto:1: the first token is <unk> "
                "in a vocabulary",
     .prepare = WithText("abc", "vocabulary: \"net.textproto\"")},
    {.name = "VocabularyBeyondTheEmbedding",
     .message = "@/net.textproto:5:1: layer \"token\": vocabulary: 3 rows, but \"text\" of "
                "data.train (@/a.txt) has tokens from 0 to 6; set vocabulary to 7 or more, or "
                "keep fewer tokens",
     .prepare = WithText("abcdefab")},
    // Of what a layer makes of the data.
    {.name = "VocabularyBeyondTheEmbeddingOfAPart",
     .message = "step 1: training data: sample 1 (the first is 0): @/net.textproto:6:1: layer "
                "\"token\" takes indices "
                "from 0 to 2, got one beyond; correct the data, or the layer",
     .prepare = WithText("abcabcab", "", R"(name: "text"
input { name: "text" dims: 4 type: LABEL }
input { name: "next" dims: 4 type: LABEL }
layer { name: "cut" input: "text" slice { axis: 1 begin: 1 } }
layer { name: "after" input: "next" slice { axis: 1 begin: 1 } }
layer { name: "token" input: "cut" embedding { vocabulary: 3 width: 3 } }
layer { name: "fc" dense { outputs: 9 } }
layer { name: "loss" input: ["fc", "after"] softmax_cross_entropy { ignore_label: -1 } }
)"),
     .begins = true},
    {.name = "MaskOfTheWrongShape",
     .message = "@/net.textproto:7:1: layer \"rnn\": expects reset [2, 3] with samples along axis "
                "0, as in x, got [2, 4] with samples along axis 0",
     .prepare = WithText("abcabcab", "", R"(name: "text"
input { name: "text" dims: 4 type: LABEL }
input { name: "next" dims: 4 type: LABEL }
input { name: "reset" dims: 4 type: LABEL }
layer { name: "token" input: "text" embedding { vocabulary: 9 width: 3 } }
layer { name: "cut" slice { axis: 1 begin: 1 } }
layer { name: "rnn" input: ["cut", "reset"] rnn { hidden: 3 } }
layer { name: "fc" dense { outputs: 9 } }
layer { name: "loss" input: ["fc", "next"] softmax_cross_entropy { ignore_label: -1 } }
)")},
    {.name = "ALossScaleOf0",
     .message = "--set loss_scale.fixed=0: loss_scale.fixed must be >= 1e-30 and < 1e+30, got 0",
     .arguments = {"--precision=F16", "--set=loss_scale.fixed=0"},
     .exit_code = 2,
     .ranks = {1, 2}},
    {.name = "TwoLossScales",
     .message = "@/trainer.textproto:9:42: both fixed (at @/trainer.textproto:9:32) and dynamic; "
                "keep one",
     .trainer = {"steps: 4", "steps: 4 loss_scale { fixed: 10 dynamic {} }"}},
    {.name = "ALossScaleBeyondF16",
     .message = "step 1: a gradient is not finite: one of fc.weight...",
     .arguments = {"--precision=F16", "--set=loss_scale.fixed=1e9"},
     .begins = true,
     .ranks = {1, 2}},
    {.name = "AnUnknownPrecision",
     .message = "--precision=F8: expected for precision F32, F64, F16 or BF16, got \"F8\"",
     .arguments = {"--precision=F8"},
     .exit_code = 2},
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

INSTANTIATE_TEST_SUITE_P(Data, BadSequenceTest, testing::ValuesIn(kSequences), NameOf);
INSTANTIATE_TEST_SUITE_P(Generators, BadSequenceTest, testing::ValuesIn(kGenerators), NameOf);

}  // namespace
}  // namespace gyre
