// Pictures: the bits of the arrays that they are decoded to, whatever the threads, the ranks, the
// interruptions and whether a list or a folder names them.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "engine/data/pictures/encode.h"
#include "tests/data/array_bytes.h"
#include "tests/end_to_end/training_folder.h"

namespace gyre {
namespace {

const SyntheticData kData{.samples = 50, .channels = 3};
const std::string kIdx = TrainerText().source;
constexpr char kImages[] = "images { list: \"SET.tsv\" fit: AS_IS }";

class Pictures : public testing::Test {
 protected:
  Pictures() {
    Use(kIdx);
    for (const std::string set : {"train", "test"}) WritePictures(set);
  }

  // The samples of an IDX pair as SET/LABEL/NUMBER.png and SET.tsv, in its order.
  void WritePictures(const std::string& set) const {
    const std::string pixels = folder_.Images(set), labels = folder_.Labels(set);
    const size_t bytes = pixels.size() / labels.size();
    std::string list;
    for (size_t i = 0; i < labels.size(); ++i) {
      const std::string label = absl::StrCat(static_cast<int>(labels[i]));
      const std::string name = absl::StrFormat("%s/%s/%03d.png", set, label, i);
      std::filesystem::create_directories(folder_ / absl::StrCat(set, "/", label));
      const auto* first = reinterpret_cast<const uint8_t*>(pixels.data()) + i * bytes;
      WriteBytes(folder_ / name, *PngOf({kData.height, kData.width, 3, first}));
      absl::StrAppend(&list, name, "\t", label, "\n");
    }
    WriteBytes(folder_ / (set + ".tsv"), list);
  }

  // Reads `source`.
  void Use(const std::string& source, const std::string& more = "") const {
    WriteTrainer(folder_ / "", net_,
                 {.rest = "batch: 8 steps: 15",
                  .source = source,
                  .test = absl::StrReplaceAll(source, {{" fit: AS_IS", ""}, {" fit: CROP", ""}}),
                  .data = absl::StrCat(more, " normalization { mean: 0.3 std: 0.3 }")});
  }

  // The net, with other texts in it.
  void WriteNet(const std::vector<std::pair<std::string, std::string>>& other) {
    net_ = absl::StrReplaceAll(ConvNetText(kData), other);
    WriteBytes(folder_ / "net.textproto", net_);
  }

  TrainingFolder folder_{kData};
  std::string net_ = ConvNetText(kData);
};

TEST_F(Pictures, OfAListAreTheArraysBits) {
  for (const int ranks : {1, 3}) {
    Use(kIdx);
    const ToolOptions options{.ranks = ranks};
    const std::string name = absl::StrCat("idx", ranks), digest = folder_.Digest(name, {}, options);
    const std::string said = folder_.Evaluate(folder_ / name);
    Use(kImages);
    for (const int workers : {1, 4}) {
      const std::string out = absl::StrCat("list", ranks, workers);
      const std::string memory = workers > 1 ? "--data_memory=1G" : "--data_memory=0";
      EXPECT_EQ(folder_.Digest(out, {absl::StrCat("--data_threads=", workers), memory}, options),
                digest);
      EXPECT_EQ(folder_.Evaluate(folder_ / out), said);
    }
  }
}

constexpr char kVaried[] =
    "augmentation { flip: true random_crop { least_area: 0.3 } color { brightness: 0.4 hue: 0.1 } "
    "blur {} erase {} noise: 0.02 }";

TEST_F(Pictures, VaryByTheirPositionAlone) {
  Use(kImages);
  const std::string plain = folder_.Digest("plain");
  Use("images { list: \"SET.tsv\" fit: CROP }", kVaried);
  const std::string varied = folder_.Digest("varied", {"--data_threads=1"});
  EXPECT_NE(varied, plain);
  EXPECT_EQ(folder_.Digest("again", {"--data_threads=3", "--data_memory=20K"}), varied);
  EXPECT_EQ(folder_.Digest("sim", {"--device=sim"}), varied);
  folder_.TrainAndKill("killed", 5, {"--checkpoint_every=5"});
  EXPECT_EQ(folder_.Digest("killed", {"--checkpoint_every=5", "--resume=latest"}), varied);
}

TEST_F(Pictures, PagedByAServerHaveTheBitsOfDirect) {
  Use("images { folder: \"SET\" fit: CROP }", kVaried);
  const std::string direct = folder_.Digest("direct", {"--allreduce=direct"}, {.ranks = 2});
  const auto served = [](int64_t bytes) { return OnSim(bytes, {"--sync=bsp"}); };
  const int64_t least =
      NumberIn(folder_.Train("refused", served(1), {.ranks = 2}).err, kLeastDeviceMemory);
  EXPECT_EQ(folder_.Digest("paged", served(least), {.ranks = 2}), direct);
}

TEST_F(Pictures, OfAFolderAreThoseOfItsSortedList) {
  for (const std::string set : {"train", "test"}) {
    std::vector<std::string> lines;
    std::string list;
    for (const auto& picture : std::filesystem::recursive_directory_iterator(folder_ / set)) {
      if (!picture.is_regular_file()) continue;
      const std::string label = picture.path().parent_path().filename().string();
      lines.push_back(absl::StrCat(set, "/", label, "/", picture.path().filename().string(), "\t",
                                   label, "\n"));
    }
    std::ranges::sort(lines);
    for (const std::string& line : lines) list += line;
    WriteBytes(folder_ / (set + ".tsv"), list);
  }
  Use(kImages);
  const std::string digest = folder_.Digest("list");
  Use("images { folder: \"SET\" fit: AS_IS }");
  EXPECT_EQ(folder_.Digest("folder"), digest);
  EXPECT_EQ(folder_.Evaluate(folder_ / "folder"), folder_.Evaluate(folder_ / "list"));
}

// Classes as distributions, of two samples each, all classes equally often.
TEST_F(Pictures, MixByTheirPositionAlone) {
  constexpr char kMixed[] =
      "order: BALANCED augmentation { flip: true mixup { alpha: 0.4 } cutmix {} repeated: 2 }";
  Use(kImages, kMixed);
  EXPECT_THAT(folder_.Train("labels").err, testing::HasSubstr("mixup mixes labels"));
  // Idx has classes for reals as well.
  Use(kIdx, kMixed);
  WriteNet({{"\"label\" type: LABEL", absl::StrCat("\"label\" dims: ", kData.classes)}});
  const std::string digest = folder_.Digest("mixed", {"--data_threads=1"});
  EXPECT_EQ(folder_.Digest("again", {"--data_threads=3"}), digest);
  EXPECT_EQ(folder_.Digest("sim", {"--device=sim"}), digest);
  folder_.TrainAndKill("killed", 5, {"--checkpoint_every=5"});
  EXPECT_EQ(folder_.Digest("killed", {"--checkpoint_every=5", "--resume=latest"}), digest);
  // So has a list with a class a line.
  Use(kImages, kMixed);
  EXPECT_EQ(folder_.Digest("list"), digest);
  const ToolResult report = RunTool("evaluate", {absl::StrCat("--run=", folder_ / "list"),
                                                 absl::StrCat("--report=", folder_ / "report")});
  EXPECT_EQ(report.exit_code, 0) << report.ToString();
  EXPECT_THAT(report.out, testing::HasSubstr("top-1 "));
}

// Two are damaged from the start: zeros of weight 0, in each epoch.
TEST_F(Pictures, ThatAreDamagedKeepTheirPlace) {
  Use(kImages, "max_bad_samples: 2");
  WriteNet({{"type: LABEL }\n", "type: LABEL }\ninput { name: \"weight\" }\n"},
            {"input: \"label\" ", "input: \"label\" input: \"weight\" "}});
  std::vector<std::string> damaged;
  for (const std::string label : {"train/0/", "train/1/"}) {
    const std::filesystem::directory_iterator first(folder_ / label);
    damaged.push_back(first->path().string());
    const std::string bytes = ReadBytes(damaged.back());
    WriteBytes(damaged.back(), bytes.substr(0, bytes.size() / 2));
  }
  const ToolResult straight = folder_.Train("straight", {"--data_threads=1"});
  const std::string digest = DigestOf(straight);
  for (const std::string& path : damaged) {
    const size_t told = straight.out.find(path);
    EXPECT_NE(told, std::string::npos) << straight.out;
    EXPECT_EQ(straight.out.find(path, told + 1), std::string::npos) << straight.out;
  }
  EXPECT_EQ(std::ranges::max(folder_.Metrics("straight", "bad_samples")), 2);
  const std::vector<double> waits = folder_.Metrics("straight", "data_wait_seconds");
  EXPECT_EQ(waits.size(), 15u);
  EXPECT_THAT(waits, testing::Each(testing::AllOf(testing::Ge(0), testing::Lt(straight.seconds))));
  EXPECT_THAT(straight.out, testing::ContainsRegex(
                                "data: steps waited [0-9.]+ of [0-9.]+ s for samples; 1 worker was "
                                "busy [0-9]+ % of the time"));
  folder_.TrainAndKill("killed", 7, {"--checkpoint_every=7"});
  EXPECT_EQ(folder_.Digest("killed", {"--data_threads=3", "--resume=latest"}), digest);
  EXPECT_EQ(folder_.Metrics("killed", "bad_samples"), folder_.Metrics("straight", "bad_samples"));
  for (const int ranks : {1, 3}) {
    const ToolResult bad = folder_.Train(absl::StrCat("bad", ranks),
                                         {"--set=data.max_bad_samples=1"}, {.ranks = ranks});
    EXPECT_EQ(bad.exit_code, 1) << bad.ToString();
    EXPECT_THAT(bad.err, testing::ContainsRegex("error: .*step [0-9]+: training data: 2 samples "
                                                "could not be read, more than "
                                                "data.max_bad_samples, which is 1: "));
    EXPECT_THAT(bad.err, testing::ContainsRegex("the checkpoint of step [0-9]+ stands"));
  }
  EXPECT_EQ(folder_.Digest("bad1", {"--resume=latest"}), digest);
  WriteBytes(folder_ / "unsound.tsv", absl::StrCat(damaged[0], "\t0\n", damaged[1], "\t1\n"));
  EXPECT_THAT(folder_
                  .Train("none", {"--set=data.train.images.list=unsound.tsv", "--set=batch=2"},
                         {.ranks = 2})
                  .err,
              testing::HasSubstr("step 1: training data: no sample of 2 could be read: "));
  Succeeded(RunTool("evaluate", {"--trainer=" + folder_ / "trainer.textproto",
                                 "--weights=" + folder_ / "straight"}));
}

// A damaged picture ends all ranks with its name and the state before its step, from which the run
// goes on when the picture is mended.
TEST_F(Pictures, ThatAreDamagedEndTheRun) {
  Use(kImages);
  const std::string digest = folder_.Digest("straight", {}, {.ranks = 3});
  const std::string name = folder_ / "train/0/";
  std::string damaged;
  for (const auto& picture : std::filesystem::directory_iterator(name)) {
    damaged = picture.path().string();
  }
  const std::string bytes = ReadBytes(damaged);
  WriteBytes(damaged, bytes.substr(0, bytes.size() / 2));
  const ToolResult result = folder_.Train("damaged", {}, {.ranks = 3});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.err, testing::HasSubstr(damaged));
  EXPECT_THAT(result.err, testing::ContainsRegex(
                              "error: rank 0: step [0-9]+: training data: 1 sample could not "
                              "be read, .*tools/check_data names.*the checkpoint of step "
                              "[0-9]+ stands"));
  WriteBytes(damaged, bytes);
  EXPECT_EQ(folder_.Digest("damaged", {"--resume=latest"}, {.ranks = 3}), digest);
}

// A new run may have other classes than what its weights were trained on, and is told.
TEST_F(Pictures, OfOtherClassesFineTune) {
  Use("images { folder: \"SET\" fit: AS_IS }");
  folder_.Digest("run", {"--steps=2"});
  for (const std::string set : {"train", "test"}) {
    std::filesystem::rename(folder_ / (set + "/0"), folder_ / (set + "/zero"));
  }
  const ToolResult tuned = folder_.Train("tuned", {"--steps=2", "--weights=" + folder_ / "run"});
  EXPECT_EQ(tuned.exit_code, 0) << tuned.ToString();
  EXPECT_THAT(Unwrapped(tuned.out + tuned.err),
              testing::HasSubstr("has other classes: line 1 of classes.txt is \"0\", but \"1\" "
                                 "here; leave out the layer that tells them apart"));
  EXPECT_THAT(folder_.Train("run", {"--steps=4", "--resume=latest"}).err,
              testing::HasSubstr("was made with another classes.txt"));
}

// An error about the texts that a run was trained by is of its copy, whose lines are others.
TEST_F(Pictures, OfASavedTextAreNamedByIt) {
  Use(kImages);
  folder_.Digest("run", {"--steps=2"});
  std::filesystem::remove(folder_ / "test.tsv");
  EXPECT_THAT(RunTool("evaluate", {"--run=" + folder_ / "run"}).err,
              testing::ContainsRegex("error: .*/trainer.textproto \\(as saved in step_00000002\\):"
                                     "[0-9]+:[0-9]+: data.test: "));
}

}  // namespace
}  // namespace gyre
