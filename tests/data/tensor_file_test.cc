#include "engine/data/tensors/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <time.h>
#include <zip.h>

#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "tests/data/random_tensors.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const std::vector<DType> kAll(std::begin(kAllDTypes), std::end(kAllDTypes));

// A safetensors file with this header and these bytes of data.
std::string File(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &length, 8);
  return bytes + header + data;
}

class TensorFileTest : public testing::Test {
 protected:
  // What is said of a safetensors file of these bytes, which is refused.
  std::string Broken(const std::string& bytes) {
    WriteBytes(folder_ / "x", bytes);
    const std::string error = TensorFile::Read(folder_ / "x").status().ToString();
    EXPECT_THAT(error, AllOf(StartsWith("DATA_LOSS: "), HasSubstr(folder_ / "x: ")));
    return error;
  }

  TempFolder folder_;
};
using SafetensorsTest = TensorFileTest;
using NpzTest = TensorFileTest;

// Reading must give the tensors, whatever the order they were written in.
void ExpectTensors(const TensorFile& file, const std::vector<NamedTensor>& expected) {
  ASSERT_EQ(file.tensors().size(), expected.size());
  for (size_t i = 1; i < file.tensors().size(); ++i) {
    EXPECT_LT(file.tensors()[i - 1].name, file.tensors()[i].name);
  }
  for (const NamedTensor& want : expected) {
    const Tensor* got = file.Find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_TRUE(*got);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(got->data) % SizeOf(got->dtype), 0u);
    EXPECT_EQ(got->dtype, want.tensor.dtype);
    EXPECT_EQ(got->shape, want.tensor.shape);
    EXPECT_EQ(BytesOf(*got), BytesOf(want.tensor));
  }
  EXPECT_EQ(file.Find("none"), nullptr);
}

TEST_F(SafetensorsTest, ReadsWhatItWrote) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomTensors tensors(seed, seed % 13, kAll);
    std::map<std::string, std::string> metadata;
    if (seed % 2) metadata = {{"", ""}, {"net", "layer { name: \"é\" }\n"}};
    ASSERT_EQ(WriteSafetensors(folder_ / "x", tensors.tensors(), metadata), absl::OkStatus());
    const absl::StatusOr<TensorFile> file = TensorFile::Read(folder_ / "x");
    ASSERT_TRUE(file.ok()) << file.status();
    const TensorFile copy = *file;
    ExpectTensors(copy, tensors.tensors());
    EXPECT_EQ(copy.metadata(), metadata);

    const std::string bytes = ReadBytes(folder_ / "x");
    ASSERT_TRUE(WriteSafetensors(folder_ / "y", tensors.Shuffled(), metadata).ok());
    EXPECT_EQ(ReadBytes(folder_ / "y"), bytes);
  }
}

// The bytes by hand: the wide tensor first, so that both are aligned, and padding before the data.
TEST_F(SafetensorsTest, WritesTheFormat) {
  uint8_t narrow[3] = {1, 2, 3};
  float wide[1] = {1};
  uint32_t crc32_of_file = 0;
  ASSERT_TRUE(WriteSafetensors(folder_ / "x",
                               std::vector<NamedTensor>{{"a", {narrow, Shape{3, 1}, DType::kU8}},
                                                        {"b", {wide, Shape{}, DType::kF32}}},
                               {{"k", "v"}}, &crc32_of_file)
                  .ok());
  EXPECT_EQ(crc32_of_file, Crc32OfFile(folder_ / "x").value());
  EXPECT_EQ(crc32_of_file, Crc32ByHeader(folder_ / "x").value());
  const std::string checksum = absl::StrFormat(
      "%08x", Crc32(std::string("a U8 [3, 1] 4\nb F32 [] 0\n\0\0\x80\x3f\1\2\3", 32)));
  std::string header = R"({"__metadata__":{"gyre.crc32":")" + checksum +
                       R"(","gyre.metadata_crc32":")" + absl::StrFormat("%08x", Crc32("1 k1 v")) +
                       R"(","k":"v"},)" +
                       R"("a":{"data_offsets":[4,7],"dtype":"U8","shape":[3,1]},)" +
                       R"("b":{"data_offsets":[0,4],"dtype":"F32","shape":[]}})";
  while (header.size() % 8 != 0) header += ' ';
  EXPECT_EQ(ReadBytes(folder_ / "x"), File(header, std::string("\0\0\x80\x3f\1\2\3", 7)));
}

TEST_F(SafetensorsTest, TheWriterRefusesWhatNobodyCouldRead) {
  const auto message = [&](const std::vector<std::string>& names,
                           const std::map<std::string, std::string>& metadata = {}) {
    std::vector<NamedTensor> tensors;
    for (const std::string& name : names)
      tensors.push_back({name, {nullptr, Shape{0}, DType::kF32}});
    const std::string error = WriteSafetensors(folder_ / "x", tensors, metadata).ToString();
    EXPECT_THAT(error, AllOf(StartsWith("INVALID_ARGUMENT: "), HasSubstr(folder_ / "x")));
    return error;
  };
  EXPECT_THAT(message({"a", "b", "a"}), HasSubstr("two tensors are named \"a\""));
  EXPECT_THAT(message({"__metadata__"}), HasSubstr("reserved"));
  EXPECT_THAT(message({"\xff"}), HasSubstr("UTF-8"));
  EXPECT_THAT(message({}, {{"a", "\xc3"}}), HasSubstr("UTF-8"));
  EXPECT_TRUE(folder_.List().empty());
  EXPECT_EQ(WriteSafetensors(folder_ / "none/x", {}).code(), absl::StatusCode::kNotFound);
}

// Files of other writers: any order, no alignment, spaces, escapes.
TEST_F(SafetensorsTest, ReadsWhatOthersWrite) {
  WriteBytes(folder_ / "x",
             File("{ \"z\\u0041\" : {\"shape\":[1], \"dtype\":\"F64\", \"data_offsets\":[1,9]},\n"
                  "\"u\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}, "
                  "\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[9,9]}}  ",
                  std::string("\x07\0\0\0\0\0\0\xf0\x3f", 9)));
  const TensorFile file = TensorFile::Read(folder_ / "x").value();
  EXPECT_EQ(file.tensors().size(), 3u);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(file.Find("zA")->data) % 8, 0u);
  EXPECT_EQ(file.Find("zA")->as<double>()[0], 1.0);
  EXPECT_EQ(file.Find("u")->as<uint8_t>()[0], 7);
  EXPECT_EQ(file.Find("e")->shape, (Shape{0, 7}));
  WriteBytes(folder_ / "x", File("{}", ""));
  EXPECT_TRUE(TensorFile::Read(folder_ / "x").ok());
  WriteBytes(folder_ / "x", File("{\"__metadata__\":{}}", ""));
  EXPECT_TRUE(TensorFile::Read(folder_ / "x").ok());
}

TEST_F(SafetensorsTest, TheReaderSaysWhatIsBroken) {
  const auto length = [](uint64_t value) {
    return std::string(reinterpret_cast<char*>(&value), 8);
  };
  EXPECT_THAT(Broken(""), HasSubstr("expected 8 more bytes, got 0"));
  EXPECT_THAT(Broken("1234567"), HasSubstr("expected 8 more bytes, got 7"));
  EXPECT_THAT(Broken(length(3) + "{}"),
              HasSubstr("expected a safetensors file; this is of another kind, or only the "
                        "beginning of one"));
  EXPECT_THAT(Broken(length(~0ull) + "{}"), HasSubstr("expected a safetensors file; "));
  EXPECT_THAT(Broken(length(0)), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Broken(File(" {}", "")), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(Broken(File("{}", "x")), HasSubstr("take 0 bytes, but the file holds 1"));

  for (const char* header :
       {"{", "{}}", "{\"a\"}", "{\"a\":{\"dtype\":\"U8\",}}", "{\"\xff\":1}"}) {
    EXPECT_THAT(Broken(File(header, "")), HasSubstr("not valid JSON at byte")) << header;
  }
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  const std::string b = R"("b":{"dtype":"U8","shape":[2],"data_offsets":)";
  EXPECT_TRUE((WriteBytes(folder_ / "x", File("{" + a + "," + b + "[2,4]}}", "1234")),
               TensorFile::Read(folder_ / "x").ok()));
  EXPECT_THAT(Broken(File("{" + a + "," + a + "}", "12")), HasSubstr("\"a\" is there twice"));
  EXPECT_THAT(Broken(File("{" + a + "," + b + "[1,3]}}", "123")),
              HasSubstr("\"b\" begins at byte 1, but the data before it reaches to byte 2"));
  EXPECT_THAT(Broken(File("{" + a + "," + b + "[0,2]}}", "12")), HasSubstr("reaches to byte 2"));
  EXPECT_THAT(Broken(File("{" + a + "," + b + "[3,5]}}", "12345")), HasSubstr("ends at byte 2"));
  EXPECT_THAT(Broken(File("{" + a + "," + b + "[2,4]}}", "123")), HasSubstr("holds 3"));
  EXPECT_THAT(Broken(File("{" + a + "," + b + "[2,4]}}", "12345")), HasSubstr("holds 5"));
  EXPECT_THAT(Broken(File("{" + a + "," + b + "[2,3]}}", "123")),
              HasSubstr("takes 2 bytes, but its data_offsets span 1"));
  EXPECT_THAT(Broken(File("{" + a + "," + b + "[4,2]}}", "12")), HasSubstr("a first and a last"));
  EXPECT_THAT(Broken(File("{" + a + "," + b + "[2]}}", "12")), HasSubstr("a first and a last"));
}

TEST_F(SafetensorsTest, ATensorThatCannotBeReadIsRefusedOnlyWhereItIsAskedFor) {
  const std::string a = R"("a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]})";
  for (const auto& [b, why] : {std::pair(R"({"dtype":"F8_E4M3","shape":[3],"data_offsets":[2,5]})",
                                         "has the unknown dtype \"F8_E4M3\""),
                               {R"({"dtype":"U8","shape":[1,1,1,1,1,1,3],"data_offsets":[2,5]})",
                                "has 7 extents, more than 6"}}) {
    WriteBytes(folder_ / "x", File("{" + a + ",\"b\":" + b + "}", "12345"));
    const auto file = TensorFile::Read(folder_ / "x").value();
    EXPECT_EQ(file.tensors().size(), 1u);
    EXPECT_EQ(file.Find("a")->as<uint8_t>()[1], '2');
    EXPECT_EQ(file.Find("b"), nullptr);
    EXPECT_TRUE(file.CheckReadable("a").ok());
    EXPECT_EQ(file.CheckReadable("b").message(), std::string("its tensor \"b\" ") + why);
    EXPECT_EQ(TensorFiles::Open({folder_ / "x"})->entries().size(), 1u);
  }
}

TEST_F(SafetensorsTest, TheReaderTakesNothingUnexpected) {
  const auto message = [&](const std::string& tensor) {
    return Broken(File("{\"a\":" + tensor + "}", ""));
  };
  const auto shaped = [](const std::string& shape) {
    return R"({"dtype":"F32","shape":)" + shape + R"(,"data_offsets":[0,0]})";
  };
  EXPECT_THAT(message("{}"), HasSubstr("\"a\" lacks dtype"));
  EXPECT_THAT(message(R"({"dtype":"F32","data_offsets":[0,0]})"), HasSubstr("lacks shape"));
  EXPECT_THAT(message(R"({"dtype":"F32","shape":[0]})"), HasSubstr("lacks data_offsets"));
  EXPECT_THAT(message(R"({"dtype":"F32","dtype":"F32","shape":[0],"data_offsets":[0,0]})"),
              HasSubstr("key \"dtype\" is there twice"));
  EXPECT_THAT(message(R"({"dtype":"F32","shape":[0],"shape":[0],"data_offsets":[0,0]})"),
              HasSubstr("key \"shape\" is there twice"));
  EXPECT_THAT(message(R"({"shape":[0],"data_offsets":[0,0],"data_offsets":[0,0]})"),
              HasSubstr("key \"data_offsets\" is there twice"));
  EXPECT_THAT(message(R"({"dtype":"F32","shape":[0],"data_offsets":[0,0],"more":"x"})"),
              HasSubstr("unexpected a string at \"a\", key \"more\""));
  EXPECT_THAT(message(shaped("[0,4294967296,4294967296]")), HasSubstr("more than 2^63"));
  EXPECT_THAT(message(shaped("[9223372036854775808,0]")), HasSubstr("more than 2^63"));
  EXPECT_THAT(message(shaped("[18446744073709551616]")), HasSubstr("not a 64-bit integer"));
  EXPECT_THAT(message(shaped("[0.0]")), HasSubstr("not a 64-bit integer"));
  EXPECT_THAT(message(shaped("[-1]")), HasSubstr("a negative number"));
  EXPECT_THAT(message(shaped("[[0]]")), HasSubstr("an array at"));
  EXPECT_THAT(message(shaped("[{}]")), HasSubstr("an object at"));
  EXPECT_THAT(message(shaped("0")), HasSubstr("a number at"));
  EXPECT_THAT(message(shaped("null")), HasSubstr("null at"));
  EXPECT_THAT(message(shaped("[true]")), HasSubstr("a boolean at"));
  EXPECT_THAT(message("[]"), HasSubstr("an array at \"a\""));
  EXPECT_THAT(message("\"x\""), HasSubstr("a string at \"a\""));
  EXPECT_THAT(message("1},\"__metadata__\":{\"k\":1"), HasSubstr("a number at \"a\""));
  for (const char* metadata :
       {"[]", "{\"k\":1}", "{\"k\":[]}", "{\"k\":{}}", "{\"k\":\"\",\"k\":\"\"}"}) {
    Broken(File(std::string("{\"__metadata__\":") + metadata + "}", ""));
  }
  // Depth costs neither stack nor memory.
  EXPECT_THAT(message(std::string(3000000, '[')), HasSubstr("an array at"));
}

// Whatever byte changes, of header or data, tensors and metadata are the same or refused.
TEST_F(SafetensorsTest, NoChangedByteGoesUnnoticed) {
  RandomTensors tensors(3, 4, kAll);
  ASSERT_TRUE(WriteSafetensors(folder_ / "x", tensors.tensors(), {{"format", "gyre"}}).ok());
  const std::string bytes = ReadBytes(folder_ / "x");
  int refused = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int bit : {0, 1, 5}) {
      SCOPED_TRACE(absl::StrCat("byte ", at, " of ", bytes.size(), ", bit ", bit));
      std::string changed = bytes;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      WriteBytes(folder_ / "y", changed);
      const absl::StatusOr<TensorFile> file = TensorFile::Read(folder_ / "y");
      if (file.ok()) {
        ExpectTensors(*file, tensors.tensors());
        EXPECT_EQ(file->metadata().at("format"), "gyre");
      } else {
        ++refused;
      }
    }
  }
  EXPECT_GT(refused, static_cast<int>(bytes.size() * 2));
}

TEST_F(SafetensorsTest, ReadsFilesThatFitTheMachineAlone) {
  const std::string bytes = File(R"({"a":{"dtype":"U8","shape":[4398046511104],)"
                                 R"("data_offsets":[0,4398046511104]}})",
                                 "");
  WriteBytes(folder_ / "x", bytes);
  std::filesystem::resize_file(folder_ / "x", bytes.size() + (uint64_t{1} << 42));  // zeros
  EXPECT_THAT(TensorFile::Read(folder_ / "x").status().ToString(),
              AllOf(StartsWith("RESOURCE_EXHAUSTED: "), HasSubstr("takes 4398046511104 bytes")));
}

TEST_F(SafetensorsTest, AHeaderBeyondTheFormatsLimitIsNotEvenRead) {
  const auto message = [&](uint64_t length) {
    WriteBytes(folder_ / "x", std::string(reinterpret_cast<char*>(&length), 8));
    std::filesystem::resize_file(folder_ / "x", length + 8);  // zeros, which take no space
    return std::string(TensorFile::Read(folder_ / "x").status().message());
  };
  EXPECT_THAT(message(100'000'000), HasSubstr("does not begin with '{'"));
  EXPECT_THAT(message(100'000'001), HasSubstr("this is of another kind"));
}

// Whatever the file's bytes, Read returns: an error, or tensors whose bytes all exist.
TEST_F(SafetensorsTest, SurvivesMutatedFiles) {
  const std::string pieces[] = {
      "\"",  "{",  "}",    "[",       "]",      ",", ":",
      "0",   "-1", "null", "\"F64\"", "\"U8\"", " ", "9999999999999999999",
      "\\u", "1e9"};
  std::mt19937_64 random(1);
  size_t read = 0, refused = 0;
  for (uint64_t seed = 0; seed < 2500; ++seed) {
    RandomTensors tensors(seed, 3, kAll);
    if (seed % 100 == 0) {
      ASSERT_TRUE(WriteSafetensors(folder_ / "x", tensors.tensors(), {{"k", "v"}}).ok());
    }
    std::string bytes = ReadBytes(folder_ / "x");
    for (size_t edits = 1 + random() % 4; edits > 0; --edits) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes.insert(at, pieces[random() % std::size(pieces)]);
          break;
        case 2:
          bytes.erase(at, random() % 8);
          break;
        default:
          bytes.replace(at, 1, bytes.substr(random() % bytes.size(), random() % 20));
      }
      if (bytes.empty()) bytes = "x";
      if (random() % 2 && bytes.size() > 8) {  // a length that fits lets the mutation get further
        const size_t end = bytes.rfind('}');
        const uint64_t length = end == std::string::npos || end < 8 ? 0 : end - 7;
        std::memcpy(bytes.data(), &length, 8);
      }
    }
    WriteBytes(folder_ / "y", bytes);
    const absl::StatusOr<TensorFile> file = TensorFile::Read(folder_ / "y");
    if (file.ok()) {
      ++read;
      uint64_t sum = 0;
      for (const NamedTensor& named : file->tensors()) {
        for (char byte : BytesOf(named.tensor)) sum += static_cast<uint8_t>(byte);
      }
      EXPECT_LT(sum, bytes.size() * 256);
    } else {
      ++refused;
      EXPECT_EQ(file.status().code(), absl::StatusCode::kDataLoss);
    }
  }
  EXPECT_GT(read, 5u);
  EXPECT_GT(refused, 1000u);
}

// ------------------------------------------------------------------------------------------- npz

const std::vector<DType> kNumpy = {DType::kF64, DType::kF32, DType::kF16,
                                   DType::kI32, DType::kI64, DType::kU8};

// The entries of an archive: name and content.
std::map<std::string, std::string> Unzip(const std::string& path) {
  std::map<std::string, std::string> entries;
  zip_t* archive = zip_open(path.c_str(), ZIP_RDONLY | ZIP_CHECKCONS, nullptr);
  EXPECT_NE(archive, nullptr);
  for (zip_int64_t i = 0; i < zip_get_num_entries(archive, 0); ++i) {
    zip_stat_t stat;
    EXPECT_EQ(zip_stat_index(archive, static_cast<zip_uint64_t>(i), 0, &stat), 0);
    EXPECT_EQ(stat.comp_method, ZIP_CM_STORE);
    std::string content(stat.size, '\0');
    zip_file_t* file = zip_fopen_index(archive, static_cast<zip_uint64_t>(i), 0);
    EXPECT_EQ(zip_fread(file, content.data(), stat.size), static_cast<zip_int64_t>(stat.size));
    zip_fclose(file);
    entries[stat.name] = content;
  }
  zip_discard(archive);
  return entries;
}

TEST_F(NpzTest, HoldsOneArrayATensor) {
  for (uint64_t seed = 1; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomTensors tensors(seed, 9, kNumpy);
    tensors.Add("a", DType::kF32, Shape{});
    ASSERT_EQ(WriteNpz(folder_ / "x", tensors.tensors()), absl::OkStatus());
    const std::map<std::string, std::string> entries = Unzip(folder_ / "x");
    ASSERT_EQ(entries.size(), tensors.tensors().size());
    for (const NamedTensor& named : tensors.tensors()) {
      ASSERT_TRUE(entries.contains(named.name + ".npy")) << named.name;
      const std::string& npy = entries.at(named.name + ".npy");
      ASSERT_GE(npy.size(), 64 + named.tensor.bytes());
      EXPECT_EQ((npy.size() - named.tensor.bytes()) % 64, 0u);
      EXPECT_TRUE(npy.ends_with(BytesOf(named.tensor)));
    }
    ASSERT_TRUE(WriteNpz(folder_ / "y", tensors.Shuffled()).ok());
    EXPECT_EQ(ReadBytes(folder_ / "x"), ReadBytes(folder_ / "y"));
  }
}

TEST_F(NpzTest, ReadsWhatItWrote) {
  for (uint64_t seed = 1; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    RandomTensors tensors(seed, 9, kNumpy);
    ASSERT_TRUE(WriteNpz(folder_ / "x", tensors.tensors()).ok());
    const absl::StatusOr<TensorFile> file = TensorFile::Read(folder_ / "x");
    ASSERT_TRUE(file.ok()) << file.status();
    ExpectTensors(*file, tensors.tensors());
  }
  // No byte of the content changes unnoticed: each entry has a checksum.
  float elements[3] = {1, 2, 3};
  ASSERT_TRUE(
      WriteNpz(folder_ / "x", std::vector<NamedTensor>{{"w", {elements, Shape{3}, DType::kF32}}})
          .ok());
  std::string bytes = ReadBytes(folder_ / "x");
  bytes[bytes.find(std::string_view("\0\0\x80\x3f", 4)) + 2] ^= 1;
  EXPECT_THAT(Broken(bytes), HasSubstr("CRC"));
}

TEST_F(NpzTest, OtherArchivesAndPicklesAreTold) {
  const auto refusal = [&](const std::string& name) {
    const absl::Status status = TensorFile::Read(folder_ / name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  const auto zip = [&](const std::string& name, const std::string& entry, const std::string& text) {
    zip_t* const archive = zip_open((folder_ / name).c_str(), ZIP_CREATE, nullptr);
    zip_source_t* const source = zip_source_buffer(archive, text.data(), text.size(), 0);
    zip_file_add(archive, entry.c_str(), source, 0);
    zip_close(archive);
  };
  zip("a.zip", "notes.txt", "text");
  EXPECT_THAT(refusal("a.zip"), HasSubstr("a.zip: expected an .npz of arrays, but it holds"));
  zip("a.pt", "model/data.pkl", "\x80\2}q");
  WriteBytes(folder_ / "b.pth", std::string("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j", 11));
  for (const std::string name : {"a.pt", "b.pth"}) {
    EXPECT_THAT(refusal(name), HasSubstr("is a pickle, as PyTorch writes"));
    EXPECT_THAT(refusal(name), HasSubstr("\n  import numpy, torch\n  numpy.savez(\""));
  }
  // What numpy has and tensors have not is told to those who want it.
  zip("c.npz", "w.npy",
      std::string("\x93NUMPY\1\0\x3a\0", 10) +
          "{'descr': '<c8', 'fortran_order': False, 'shape': (0, ), }");
  const TensorFile file = TensorFile::Read(folder_ / "c.npz").value();
  EXPECT_THAT(file.CheckReadable("w").message(), HasSubstr("its tensor \"w\" is not read: "));
}

TEST_F(NpzTest, WritesTheFormat) {
  int32_t elements[6] = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(
      WriteNpz(folder_ / "x", std::vector<NamedTensor>{{"w", {elements, Shape{2, 3}, DType::kI32}},
                                                       {"v", {elements, Shape{6}, DType::kI32}},
                                                       {"u", {elements, Shape{}, DType::kU8}}})
          .ok());
  const auto header = [](const std::string& text) {
    std::string bytes = std::string("\x93NUMPY\1\0\x76\0", 10) + text;
    return bytes + std::string(127 - bytes.size(), ' ') + "\n";
  };
  std::map<std::string, std::string> entries = Unzip(folder_ / "x");
  EXPECT_EQ(entries["w.npy"],
            header("{'descr': '<i4', 'fortran_order': False, 'shape': (2, 3), }") +
                std::string(reinterpret_cast<char*>(elements), 24));
  EXPECT_EQ(entries["v.npy"].substr(0, 128),
            header("{'descr': '<i4', 'fortran_order': False, 'shape': (6, ), }"));
  EXPECT_EQ(entries["u.npy"],
            header("{'descr': '|u1', 'fortran_order': False, 'shape': (), }") + "\1");
}

TEST_F(NpzTest, DependsNeitherOnTheClockNorOnTheTimeZone) {
  RandomTensors tensors(5, 0, kNumpy);
  tensors.Add("a", DType::kF64, Shape{3});
  for (const char* zone : {"UTC", "Asia/Kolkata", "America/St_Johns"}) {
    setenv("TZ", zone, 1);
    tzset();
    ASSERT_TRUE(WriteNpz(folder_ / std::string(1, zone[0]), tensors.tensors()).ok());
  }
  unsetenv("TZ");
  tzset();
  EXPECT_EQ(ReadBytes(folder_ / "U"), ReadBytes(folder_ / "A"));
  EXPECT_EQ(ReadBytes(folder_ / "U").substr(10, 4), std::string("\0\0\x21\0", 4));  // 1980-01-01
}

TEST_F(NpzTest, NothingIsAnArchiveToo) {
  ASSERT_TRUE(WriteNpz(folder_ / "x", {}).ok());
  EXPECT_EQ(ReadBytes(folder_ / "x").size(), 22u);
  EXPECT_TRUE(Unzip(folder_ / "x").empty());
}

TEST_F(NpzTest, TheWriterRefusesWhatNumpyLacks) {
  const auto status = [&](const std::string& path, const std::vector<std::string>& names,
                          DType dtype) {
    std::vector<NamedTensor> tensors;
    for (const std::string& name : names) tensors.push_back({name, {nullptr, Shape{0}, dtype}});
    return WriteNpz(path, tensors);
  };
  for (const absl::Status& invalid :
       {status(folder_ / "x", {"a", "a"}, DType::kF32), status(folder_ / "x", {"a"}, DType::kBF16),
        status(folder_ / "x", {"\xff"}, DType::kF32)}) {
    EXPECT_THAT(invalid.ToString(),
                AllOf(StartsWith("INVALID_ARGUMENT: "), HasSubstr(folder_ / "x")));
  }
  EXPECT_EQ(status(folder_ / "none/x", {"a"}, DType::kF32).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(folder_.List().empty());
}

}  // namespace
}  // namespace gyre
