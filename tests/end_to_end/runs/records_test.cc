// Records: a run on what make_records packed has the bits of a run on the source.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/data/pictures/encode.h"
#include "tests/data/array_bytes.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

using testing::HasSubstr;

const SyntheticData kData{.samples = 50, .channels = 3};
const std::string kIdx = TrainerText().source;

class Records : public testing::Test {
 protected:
  Records() { Use(kIdx, kIdx); }

  ToolResult Make(std::vector<std::string> flags) const {
    return RunTool("make_records", Joined({"--out=" + folder_ / "rec", "--threads=2"}, flags));
  }
  // What it says, without the time that it took.
  std::string Packed(std::vector<std::string> flags = {}) const {
    const ToolResult result = Make(Joined({"--trainer=" + trainer_, "--shard_bytes=5000"}, flags));
    EXPECT_EQ(result.exit_code, 0) << result.ToString();
    return result.out;
  }
  // Reads `train` and `test`.
  void Use(const std::string& train, const std::string& test, const std::string& more = "") const {
    WriteTrainer(folder_ / "", net_,
                 {.rest = "batch: 8 steps: 15",
                  .source = train,
                  .test = test,
                  .data = absl::StrCat(more, " normalization { auto: true }")});
  }
  void UseRecords(const std::string& settings = "", const std::string& more = "") const {
    Use("records { file: \"rec/train-*.rec\" " + settings + " }",
        "records { file: \"rec/test-*.rec\" }", more);
  }
  // The IDX files' pictures as PNGs of unlike sizes, one side longer, and lists of them.
  void WritePictures() const {
    for (const std::string set : {"train", "test"}) {
      const std::string pixels = folder_.Images(set), labels = folder_.Labels(set);
      std::filesystem::create_directories(folder_ / set);
      std::string list;
      for (size_t i = 0; i < labels.size(); ++i) {
        const auto height = static_cast<int64_t>(kData.height - i % 3);
        const auto* first =
            reinterpret_cast<const uint8_t*>(pixels.data()) + i * (pixels.size() / labels.size());
        const std::string name = absl::StrFormat("%s/%d.png", set, i);
        WriteBytes(folder_ / name, *PngOf({height, kData.width, 3, first}));
        absl::StrAppend(&list, name, "\tclass ", static_cast<int>(labels[i]), "\n");
      }
      WriteBytes(folder_ / (set + ".tsv"), list);
    }
  }
  std::vector<std::string> Shards(const std::string& set) const {
    std::vector<std::string> shards;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "rec")) {
      const std::string name = entry.path().filename().string();
      if (absl::StartsWith(name, set)) shards.push_back(name);
    }
    std::ranges::sort(shards);
    return shards;
  }

  TrainingFolder folder_{kData};
  const std::string trainer_ = folder_ / "trainer.textproto";
  std::string net_ = ConvNetText(kData);
};

TEST_F(Records, OfArraysAreTheirBits) {
  Packed({"--order=kept"});
  EXPECT_EQ(Shards("train").size(), 5);  // 50 * 12 * 12 * 3 bytes
  for (const int ranks : {1, 2}) {
    const ToolOptions options{.ranks = ranks};
    Use(kIdx, kIdx);
    const std::string name = absl::StrCat("idx", ranks), digest = folder_.Digest(name, {}, options);
    const std::string said = folder_.Evaluate(folder_ / name);
    UseRecords();
    for (const int workers : {1, 3}) {
      const std::string out = absl::StrCat("rec", ranks, workers);
      EXPECT_EQ(folder_.Digest(out, {absl::StrCat("--data_threads=", workers)}, options), digest);
      EXPECT_EQ(folder_.Evaluate(folder_ / out), said);
    }
  }
}

constexpr char kVaried[] =
    "augmentation { flip: true random_crop { least_area: 0.3 } color { brightness: 0.4 } }";

TEST_F(Records, OfPicturesAreTheirBits) {
  WritePictures();
  const auto use_lists = [&] {
    Use("images { list: \"train.tsv\" shortest: 14 }", "images { list: \"test.tsv\" }", kVaried);
  };
  use_lists();
  const std::string digest = folder_.Digest("list"), said = folder_.Evaluate(folder_ / "list");
  Packed({"--order=kept"});
  UseRecords("images { shortest: 14 }", kVaried);
  EXPECT_EQ(folder_.Digest("rec1", {"--data_threads=3"}), digest);
  EXPECT_EQ(folder_.Evaluate(folder_ / "rec1"), said);
  EXPECT_EQ(ReadBytes(folder_ / "rec1/classes.txt"), ReadBytes(folder_ / "list/classes.txt"));
  // Pixels of the input are values.
  use_lists();
  Packed({"--order=kept", "--raw"});
  constexpr char kPlain[] = "augmentation { flip: true }";
  UseRecords("", kPlain);
  const std::string raw = folder_.Digest("raw");
  Use("images { list: \"train.tsv\" shortest: 14 }", "images { list: \"test.tsv\" }", kPlain);
  EXPECT_EQ(folder_.Digest("plain"), raw);
}

// The order is of the seed and the position alone.
TEST_F(Records, InWindowsDependOnNoWorkersOrInterruptions) {
  Packed();
  UseRecords("window: 20");
  const std::string digest = folder_.Digest("window", {"--data_threads=1"});
  EXPECT_EQ(folder_.Digest("workers", {"--data_threads=4"}), digest);
  folder_.TrainAndKill("killed", 5, {"--checkpoint_every=5"});
  EXPECT_EQ(folder_.Digest("killed", {"--checkpoint_every=5", "--resume=latest"}), digest);
  UseRecords();
  EXPECT_NE(folder_.Digest("all"), digest);
  // The share of a set, in windows.
  WriteBytes(trainer_, absl::StrReplaceAll(ReadBytes(trainer_),
                                           {{"test { records { file: \"rec/test-*.rec\" } }",
                                             "split { test: 0.2 by: CLASS }"}}));
  folder_.Digest("split");
}

TEST_F(Records, AreMadeWhereTheyAreNot) {
  EXPECT_THAT(Packed(), HasSubstr("train: 50 samples in 5 shards, 0 of them kept"));
  const std::string name = folder_ / "rec/train-00003-of-00005.rec", whole = ReadBytes(name);
  WriteBytes(name, whole.substr(0, 2000));
  EXPECT_THAT(Packed(), HasSubstr("train: 50 samples in 5 shards, 4 of them kept"));
  EXPECT_EQ(ReadBytes(name), whole);
  EXPECT_THAT(Packed({"--seed=2"}), HasSubstr("train: 50 samples in 5 shards, 0 of them kept"));
  EXPECT_NE(ReadBytes(name), whole);
  EXPECT_THAT(Packed({"--shard_bytes=1G"}), HasSubstr("removed 7 shards of an earlier packing"));
  EXPECT_THAT(Shards(""),
              testing::ElementsAre("test-00000-of-00001.rec", "train-00000-of-00001.rec"));
}

TEST_F(Records, AreVerified) {
  Packed();
  ToolResult result = Succeeded(Make({"--verify"}));
  EXPECT_EQ(result.out,
            "test: 17 samples in 2 shards, 0.0 MB\ntrain: 50 samples in 5 shards, 0.0 MB\n");
  const std::string damaged = folder_ / "rec/train-00003-of-00005.rec";
  std::string bytes = ReadBytes(damaged);
  bytes[bytes.size() / 2] ^= 1;
  WriteBytes(damaged, bytes);
  std::filesystem::remove(folder_ / "rec/test-00001-of-00002.rec");
  result = Make({"--verify"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(Unwrapped(result.err), HasSubstr(damaged + ": sample "));
  EXPECT_THAT(Unwrapped(result.err),
              HasSubstr("1 of 2 shards of \"test\" missing: test-00001-of-00002.rec"));
  EXPECT_THAT(Unwrapped(result.err), HasSubstr("2 faults"));
  // Whole shards of two packings.
  Packed({"--order=kept"});
  std::filesystem::rename(folder_ / "rec", folder_ / "first");
  Packed({"--shard_bytes=1G"});
  for (const std::string& name : Shards("")) {
    std::filesystem::rename(folder_ / "rec/" + name, folder_ / "first/" + name);
  }
  std::filesystem::remove(folder_ / "rec");
  std::filesystem::rename(folder_ / "first", folder_ / "rec");
  result = Make({"--verify"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(Unwrapped(result.err),
              HasSubstr("expected \"train\" of one packing, got 2: train-00000-of-00001.rec, "
                        "train-00000-of-00005.rec; remove"));
  Packed();
  WriteBytes(damaged, bytes);
  // Training ends with the name, too.
  UseRecords();
  WriteBytes(trainer_,
             absl::StrReplaceAll(ReadBytes(trainer_),
                                 {{"test { records { file: \"rec/test-*.rec\" } }", ""}}));
  result = folder_.Train("damaged");
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, HasSubstr("train-00003-of-00005.rec: sample "));
}

TEST_F(Records, AreRefusedBy) {
  const auto error = [&](const std::vector<std::string>& flags) {
    const ToolResult result = Make(flags);
    EXPECT_NE(result.exit_code, 0);
    return absl::StrReplaceAll(Unwrapped(result.err), {{folder_ / "", "@"}});
  };
  const std::string trainer = "--trainer=" + trainer_;
  EXPECT_THAT(error({}), HasSubstr("--trainer is missing"));
  EXPECT_THAT(error({trainer, "--verify"}), HasSubstr("leave --trainer out"));
  EXPECT_THAT(error({trainer, "--order=x"}), HasSubstr("--order=x: expected shuffled or kept"));
  EXPECT_THAT(error({trainer, "--shard_bytes=0"}), HasSubstr("--shard_bytes=0: expected"));
  EXPECT_THAT(error({trainer, "--threads=2000"}), HasSubstr("--threads=2000: expected 1 to 1024"));
  EXPECT_THAT(error({"--verify"}), HasSubstr("cannot list @rec"));
  std::filesystem::create_directories(folder_ / "rec");
  EXPECT_THAT(error({"--verify"}), HasSubstr("@rec: no shard in it, such as train-*.rec"));
  WritePictures();
  // The header is sound, and pixels are missing.
  const std::string bytes = ReadBytes(folder_ / "train/7.png");
  WriteBytes(folder_ / "train/7.png", bytes.substr(0, bytes.size() - 20));
  Use("images { list: \"train.tsv\" }", "images { list: \"test.tsv\" }");
  EXPECT_THAT(error({trainer}), HasSubstr("@train/7.png: "));
  EXPECT_THAT(Shards("train").size(), 0);
  EXPECT_THAT(error({trainer, "--raw"}), HasSubstr("@train/7.png: "));
}

// One is cut, and one is gone.  Training finds both again.
TEST_F(Records, KeepTheirPlaceWhereTheyAreDamaged) {
  WritePictures();
  const std::string bytes = ReadBytes(folder_ / "train/7.png");
  WriteBytes(folder_ / "train/7.png", bytes.substr(0, bytes.size() - 20));
  WriteBytes(folder_ / "train/9.png", "");
  net_ =
      absl::StrReplaceAll(net_, {{"type: LABEL }\n", "type: LABEL }\ninput { name: \"weight\" }\n"},
                                 {"input: \"label\" ", "input: \"label\" input: \"weight\" "}});
  Use("images { list: \"train.tsv\" }", "images { list: \"test.tsv\" }", "max_bad_samples: 2");
  const ToolResult result = Succeeded(Make({"--trainer=" + trainer_}));
  EXPECT_THAT(Unwrapped(result.err), HasSubstr("warning: " + folder_ / "train/7.png: "));
  EXPECT_THAT(Unwrapped(result.err), HasSubstr("warning: " + folder_ / "train/9.png: "));
  UseRecords("", "max_bad_samples: 2");
  folder_.Digest("two");
  EXPECT_EQ(std::ranges::max(folder_.Metrics("two", "bad_samples")), 2);
  EXPECT_EQ(folder_.Train("one", {"--set=data.max_bad_samples=1"}).exit_code, 1);
}

}  // namespace
}  // namespace gyre
