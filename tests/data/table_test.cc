// Tables as data sets: what they hold, and by which fit.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_format.h"
#include "tests/data/array_bytes.h"
#include "tests/data/table_fixture.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Doubles = std::vector<double>;

// ---- Columns ------------------------------------------------------------------------------------

TEST_F(Table, ALabelAndAFileAreEnough) {
  Write("t.csv", "area,city,price,rooms\n50.5,Ulm,100,2\n80,Bonn,250,3.0\n1e2,Ulm,300,4\n");
  Write("test.csv", "price,rooms,extra,city,area\n7,1,x,Bonn,5\n");
  const auto data = *Open(Data("label: 'price'"));
  EXPECT_EQ(data->size(), 3);
  EXPECT_EQ(All<double>(*data, "columns"), (Doubles{50.5, 0, 1, 2, 80, 1, 0, 3, 100, 0, 1, 4}));
  EXPECT_EQ(All<double>(*data, "label"), (Doubles{100, 250, 300}));
  EXPECT_TRUE(data->fit().contains("table.txt"));
  EXPECT_EQ(data->fit().at("table.txt"),
            "missing\tREFUSE\nnumber\tarea\t76.83333333333333\ncategory\tcity\nword\tBonn\n"
            "word\tUlm\nnumber\trooms\t3\nlabel\tprice\treal\n");
  EXPECT_THAT(data->notes(),
              ElementsAre("\"columns\" has 4 values: numbers area, rooms; words city (2)",
                          "labels that are numbers: price"));
  for (const Fit& fit : {Fit{}, data->fit()}) {
    const auto test = *Open(Data("label: 'price'"), false, fit);
    EXPECT_EQ(All<double>(*test, "columns"), (Doubles{5, 1, 0, 1}));
    EXPECT_EQ(All<double>(*test, "label"), Doubles{7});
    EXPECT_THAT(test->notes(), IsEmpty());
    EXPECT_EQ(test->fit().at("table.txt"), data->fit().at("table.txt"));
  }
}

TEST_F(Table, TheNetSaysWhatALabelIs) {
  Write("t.csv", "x,y,z\n1,2,3\n2,10,1\n3,2.0,2\n");
  inputs_ = {{"columns", {2}}, {"label", {}}};
  EXPECT_EQ(All<double>(**Open(Data("label: 'y'")), "label"), (Doubles{2, 10, 2}));
  EXPECT_EQ(ShapeOf(**Open(Data("label: 'y'")), "label"), "[]");
  inputs_[1] = kRealLabel;
  EXPECT_EQ(ShapeOf(**Open(Data("label: 'y'")), "label"), "[1]");
  inputs_[1] = kClassLabel;
  const auto classes = *Open(Data("label: 'y'"));
  EXPECT_EQ(All<int32_t>(*classes, "label"), (Ints{0, 1, 0}));  // 2 and 10 by their numbers
  EXPECT_THAT(ClassNamesOf(classes->fit()), ElementsAre("2", "10"));
  inputs_ = {{"label", {2}, true}};
  EXPECT_EQ(All<int32_t>(**Open(Data("label: ['z', 'y']")), "label"), (Ints{3, 2, 1, 10, 2, 2}));
  inputs_ = {{"label", {2}, false}};
  const auto reals = *Open(Data("label: ['z', 'y']"));
  EXPECT_EQ(All<double>(*reals, "label"), (Doubles{3, 2, 1, 10, 2, 2}));
  EXPECT_EQ(ShapeOf(*reals, "label"), "[2]");
  EXPECT_EQ(ShapeOf(*reals, "columns"), "none");  // the net does not take them
  inputs_ = {{"columns", {1}}};
  const auto none = *Open(Data("label: ['z', 'y']"));
  EXPECT_EQ(ShapeOf(*none, "label"), "none");
  EXPECT_EQ(All<double>(*none, "columns"), (Doubles{1, 2, 3}));
  inputs_ = {{"k", {}, true}};
  const auto named = *Open("label_input: 'k' " + Data("label: 'y'"));
  EXPECT_EQ(All<int32_t>(*named, "k"), (Ints{0, 1, 0}));
}

TEST_F(Table, ColumnsAreInTheirOrder) {
  Write("t.csv", "a,b,c,d,y,\n1,2,3,4,5,9\n6,7,8,9,1,9\n");
  EXPECT_EQ(All<double>(**Open(Data("column: ['c', 'a']")), "columns"), (Doubles{3, 1, 8, 6}));
  const auto data = *Open(Data("label: 'y' ignore: ['a', 'd']"));
  EXPECT_EQ(All<double>(*data, "columns"), (Doubles{2, 3, 7, 8}));
  EXPECT_THAT(data->notes(),
              testing::Contains("1 column is without a name left out, as pandas writes for its "
                                "index"));
  EXPECT_EQ(All<double>(**Open(Data("group: 'a' time: 'b' label: 'y'")), "columns"),
            (Doubles{3, 4, 8, 9}));
  const auto postcodes = *Open(Data("category: 'c' column: ['c', 'a']"));
  EXPECT_EQ(All<double>(*postcodes, "columns"), (Doubles{1, 0, 1, 0, 1, 6}));
}

TEST_F(Table, WordsOfNumbersAreSortedByThem) {
  Write("t.csv", "a\n10\n9\n-1\n9.0\n007\n1.50\n");
  const auto data = *Open(Data("category: 'a'"));
  EXPECT_EQ(data->fit().at("table.txt"),
            "missing\tREFUSE\ncategory\ta\nword\t-1\nword\t1.50\nword\t007\nword\t9\nword\t10\n");
  Write("t.csv", "a\n10\n9\nnan\n3\ninf\n");  // no numbers
  const auto words = *Open(Data("category: 'a'"));
  EXPECT_THAT(words->fit().at("table.txt"),
              HasSubstr("word\t10\nword\t3\nword\t9\nword\tinf\nword\tnan\n"));
  Write("t.csv", "a\n0x10\n0X9\n0x9\n0x10\n0x9\n0x10\n");  // no numbers: of base 16
  const auto codes = *Open(Data("category: 'a'"));
  EXPECT_THAT(codes->fit().at("table.txt"), HasSubstr("word\t0X9\nword\t0x10\nword\t0x9\n"));
  EXPECT_EQ((*Open(Data("")))->fit().at("table.txt"), codes->fit().at("table.txt"));
}

TEST_F(Table, AnIndexFeedsAnEmbedding) {
  Write("t.csv", "First Name,x\nd,1\nb,2\nd,3\n,4\n");
  Write("test.csv", "First Name,x\nb,1\nz,2\n");
  const std::string config = Data("index: 'First Name' missing: MEAN");
  const auto data = *Open(config);
  EXPECT_EQ(All<int32_t>(*data, "First_Name"), (Ints{2, 1, 2, 0}));
  EXPECT_EQ(All<double>(*data, "columns"), (Doubles{1, 2, 3, 4}));
  EXPECT_THAT(data->notes(), testing::Contains("\"First_Name\" is from 0 to 2, for 2 words"));
  const auto test = *Open(config, false);
  EXPECT_EQ(All<int32_t>(*test, "First_Name"), (Ints{1, 0}));
  EXPECT_EQ(Shown(test->notes()[0]),
            "column \"First Name\": 1 of 2 rows have words that no training row has, such as "
            "\"z\" (@test.csv:3); they count as none");
}

TEST_F(Table, TextsAreLastWords) {
  Write("t.csv", "say,stars\n\"Good, GOOD\nday\",2\n\"É\",1\n,1\n");
  Write("test.csv", "say,stars\ngood é new,2\n");
  const std::string config = Data("text: 'say' length: 3 words: 4 label: 'stars' missing: ZERO");
  const auto data = *Open(config);
  // good (2), and then by bytes: "," and day.
  EXPECT_EQ(data->fit().at("table.txt"),
            "missing\tZERO\ntext\tsay\nlabel\tstars\treal\ntoken\t<unk>\ntoken\tgood\ntoken\t,\n"
            "token\tday\n");
  EXPECT_EQ(All<int32_t>(*data, "say"), (Ints{2, 1, 3, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(All<int32_t>(*data, "length"), (Ints{3, 1, 0}));
  EXPECT_THAT(data->lengths(), ElementsAre(3, 1, 0));
  EXPECT_THAT(data->notes(),
              testing::Contains("1 texts have more than 3 words: their last 3 are kept"));
  const auto test = *Open(config, false, data->fit());
  EXPECT_EQ(All<int32_t>(*test, "say"), (Ints{1, 0, 0}));
  EXPECT_THAT(test->notes(),
              ElementsAre(HasSubstr("2 of 3 words of texts are not in the vocabulary, such as ")));
  Write("t.csv", "a,b\nx y,z\n");
  const auto two = *Open(Data("text: ['a', 'b'] length: 2"));
  EXPECT_EQ(All<int32_t>(*two, "a_length"), Ints{2});
  EXPECT_EQ(All<int32_t>(*two, "b_length"), Ints{1});
  EXPECT_THAT(two->lengths(), IsEmpty());
}

TEST_F(Table, MissingValuesAreFilledIn) {
  Write("t.csv", "n,w,m\n1,a,1\n,b,2\n4,,3\nNA,a,4\n");
  Write("test.csv", "n,w,m\n,,\n");
  const auto values = [&](const std::string& missing) {
    const std::string config = Data("missing_as: 'NA' missing: " + missing);
    const auto train = *Open(config), test = *Open(config, false, train->fit());
    return std::pair(All<double>(*train, "columns"), All<double>(*test, "columns"));
  };
  EXPECT_EQ(values("ZERO"), std::pair(Doubles({1, 1, 0, 1, 0, 0, 1, 2, 4, 0, 0, 3, 0, 1, 0, 4}),
                                      Doubles({0, 0, 0, 0})));
  EXPECT_EQ(values("MEAN"), std::pair(Doubles({1, 1, 0, 1, 2.5, 0, 1, 2, 4, 0, 0, 3, 2.5, 1, 0, 4}),
                                      Doubles({2.5, 0, 0, 2.5})));
  // Of n and w alone, which the training rows lack.
  EXPECT_EQ(values("INDICATOR"), std::pair(Doubles({1,   0, 1, 0, 0, 1,  //
                                                    2.5, 1, 0, 1, 0, 2,  //
                                                    4,   0, 0, 0, 1, 3,  //
                                                    2.5, 1, 1, 0, 0, 4}),
                                           Doubles({2.5, 1, 0, 0, 1, 2.5})));
  EXPECT_THAT((*Open(Data("missing_as: 'NA' missing: MEAN")))->notes()[1],
              "values that are missing: 3, of n (2), w (1); missing: MEAN");
  EXPECT_EQ(Error(Data("missing_as: 'NA'")),
            "@t.csv:3: column \"n\": expected a value, got none, as in 2 rows (also in columns "
            "\"w\"); write missing: MEAN, ZERO or INDICATOR");
  Write("t.csv", "n,w,m\n1,a,1\n2,b,2\n");
  EXPECT_EQ(Error(Data(), false), "@test.csv:2: column \"n\": expected a value, got none");
}

TEST_F(Table, RowsHaveWeights) {
  Write("t.csv", "a,w,y\n1,0.5,2\n2,0,3\n");
  Write("test.csv", "w,y,a\n7,1,1\n");
  inputs_ = {{"columns", {1}}, kRealLabel, {"weight", {}}};
  const auto data = *Open(Data("label: 'y' weight: 'w'"));
  EXPECT_EQ(All<double>(*data, "columns"), (Doubles{1, 2}));
  EXPECT_EQ(All<double>(*data, "weight"), (Doubles{0.5, 0}));
  EXPECT_EQ(All<double>(**Open(Data("label: 'y' weight: 'w'"), false), "weight"), Doubles{7});
  EXPECT_EQ(ShapeOf(**Open(Data("label: 'y' ignore: 'w'")), "weight"), "none");
  inputs_[2].name = "importance";
  EXPECT_EQ(All<double>(**Open("weight_input: 'importance' " + Data("label: 'y' weight: 'w'")),
                        "importance"),
            (Doubles{0.5, 0}));
  EXPECT_EQ(Error(Data("label: 'y' weight: 'w'")),
            "column \"w\" is the samples' weight, but the net has no REAL input \"weight\" without "
            "dims; write input { name: \"weight\" } and make it the loss's third input");
  inputs_.clear();
  Write("t.csv", "a,w,y\n1,1,2\n2,-1,3\n");
  EXPECT_EQ(Error(Data("label: 'y' weight: 'w'")),
            "@t.csv:3: column \"w\": expected a weight of 0 or more, got \"-1\"");
  Write("t.csv", "a,w,y\n1,1,2\n2,,3\n");
  EXPECT_EQ(Error(Data("label: 'y' weight: 'w' missing: MEAN")),
            "@t.csv:3: column \"w\": expected a value, got none");
  Write("t.csv", "a,w,y\n1,1,2\n2,much,3\n");
  EXPECT_EQ(Error(Data("label: 'y' weight: 'w'")),
            "@t.csv:3: column \"w\": expected a number, got \"much\"");
}

TEST_F(Table, CellsMayBeWrittenOtherwise) {
  Write("t.csv", "\xef\xbb\xbf# made today\r\na;b\r\n\"1,5\";x\r\n# more\r\n-2,25;y\r\n\r\n");
  const auto data = *Open(Data("separator: ';' decimal: ',' comment: '#' category: 'b'"));
  EXPECT_EQ(All<double>(*data, "columns"), (Doubles{1.5, 1, 0, -2.25, 0, 1}));
  Write("t.tsv.gz", Gzip("a\tb\n1\t2\n"));
  EXPECT_EQ(All<double>(**Open(Data("separator: '\\t'", "t.tsv.gz")), "columns"), (Doubles{1, 2}));
}

TEST_F(Table, SeveralFilesAreOne) {
  Write("d/b 2.csv", "b,a\n4,3\n");
  Write("d/a[1].csv", "a,b\n1,2\n");
  Write("d/.c.csv", "x");
  Write("d/a.txt", "x");
  EXPECT_EQ(All<double>(**Open(Data("", "d/*.csv")), "columns"), (Doubles{1, 2, 3, 4}));
  EXPECT_EQ(All<double>(**Open(Data("", "d/a[?].csv")), "columns"), (Doubles{1, 2}));
  EXPECT_EQ(All<double>(**Open(Data("file: 'd/a[1].csv'", "d/b 2.csv")), "columns"),
            (Doubles{4, 3, 2, 1}));
  EXPECT_EQ(Error(Data("", "d/*.CSV")), "@d/*.CSV: no file has such a name");
  Write("d/b 2.csv", "b,a,c\n4,3,1\n");
  EXPECT_EQ(Error(Data("", "d/*.csv")),
            "@d/b 2.csv:1: a column \"c\", which @d/a[1].csv does not have; write ignore: \"c\"");
  EXPECT_TRUE(Open(Data("column: 'a'", "d/*.csv")).ok());
  Write("d/b 2.csv", "b\n4\n");
  EXPECT_EQ(Error(Data("", "d/*.csv")), "@d/b 2.csv:1: unknown column \"a\"; choose from b");
}

// ---- Series -------------------------------------------------------------------------------------

TEST_F(Table, GroupsAreCutIntoWindows) {
  Write("t.csv",
        "g,t,x,w,y,k\n"
        "b,2,4,p,1,u\n"
        "a,3,1,q,2,v\n"
        "b,1,3,q,1,u\n"
        "a,10,2,p,2,w\n"
        "b,2.5,5,p,1,u\n");
  inputs_ = {{"columns", {2, 3}},
             {"k", {2}, true},
             {"label", {2}, true},
             {"reset", {2}, true},
             {"length", {}, true}};
  const std::string config = Data("group: 'g' time: 't' window: 2 index: 'k' label: 'y'");
  const auto data = *Open(config);
  EXPECT_EQ(data->size(), 3);
  EXPECT_THAT(data->sequences(), ElementsAre(2, 1));
  EXPECT_THAT(data->groups(), ElementsAre(0, 0, 1));
  EXPECT_EQ(All<double>(*data, "columns", 1),
            (Doubles{3, 0, 1, 4, 1, 0, 5, 1, 0, 0, 0, 0, 1, 0, 1, 2, 1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(All<int32_t>(*data, "k", 1), (Ints{1, 1, 1, 0, 2, 3, 0, 0}));
  EXPECT_EQ(All<int32_t>(*data, "label", 1), (Ints{0, 0, 0, -1, 1, 1, -1, -1}));
  EXPECT_EQ(All<int32_t>(*data, "reset", 1), (Ints{1, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(All<int32_t>(*data, "length", 1), (Ints{2, 1, 2, 0}));
  inputs_[2] = kClassLabel;
  EXPECT_EQ(All<int32_t>(**Open(config), "label", 1), (Ints{0, 0, 1, -1}));
  inputs_[2] = {"label", {2, 1}};
  EXPECT_EQ(All<double>(**Open(config), "label", 1), (Doubles{1, 1, 1, 0, 2, 2, 0, 0}));
  inputs_[2] = {"label", {}};
  EXPECT_EQ(All<double>(**Open(config), "label", 1), (Doubles{1, 1, 2, 0}));
  inputs_ = {{"label", {2}}};
  EXPECT_EQ(All<double>(**Open(Data("group: 'g' time: 't' window: 2 label: ['y', 'x'] "
                                    "index: ['w', 'k']")),
                        "label", 1),
            (Doubles{1, 4, 1, 5, 2, 2, 0, 0}));
  EXPECT_EQ(
      Error(Data("group: 'g' time: 'y' window: 2 label: 'x' index: ['w', 'k']")),
      "@t.csv: rows 0 and 2 (the first is 0) of group \"b\" have one time; expected an order");
  EXPECT_EQ(Error(Data("group: 'y' time: 'k' window: 2 label: 'x' index: 'w'")),
            "@t.csv:2: column \"k\": expected a number or a date such as 2024-05-31 or 2024-05-31 "
            "12:00:00, got \"u\"");
}

TEST_F(Table, WindowsHaveWeights) {
  Write("t.csv", "g,t,w,y\na,1,2,1\nb,1,3,1\na,2,4,1\na,3,5,1\nb,2,6,1\n");
  const std::string plain = Data("group: 'g' time: 't' window: 2 label: 'y' ignore: 'w'");
  const std::string weighed = Data("group: 'g' time: 't' window: 2 label: 'y' weight: 'w'");
  // A number for each row is no label beyond the series.
  inputs_ = {{"label", {2}}, {"weight", {}}};
  EXPECT_EQ(All<double>(**Open(plain), "weight", 1), (Doubles{1, 0, 1, 0}));
  const auto data = *Open(weighed);
  EXPECT_EQ(All<double>(*data, "weight", 1), (Doubles{4, 0, 6, 0}));
  EXPECT_THAT(data->notes(), testing::Contains("1 of 3 windows go on beyond their series, where "
                                               "labels are 0; such a window has weight 0"));
  // One for the last row is, and classes are ignored there.
  for (const NetInput& label : {NetInput{"label", {}}, {"label", {2}, true}}) {
    inputs_[0] = label;
    EXPECT_EQ(All<double>(**Open(Data("group: 'g' time: 't' window: 2 label: 't' weight: 'w'")),
                          "weight", 1),
              (Doubles{4, 5, 6, 0}));
  }
  inputs_ = {{"label", {2}}};
  EXPECT_THAT((*Open(plain))->notes(),
              testing::Contains("1 of 3 windows go on beyond their series, where labels are 0; "
                                "these count, unless the net has an input for weights and the loss "
                                "takes it as its third"));
  EXPECT_EQ(Error(Data("group: 'g' time: 't' window: 4 label: 'y' ignore: 'w'")),
            "@t.csv: window: 4 is longer than every series; the longest has 3 rows; write window: "
            "3");
  inputs_ = {{"w", {2}, true}};  // that a column feeds
  EXPECT_EQ(All<int32_t>(**Open("weight_input: 'w' " + Data("group: 'g' time: 't' window: 2 "
                                                            "column: 'y' index: 'w'")),
                         "w", 1),
            (Ints{1, 3, 4, 0, 2, 5, 0, 0}));
}

TEST_F(Table, WindowsAreNamedByTheirFiles) {
  Write("a.csv", "t,g,x\n1,a,1\n2,c,2\n3,c,3\n");
  Write("b.csv", "t,g,x\n4,a,4\n5,a,5\n");
  const auto name = [&](const std::string& group, int64_t sample) {
    const auto data = *Open(Data(group + " time: 't' window: 2", "a.csv' file: 'b.csv"));
    return Shown(data->Describe(sample));
  };
  EXPECT_EQ(name("column: 'x'", 1), "@a.csv: sample 1");  // of both
  EXPECT_EQ(name("column: 'x'", 2), "@b.csv: sample 0");
  // Series that go on in another file are in no order of the files.
  EXPECT_EQ(name("column: 'x' group: 'g'", 2), "@a.csv: sample 2");
}

// For a split by group or by time.
TEST_F(Table, RowsAreInTheOrderOfTheirTimes) {
  Write("t.csv", "t,g,x,say\n3,a,1,p q\n1,b,2,r\n3,b,3,s\n2,c,4,t\n");
  const auto data = *Open(Data("group: 'g' time: 't' text: 'say' length: 2"));
  EXPECT_EQ(All<double>(*data, "columns"), (Doubles{2, 4, 1, 3}));
  EXPECT_THAT(data->groups(), ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(data->lengths(), ElementsAre(1, 1, 2, 1));
  EXPECT_EQ(All<double>(**Open(Data("time: 't' column: ['t', 'x']")), "columns"),
            (Doubles{1, 2, 2, 4, 3, 1, 3, 3}));
  Write("test.csv", "x,say\n1,p\n");
  EXPECT_EQ(Error(Data("group: 'g' time: 't' text: 'say' length: 2"), false), "");
}

TEST_F(Table, WithoutAGroupAllRowsAreOneSeries) {
  for (const auto& [first, second] : {std::pair("2024-02-01", "2024-01-31"),
                                      {"2024-01-01 10:00", "2024-01-01 09:59"},
                                      {"2024-01-01T00:00:00Z", "2024-01-01T00:30:00+01:00"},
                                      {"1e1", "9"}}) {
    Write("t.csv", absl::StrCat("t,x\n", first, ",1\n", second, ",2\n"));
    EXPECT_EQ(All<double>(**Open(Data("time: 't' window: 2")), "columns"), (Doubles{2, 1}))
        << first;
  }
  EXPECT_EQ(All<double>(**Open(Data("window: 1 column: 'x'")), "columns"), (Doubles{1, 2}));
  Write("t.csv", "t,x\n1,1\n2024-01-01,2\n");
  EXPECT_EQ(Error(Data("time: 't' window: 2")),
            "@t.csv:3: column \"t\": expected a number, as in rows before, got \"2024-01-01\"");
  for (const char* bad : {"01.02.2024", "12-05-24", "2024-13-01", "noon"}) {
    Write("t.csv", absl::StrCat("t,x\n", bad, ",1\n"));
    EXPECT_THAT(Error(Data("time: 't' window: 2")), HasSubstr("expected a number or a date"))
        << bad;
  }
}

// ---- Any --------------------------------------------------------------------------------------

// What is written comes back: any names and words, any numbers, in any order.
TEST_F(Table, RandomTablesComeBack) {
  std::mt19937 random(5);
  const auto word = [&](int most) {
    std::string word;
    for (int n = static_cast<int>(random() % static_cast<uint32_t>(most)) + 1; n > 0; --n) {
      word += "xyz,;\"\n\t\\\xc3\xa9"[random() % 9];
      if (word.back() == '\xc3') word += '\xa9';
    }
    return "w" + word + ".";
  };
  const auto quoted = [](const std::string& cell) {
    return absl::StrCat("\"", absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
  };
  for (int round = 0; round < 40; ++round) {
    const int columns = 1 + static_cast<int>(random() % 5);
    const int rows = 1 + static_cast<int>(random() % 40);
    std::vector<std::string> names;
    std::vector<std::vector<std::string>> words(static_cast<size_t>(columns));
    std::string text;
    for (int c = 0; c < columns; ++c) {
      names.push_back(absl::StrCat(word(4), c));
      absl::StrAppend(&text, c > 0 ? "," : "", quoted(names.back()));
      for (uint32_t n = random() % 3 * 2; n > 0; --n) words[c].push_back(absl::StrCat(word(5), n));
      std::ranges::sort(words[c]);
    }
    text += "\n";
    std::vector<std::vector<size_t>> chosen;
    Doubles numbers;
    for (int r = 0; r < rows; ++r) {
      for (int c = 0; c < columns; ++c) {
        if (c > 0) text += ",";
        if (words[c].empty()) {
          const double number = std::ldexp(static_cast<double>(random()) - 2e9, random() % 60 - 30);
          text += absl::StrFormat("%.17g", number);
          numbers.push_back(number);
        } else {
          // Each of the words once, so that the fit knows all.
          const size_t k = r < static_cast<int>(words[c].size()) ? static_cast<size_t>(r)
                                                                 : random() % words[c].size();
          text += quoted(words[c][k]);
          for (size_t w = 0; w < words[c].size(); ++w) numbers.push_back(w == k ? 1 : 0);
        }
      }
      text += random() % 2 == 0 ? "\n" : "\r\n";
    }
    if (std::ranges::any_of(words,
                            [&](const auto& w) { return w.size() > static_cast<size_t>(rows); })) {
      continue;
    }
    Write("t.csv", text);
    const auto data = Open(Data());
    ASSERT_TRUE(data.ok()) << data.status() << text;
    ASSERT_EQ(All<double>(**data, "columns"), numbers) << text;
    const auto again = Open(Data(), true, (*data)->fit()).value();
    ASSERT_EQ(All<double>(*again, "columns"), numbers);
  }
}

TEST_F(Table, AnyBytesAreReadOrRefused) {
  const std::string good = "g,t,x,w,y\na,1,0.5,\"p,q\",u\nb,1,,r,v\na,2,3,r,u\n";
  std::mt19937 random(9);
  int read = 0;
  const char* const configs[] = {"label: 'y' missing: MEAN",
                                 "label: 'y' missing: INDICATOR index: 'w' text: 'g' length: 2",
                                 "label: 'y' group: 'g' time: 't' window: 2 missing: ZERO"};
  Write("test.csv", good);
  const Fit fit = (*Open(Data(configs[0], "test.csv")))->fit();
  for (int round = 0; round < 1500; ++round) {
    Write("t.csv", Damaged(good, random));
    Write("fit.txt", Damaged(fit.at("table.txt"), random));
    const auto opened = Open(Data(configs[round % 3]));
    const auto other = Open(Data("label: 'y' missing: MEAN fit: 'fit.txt'", "test.csv"));
    read += opened.ok();
    EXPECT_TRUE(opened.ok() || !opened.status().message().empty());
    EXPECT_TRUE(other.ok() || !other.status().message().empty());
  }
  EXPECT_GT(read, 50);
  EXPECT_LT(read, 1400);
}

}  // namespace
}  // namespace gyre
