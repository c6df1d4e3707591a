// Shards: what is written is read, and damage is an error that names the file.

#include "engine/data/records/record_shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "engine/data/files/atomic_file.h"
#include "engine/data/records/shard_writer.h"
#include "tests/data/array_bytes.h"
#include "tests/data/series_fixture.h"
#include "tests/sanitized.h"

namespace gyre {
namespace {

using testing::HasSubstr;

// A file and values, of which the index holds the last.
ShardHeader HeaderOf(int64_t samples, bool lengths) {
  ShardHeader header;
  RecordSet& set = *header.mutable_set();
  set.set_name("train");
  set.set_samples(samples);
  set.set_shards(3);
  set.set_lengths(lengths);
  RecordSet::Array& file = *set.add_array();
  file.set_input("image");
  file.set_content(RecordSet::Array::PICTURE);
  for (const char* const dtype : {"F32", "U8"}) {
    RecordSet::Array& values = *set.add_array();
    values.set_input(dtype);
    values.set_dtype(dtype);
  }
  set.mutable_array(1)->add_dims(2);
  set.set_indexed(2);
  RecordSet::Text& classes = *set.add_fit();
  classes.set_name("classes.txt");
  classes.set_text("a\nb\n");
  header.set_shard(2);
  return header;
}

struct Written {
  std::vector<std::string> files, values, labels;
};

class RecordShardTest : public Series {
 protected:
  const std::string path_ = folder_ / "a.rec";
  std::mt19937 random_{5};

  // Of files of 0, 1 and random bytes.
  Written Write(int64_t samples, bool lengths = false) {
    Written written;
    const auto fill = [&](ShardWriter& writer) -> absl::Status {
      for (int64_t i = 0; i < samples; ++i) {
        const size_t bytes = i < 2 ? static_cast<size_t>(i) : random_() % 300;
        written.files.push_back(RandomBytes(bytes, random_()));
        written.values.push_back(RandomBytes(8, random_()));
        written.labels.push_back(RandomBytes(1, random_()));
        RETURN_IF_ERROR(
            writer.Add(std::vector<std::string_view>{written.files.back(), written.values.back(),
                                                     written.labels.back()},
                       static_cast<int32_t>(i)));
      }
      return absl::OkStatus();
    };
    EXPECT_TRUE(ShardWriter::Write(path_, HeaderOf(samples, lengths), fill).ok());
    return written;
  }
  absl::StatusOr<RecordShard> Open() const {
    ShardHeader header;
    return RecordShard::Open(path_, header);
  }
  std::string Error(const absl::Status& status) const { return Shown(status.message()); }
  // The error of a shard of these bytes: of opening it, or of its samples.
  absl::Status Read(const std::string& bytes) const {
    WriteBytes(path_, bytes);
    ShardHeader header;
    auto shard = RecordShard::Open(path_, header);
    if (!shard.ok()) return shard.status();
    const RecordLayout layout = *RecordLayout::Of(header.set());
    for (int64_t i = 0; i < shard->size(); ++i) {
      std::string sample(shard->bytes(i), '\0');
      const absl::Status status = shard->Read(i, reinterpret_cast<std::byte*>(sample.data()));
      if (!status.ok()) return status;
      for (size_t array : {0, 1}) {
        const auto found = layout.Find(sample, array);
        if (!found.ok()) return found.status();
      }
    }
    return absl::OkStatus();
  }
};

TEST_F(RecordShardTest, GivesBackWhatWasWritten) {
  for (const int64_t samples : {0, 1, 2, 57}) {
    for (const bool lengths : {false, true}) {
      const Written written = Write(samples, lengths);
      ShardHeader header;
      const auto shard = RecordShard::Open(path_, header).value();
      EXPECT_EQ(header.SerializeAsString(), HeaderOf(samples, lengths).SerializeAsString());
      const RecordLayout layout = *RecordLayout::Of(header.set());
      ASSERT_EQ(shard.size(), samples);
      ASSERT_EQ(shard.lengths().size(), lengths ? samples : 0);
      for (int64_t i = 0; i < samples; ++i) {
        const auto at = static_cast<size_t>(i);
        std::string sample(shard.bytes(i), '\0');
        ASSERT_TRUE(shard.Read(i, reinterpret_cast<std::byte*>(sample.data())).ok());
        EXPECT_EQ(*layout.Find(sample, 0), written.files[at]);
        EXPECT_EQ(*layout.Find(sample, 1), written.values[at]);
        EXPECT_EQ(shard.indexed(i), static_cast<uint8_t>(written.labels[at][0]));
        if (!lengths) continue;
        EXPECT_EQ(shard.lengths()[at], i);
      }
    }
  }
}

TEST_F(RecordShardTest, RefusesLengthsAndResetsThatNoSetHas) {
  const auto refused = [&](const ShardHeader& header, int32_t length) {
    const auto fill = [&](ShardWriter& writer) {
      return writer.Add(std::vector<std::string_view>{"", "12345678", "1"}, length);
    };
    EXPECT_TRUE(ShardWriter::Write(path_, header, fill).ok());
    return Error(Open().status());
  };
  EXPECT_THAT(refused(HeaderOf(1, true), -1), HasSubstr("its index has a length of -1"));
  ShardHeader resets = HeaderOf(1, false);
  resets.mutable_set()->mutable_array(2)->set_reset(true);
  EXPECT_THAT(refused(resets, 0),
              HasSubstr("expected resets of type I32 in its header, got \"U8\""));
}

// No shard is left where writing fails.
TEST_F(RecordShardTest, IsWholeOrAbsent) {
  const auto fail = [](ShardWriter&) { return absl::DataLossError("no"); };
  EXPECT_FALSE(ShardWriter::Write(path_, HeaderOf(3, false), fail).ok());
  EXPECT_TRUE(folder_.List().empty());
}

// Wherever a bit changes and wherever the file ends, an error says so.
TEST_F(RecordShardTest, DamageIsNeverSilent) {
  Write(20, true);
  const std::string whole = ReadBytes(path_);
  ASSERT_TRUE(Read(whole).ok());
  const int rounds = kSanitized ? 1500 : 3000;
  for (int round = 0; round < rounds; ++round) {
    std::string bytes = whole;
    switch (round % 4) {
      case 0:  // a bit
        bytes[random_() % bytes.size()] ^= static_cast<char>(1 << random_() % 8);
        break;
      case 1:  // cut, often within what begins or ends a shard
        bytes.resize(random_() % 2 == 0 ? random_() % bytes.size()
                                        : bytes.size() - 1 - random_() % 40);
        break;
      case 2:  // random bytes in a row
        for (size_t i = 0, at = random_() % bytes.size(); i < 12 && at + i < bytes.size(); ++i) {
          bytes[at + i] = static_cast<char>(bytes[at + i] + 1 + random_() % 255);
        }
        break;
      default:  // more at the end, or taken out of the middle
        if (random_() % 2 == 0) {
          bytes += RandomBytes(1 + random_() % 40, random_());
        } else {
          bytes.erase(random_() % (bytes.size() - 1), 1 + random_() % 40);
        }
    }
    const absl::Status status = Read(bytes);
    EXPECT_THAT(Error(status), HasSubstr("@a.rec: ")) << round;
  }
}

// A file's numbers are checked before memory is taken, even where all checksums are right.
TEST_F(RecordShardTest, BelievesNoClaim) {
  Write(20);
  const std::string whole = ReadBytes(path_);
  const size_t end = whole.size() - sizeof(ShardEnd);
  for (const uint64_t claim : {uint64_t{0}, uint64_t{19}, uint64_t{21}, (uint64_t{1} << 60) + 20,
                               ~uint64_t{0} / 16, ~uint64_t{0}}) {
    for (const size_t field : {offsetof(ShardEnd, samples), offsetof(ShardEnd, index)}) {
      std::string bytes = whole;
      std::memcpy(bytes.data() + end + field, &claim, sizeof(claim));
      const uint32_t crc = Crc32({bytes.data() + end, offsetof(ShardEnd, crc)});
      std::memcpy(bytes.data() + end + offsetof(ShardEnd, crc), &crc, sizeof(crc));
      EXPECT_THAT(Error(Read(bytes)), testing::MatchesRegex("@a.rec: damaged: .*makes it again"));
    }
  }
}

TEST_F(RecordShardTest, NamesWhatIsWrong) {
  Write(20);
  const std::string whole = ReadBytes(path_);
  EXPECT_EQ(Error(Read("")), "@a.rec: expected a shard of tools/make_records, got another file");
  EXPECT_EQ(Error(Read(RandomBytes(500, 1))),
            "@a.rec: expected a shard of tools/make_records, got another file");
  std::string later = whole;
  later[8] = 2;
  EXPECT_EQ(Error(Read(later)),
            "@a.rec: expected version 1 of shards, got 2, which another release wrote");
  EXPECT_EQ(Error(Read(whole.substr(0, whole.size() - 1))),
            "@a.rec: damaged: it is cut short; remove it, and make_records makes it again");
  std::string damaged = whole;
  ShardBegin begin{};
  std::memcpy(&begin, whole.data(), sizeof(begin));
  damaged[sizeof(begin) + begin.header_bytes + 15] ^= 4;  // of the second sample, behind 12 bytes
  EXPECT_THAT(Error(Read(damaged)),
              testing::MatchesRegex("@a.rec: sample 1 \\(the first is 0\\): damaged: expected "
                                    "checksum [0-9a-f]{8}, got [0-9a-f]{8}; .*"));
  std::filesystem::remove(path_);
  EXPECT_EQ(Open().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RecordShardTest, ASetHasValuesOfADataSet) {
  const auto error = [](const std::function<void(RecordSet&)>& change) {
    RecordSet set = HeaderOf(1, false).set();
    change(set);
    return std::string(RecordLayout::Of(set).status().message());
  };
  EXPECT_EQ(error([](RecordSet& set) { set.clear_array(); }),
            "expected arrays in its header, got none");
  EXPECT_EQ(error([](RecordSet& set) { set.mutable_array(1)->set_dtype("F16"); }),
            "expected values in its header, got type \"F16\" and dims [2]");
  EXPECT_THAT(error([](RecordSet& set) { set.mutable_array(1)->add_dims(0); }),
              HasSubstr("dims [2, 0]"));
  EXPECT_THAT(error([](RecordSet& set) { set.mutable_array(1)->add_dims(int64_t{1} << 60); }),
              HasSubstr("dims [2, 1152921504606846976]"));
  EXPECT_THAT(error([](RecordSet& set) {
                for (int i = 0; i < 9; ++i) set.mutable_array(1)->add_dims(1);
              }),
              HasSubstr("dims [2, 1, 1"));
  for (const int64_t indexed : {-1, 0, 1, 3}) {
    EXPECT_EQ(error([&](RecordSet& set) { set.set_indexed(indexed); }),
              absl::StrCat("expected values of at most 4 bytes in its index, got array ", indexed,
                           " of its header"));
  }
}

}  // namespace
}  // namespace gyre
