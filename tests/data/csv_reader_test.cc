// Records of CSV files, whatever bytes they are, and the lines that errors name.
#include "engine/data/tensors/csv_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/data/array_bytes.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Record = std::vector<std::string>;

class Csv : public testing::Test {
 protected:
  // All records, or the error.
  absl::StatusOr<std::vector<Record>> Read(const std::string& bytes, char separator = ',') {
    WriteBytes(folder_ / "a.csv", bytes);
    auto reader = CsvReader::Open(folder_ / "a.csv", separator);
    if (!reader.ok()) return reader.status();
    std::vector<Record> records;
    lines_.clear();
    for (;;) {
      const absl::StatusOr<bool> more = (*reader)->Next();
      if (!more.ok()) return more.status();
      if (!*more) break;
      Record& record = records.emplace_back();
      for (size_t i = 0; i < (*reader)->size(); ++i) record.emplace_back((*reader)->cell(i));
      lines_.push_back((*reader)->line());
    }
    EXPECT_FALSE((*reader)->Next().value_or(true));  // there is no more
    return records;
  }
  std::string Error(const std::string& bytes) {
    return absl::StrReplaceAll(std::string(Read(bytes).status().message()),
                               {{folder_.path() + "/", "@"}});
  }

  TempFolder folder_;
  std::vector<int64_t> lines_;  // of the records that Read has read
};

TEST_F(Csv, ReadsWhatProgramsWrite) {
  const std::vector<Record> expected = {{"a", "b"}, {"1", "x, \"y\"\nz"}, {"", " 2"}};
  for (const char* const bytes : {
           "a,b\n1,\"x, \"\"y\"\"\nz\"\n,\" 2\"\n",
           "\xef\xbb\xbf\"a\",\"b\"\n\n \t\n1,\"x, \"\"y\"\"\nz\"\n\n,\" 2\"",
           " a , b\r\n1 ,\"x, \"\"y\"\"\nz\" \r\n,\" 2\"\r\n\r\n\r\n",
           "\n\na,b\r1,\"x, \"\"y\"\"\nz\"\r\r,\" 2\"\r",
       }) {
    EXPECT_EQ(*Read(bytes), expected) << bytes;
  }
  EXPECT_THAT(*Read(""), IsEmpty());
  EXPECT_THAT(*Read("\xef\xbb\xbf"), IsEmpty());
  EXPECT_THAT(*Read("\r\n \n"), IsEmpty());
  EXPECT_THAT(*Read("\"\"\n"), ElementsAre(Record{""}));
  EXPECT_THAT(*Read(","), ElementsAre(Record{"", ""}));
  EXPECT_THAT(*Read("a;b,c\n", ';'), ElementsAre(Record{"a", "b,c"}));
  EXPECT_THAT(*Read("\t\t\n \tx\t\n", '\t'), ElementsAre(Record{"", "", ""}, Record{"", "x", ""}));
  EXPECT_THAT(*Read("a b\n", ' '), ElementsAre(Record{"a", "b"}));
  EXPECT_THAT(*Read(std::string("ab\0d,c", 6)), ElementsAre(Record{std::string("ab\0d", 4), "c"}));
}

TEST_F(Csv, ReadsGzip) {
  EXPECT_THAT(*Read(Gzip("\xef\xbb\xbf"
                         "a,b\n1,2\n")),
              ElementsAre(Record{"a", "b"}, Record{"1", "2"}));
  const std::string packed = Gzip("a,b\n1,2\n");
  EXPECT_THAT(Error(packed.substr(0, packed.size() - 3)), HasSubstr("@a.csv"));
}

TEST_F(Csv, CountsLines) {
  ASSERT_TRUE(Read("a\n\nb\r\n\"c\nd\r\ne\"\n\rf\r\rg\r\nh").ok());
  EXPECT_THAT(lines_, ElementsAre(1, 3, 4, 8, 10, 11));
}

// Blocks end anywhere: within a cell, a quote, CR LF.
TEST_F(Csv, AnyCellsComeBack) {
  std::mt19937 random(7);
  const std::string characters = "ab,;\"\n\r \t#\xc3\xa9";
  for (int round = 0; round < 60; ++round) {
    const char separator = round % 3 == 0 ? ';' : ',';
    const char* const ends[] = {"\n", "\r\n", "\r"};
    std::vector<Record> records;
    std::string bytes;
    const size_t columns = 1 + random() % 4;
    const size_t most = round % 2 == 0 ? 40'000 : 9;  // bytes of a cell
    for (uint32_t left = random() % 40 + 1; left > 0; --left) {
      Record& record = records.emplace_back();
      for (size_t c = 0; c < columns; ++c) {
        std::string& cell = record.emplace_back();
        for (size_t n = random() % most; n > 0; --n)
          cell += characters[random() % characters.size()];
        absl::StrAppend(&bytes, c > 0 ? std::string(1, separator) : "", "\"",
                        absl::StrReplaceAll(cell, {{"\"", "\"\""}}), "\"");
      }
      bytes += ends[random() % 3];
    }
    ASSERT_EQ(*Read(bytes, separator), records) << round;
  }
}

TEST_F(Csv, ErrorsNameTheLine) {
  const std::string quote = "a quote within a cell, or one that is not closed";
  EXPECT_EQ(Error("a,b\n\n1,x\"y\n"), "@a.csv:3: " + quote);
  EXPECT_EQ(Error("a,b\n1,\"x\"y\n"), "@a.csv:2: " + quote);
  EXPECT_EQ(Error("a\n\"x\n\n"), "@a.csv:2: " + quote + " (the record goes on to line 3)");
  EXPECT_EQ(Error("a\n\"x\ny\"z\n"), "@a.csv:2: " + quote + " (the record goes on to line 3)");
  EXPECT_EQ(Error("\""), "@a.csv:1: " + quote);
  EXPECT_EQ(Error("a\n\"" + std::string((4 << 20) + 1, '\n')),
            "@a.csv:2: expected a record of at most 4 MiB, got more, up to line 4194306; perhaps a "
            "quote is not closed");
  EXPECT_EQ(Error("a\n" + std::string((4 << 20) + 1, ',')).substr(0, 51),
            "@a.csv:2: expected a record of at most 4 MiB, got m");
  EXPECT_EQ(Error(std::string("\xff\xfe"
                              "a\0",
                              4)),
            "@a.csv: the text is in UTF-16 or UTF-32; expected UTF-8, as iconv -t UTF-8 makes it");
  EXPECT_THAT(CsvReader::Open(folder_ / "b.csv").status().message(),
              HasSubstr("b.csv: No such file or directory; did you mean"));
  EXPECT_FALSE(CsvReader::Open(folder_.path()).ok());
}

TEST_F(Csv, CommentsAreReadWhereTheyAreAsked) {
  const std::string longest(200'000, '.');
  WriteBytes(folder_ / "a.csv", absl::StrCat("\n# one\r\n#", longest, "\n#two\na,#b\n#c,d"));
  const auto reader = *CsvReader::Open(folder_ / "a.csv");
  EXPECT_EQ(**reader->ReadComment('#'), "# one");
  EXPECT_EQ(reader->line(), 2);
  EXPECT_THAT(**reader->ReadComment('#'), testing::StartsWith("#.."));
  EXPECT_EQ(*reader->ReadComment('%'), std::nullopt);
  EXPECT_EQ(reader->Error("no").message(), absl::StrCat(folder_ / "a.csv", ":4: no"));
  EXPECT_EQ(**reader->ReadComment('#'), "#two");
  EXPECT_EQ(*reader->ReadComment('#'), std::nullopt);
  EXPECT_TRUE(*reader->Next());
  EXPECT_EQ(reader->cell(1), "#b");
  EXPECT_TRUE(*reader->Next());
  EXPECT_EQ(reader->cell(0), "#c");
  EXPECT_EQ(reader->line(), 6);
  EXPECT_FALSE(*reader->Next());
  EXPECT_EQ(*reader->ReadComment('#'), std::nullopt);
}

TEST_F(Csv, ShowsCells) {
  EXPECT_EQ(Shown("a\tb\"é"), "\"a\\tb\\\"é\"");
  EXPECT_EQ(Shown("\xff"), "\"\\377\"");
  EXPECT_EQ(Shown(std::string(60, 'x')), "\"" + std::string(60, 'x') + "\"");
  EXPECT_EQ(Shown(std::string(59, 'x') + "éé"), "\"" + std::string(59, 'x') + "\"...");
}

TEST_F(Csv, AnyBytesAreReadOrRefused) {
  std::mt19937 random(3);
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (uint32_t left = random() % 30; left > 0; --left) {
      bytes += "a1,;\"\"\n\r \t\xef\xbb\xbf\0"[random() % 14];
    }
    const auto records = Read(bytes);
    EXPECT_TRUE(records.ok() || !records.status().message().empty());
  }
}

}  // namespace
}  // namespace gyre
