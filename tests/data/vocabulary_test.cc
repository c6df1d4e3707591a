#include "engine/data/sets/vocabulary.h"

#include <gtest/gtest.h>

namespace gyre {
namespace {

using Strings = std::vector<std::string>;

Strings Tokens(std::string_view text, TokenKind kind) {
  Strings tokens;
  const absl::Status status =
      ForEachToken(text, kind, [&](std::string_view token) { tokens.emplace_back(token); });
  if (!status.ok()) return {std::string(status.message())};
  return tokens;
}

TEST(ForEachToken, CharactersAreThoseOfUnicode) {
  EXPECT_EQ(Tokens("", TokenKind::kCharacters), Strings{});
  EXPECT_EQ(Tokens("a\n é\U0001F600", TokenKind::kCharacters),
            (Strings{"a", "\n", " ", "é", "\U0001F600"}));
}

TEST(ForEachToken, WordsAndWhatStandsBetweenThem) {
  const std::string text = "Don't <unk>, ok?\n\n  \nÉté 3.5<br />x";
  EXPECT_EQ(Tokens(text, TokenKind::kWords), (Strings{"Don't", "<unk>", ",", "ok", "?", "<eos>",
                                                      "Été", "3", ".", "5", "x", "<eos>"}));
  EXPECT_EQ(Tokens(text, TokenKind::kLowerWords),
            (Strings{"don't", "<unk>", ",", "ok", "?", "été", "3", ".", "5", "x"}));
  EXPECT_EQ(Tokens("ÖL ΑΒΓ Ça \U00010400", TokenKind::kLowerWords),
            (Strings{"öl", "αβγ", "ça", "\U00010428"}));
  EXPECT_EQ(Tokens("ÖL Ab", TokenKind::kLowerAsciiWords), (Strings{"Öl", "ab"}));
  EXPECT_EQ(Tokens("a\ufeffb \ufeff", TokenKind::kWords), (Strings{"a", "b", "<eos>"}));
  EXPECT_EQ(Tokens(" \n\t\r\n", TokenKind::kWords), Strings{});
}

TEST(ForEachToken, RefusesWhatIsNotUtf8) {
  for (const char* bad : {"\xff", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xe2\x82\x41"}) {
    for (const TokenKind kind : {TokenKind::kCharacters, TokenKind::kWords}) {
      EXPECT_EQ(Tokens(std::string("a\nb\n") + bad, kind), Strings{"3: not UTF-8"}) << bad;
    }
  }
}

TEST(VocabularyTest, TheMostFrequentAndOfEqualOnesTheFirst) {
  const TokenCounts counts = {{"b", 2}, {"a", 2}, {"c", 7}, {"<unk>", 9}, {"d", 1}};
  EXPECT_EQ(Vocabulary::Of(counts, 4).text(), "<unk>\nc\na\nb\n");
  EXPECT_EQ(Vocabulary::Of(counts, 100).text(), "<unk>\nc\na\nb\nd\n");
  const Vocabulary all = Vocabulary::Of(counts, 0, {"no", "yes"});
  EXPECT_EQ(all.text(), "class\tno\nclass\tyes\n<unk>\na\nb\nc\nd\n");
  EXPECT_EQ(all.Number("<unk>"), 0);
  EXPECT_EQ(all.Number("d"), 4);
  EXPECT_EQ(all.Number("e"), 0);
  EXPECT_EQ(all.size(), 5);
  EXPECT_EQ(all.ClassNumber("yes"), 1);
  EXPECT_EQ(all.ClassNumber("maybe"), -1);
}

TEST(VocabularyTest, IsReadAsItIsWritten) {
  TokenCounts counts = {{"\n", 1}, {"\\", 1}, {"\t", 1}, {"é", 1}, {"\r", 1}, {" ", 1}, {"\"", 1}};
  for (char c = 1; c < 127; ++c) counts[std::string(1, c)] = 1;
  counts[std::string(1, '\0')] = 1;
  const Vocabulary vocabulary = Vocabulary::Of(counts, 0, {"a class"});
  const auto again = Vocabulary::Parse(vocabulary.text()).value();
  EXPECT_EQ(again.text(), vocabulary.text());
  EXPECT_EQ(again.classes(), Strings{"a class"});
  for (const auto& [token, count] : counts) {
    EXPECT_GT(again.Number(token), 0);
    EXPECT_EQ(again.Number(token), vocabulary.Number(token));
  }
}

TEST(VocabularyTest, ACapitalTellsHowWordsWereMade) {
  EXPECT_EQ(Vocabulary::Parse("<unk>\nöl\n\\200\n")->LowerKind(), TokenKind::kLowerWords);
  EXPECT_EQ(Vocabulary::Parse("<unk>\nöl\nÖl\n")->LowerKind(), TokenKind::kLowerAsciiWords);
}

TEST(VocabularyTest, SaysWhichLineIsWrong) {
  const auto error = [](const char* text) {
    return std::string(Vocabulary::Parse(text).status().message());
  };
  EXPECT_EQ(error(""), "1: a vocabulary without tokens");
  EXPECT_EQ(error("the\n"), "1: the first token is <unk> in a vocabulary");
  EXPECT_EQ(error("<unk>\na\n\nb\n"), "3: expected a token, with C's escapes");
  EXPECT_EQ(error("<unk>\n\\q\n"), "2: expected a token, with C's escapes");
  EXPECT_EQ(error("<unk>\na\nb\na\n"), "4: the token \"a\" is there twice");
}

}  // namespace
}  // namespace gyre
