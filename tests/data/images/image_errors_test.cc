// What people get wrong about folders and lists of pictures, and what they are told.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "tests/data/array_bytes.h"
#include "tests/data/images/image_fixture.h"

namespace gyre {
namespace {

constexpr char kFolder[] = "train { images { folder: 'set' } }";
constexpr char kList[] = "train { images { list: 'list' } }";
constexpr char kTest[] = "train { images { folder: 'set' } } test { images { folder: 'other' } }";

TEST_F(Images, EachMistakeIsSaidAtTheStart) {
  for (const char* name : {"set/a/1.png", "set/b/1.PNG", "one/a/1.png", "empty/a/1.png",
                           "other/a/1.png", "other/c/1.png"}) {
    Picture(name);
  }
  std::filesystem::create_directory(folder_ / "empty/b");
  std::filesystem::create_symlink(folder_ / "loop", folder_ / "loop");
  const struct {
    std::string data, list, error;
  } cases[] = {
      {kFolder, "", ""},
      {"train { images { folder: 'none' } }", "",
       "cannot list @none: No such file or directory; did you mean @one?"},
      {"train { images { folder: 'loop' } }", "",
       "cannot list @loop: Too many levels of symbolic links"},
      {"train { images { folder: 'one' } }", "",
       "@one/a/1.png and all others are of class \"a\"; there must be two classes"},
      {"train { images { folder: 'empty' } }", "",
       "@empty/b: no picture in this class; remove the folder, or add files that end with .jpg, "
       ".jpeg, .png, .webp, .bmp, .tif, .tiff, .jp2, .ppm, .pgm"},
      {"train { images { folder: 'list' } }", "x",
       "@list: is a file; expected a folder of classes, or write list: in place of folder:"},
      {"train { images { list: 'set' } }", "",
       "@set: is a folder; expected a list of pictures, or write folder: in place of list:"},
      {"train { images { list: 'none' } }", "",
       "cannot open @none: No such file or directory; did you mean @one?"},
      {kTest, "", "@other: has class \"c\", but those trained on are \"a\", \"b\""},
      {kList, "set/a/1.png\tx\nset/b/1.PNG\ty\n", ""},
      {kList, "set/a/1.png\tx  \r\n\r\nset/b/1.PNG\t y\r\n", ""},
      {kList, "set/a/1.png\tx\nset/b/1.PNG\tx\n",
       "@set/a/1.png and all others are of class \"x\"; there must be two classes"},
      {kList, "/none.png\tx\n", "@list: 1 of its files is not there: line 1: /none.png"},
  };
  for (const auto& c : cases) {
    Write("list", c.list);
    EXPECT_EQ(Error(c.data, /*train=*/c.data != kTest), c.error) << c.data << c.list;
  }
  Write("list", absl::StrCat(folder_ / "set/a/1.png", "\t3\n"));
  EXPECT_EQ(LabelOf(**Open(kList), 0), 3);  // numbers are used as they are
}

class FirstSample : public Images {
 protected:
  // Of opening, or of reading the first picture, which comes later.
  std::string FirstError(const std::string& fields) {
    const auto data = Open("train { images { folder: 'set' " + fields + " } }");
    return Error(data.ok() ? ReadSample(**data, 0, 0).status() : data.status());
  }
};

TEST_F(FirstSample, ThatDoesNotFitNamesItsFile) {
  Picture("set/a/1.png", 3, 9);
  Picture("set/b/1.png", 3, 9);
  EXPECT_EQ(FirstError(""), "");
  EXPECT_EQ(FirstError("shortest: 3"),
            "@set/a/1.png: has 3 x 9 pixels (height x width), resized to 3 x 9 by shortest: 3; "
            "expected the input's 4 x 6 at least; set a larger shortest, or none");
}

// 10^12 pixels, by headers alone.
TEST_F(FirstSample, ThatNoMemoryHoldsIsSaidWithItsSize) {
  Picture("set/a/1.png");
  const std::string png = ReadBytes(folder_ / "set/a/1.png");
  Write("set/b/1.png", png);
  std::string header = "IHDR" + std::string("\0\x0f\x42\x40\0\x0f\x42\x40", 8) + png.substr(24, 5);
  header += BigEndian(Crc32(header));
  Write("set/a/1.png", png.substr(0, 12) + header + png.substr(12 + header.size()));
  EXPECT_EQ(FirstError("fit: STRETCH"),
            "@set/a/1.png: expected at most 268435456 pixels, got 1000000 x 1000000; set "
            "most_pixels higher if the picture is meant");
  EXPECT_EQ(FirstError("fit: STRETCH most_pixels: 2000000000000"),
            "@set/a/1.png: too little memory for a picture of 1000000 x 1000000 pixels, "
            "3000000000000 bytes; shrink it, or free memory (most_pixels, which is 2000000000000, "
            "refuses larger ones)");
  inputs_[0].dims = {1 << 20, 1 << 20, 3};
  EXPECT_THAT(FirstError("fit: STRETCH"),
              testing::StartsWith("a picture for \"image\", of dims [1048576, 1048576, 3], takes "
                                  "3298534883328 bytes, this process may use "));
}

TEST_F(Images, AMaskIsAsLargeAsItsPicture) {
  Picture("a.png", 8, 9);
  Picture("b.png", 8, 8, 1);
  Write("list", "a.png\tb.png\n");
  inputs_[1].dims = {4, 6};
  const auto data = *Open(kList);
  EXPECT_TRUE(ReadSample(*data, 0, 0).ok());
  EXPECT_EQ(Error(ReadSample(*data, 0, 1).status()),
            "@b.png has 8 x 8 pixels (height x width), but the picture that it is a mask of, "
            "@a.png, has 8 x 9");
  Picture("b.png", 8, 9, 3);
  EXPECT_NE(Error(ReadSample(*data, 0, 1).status()), "");
}

TEST_F(Images, ClassesAreDistributions) {
  Picture("set/a/1.png");
  Picture("set/b/1.png");
  Picture("set/c/1.png");
  inputs_[1] = {.name = "label", .dims = {3}};
  const auto data = *Open(kFolder);
  EXPECT_EQ(data->arrays()[1].shape, Shape{});
  EXPECT_EQ(LabelOf(*data, 2), 2);
  Write("list", "\nset/a/1.png\tx\nset/b/1.png\tz\nset/c/1.png\ty\n");
  const auto list = *Open(kList);
  EXPECT_EQ(list->arrays()[1].shape, Shape{});
  EXPECT_EQ(LabelOf(*list, 1), 2);
  Write("list", "set/a/1.png\t0\t1\t0\n");  // as many numbers
  EXPECT_EQ((*Open(kList))->arrays()[1].shape, Shape({3}));
  inputs_[1].dims = {2};
  EXPECT_EQ(Error(kFolder),
            "@set: has 3 classes, but the net's input \"label\" has dims [2]; write dims: 3");
}

}  // namespace
}  // namespace gyre
