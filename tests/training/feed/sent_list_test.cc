#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/training/feed/sent_data.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Places(const SentList& sent) {
  std::vector<std::string> places;
  for (const SentList::ListedFile& file : sent.files) places.push_back(file.to);
  return places;
}

TEST(SentList, FilesLieAsTheListMeansThem) {
  const TempFolder folder;
  const std::string list = folder / "list.txt";
  WriteBytes(list, "b.png\tx\r\n\n  \nsub/a b.png\ty\n./b.png\tx\n");
  SentList sent = *PlaceList(list, /*masks=*/false);
  EXPECT_EQ(sent.list, "list.txt");
  EXPECT_THAT(Places(sent), ElementsAre("b.png", "sub/a b.png"));
  EXPECT_EQ(sent.files[1].from, folder / "sub/a b.png");

  WriteBytes(list, "../../p/1.png\t../m/1.png\n2.png\t./2m.png");
  sent = *PlaceList(list, /*masks=*/true);
  EXPECT_EQ(sent.list, "list/list/list.txt");
  EXPECT_THAT(Places(sent),
              ElementsAre("list/list/2.png", "list/list/2m.png", "list/m/1.png", "p/1.png"));
  EXPECT_THAT(Places(*PlaceList(list, /*masks=*/false)), ElementsAre("list/list/2.png", "p/1.png"));
}

TEST(SentList, RefusesPathsThatACopyWouldNotFind) {
  const TempFolder folder;
  const std::string list = folder / "list.txt";
  for (const std::string path : {"/x/a.png", "a/../b.png", "../a/.."}) {
    WriteBytes(list, absl::StrCat("ok.png\tx\n", path, "\tx\n"));
    EXPECT_EQ(PlaceList(list, false).status().message(),
              absl::StrCat(list,
                           ":2: --send_data expects paths relative to the list, with \"..\" "
                           "at most in front, got ",
                           path));
  }
  EXPECT_THAT(PlaceList(folder / "none", false).status().message(), HasSubstr("none"));
}

}  // namespace
}  // namespace gyre
