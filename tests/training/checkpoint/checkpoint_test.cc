#include "engine/training/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/data/files/atomic_file.h"
#include "tests/data/random_tensors.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::vector<DType> kFloats = {DType::kF32, DType::kF64};

CheckpointState StateOf(int64_t step) {
  CheckpointState state;
  state.set_step(step);
  state.set_position(step * 64);
  state.set_seed(~0ull);
  state.set_net("layer { name: \"fc\" }");
  (*state.mutable_choices())["threads"] = "2";
  (*state.mutable_choices())["ranks"] = std::to_string(step);
  return state;
}

// What a run has at a step: the same for the writer and for the test that reads it back.
RandomTensors WeightsOf(int64_t step) {
  RandomTensors tensors(static_cast<uint64_t>(step), 4, kFloats);
  tensors.Add("fc.weight", DType::kF32, Shape{31, 17});
  return tensors;
}
RandomTensors SlotsOf(int64_t step) {
  return RandomTensors(static_cast<uint64_t>(step) + 1000000, 4, kFloats);
}

// In `parts` files of slots, each with every so manieth.
absl::Status Save(CheckpointStore& store, const CheckpointState& state,
                  const std::vector<NamedTensor>& weights, const std::vector<NamedTensor>& slots,
                  int parts = 1) {
  std::map<std::string, uint32_t> crc32s;
  ASSIGN_OR_RETURN(crc32s[kWeightsFile], store.Write(state.step(), kWeightsFile, weights));
  for (int part = 0; part < parts; ++part) {
    std::vector<NamedTensor> of_part;
    for (size_t i = part; i < slots.size(); i += parts) of_part.push_back(slots[i]);
    const std::string name = ShardName(kOptimizerFile, part, parts);
    ASSIGN_OR_RETURN(crc32s[name], store.Write(state.step(), name, of_part));
  }
  return store.Publish(state, crc32s);
}

absl::Status SaveStep(CheckpointStore& store, int64_t step, int64_t keep = 9, int parts = 1) {
  RETURN_IF_ERROR(
      Save(store, StateOf(step), WeightsOf(step).tensors(), SlotsOf(step).tensors(), parts));
  return store.DeleteOlder(step, keep);
}

void ExpectTensors(const TensorFile& file, const std::vector<NamedTensor>& expected) {
  ASSERT_EQ(file.tensors().size(), expected.size());
  for (const NamedTensor& want : expected) {
    const Tensor* got = file.Find(want.name);
    ASSERT_NE(got, nullptr) << want.name;
    EXPECT_EQ(got->shape, want.tensor.shape);
    EXPECT_EQ(got->dtype, want.tensor.dtype);
    EXPECT_EQ(BytesOf(*got), BytesOf(want.tensor));
  }
}

void ExpectStep(const absl::StatusOr<Checkpoint>& checkpoint, int64_t step) {
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->state.SerializeAsString().size(), StateOf(step).SerializeAsString().size());
  EXPECT_EQ(checkpoint->state.step(), step);
  EXPECT_EQ(checkpoint->state.position(), step * 64);
  EXPECT_EQ(checkpoint->state.seed(), ~0ull);
  EXPECT_EQ(checkpoint->state.choices().at("ranks"), std::to_string(step));
  ExpectTensors(checkpoint->weights, WeightsOf(step).tensors());
  std::vector<std::string> names;
  for (const auto& [name, entry] : checkpoint->optimizer.entries()) names.push_back(name);
  ExpectTensors(checkpoint->optimizer.Read(names).value(), SlotsOf(step).tensors());
  EXPECT_TRUE(checkpoint->carried.entries().empty());
}

void FlipByte(const std::string& path, size_t at, int mask) {
  std::string bytes = ReadBytes(path);
  bytes[at] = static_cast<char>(bytes[at] ^ mask);
  WriteBytes(path, bytes);
}

class CheckpointTest : public testing::Test {
 protected:
  TempFolder folder_;
  CheckpointStore store_{folder_.path()};
};

TEST_F(CheckpointTest, LoadsWhatItSaved) {
  CheckpointStore store(folder_ / "a/b/checkpoints");
  for (int64_t step : {0, 1, 7, 99999999, 100000000}) {
    ASSERT_TRUE(SaveStep(store, step).ok());
    std::vector<std::string> skipped;
    const absl::StatusOr<Checkpoint> checkpoint = store.LoadLatest(&skipped);
    ExpectStep(checkpoint, step);
    EXPECT_TRUE(skipped.empty());
    ExpectStep(LoadCheckpoint(checkpoint->path), step);
    ExpectStep(LoadCheckpoint(checkpoint->path + "/"), step);
  }
  EXPECT_TRUE(std::filesystem::is_directory(folder_ / "a/b/checkpoints/step_99999999"));
}

TEST_F(CheckpointTest, EqualRunsMakeEqualFiles) {
  TempFolder one, two;
  for (TempFolder* folder : {&one, &two}) {
    CheckpointStore store(folder->path());
    CheckpointState state = StateOf(5);
    for (int i = 0; i < 50; ++i) {  // maps iterate in an order of their own
      (*state.mutable_choices())[std::to_string(folder == &one ? i : 49 - i)] = "x";
    }
    ASSERT_TRUE(Save(store, state, WeightsOf(5).Shuffled(), SlotsOf(5).tensors()).ok());
  }
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.pb"}) {
    const std::string path = std::string("step_00000005/") + name;
    EXPECT_EQ(ReadBytes(one / path), ReadBytes(two / path)) << name;
  }
}

TEST_F(CheckpointTest, KeepsTheNewestOnes) {
  for (int64_t step : {10, 20, 30}) ASSERT_TRUE(SaveStep(store_, step, 2).ok());
  EXPECT_THAT(folder_.List(), ElementsAre("step_00000020", "step_00000030"));
  // A run that goes on from an older checkpoint neither deletes nor counts those of the other one,
  // and replaces the one it meets.
  ASSERT_TRUE(SaveStep(store_, 12, 2).ok());
  ASSERT_TRUE(SaveStep(store_, 14, 2).ok());
  ASSERT_TRUE(SaveStep(store_, 16, 2).ok());
  EXPECT_THAT(folder_.List(),
              ElementsAre("step_00000014", "step_00000016", "step_00000020", "step_00000030"));
  ASSERT_TRUE(Save(store_, StateOf(30), {}, {}).ok());
  ASSERT_TRUE(store_.DeleteOlder(30, 2).ok());
  EXPECT_THAT(folder_.List(), ElementsAre("step_00000020", "step_00000030"));
  EXPECT_TRUE(store_.LoadLatest(nullptr)->weights.tensors().empty());

  ASSERT_TRUE(SaveStep(store_, 5, 1).ok());
  EXPECT_THAT(folder_.List(), ElementsAre("step_00000005", "step_00000020", "step_00000030"));
}

TEST_F(CheckpointTest, LeavesOtherFilesAlone) {
  WriteBytes(folder_ / "notes.txt", "mine");
  WriteBytes(folder_ / "step_x", "mine");
  WriteBytes(folder_ / "step_", "mine");
  std::filesystem::create_directories(folder_ / ".step_00000009.tmp-1/sub");
  EXPECT_EQ(store_.LoadLatest(nullptr).status().code(), absl::StatusCode::kNotFound);
  ASSERT_EQ(RemoveTemporaries(store_.folder()), absl::OkStatus());
  ASSERT_TRUE(SaveStep(store_, 3).ok());
  EXPECT_THAT(folder_.List(), ElementsAre("notes.txt", "step_", "step_00000003", "step_x"));
}

TEST_F(CheckpointTest, SkipsBrokenOnesAndSaysWhy) {
  for (int64_t step : {1, 2, 3, 4, 5, 6}) ASSERT_TRUE(SaveStep(store_, step).ok());
  std::filesystem::resize_file(folder_ / "step_00000006/state.pb", 300 << 20);  // zeros
  const std::string weights = folder_ / "step_00000005/weights.safetensors";
  const auto sum = [&] { return absl::StrFormat("%08x", Crc32OfFile(weights).value()); };
  const std::string expected = sum();
  FlipByte(weights, std::filesystem::file_size(weights) - 1, 1);
  std::filesystem::remove(folder_ / "step_00000004/optimizer.safetensors");
  WriteBytes(folder_ / "step_00000003/state.pb", "\xff");
  std::filesystem::remove(folder_ / "step_00000002/state.pb");
  std::vector<std::string> skipped;
  ExpectStep(store_.LoadLatest(&skipped), 1);
  EXPECT_THAT(skipped,
              ElementsAre(HasSubstr("step_00000006/state.pb: has 314572800 bytes, at most"),
                          testing::AllOf(HasSubstr(weights), HasSubstr("expected " + expected),
                                         HasSubstr("has crc32 " + sum())),
                          (folder_ / "step_00000004/optimizer.safetensors: missing"),
                          HasSubstr(folder_ / "step_00000003/state.pb"),
                          (folder_ / "step_00000002/state.pb: missing")));

  FlipByte(folder_ / "step_00000001/state.pb", 10, 0x20);
  const absl::Status status = store_.LoadLatest(&skipped).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr("each of the 6 checkpoints"));
  EXPECT_THAT(status.message(), HasSubstr("at most 268435456 are allowed"));

  // Bytes that mean nothing (a field 5), and those that say the same once more.
  ASSERT_TRUE(SaveStep(store_, 7).ok());
  const std::string path = folder_ / "step_00000007/state.pb", state = ReadBytes(path);
  for (const std::string& more : {std::string("\x2a\x01x"), state}) {
    WriteBytes(path, state + more);
    EXPECT_THAT(LoadCheckpoint(folder_ / "step_00000007").status().message(),
                HasSubstr(absl::StrCat("of which ", state.size(), " are a checkpoint's state")));
  }
}

// A copy under another step's name would lose what came since.
TEST_F(CheckpointTest, AFolderOfAnotherStepIsSkipped) {
  for (int64_t step : {75, 100}) ASSERT_TRUE(SaveStep(store_, step).ok());
  const std::string wrong = folder_ / "step_00000999", best = folder_ / "best";
  for (const std::string& copy : {wrong, best}) {
    std::filesystem::copy(folder_ / "step_00000075", copy);
  }
  const std::string error = wrong +
                            ": the name says step 999, but the checkpoint in it is of step 75; "
                            "rename the folder to step_00000075";
  for (const CheckpointNeed need : {CheckpointNeed::kAll, CheckpointNeed::kWeights}) {
    std::vector<std::string> skipped;
    EXPECT_EQ(store_.LoadLatest(&skipped, need)->state.step(), 100);
    EXPECT_THAT(skipped, ElementsAre(error));
    EXPECT_EQ(LoadCheckpoint(wrong + "/", need).status(), absl::DataLossError(error));
  }
  EXPECT_EQ(ChecksumsOf(wrong).status(), absl::DataLossError(error));
  ExpectStep(LoadCheckpoint(best), 75);
  ASSERT_TRUE(store_.DeleteOlder(100, 1).ok());
  EXPECT_THAT(folder_.List(), ElementsAre("best", "step_00000100", "step_00000999"));
}

// Neither waited for nor read for hours.
TEST_F(CheckpointTest, WhatIsNoFileOrTooLongIsBroken) {
  for (const char* name : {"weights.safetensors", "optimizer.safetensors", "state.pb"}) {
    for (const char* kind : {"pipe", "folder", "sparse"}) {
      SCOPED_TRACE(absl::StrCat(name, " ", kind));
      TempFolder folder;
      CheckpointStore store(folder.path());
      ASSERT_TRUE(SaveStep(store, 1).ok());
      const std::string path = folder / "step_00000001/" + name;
      if (kind == std::string("sparse")) {
        std::filesystem::resize_file(path, int64_t{1} << 40);
      } else {
        std::filesystem::remove(path);
        ASSERT_EQ(
            kind == std::string("pipe") ? mkfifo(path.c_str(), 0600) : mkdir(path.c_str(), 0700),
            0);
      }
      const absl::Status status = LoadCheckpoint(folder / "step_00000001").status();
      EXPECT_FALSE(absl::IsInvalidArgument(status)) << status;  // which is a flag's
      EXPECT_THAT(status.message(), HasSubstr(path));
      EXPECT_THAT(status.message(),
                  HasSubstr(kind == std::string("pipe")     ? "it is a pipe or a device"
                            : kind == std::string("folder") ? "Is a directory"
                                                            : "bytes"));
    }
  }
}

// Whoever wants the weights alone does without the other files.
TEST_F(CheckpointTest, WeightsNeedNoOtherFile) {
  ASSERT_TRUE(SaveStep(store_, 1).ok());
  ASSERT_TRUE(SaveStep(store_, 2, 9, 3).ok());
  const std::string newest = folder_ / "step_00000002";
  FlipByte(newest + "/optimizer-00001-of-00003.safetensors", 100, 1);
  std::filesystem::remove(newest + "/optimizer-00002-of-00003.safetensors");
  ExpectStep(store_.LoadLatest(nullptr), 1);
  const auto checkpoint = store_.LoadLatest(nullptr, CheckpointNeed::kWeights).value();
  ExpectTensors(checkpoint.weights, WeightsOf(2).tensors());
  FlipByte(newest + "/weights.safetensors", 100, 1);
  EXPECT_EQ(store_.LoadLatest(nullptr, CheckpointNeed::kWeights)->state.step(), 1);
}

// Those who want averages need the first file of the optimizer, if the run made any.
TEST_F(CheckpointTest, AveragesNeedTheFirstFileOfTheOptimizer) {
  for (const int64_t step : {1, 2}) {
    CheckpointState state = StateOf(step);
    state.set_averages(step == 1);
    ASSERT_TRUE(
        Save(store_, state, WeightsOf(step).tensors(), SlotsOf(step).tensors(), /*parts=*/3).ok());
    const std::string path = folder_ / absl::StrCat("step_0000000", step, "/optimizer-0000");
    std::filesystem::remove(path + "2-of-00003.safetensors");
    const auto loaded = store_.LoadLatest(nullptr, CheckpointNeed::kAverages).value();
    EXPECT_EQ(loaded.state.step(), step);
    EXPECT_EQ(loaded.optimizer.entries().empty(), step == 2);
    FlipByte(path + "1-of-00003.safetensors", 100, 1);
    EXPECT_EQ(store_.LoadLatest(nullptr, CheckpointNeed::kAverages).ok(), step == 2);
  }
}

TEST_F(CheckpointTest, SavingOverABrokenOneHealsIt) {
  ASSERT_TRUE(SaveStep(store_, 6).ok());
  std::filesystem::remove(folder_ / "step_00000006/weights.safetensors");
  WriteBytes(folder_ / "step_00000006/more", "");
  ASSERT_TRUE(SaveStep(store_, 6).ok());
  ExpectStep(store_.LoadLatest(nullptr), 6);
}

TEST_F(CheckpointTest, ThereMayBeNone) {
  for (const std::string& path : {folder_.path(), folder_ / "none"}) {
    const absl::Status status = CheckpointStore(path).LoadLatest(nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(path));
  }
  WriteBytes(folder_ / "file", "");
  for (const char* name : {"none", "file"}) {
    const absl::Status status = LoadCheckpoint(folder_ / name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(status.message(), HasSubstr(folder_ / name));
  }
  EXPECT_FALSE(CheckpointStore(folder_ / "file").LoadLatest(nullptr).ok());
}

TEST_F(CheckpointTest, ProbesBeforeARun) {
  CheckpointStore store(folder_ / "a/b");
  ASSERT_TRUE(store.ProbeWritable().ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "a/b"));
  WriteBytes(folder_ / "file", "");
  for (const std::string& path : {folder_ / "file", folder_ / "file/x", std::string("/proc/x")}) {
    CheckpointStore unwritable(path);
    for (const absl::Status& status : {unwritable.ProbeWritable(), SaveStep(unwritable, 1)}) {
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(status.message(), HasSubstr(path));
    }
  }
}

TEST_F(CheckpointTest, AFailedSaveLeavesTheOthers) {
  ASSERT_TRUE(SaveStep(store_, 1).ok());
  const std::vector<NamedTensor> twice = {{"a", {nullptr, Shape{0}, DType::kF32}},
                                          {"a", {nullptr, Shape{0}, DType::kF32}}};
  EXPECT_EQ(Save(store_, StateOf(2), {}, twice).code(), absl::StatusCode::kInvalidArgument);
  store_.Discard(2);
  EXPECT_THAT(folder_.List(), ElementsAre("step_00000001"));
  ExpectStep(store_.LoadLatest(nullptr), 1);
}

TEST_F(CheckpointTest, EveryFlippedByteIsFound) {
  ASSERT_TRUE(SaveStep(store_, 8, 9, 2).ok());
  std::mt19937_64 random(1);
  for (const char* name : {"weights.safetensors", "optimizer-00001-of-00002.safetensors",
                           "optimizer-00002-of-00002.safetensors", "state.pb"}) {
    const std::string path = folder_ / "step_00000008/" + name, whole = ReadBytes(path);
    const bool all = whole.size() < 1000;
    for (size_t i = 0; i < (all ? whole.size() : 300); ++i) {
      std::string bytes = whole;
      const size_t at = all ? i : random() % whole.size();
      bytes[at] = static_cast<char>(bytes[at] ^ (1 + random() % 255));
      WriteBytes(path, bytes);
      const absl::Status status = LoadCheckpoint(folder_ / "step_00000008").status();
      ASSERT_EQ(status.code(), absl::StatusCode::kDataLoss) << name << ", byte " << at;
      ASSERT_THAT(std::string(status.message()), HasSubstr(folder_ / "step_00000008/"));
    }
    for (size_t i = 0; i < (all ? whole.size() : 100); ++i) {
      const size_t size = all ? i : random() % whole.size();
      WriteBytes(path, whole.substr(0, size));
      ASSERT_EQ(LoadCheckpoint(folder_ / "step_00000008").status().code(),
                absl::StatusCode::kDataLoss)
          << name << ", cut to " << size;
    }
    WriteBytes(path, whole);
  }
  ExpectStep(store_.LoadLatest(nullptr), 8);
}

TEST_F(CheckpointTest, PartsAreOneSetOfTensors) {
  for (const int parts : {1, 2, 3, 7}) {  // of 4 slots: some have none
    ASSERT_TRUE(SaveStep(store_, parts, 9, parts).ok());
    WriteBytes(folder_ / absl::StrFormat("step_%08d/optimizer-00001-of-00009.safetensors", parts),
               "another's");
    ExpectStep(store_.LoadLatest(nullptr), parts);
  }
  const std::string third = folder_ / "step_00000003/optimizer-00003-of-00003.safetensors";
  std::filesystem::remove(third);
  EXPECT_EQ(LoadCheckpoint(folder_ / "step_00000003").status(),
            absl::DataLossError(third + ": missing"));

  // Files whose sums are right, and which are no set.
  const auto publish = [&](std::vector<std::string> names) {
    std::map<std::string, uint32_t> crc32s;
    for (const std::string& name : names) {
      crc32s[name] = store_.Write(50, name, SlotsOf(1).tensors()).value();
    }
    EXPECT_TRUE(store_.Publish(StateOf(50), crc32s).ok());
    return std::string(LoadCheckpoint(folder_ / "step_00000050").status().message());
  };
  const std::string one = ShardName(kOptimizerFile, 0, 2), two = ShardName(kOptimizerFile, 1, 2);
  EXPECT_THAT(publish({kWeightsFile, one, two}),
              testing::AllOf(testing::StartsWith((folder_ / "step_00000050/" + two) + ": holds"),
                             testing::EndsWith("as does " + (folder_ / "step_00000050/" + one))));
  EXPECT_THAT(publish({kWeightsFile, two}), HasSubstr("no crc32 of optimizer.safetensors"));
  EXPECT_THAT(publish({kWeightsFile, one, ShardName(kOptimizerFile, 2, 3)}),
              HasSubstr("no crc32 of " + two));
  EXPECT_THAT(publish({kWeightsFile}), HasSubstr("of which 0 are the optimizer's"));
  EXPECT_THAT(publish({kWeightsFile, one, two, "x.safetensors"}),
              HasSubstr("has crc32 of 4 files, of which 2 are the optimizer's and 0 of what"));
  EXPECT_THAT(publish({ShardName(kOptimizerFile, 0, 1)}),
              HasSubstr("no crc32 of weights.safetensors"));
}

// By two writers, one after the other or with folders of their own.
TEST_F(CheckpointTest, WhatAnotherWritesMustBeThere) {
  CheckpointStore leader(folder_ / "a", "7"), other(folder_ / "a", "7"),
      elsewhere(folder_ / "b", "7");
  const std::string one = ShardName(kOptimizerFile, 0, 2), two = ShardName(kOptimizerFile, 1, 2);
  for (CheckpointStore* second : {&elsewhere, &other}) {
    std::map<std::string, uint32_t> crc32s;
    crc32s[two] = second->Write(4, two, SlotsOf(4).tensors()).value();
    crc32s[one] = leader.Write(4, one, {}).value();
    crc32s[kWeightsFile] = leader.Write(4, kWeightsFile, WeightsOf(4).tensors()).value();
    const absl::Status status = leader.Publish(StateOf(4), crc32s);
    if (second == &other) {
      ASSERT_TRUE(status.ok()) << status;
      ExpectStep(leader.LoadLatest(nullptr), 4);
    } else {
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(status.message(), HasSubstr(two + " has been written, and is not"));
      EXPECT_EQ(leader.NewestStep().value(), -1);
      leader.Discard(4);
    }
  }
}

// A child saves steps one after the other, telling of each, until it is killed.
TEST_F(CheckpointTest, KilledAtAnyMomentThereIsAWholeOne) {
  std::mt19937_64 random(1);
  int64_t step = 0;  // the newest that is known to be saved
  for (int round = 0; round < 60; ++round) {
    SCOPED_TRACE(round);
    int told[2];
    ASSERT_EQ(pipe(told), 0);
    const pid_t child = fork();
    if (child == 0) {
      close(told[0]);
      CheckpointStore store(folder_.path());
      for (int64_t next = step + 1;; ++next) {
        if (!SaveStep(store, next, 1 + round % 3, 1 + round % 2).ok()) _exit(1);
        if (write(told[1], &next, sizeof(next)) != sizeof(next)) _exit(2);
      }
    }
    close(told[1]);
    if (round == 0) {
      ASSERT_EQ(read(told[0], &step, sizeof(step)), ssize_t{sizeof(step)});
    }
    // The random moment: 2^0 to 2^17 us, so that fast and slow disks are met at every stage.
    usleep(static_cast<useconds_t>(random() % (size_t{1} << (random() % 18))));
    kill(child, SIGKILL);
    int result = 0;
    ASSERT_EQ(waitpid(child, &result, 0), child);
    ASSERT_TRUE(WIFSIGNALED(result)) << WEXITSTATUS(result);
    for (int64_t saved; read(told[0], &saved, sizeof(saved)) > 0;) step = saved;
    close(told[0]);

    std::vector<std::string> skipped;
    const auto checkpoint = CheckpointStore(folder_.path()).LoadLatest(&skipped);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_TRUE(skipped.empty()) << skipped[0];
    EXPECT_GE(checkpoint->state.step(), step);
    EXPECT_LE(checkpoint->state.step(), step + 1);
    ExpectStep(checkpoint, checkpoint->state.step());
    for (const std::string& name : folder_.List()) {  // nor is an older one half removed
      EXPECT_TRUE(name[0] == '.' || LoadCheckpoint(folder_ / name).ok()) << name;
    }
    step = checkpoint->state.step();
  }
  ASSERT_EQ(RemoveTemporaries(store_.folder()), absl::OkStatus());
  ASSERT_TRUE(SaveStep(store_, step + 1, 1).ok());
  EXPECT_EQ(folder_.List().size(), 1u);  // no temporaries of the dead are left
}

}  // namespace
}  // namespace gyre
