// Everything that may be wrong in a table, its test or its fit.
#include <gmock/gmock.h>

#include "tests/data/table_fixture.h"

namespace gyre {
namespace {

using testing::HasSubstr;

class TableErrors : public Table {};

TEST_F(TableErrors, SaysWhatIsWrongInAFile) {
  const auto error = [&](const std::string& text, const std::string& more = "label: 'y'") {
    Write("t.csv", text);
    return Error(Data(more));
  };
  EXPECT_EQ(error("a,y\n1,2\n"), "");
  EXPECT_EQ(error(""), "@t.csv:1: expected a line of the columns' names, got the file's end");
  EXPECT_EQ(error("a,y\n"), "@t.csv: no row in it");
  EXPECT_EQ(error("1,2\n3,4\n"),
            "@t.csv:1: expected the columns' names, got numbers: \"1\"; put a line of names first");
  EXPECT_EQ(error("0,1\n3,4\n", ""), "");  // as pandas names columns
  EXPECT_EQ(error("a,x\n1,2\n"), "@t.csv:1: unknown column \"y\"; choose from a, x");
  EXPECT_EQ(error("a,prices\n1,2\n", "label: 'price'"),
            "@t.csv:1: unknown column \"price\"; did you mean \"prices\"?");
  EXPECT_EQ(error("a;y\n1;2\n"),
            "@t.csv:1: no column \"y\" among \"a;y\"; write separator: \";\" if that "
            "separates columns");
  EXPECT_EQ(error("a\ty\n1\t2\n", "column: 'a'"),
            "@t.csv:1: no column \"a\" among \"a\\ty\"; write separator: \"\\t\" if that "
            "separates columns");
  EXPECT_EQ(error("a,y\n1,2\n", "label: 'y' ignore: 'b'"),
            "@t.csv:1: unknown column \"b\"; choose from a, y");
  EXPECT_EQ(error(std::string(100'000, ',')),
            "@t.csv:1: expected at most 100000 columns, got 100001");
  EXPECT_EQ(error("a,a,y\n1,2,3\n"), "@t.csv:1: two columns \"a\"");
  EXPECT_EQ(error("a,a,y\n1,2,3\n", "column: 'y'"), "");
  EXPECT_EQ(error("a,y\n1,2\n1,2,3\n"),
            "@t.csv:3: expected 2 cells, a value for each name, got 3; a cell with a separator in "
            "it needs quotes");
  EXPECT_EQ(error("a,y\n1,2\n\n1\n"), "@t.csv:4: expected 2 cells, a value for each name, got 1");
  EXPECT_EQ(error("a,y\nK\xf6ln,2\n"),
            "@t.csv:2: column \"a\": not UTF-8; write the file as UTF-8");
  EXPECT_EQ(error("\xf6,y\n1,2\n"), "@t.csv:1: not UTF-8; write the file as UTF-8");
  EXPECT_EQ(error(std::string("a,y\n1\0,2\n", 9)),
            "@t.csv:2: column \"a\": a byte of 0; write the file as UTF-8");
  EXPECT_EQ(error(std::string("ab,y\0\n1,2\n", 10)),
            "@t.csv:1: a byte of 0; write the file as UTF-8");
  EXPECT_EQ(error("a,y\n1,2\n1e999,2\n3,2\n"),
            "@t.csv:3: column \"a\": expected a number, as 2 of 3 rows have, got \"1e999\"; write "
            "missing_as: \"1e999\" if that is no value, or category: \"a\" if all are words");
  EXPECT_EQ(error("a,y\n1,2\n", "label: 'y' index: 'b'"),
            "@t.csv:1: unknown column \"b\"; choose from a, y");
  EXPECT_EQ(error("a,y\n1,2\n", "label: 'y' column: 'b'"),
            "@t.csv:1: unknown column \"b\"; choose from a, y");
  EXPECT_EQ(error("a,y\n1,2\n", "label: 'y' group: 'b' window: 1"),
            "@t.csv:1: unknown column \"b\"; choose from a, y");
  EXPECT_EQ(error("a,y\n1,2\n\"1,2\n"),
            "@t.csv:3: a quote within a cell, or one that is not closed");
  EXPECT_EQ(error("a,y\n1,2\n1,\n"),
            "@t.csv:3: column \"y\": expected a value, got none, as in 1 rows; leave rows out that "
            "have nothing to predict");
  EXPECT_EQ(error("a,y\n,2\n,3\n", "label: 'y' missing: MEAN"),
            "@t.csv:2: column \"a\": no training row has a value; write ignore: \"a\"");
  EXPECT_EQ(error("a,y\n1,x\n2,x\n"),
            "column \"y\": all rows are of class \"x\"; there must be two classes");
  EXPECT_EQ(error("a b,a_b\nx,y\n", "index: ['a b', 'a_b']"),
            "@t.csv: two columns feed the net input \"a_b\"; rename one of them");
  EXPECT_EQ(error("label,y\nx,1\n", "label: 'y' index: 'label'"),
            "@t.csv: two columns feed the net input \"label\"; rename one of them");
}

TEST_F(TableErrors, SaysWhichColumnIsUnclear) {
  std::string text = "id,n,y\n";
  for (int i = 0; i < 50; ++i) absl::StrAppend(&text, "r", i, ",", i == 7 ? "NA" : "5", ",1\n");
  Write("t.csv", text);
  EXPECT_EQ(Error(Data("label: 'y'")),
            "@t.csv:2: column \"id\": expected at most 25 different words, an input each, got 50 "
            "in 50 rows, such as \"r0\"; write ignore, text, index or category: \"id\"");
  EXPECT_EQ(Error(Data("label: 'y' ignore: 'id'")),
            "@t.csv:9: column \"n\": expected a number, as 49 of 50 rows have, got \"NA\"; write "
            "missing_as: \"NA\" if that is no value, or category: \"n\" if all are words");
  EXPECT_EQ(Error(Data("label: 'y' ignore: 'id' missing_as: 'NA' missing: MEAN")), "");
  EXPECT_EQ(ShapeOf(**Open(Data("label: 'y' category: ['id', 'n']")), "columns"), "[52]");
  Write("t.csv", "a,y\n\"1,5\",1\n\"2,5\",1\n");
  EXPECT_EQ(Error(Data("label: 'y'")),
            "@t.csv:2: column \"a\": expected a number, as 0 of 2 rows have, got \"1,5\"; write "
            "decimal: \",\"");
  Write("t.csv", "a;y\n1.5;1\n");
  EXPECT_EQ(Error(Data("label: 'y' separator: ';' decimal: ','")),
            "@t.csv:2: column \"a\": expected a number, as 0 of 1 rows have, got \"1.5\"; write "
            "decimal: \".\"");
  for (const char* near : {"\"1,234.5\"", "12 %", "$5", "1'000", "7 €"}) {
    Write("t.csv", absl::StrCat("a,y\n", near, ",1\n"));
    EXPECT_THAT(Error(Data("label: 'y'")), HasSubstr("column \"a\": expected a number")) << near;
    EXPECT_EQ(Error(Data("label: 'y' category: 'a'")), "");
  }
  text = "id,y\n";
  for (int i = 0; i < 3000; ++i) absl::StrAppend(&text, "r", i % 1001, ",1\n");
  Write("t.csv", text);
  EXPECT_THAT(Error(Data("label: 'y'")),
              HasSubstr("expected at most 1000 different words, an input each, got more than 1000 "
                        "in 3000 rows"));
}

TEST_F(TableErrors, SaysWhatTheNetCannotTake) {
  Write("t.csv", "a,y\nx,1\nz,2.5\n");
  inputs_ = {{"columns", {3}}, kRealLabel};
  EXPECT_EQ(Error(Data("label: 'y'")),
            "the net's input \"columns\" has dims [3], but these columns make [2] (words a (2)); "
            "write dims: [2]");
  EXPECT_EQ(Error(Data("label: 'y' index: 'a'")),
            "no column is left for the net's input \"columns\"; remove it from the net");
  EXPECT_EQ(Error(Data("")),
            "no column feeds the net's input \"label\"; write label: \"NAME\" for the column of "
            "this name");
  inputs_ = {kRealLabel};
  EXPECT_EQ(Error(Data("label: 'a'")),
            "@t.csv:2: column \"a\": expected a number, got \"x\"; classes need a net input of "
            "type: LABEL");
  inputs_ = {{"label", {2}, true}};
  EXPECT_EQ(Error(Data("label: ['y', 'a']")),
            "@t.csv:2: column \"a\": expected a number, got \"x\"");
  Write("t.csv", "a,y\n1,1\n2,2.5\n");
  EXPECT_EQ(Error(Data("label: ['a', 'y']")),
            "@t.csv:3: column \"y\": expected an integer, for a net input of type LABEL, got "
            "\"2.5\"");
  std::string text = "a,y\n";
  for (int i = 0; i < 50; ++i) absl::StrAppend(&text, "1,", i * 1000, "\n");
  Write("t.csv", text);
  inputs_ = {kClassLabel};
  EXPECT_EQ(Error(Data("label: 'y'")),
            "column \"y\": expected classes, for a net input of type LABEL, got 50 different "
            "values in 50 rows; give the input type: REAL to predict a number");
}

TEST_F(TableErrors, ATestIsOfTheTrainingsKind) {
  Write("t.csv", "n,w,y\n1,a,u\n2,b,v\n");
  const auto error = [&](const std::string& text) {
    Write("test.csv", text);
    return Error(Data("label: 'y'"), false);
  };
  EXPECT_EQ(error("n,w,y\n1,a,u\n"), "");
  EXPECT_EQ(error("n,w\n1,a\n"), "@test.csv:1: unknown column \"y\"; choose from n, w");
  EXPECT_EQ(error("n,w,y\n1,a,x\n"),
            "@test.csv:2: column \"y\": expected a class of the training rows, of u, v, got \"x\"");
  EXPECT_EQ(
      error("n,w,y\nmany,a,u\n"),
      "@test.csv:2: column \"n\": expected a number, got \"many\", as the training rows have");
  EXPECT_EQ(error("n,w,y\n1,c,u\n"), "");
  std::string rows = "n,w,y\n1,a,u\n1,a,u\n1,a,u\n1,a,u\n";
  for (int i = 0; i < 6; ++i) rows += "1,c,u\n";
  EXPECT_EQ(error(rows),
            "@test.csv:6: column \"w\": expected a word of the training rows, such as \"a\", got "
            "\"c\", and 6 of 10 rows have others");
  EXPECT_EQ(error("n,w,y\n"), "@test.csv: no row in it");
}

TEST_F(TableErrors, AFitOfAnotherRunIsCompared) {
  Write("t.csv", "n,w,y\n1,a,u\n2,b,v\n");
  const Fit fit = (*Open(Data("label: 'y'")))->fit();
  Write("fit.txt", fit.at("table.txt"));
  EXPECT_EQ(Error(Data("label: 'y' fit: 'fit.txt'")), "");
  EXPECT_EQ(Error(Data("label: 'y' fit: 'fit.txt'"), true, fit), "");
  EXPECT_EQ(Error(Data("label: 'w'"), true, fit),
            "table.txt is of a table with label \"y\", but data.train.table has \"w\"");
  EXPECT_EQ(Error(Data("label: 'y' index: 'w'"), true, fit),
            "table.txt is of a table with index \"\", but data.train.table has \"w\"");
  EXPECT_EQ(Error(Data("label: 'y' text: 'w' length: 1"), true, fit),
            "table.txt is of a table with text \"\", but data.train.table has \"w\"");
  EXPECT_EQ(Error(Data("label: 'y' column: 'w'"), true, fit),
            "table.txt is of a table with column \"n, w\", but data.train.table has \"w\"");
  EXPECT_EQ(Error(Data("label: 'y' missing: MEAN"), true, fit),
            "table.txt is of a table with missing \"REFUSE\", but data.train.table has \"MEAN\"");
  inputs_ = {{"label", {}}};
  EXPECT_EQ(Error(Data("label: 'y'"), true, fit),
            "table.txt has a label of kind class, but the net takes real");
  const auto line = [&](const std::string& text) {
    Write("fit.txt", text);
    return Error(Data("label: 'y' fit: 'fit.txt'"));
  };
  EXPECT_EQ(line(""), "@fit.txt:no column in it");
  EXPECT_EQ(line("missing\tSOME\n"),
            "@fit.txt:1: expected a line of table.txt, got \"missing\\tSOME\"");
  EXPECT_EQ(line("number\ta\n"),
            "@fit.txt:1: expected number TAB NAME TAB MEAN, got \"number\\ta\"");
  EXPECT_EQ(line("number\ta\tinf\n"),
            "@fit.txt:1: expected number TAB NAME TAB MEAN, got \"number\\ta\\tinf\"");
  EXPECT_EQ(line("number\ta\t1\ncategory\ta\n"),
            "@fit.txt:2: expected another column, got \"category\\ta\"");
  EXPECT_EQ(line("category\ta\nword\tx\nword\tx\n"),
            "@fit.txt:3: expected another word, got \"word\\tx\"");
  EXPECT_EQ(line("number\ta\\q\t1\n"),
            "@fit.txt:1: expected C's escapes, got \"number\\ta\\\\q\\t1\"");
  EXPECT_EQ(line("number\ta\t1\nlabel\ty\tnone\n"),
            "@fit.txt:2: expected real, class or integers, got \"label\\ty\\tnone\"");
  EXPECT_EQ(line("text\ta\n"), "@fit.txt:of its lines \"token\": 1: a vocabulary without tokens");
}

}  // namespace
}  // namespace gyre
