#include "engine/data/sets/picture_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/data/series_fixture.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class PictureIndexTest : public Series {
 protected:
  void Touch(const std::string& name, const std::string& bytes = "x") const { Write(name, bytes); }
  std::string FolderError() const {
    return Shown(ReadPictureFolder(folder_ / "set").status().message());
  }
  std::string ListError(const std::string& text, PictureLabels labels = PictureLabels::kClass,
                        int64_t count = 1) const {
    Touch("list", text);
    return Shown(ReadPictureList(folder_ / "list", labels, count).status().message());
  }
};

std::vector<std::string> All(const StringList& list) {
  std::vector<std::string> all;
  for (int64_t i = 0; i < list.size(); ++i) all.emplace_back(list[i]);
  return all;
}

TEST_F(PictureIndexTest, AFolderIsAClass) {
  for (const char* name : {"set/dog/b.JPG", "set/dog/a.png", "set/cat/x y.jpeg",
                           "set/Cat/.hidden.png", "set/Cat/1.webp", "set/cat/notes.txt",
                           "set/.git/c.png", "set/README", "set/dog/deeper/d.png"}) {
    Touch(name);
  }
  std::filesystem::create_symlink("nowhere", folder_ / "set/dog/link.png");
  ASSERT_EQ(mkfifo((folder_ / "set/dog/pipe.png").c_str(), 0600), 0);
  const PictureIndex index = *ReadPictureFolder(folder_ / "set");
  EXPECT_THAT(index.classes, ElementsAre("Cat", "cat", "dog"));
  EXPECT_THAT(All(index.paths),
              ElementsAre("Cat/1.webp", "cat/x y.jpeg", "dog/a.png", "dog/b.JPG"));
  EXPECT_THAT(index.numbers, ElementsAre(0, 1, 2, 2));
  EXPECT_EQ(index.PathOf(1), folder_ / "set/cat/x y.jpeg");
  EXPECT_THAT(index.note, HasSubstr("7 are left out (.git, ...): expected a picture CLASS/NAME, no "
                                    "deeper folder, pipe or broken link"));
}

TEST_F(PictureIndexTest, RefusesAFolder) {
  EXPECT_THAT(FolderError(), HasSubstr("cannot list @set: No such file or directory"));
  Touch("set/a.png");
  EXPECT_EQ(FolderError(),
            "@set: no folder in it; expected one for each class, with the class's pictures");
  Touch("set/empty/notes.txt");
  EXPECT_THAT(FolderError(), HasSubstr("@set/empty: no picture in this class"));
  std::filesystem::remove_all(folder_ / "set/empty");
  Touch("set/two\nlines/a.png");
  EXPECT_THAT(FolderError(), HasSubstr("a class of several lines"));
}

TEST_F(PictureIndexTest, AListHasPathsAndLabels) {
  Touch("a b.png");
  Touch("sub/c.png");
  Touch("list", absl::StrCat("\xEF\xBB\xBF", "a b.png\tdog\r\n\n  \nsub/c.png\tcat\n",
                             folder_ / "a b.png", "\tdog"));
  const PictureIndex index = *ReadPictureList(folder_ / "list", PictureLabels::kClass, 1);
  EXPECT_THAT(index.classes, ElementsAre("cat", "dog"));
  EXPECT_THAT(index.numbers, ElementsAre(1, 0, 1));
  EXPECT_EQ(index.PathOf(1), folder_ / "sub/c.png");
  EXPECT_EQ(index.PathOf(2), folder_ / "a b.png");
}

TEST_F(PictureIndexTest, AListHasNumbersOrMasks) {
  Touch("a");
  Touch("b");
  Touch("list", "a\t1.5\t-2e3\nb\t0\t7\n");
  EXPECT_THAT(ReadPictureList(folder_ / "list", PictureLabels::kNumbers, 2)->numbers,
              ElementsAre(1.5F, -2000, 0, 7));
  Touch("list", "b\n\na\n");
  EXPECT_THAT(All(ReadPictureList(folder_ / "list", PictureLabels::kNone, 0)->paths),
              ElementsAre("b", "a"));
  Touch("list", "a\tb\nb\ta\n");
  EXPECT_THAT(All(ReadPictureList(folder_ / "list", PictureLabels::kMask, 1)->masks),
              ElementsAre("b", "a"));
}

// Many files of one folder are found by listing it.
TEST_F(PictureIndexTest, NamesTheLinesOfMissingFilesAmongMany) {
  std::string list = "\n";
  for (int i = 99; i >= 0; --i) {
    const std::string name = absl::StrCat("deep/er/", i, ".png");
    if (i != 13 && i != 77 && i != 5) Touch(name);
    absl::StrAppend(&list, "./", name, "\tx  \r\n\n", i == 50 ? "" : name, i == 50 ? "" : "\ty\n");
  }
  std::filesystem::create_symlink(folder_ / "deep/er/1.png", folder_ / "deep/er/5.png");
  std::filesystem::create_symlink(folder_ / "deep/er/none", folder_ / "deep/er/77.png");
  EXPECT_EQ(ListError(list),
            "@list: 4 of its files are not there: line 68: @./deep/er/77.png, line 70: "
            "@deep/er/77.png, line 259: @./deep/er/13.png, line 261: @deep/er/13.png");
  Touch("deep/er/13.png");
  std::filesystem::remove(folder_ / "deep/er/77.png");
  Touch("deep/er/77.png");
  EXPECT_EQ(ListError(list), "");
  const PictureIndex index = *ReadPictureList(folder_ / "list", PictureLabels::kClass, 1);
  EXPECT_EQ(index.paths.size(), 199);
  EXPECT_THAT(index.classes, ElementsAre("x", "y"));
  // Among far more others, too.
  list.clear();
  for (int i = 0; i < 600; ++i) {
    Touch(absl::StrCat("many/", i));
    if (i % 18 == 0) absl::StrAppend(&list, "many/", i, "\tx\n");
  }
  EXPECT_EQ(ListError(list), "");
  EXPECT_EQ(ListError("list \tx\n"),
            "@list: 1 of its files is not there: line 1: @list  (its name ends with a blank)");
}

TEST_F(PictureIndexTest, RefusesAList) {
  Touch("a");
  EXPECT_EQ(ListError("\n \n"), "@list: no picture in it");
  EXPECT_EQ(ListError("a\tx\na b\n"),
            "@list:2: expected PATH TAB LABEL, got 1 column; a TAB divides columns");
  EXPECT_THAT(ListError("a\tx\ty\n"), HasSubstr("got 3 columns"));
  EXPECT_THAT(ListError("a\t1\n", PictureLabels::kNumbers, 2), HasSubstr("PATH and 2 labels"));
  EXPECT_EQ(ListError("a\t \n"), "@list:1: a label is empty");
  EXPECT_EQ(ListError(std::string("a\tx\na\0b\ty\n", 10)),
            "@list:2: a byte of 0; write the file as UTF-8");
  EXPECT_THAT(ListError("a\t\tx\n"), HasSubstr("got 3 columns"));
  EXPECT_THAT(ListError("\ta\n"), HasSubstr("expected PATH TAB LABEL"));
  EXPECT_EQ(ListError("a\tx\n", PictureLabels::kNone, 0), "");  // the path alone is read
  EXPECT_EQ(ListError("a\tx\n", PictureLabels::kNumbers), "@list:1: expected a number, got \"x\"");
  EXPECT_THAT(ListError("a\tinf\n", PictureLabels::kNumbers), HasSubstr("got \"inf\""));
  EXPECT_EQ(ListError("a\t1\nno\t1\nnone\t2\n"),
            "@list: 2 of its files are not there: line 2: @no, line 3: @none");
  std::string many;
  for (int i = 0; i < 9; ++i) absl::StrAppend(&many, "no", i, "\t1\n");
  EXPECT_THAT(ListError(many), HasSubstr("9 of its files are not there: line 1: @no0"));
  EXPECT_THAT(ListError(many), HasSubstr("line 5: @no4, ..."));
  EXPECT_THAT(ListError("a\tmask\n", PictureLabels::kMask), HasSubstr("line 1: @mask"));
}

}  // namespace
}  // namespace gyre
