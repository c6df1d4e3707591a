// Text and reviews as data sets: what they hold, and everything that may be wrong in them.
#include <gmock/gmock.h>

#include "engine/data/batches/split_dataset.h"
#include "tests/data/series_fixture.h"

namespace gyre {
namespace {

using testing::HasSubstr;

// ---- Text ---------------------------------------------------------------------------------------

TEST_F(Series, TextIsCutIntoSamples) {
  Write("a", "abca");
  Write("b", "cé");
  const std::string data =
      "train { text { file: ['a', 'b'] length: 4 } } test { text { file: 't' } }";
  const auto train = *Open(data);
  EXPECT_EQ(train->fit(), (Fit{{"vocabulary.txt", "<unk>\na\nb\nc\né\n"}}));
  EXPECT_EQ(train->size(), 2);
  EXPECT_EQ(All<int32_t>(*train, "text"), (Ints{1, 2, 3, 1, 3, 4, 0, 0}));
  EXPECT_EQ(All<int32_t>(*train, "next"), (Ints{2, 3, 1, -1, 4, -1, -1, -1}));
  EXPECT_EQ(All<int32_t>(*train, "reset"), (Ints{1, 0, 0, 0, 1, 0, 0, 0}));
  // A test knows the training text's tokens alone, whether that was opened before it or not.
  Write("t", "zc");
  for (const Fit& fit : {Fit{}, train->fit()}) {
    const auto test = *Open(data, /*train=*/false, fit);
    EXPECT_EQ(All<int32_t>(*test, "text"), (Ints{0, 3, 0, 0}));
    EXPECT_EQ(All<int32_t>(*test, "next"), (Ints{3, -1, -1, -1}));
    EXPECT_EQ(test->fit().at("vocabulary.txt"), train->fit().at("vocabulary.txt"));
  }
}

TEST_F(Series, WordsAreTheMostFrequent) {
  Write("a", "The cat, the dog.\nThe end\n");
  const auto data = *Open("train { text { file: 'a' unit: WORD words: 4 length: 20 } }");
  EXPECT_EQ(data->fit().at("vocabulary.txt"), "<unk>\n<eos>\nThe\n,\n");
  EXPECT_EQ(All<int32_t>(*data, "text"),
            (Ints{2, 0, 3, 0, 0, 0, 1, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
}

// Some editors begin a file with the mark.
TEST_F(Series, AByteOrderMarkIsNoText) {
  const std::string mark = "\xef\xbb\xbf";
  Write("text", mark + "ab");
  EXPECT_EQ((*Open("train { text { file: 'text' length: 2 } }"))->fit().at("vocabulary.txt"),
            "<unk>\na\nb\n");
  EXPECT_EQ(
      (*Open("train { text { file: 'text' length: 2 unit: WORD } }"))->fit().at("vocabulary.txt"),
      "<unk>\n<eos>\nab\n");
  // Two files put together, with a blank line between them.
  Write("lines", mark + "cold\tice\nwarm\tsun\n\n" + mark + "cold\tsnow\n" + mark);
  const std::string reviews = "train { reviews { length: 2 file: 'lines' ";
  const auto lines = *Open(reviews + "} }");
  EXPECT_EQ(lines->fit().at("vocabulary.txt"), "class\tcold\nclass\twarm\n<unk>\nice\nsnow\nsun\n");
  EXPECT_EQ(All<int32_t>(*lines, "label"), (Ints{0, 1, 0}));
  Write("folder/a/1.txt", mark + "ice");
  Write("folder/b/1.TXT", "sun");
  EXPECT_EQ((*Open("train { reviews { folder: 'folder' length: 2 } }"))->fit().at("vocabulary.txt"),
            "class\ta\nclass\tb\n<unk>\nice\nsun\n");
  // A vocabulary that an editor has saved again is the same.
  Write("vocabulary",
        mark + absl::StrReplaceAll(lines->fit().at("vocabulary.txt"), {{"\n", "\r\n"}}));
  EXPECT_EQ(Error(reviews + "vocabulary: 'vocabulary' } }", true, lines->fit()), "");
  Write("wide", std::string("a\0b\0", 4));
  EXPECT_EQ(Error("train { text { file: 'wide' length: 2 } }"),
            "@wide: the text is in UTF-16 or UTF-32; expected UTF-8, as iconv -t UTF-8 makes it");
}

TEST_F(Series, WordsOfEarlierVocabulariesAreFound) {
  Write("lines", "a\tÖL\nb\tÖl öl");
  const std::string data = "train { reviews { length: 2 file: 'lines' } }";
  const auto now = *Open(data);
  EXPECT_EQ(now->fit().at("vocabulary.txt"), "class\ta\nclass\tb\n<unk>\nöl\n");
  EXPECT_EQ(All<int32_t>(*now, "text"), (Ints{1, 0, 1, 1}));
  const Fit fit = {{"vocabulary.txt", "class\ta\nclass\tb\n<unk>\nÖl\nöl\n"}};
  EXPECT_EQ(All<int32_t>(**Open(data, true, fit), "text"), (Ints{1, 0, 1, 2}));
}

TEST_F(Series, SaysWhatIsWrongWithText) {
  Write("good", "abc");
  Write("empty", "");
  Write("blank", " \n ");
  Write("latin", "one\ntwo\nna\xefve\n");
  Write("vocabulary", "<unk>\na\nq\n");
  Write("broken", "<unk>\na\na\n");
  std::filesystem::create_directory(folder_ / "folder");
  const auto text = [](const std::string& fields) {
    return absl::StrCat("train { text { length: 2 ", fields, " } }");
  };
  EXPECT_EQ(Error(text("file: 'none'")), "cannot open @none: No such file or directory");
  EXPECT_THAT(Error(text("file: 'folder'")), HasSubstr("@folder"));
  EXPECT_EQ(Error(text("file: ['good', 'empty']")), "@empty: no text in it");
  EXPECT_EQ(Error(text("file: 'blank' unit: WORD")), "@blank: no text in it");
  EXPECT_EQ(Error(text("file: 'latin'")), "@latin:3: not UTF-8");
  EXPECT_EQ(Error(text("file: 'good' vocabulary: 'broken'")),
            "@broken:3: the token \"a\" is there twice");
  EXPECT_EQ(Error(text("file: 'good' vocabulary: 'none'")),
            "cannot open @none: No such file or directory");
  const Fit fit = {{"vocabulary.txt", "<unk>\na\nb\nc\n"}};
  EXPECT_EQ(
      Error(text("file: 'good' vocabulary: 'vocabulary'"), true, fit),
      "@vocabulary is of another run than the weights: line 3 of vocabulary.txt is \"b\", but "
      "\"q\" here; leave it out, or name that of their run");
  EXPECT_EQ(Error(text("file: 'good'"), true, {{"scales.txt", "ip\t1\n"}}),
            "vocabulary.txt is of another run than the weights: scales.txt is expected, but it is "
            "vocabulary.txt; leave it out, or name that of their run");
  EXPECT_EQ(Error(text("file: 'good'"), true, fit), "");
}

// ---- Reviews ------------------------------------------------------------------------------------

TEST_F(Series, ReviewsOfFoldersAndOfLines) {
  Write("train/pos/b.txt", "Good good<br />film!");
  Write("train/pos/a.txt", "a good\nfilm");
  Write("train/neg/0.txt", "bad");
  Write("train/unsup/0.txt", "no label");
  Write("train/neg/notes", "no review");
  // What the public set has beside the folders.
  Write("train/urls_pos.txt", "http://www.imdb.com/title/tt0064354/usercomments\n");
  Write("train/labeledBow.feat", "9 0:9 1:1\n");
  Write("lines", "neg\tbad\npos\ta good film\r\npos\tGood good film!");
  Write("lines_test", "neg\tfilm");
  for (const char* where : {"folder: 'train'", "file: 'lines'"}) {
    const auto data = *Open(absl::StrCat("train { reviews { ", where, " length: 3 words: 4 } }"));
    EXPECT_EQ(data->fit().at("vocabulary.txt"), "class\tneg\nclass\tpos\n<unk>\ngood\nfilm\n!\n");
    EXPECT_EQ(All<int32_t>(*data, "text"), (Ints{0, 0, 0, 0, 1, 2, 1, 2, 3}));
    EXPECT_EQ(All<int32_t>(*data, "length"), (Ints{1, 3, 3}));
    EXPECT_EQ(All<int32_t>(*data, "label"), (Ints{0, 1, 1}));
    EXPECT_THAT(data->lengths(), testing::ElementsAre(1, 3, 3));
    const std::string cut = absl::StrCat("1 of the 3 texts of ", folder_.path(), "/",
                                         data->notes().size() == 2 ? "train" : "lines",
                                         " have more than 3 words: their last 3 are kept");
    EXPECT_EQ(data->notes().back(), cut);
    EXPECT_EQ(data->notes().size(), where[0] == 'f' && where[1] == 'o' ? 2u : 1u);
    if (data->notes().size() == 1) continue;
    EXPECT_EQ(data->notes()[0],
              absl::StrCat("of ", folder_.path(),
                           "/train 4 are left out (labeledBow.feat, ...): expected folders, a "
                           "class each, of .txt files"));
  }
  const auto test = *Open(
      "train { reviews { folder: 'train' length: 3 words: 4 } } test { reviews { file: "
      "'lines_test' } }",
      /*train=*/false);
  EXPECT_EQ(All<int32_t>(*test, "text"), (Ints{2, 0, 0}));
  EXPECT_EQ(All<int32_t>(*test, "label"), Ints{0});
}

// Each has a word of its own, which is unknown where it is held back.
TEST_F(Series, WordsAreOfTheReviewsThatAreNotHeldBack) {
  std::string lines;
  for (int i = 0; i < 20; ++i) absl::StrAppend(&lines, "c", i % 3, "\tw", i, " w", i, "\n");
  Write("lines", lines);
  for (const char* by : {"SAMPLE", "CLASS", "TIME"}) {
    DataConfig config;
    const std::string text = absl::StrCat("split { test: 0.4 by: ", by,
                                          " } train { reviews { file: 'lines' length: 2 } }");
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &config));
    const auto split = *Split(*Open(text), config.split(), "label");
    EXPECT_THAT(All<int32_t>(*split.train, "text"), testing::Each(testing::Gt(0))) << by;
    EXPECT_THAT(All<int32_t>(*split.test, "text"), testing::Each(0)) << by;
    EXPECT_EQ(split.test->size(), by[0] == 'C' ? 3 + 3 + 2 : 8);
    EXPECT_THAT(All<int32_t>(*split.test, "label"), testing::Each(testing::Lt(3)));
  }
  EXPECT_EQ(Error("split { test: 0.4 by: GROUP } train { reviews { file: 'lines' length: 2 } }"),
            "");
}

TEST_F(Series, ReviewsWithoutLabelsArePredicted) {
  Write("train", "a\tice\nb\tsun\n");
  Write("given", "sun\nc\tice\n\tsun");
  const std::string data =
      "train { reviews { file: 'train' length: 1 } } test { reviews { file: 'given' } }";
  inputs_ = {{.name = "text", .dims = {1}, .label = true}};
  const auto given = Open(data, /*train=*/false).value();
  EXPECT_EQ(All<int32_t>(*given, "text"), (Ints{2, 1, 2}));
  EXPECT_EQ(given->arrays().size(), 2u);  // and lengths
  inputs_.push_back({.name = "label", .dims = {}, .label = true});
  EXPECT_EQ(Error(data, /*train=*/false), "@given:1: expected LABEL TAB TEXT");
}

TEST_F(Series, SaysWhatIsWrongWithReviews) {
  const auto reviews = [](const std::string& fields) {
    return absl::StrCat("train { reviews { length: 3 ", fields, " } }");
  };
  std::filesystem::create_directory(folder_ / "empty");
  std::filesystem::create_directories(folder_ / "no_text/pos");
  Write("no_review/pos/a.txt", "fine");
  Write("no_review/neg/b.txt", " \n");
  Write("one/pos/a.txt", "fine");
  Write("latin/neg/a.txt", "fine\n\xff");
  EXPECT_EQ(Error(reviews("folder: 'nowhere'")), "cannot list @nowhere: No such file or directory");
  EXPECT_EQ(Error(reviews("folder: 'empty'")), "@empty: no folder of .txt files in it");
  EXPECT_EQ(Error(reviews("folder: 'no_text'")), "@no_text/pos: no .txt file in it");
  EXPECT_EQ(Error(reviews("folder: 'no_review'")), "@no_review/neg/b.txt: an empty review");
  EXPECT_EQ(Error(reviews("folder: 'one'")),
            "@one/pos/a.txt and all others are of class \"pos\"; there must be two classes");
  EXPECT_EQ(Error(reviews("folder: 'latin'")), "@latin/neg/a.txt:2: not UTF-8");
  const auto lines = [&](const std::string& text) {
    Write("lines", text);
    return Error(reviews("file: 'lines'"));
  };
  EXPECT_EQ(lines("a\tx\nb\ty\n"), "");
  EXPECT_EQ(lines(""), "@lines: no review in it");
  EXPECT_EQ(lines("a\tx\nb y\n"), "@lines:2: expected LABEL TAB TEXT");
  EXPECT_EQ(lines("a\tx\n\nb y"), "@lines:3: expected LABEL TAB TEXT");
  EXPECT_EQ(lines("a\tx\n\ty"), "@lines:2: expected LABEL TAB TEXT");
  EXPECT_EQ(lines("a\tx\nb\t \n"), "@lines:2: an empty review");
  EXPECT_EQ(lines("a\tx\nb\t\xff\n"), "@lines:2: not UTF-8");
  EXPECT_EQ(lines("a\tx\na\ty\n"),
            "@lines:1 and all others are of class \"a\"; there must be two classes");
  Write("train", "a\tx\nb\ty");
  Write("test", "a\tx\nc\ty");
  const std::string both =
      "train { reviews { length: 3 file: 'train' } } test { reviews { file: 'test' } }";
  EXPECT_EQ(Error(both, /*train=*/false),
            "@test:2: is of class \"c\", but those trained on are \"a\", \"b\"");
}

// As many classes as texts; the tests' time limit is far above what this takes unless classes are
// looked for one by one.
TEST_F(Series, ClassesMayBeMany) {
  constexpr int kClasses = 300'000;
  std::string lines;
  for (int i = 0; i < kClasses; ++i) absl::StrAppend(&lines, i, "\tx\n");
  Write("train", lines);
  Write("test", "a\tx\n");
  const std::string data =
      "train { reviews { length: 1 file: 'train' } } test { reviews { file: 'test' } }";
  EXPECT_EQ((*Open(data))->size(), kClasses);
  EXPECT_EQ(Error(data, /*train=*/false),
            "@test:1: is of class \"a\", but those trained on are \"0\", \"1\", \"10\", \"100\", "
            "\"1000\", \"10000\", \"100000\", \"100001\", \"100002\", \"100003\", ...");
}

}  // namespace
}  // namespace gyre
