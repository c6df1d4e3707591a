// Arrays as numpy and others write them; what IDX holds: dataset_test.
#include "engine/data/tensors/array_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zip.h>

#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/data/array_bytes.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;

class ArrayFileTest : public testing::Test {
 protected:
  absl::StatusOr<HostArray> Read(const std::string& bytes, const std::string& entry = "") {
    WriteBytes(folder_ / "a", bytes);
    return ReadArray({.path = folder_ / "a", .entry = entry});
  }
  // What is said after the file's name.
  std::string Error(const std::string& bytes, const std::string& entry = "") {
    const absl::Status status = Read(bytes, entry).status();
    const std::string message(status.message()), name = absl::StrCat(folder_ / "a", ": ");
    EXPECT_TRUE(absl::StartsWith(message, name)) << status;
    return message.substr(std::min(name.size(), message.size()));
  }
  // An archive with one packed entry, or two of the same bytes.
  std::string Zip(const std::string& name, const std::string& bytes,
                  const std::string& other = "") {
    const std::string path = folder_ / "zip";
    zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, nullptr);
    for (const std::string& entry : {name, other}) {
      if (entry.empty()) continue;
      EXPECT_GE(zip_file_add(archive, entry.c_str(),
                             zip_source_buffer(archive, bytes.data(), bytes.size(), 0), 0),
                0);
    }
    EXPECT_EQ(zip_close(archive), 0);
    return ReadBytes(path);
  }

  TempFolder folder_;
};

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

TEST_F(ArrayFileTest, ReadsEveryType) {
  const struct {
    std::string type, bytes;
    DType dtype;
    std::string expected;
  } cases[] = {
      {"|u1", "abcdef", DType::kU8, "abcdef"},
      {"<i4", BytesOf<int32_t>({1, -2, 3, 4, 5, 1 << 30}), DType::kI32,
       BytesOf<int32_t>({1, -2, 3, 4, 5, 1 << 30})},
      {"<i8", BytesOf<int64_t>({0, -1, 2147483647, -2147483648, 7, 8}), DType::kI32,
       BytesOf<int32_t>({0, -1, 2147483647, -2147483647 - 1, 7, 8})},
      {"<f2", BytesOf<uint16_t>({0x3c00, 0xc000, 0, 0x3555, 0x7bff, 1}), DType::kF32,
       BytesOf<float>({1, -2, 0, 0x1.554p-2F, 65504, 0x1p-24F})},
      {"<f4", BytesOf<float>({1, 2, 3, 4, 5, 0.1F}), DType::kF32,
       BytesOf<float>({1, 2, 3, 4, 5, 0.1F})},
      {"<f8", BytesOf<double>({1, 2, 3, 4, 5, 0.1}), DType::kF64,
       BytesOf<double>({1, 2, 3, 4, 5, 0.1})},
  };
  for (const auto& c : cases) {
    const std::string npy = Npy(c.type, "(3, 2)", c.bytes);
    for (const std::string& file : {npy, Gzip(npy), Zip("x.npy", npy)}) {
      const auto array = Read(file, absl::StartsWith(file, "PK") ? "x" : "");
      ASSERT_TRUE(array.ok()) << c.type << array.status();
      EXPECT_EQ(array->dtype, c.dtype);
      EXPECT_EQ(array->dims, (std::vector<int64_t>{3, 2}));
      EXPECT_EQ(array->bytes, c.expected) << c.type;
    }
  }
}

TEST_F(ArrayFileTest, LiteralsMayBeWrittenOtherwise) {
  const std::string bytes = BytesOf<float>({1, 2, 3});
  for (const char* literal :
       {R"({"shape":(3,),"descr":"<f4","fortran_order":False})",
        "{ 'fortran_order' : False , 'shape' : ( 3 , 1 ) , 'descr' : '<f4' , }   \n",
        // Where one axis alone has several elements, both orders are the same.
        "{'descr': '<f4', 'fortran_order': True, 'shape': (3,)}",
        "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3, 1)}"}) {
    EXPECT_EQ(Read(NpyOf(literal, bytes))->bytes, bytes);
  }
  std::string wide = Npy("<f4", "(3,)", bytes);  // version 2: a length of 32 bits
  wide[6] = 2;
  wide.insert(10, 2, '\0');
  ASSERT_TRUE(Read(wide).ok());
}

TEST_F(ArrayFileTest, SaysWhatIsWrong) {
  const std::string floats = BytesOf<float>({1, 2, 3, 4, 5, 6});
  const auto literal = [&](const std::string& text) { return Error(NpyOf(text, floats)); };
  const std::string broken = "broken .npy header: expected ";
  EXPECT_EQ(Error(Npy(">f4", "(6,)", floats)),
            "elements of type '>f4' are big-endian; expected little-endian ones, as "
            "x.astype('<f4') has");
  EXPECT_EQ(Error(Npy("<c8", "(3,)", floats)),
            "elements of type '<c8'; expected one of |u1, <i4, <i8, <f2, <f4, <f8");
  EXPECT_EQ(Error(Npy("|O", "(3,)", floats)),
            "elements of type '|O'; expected one of |u1, <i4, <i8, <f2, <f4, <f8");
  EXPECT_EQ(literal("{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (6,)}"),
            "elements are structures");
  EXPECT_EQ(literal("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 2)}"),
            "the array is in Fortran order; save numpy.ascontiguousarray of it");
  EXPECT_EQ(literal("{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}"),
            broken + "True or False, got  0, 'shape': (6,)}");
  EXPECT_EQ(literal("{'descr': '<f4', 'fortran_order': False}"),
            broken + "the keys descr, fortran_order and shape, got its end");
  EXPECT_EQ(literal("{'descr': '<f4', 'descr': '<f4'}"),
            broken + "each key once, got 'descr': '<f4'}");
  EXPECT_EQ(literal("{'shape': (3, -2)}"), broken + "an extent of 0 to 2^63 - 1, got -2)}");
  EXPECT_EQ(literal("{'shape': (9223372036854775808,)}"),
            broken + "an extent of 0 to 2^63 - 1, got 9223372036854775808,)}");
  EXPECT_EQ(literal("{'shape': [3]}"), broken + "a tuple, got [3]}");
  EXPECT_EQ(literal("\xff\xff"), broken + "{, got \\xff\\xff");
  EXPECT_EQ(literal("{'descr': '<f4"), broken + "a closing quote, got <f4");
  EXPECT_EQ(Error(Npy("<f4", "()", floats.substr(0, 4))), "expected 1 to 6 axes, got []");
  EXPECT_EQ(Error(Npy("<f4", "(1, 1, 1, 1, 1, 1, 6)", floats)),
            "expected 1 to 6 axes, got [1, 1, 1, 1, 1, 1, 6]");
  EXPECT_THAT(Error(Npy("<f4", "(7,)", floats)), HasSubstr("extents [7] make "));
  EXPECT_THAT(Error(Npy("<f4", "(5,)", floats)), HasSubstr("4 more follow"));
  EXPECT_THAT(Error(Gzip(Npy("<f4", "(5,)", floats))), HasSubstr("more follow"));
  EXPECT_EQ(Error(Npy("<i8", "(3, 2)", BytesOf<int64_t>({0, 0, 0, 0, int64_t{1} << 31, 0}))),
            "sample 2 (the first is 0) holds 2147483648, which takes more than 32 bits");
  EXPECT_EQ(Error("GIF89a.."),
            "expected IDX magic 0x00000801 to 0x00000806 (unsigned bytes), or a .npy file, got "
            "0x47494638");
  EXPECT_EQ(Error(""), "expected an IDX or a .npy file, got 0 bytes");
  EXPECT_EQ(Error("\x93NUMPY\x9z"), "expected a .npy file of version 1 to 3, got 9");
  const std::string zip = Zip("x.npy", Npy("<f4", "(6,)", floats));
  EXPECT_EQ(Error(zip), "an .npz may hold several arrays; say which with entry: \"...\"");
  EXPECT_EQ(Error(zip, "y"), "holds no \"y.npy\"; it holds \"x.npy\"");
  EXPECT_EQ(Error(Zip("x.npy", Npy("<f4", "(7,)", floats)), "x").substr(0, 20),
            "x: extents [7] make ");
  EXPECT_EQ(Error(absl::StrReplaceAll(Zip("x.npy", Npy("<f4", "(6,)", floats), "y.npy"),
                                      {{"y.npy", "x.npy"}}),
                  "x"),
            "holds two entries \"x.npy\"");
  EXPECT_THAT(Error(floats, "x"), HasSubstr("no .npz: "));
  EXPECT_EQ(ReadArray({.path = folder_ / "none", .entry = "x"}).status().code(),
            absl::StatusCode::kNotFound);
}

// Memory is made for what the header says and the file holds, whatever either claims alone.
TEST_F(ArrayFileTest, NoFileIsAMemoryBomb) {
  rusage before;
  getrusage(RUSAGE_SELF, &before);
  for (const char* shape :
       {"(4611686018427387904, 4)", "(9223372036854775807,)", "(1099511627776,)",
        "(0, 9223372036854775807, 9223372036854775807)", "(1073741824,)"}) {
    const std::string npy = Npy("<f4", shape, "abcd");
    EXPECT_FALSE(Read(Gzip(npy)).ok()) << shape;
    EXPECT_FALSE(Read(npy).ok()) << shape;
    EXPECT_FALSE(Read(Zip("x.npy", npy), "x").ok()) << shape;
  }
  std::string long_header = NpyOf("", "");
  long_header[6] = 2;
  EXPECT_EQ(Error(long_header + "\xff\x7f" + std::string(100, ' ')),
            "expected a .npy file; its header is too long for one");
  EXPECT_EQ(Error(Gzip(Idx({1u << 30, 1, 1}, "abc"))),
            "extents [1073741824, 1, 1] make 1073741840 bytes, but the file ends after 19");
  std::string bomb = Gzip(Idx({3, 2, 2}, ""));
  const std::string mebibyte = Gzip(std::string(1 << 20, '\0'));
  for (int i = 0; i < 512; ++i) bomb += mebibyte;
  EXPECT_EQ(Error(bomb), "extents [3, 2, 2] make 28 bytes, but more follow");
  rusage after;
  getrusage(RUSAGE_SELF, &after);
  EXPECT_LT((after.ru_maxrss - before.ru_maxrss) << 10, 64 << 20);

  const std::string sparse = Idx({1u << 30, 1u << 6, 1u << 6}, "");
  WriteBytes(folder_ / "a", sparse);
  std::filesystem::resize_file(folder_ / "a", sparse.size() + (uint64_t{1} << 42));
  EXPECT_EQ(ReadArray({.path = folder_ / "a"}).status().code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(ArrayFileTest, EveryTruncationIsFound) {
  const std::string npy = Npy("<f4", "(3, 2)", RandomBytes(24, 3));
  for (const auto& [file, entry] :
       {std::pair(Idx({3, 2, 2}, "abcdefghijkl"), ""), std::pair(npy, ""), std::pair(Gzip(npy), ""),
        std::pair(Zip("x.npy", npy), "x")}) {
    ASSERT_TRUE(Read(file, entry).ok());
    for (size_t size = 0; size < file.size(); ++size) {
      EXPECT_FALSE(Error(file.substr(0, size), entry).empty()) << size;
    }
  }
}

// Any change of a header or an archive gives an error or an array that fits its shape.
TEST_F(ArrayFileTest, ChangedBytesNeverCrash) {
  const std::string npy = Npy("<f4", "(3, 2)", RandomBytes(24, 3));
  std::mt19937_64 random(11);
  for (const std::string& file : {npy, Gzip(npy), Zip("x.npy", npy)}) {
    const std::string entry = absl::StartsWith(file, "PK") ? "x" : "";
    for (int trial = 0; trial < 2000; ++trial) {
      std::string changed = file;
      for (int changes = 1 + static_cast<int>(random() % 3); changes > 0; --changes) {
        const size_t at = random() % changed.size();
        const char other = "0123456789()',{}<>|fiu \xff\x80\x01"[random() % 25];
        if (random() % 4 == 0) {
          changed.erase(at, 1 + random() % 3);
          changed += ' ';
        } else {
          changed[at] =
              random() % 2 == 0 ? other : static_cast<char>(changed[at] ^ 1 << random() % 8);
        }
      }
      const auto array = Read(changed, entry);
      if (!array.ok()) {
        EXPECT_THAT(array.status().message(), HasSubstr(folder_ / "a"));
        continue;
      }
      uint64_t bytes = SizeOf(array->dtype);
      for (const int64_t extent : array->dims) bytes *= static_cast<uint64_t>(extent);
      EXPECT_EQ(bytes, array->bytes.size());
    }
  }
}

}  // namespace
}  // namespace gyre
