// The loop itself, with data sets that a file could not be: what fails on one rank alone is told as
// what it is, and a checkpoint is on the disk, once.
#include "engine/training/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cerrno>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/data/temp_folder.h"

namespace {

std::mutex synced_mutex;
std::vector<std::string> synced;  // in order
// What becomes of a file whose path has such a part; null: it is brought to the disk.
std::string sync_what = "weights.safetensors";
std::function<int(const std::string& path)> sync_it;
std::atomic<int64_t> images_read = 0;
std::atomic<bool> failed = false;  // one of them

}  // namespace

// In place of the C library's, so that the test sees what is brought to the disk.
extern "C" int fsync(int fd) {
  const std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd));
  {
    std::lock_guard lock(synced_mutex);
    synced.push_back(path);
  }
  if (sync_it && absl::StrContains(path, sync_what)) return sync_it(path);
  return static_cast<int>(syscall(SYS_fsync, fd));
}

namespace gyre {
namespace {

using testing::Contains;
using testing::ElementsAre;

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [3, 3, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 2 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

// Samples that can be read so many times.
class Samples : public Dataset {
 public:
  explicit Samples(int64_t reads) : reads_left_(reads) {
    for (int i = 0; i < 7; ++i) std::ranges::fill(images_[i], static_cast<float>(i));
  }
  int64_t size() const override { return 1000; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array) const override {
    if (array == 1) return Tensor{&labels_[index % 2], arrays_[1].shape, DType::kI32};
    ++images_read;
    if (--reads_left_ < 0) {
      failed = true;
      return absl::DataLossError("it cannot be decoded");
    }
    return Tensor{images_[index % 7], arrays_[0].shape, DType::kF32};
  }

 private:
  mutable std::atomic<int64_t> reads_left_;
  const std::vector<DataArray> arrays_ = {
      {.input = "image", .file = "i", .shape = {3, 3, 1}, .dtype = DType::kF32},
      {.input = "label", .file = "l", .shape = {}, .dtype = DType::kI32}};
  mutable int32_t labels_[2] = {0, 1};
  mutable float images_[7][9];
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    WriteBytes(folder_ / "trainer", R"(
      net: "net" batch: 4 steps: 1000000 checkpoint_every: 1000
      optimizer { sgd {} } learning_rate { base: 0.001 }
      data { train { idx { images: "i" labels: "l" } } })");
  }

  // One rank's run.  meet: called before it tells the others that it has ended.
  absl::Status Run(
      ProcessGroup& communication, int64_t reads, TrainingOptions options,
      const std::vector<std::string>& overrides = {}, const std::function<void()>& meet = [] {}) {
    const auto trainer = ParseTrainer(folder_ / "trainer", overrides);
    const auto net = ParseNetText(kNet, "net");
    EXPECT_TRUE(trainer.ok() && net.ok()) << trainer.status() << net.status();
    const auto device = NewCpuDevice({.threads = 1});
    const Primitives primitives(device->kind(), 1);
    RunData data{std::make_unique<Samples>(reads), nullptr, {}};
    data.feed = *FeedOf(*net, *trainer, data.train.get(), nullptr);
    auto run = Trainer::Prepare(*trainer, *net, std::move(data), *device, primitives, communication,
                                options);
    EXPECT_TRUE(run.ok()) << run.status();
    const absl::Status status = (*run)->Run().status();
    meet();
    communication.Abort(status);  // as a tool does
    return status;
  }

  // Two ranks that share out the optimizer.  By rank.
  std::vector<absl::Status> RunShared(const TrainingOptions& options,
                                      std::vector<std::string> overrides,
                                      int64_t reads_of_1 = 1'000'000'000) {
    overrides.emplace_back("distributed.shard_optimizer=true");
    return RunTwo(options, overrides, /*apart=*/false, reads_of_1);
  }

  // Two ranks on hosts apart, each in its HostOf.
  std::vector<absl::Status> RunApart(const TrainingOptions& options,
                                     std::vector<std::string> overrides, bool shard = true,
                                     int64_t reads_of_1 = 1'000'000'000) {
    if (shard) overrides.emplace_back("distributed.shard_optimizer=true");
    return RunTwo(options, overrides, /*apart=*/true, reads_of_1);
  }
  std::string HostOf(int rank) const { return folder_ / absl::StrCat("host", rank); }
  // Of its folder the newest checkpoint's step, which is whole there; -1: there is none.
  int64_t NewestOf(int rank) const {
    const CheckpointStore store(HostOf(rank) + "/out/checkpoints");
    const int64_t step = store.NewestStep().value();
    EXPECT_TRUE(step < 0 || store.LoadLatest(nullptr)->state.step() == step);
    return step;
  }

  std::vector<absl::Status> RunTwo(TrainingOptions options, std::vector<std::string> overrides,
                                   bool apart, int64_t reads_of_1) {
    overrides.insert(overrides.end(),
                     {"distributed.allreduce=direct", "optimizer.sgd.momentum=0.9"});
    auto communicators = NewThreadCommunicators(2, 20'000);
    std::vector<absl::Status> statuses(2);
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        if (apart) {
          const std::string host = HostOf(r);
          std::filesystem::create_directory(host);
          ASSERT_EQ(unshare(CLONE_FS), 0);  // for this thread alone
          ASSERT_EQ(chdir(host.c_str()), 0);
        }
        const auto communication = *ProcessGroup::Start(
            [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
              return std::move(communicators[static_cast<size_t>(r)]);
            },
            {"direct"});
        statuses[r] = Run(*communication, r == 1 ? reads_of_1 : 1'000'000'000, options, overrides);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }

  // A run of one rank that is asked to stop before it begins: it does 3 steps, if it has so many.
  absl::Status RunAndStop(const std::string& out, int steps = 1000) {
    const std::atomic<bool> stop = true;
    TrainingOptions options;
    options.out = out;
    options.stop = &stop;
    const auto communication = *ProcessGroup::Start(
        [] { return std::move(NewThreadCommunicators(1, 20'000)[0]); }, {"ring"});
    return Run(*communication, 1000, options,
               {"checkpoint_every=3", absl::StrCat("steps=", steps)});
  }

  TempFolder folder_;
};

TEST_F(TrainerTest, WhatFailsOnOneRankIsToldAsItself) {
  TrainingOptions options;
  options.out = folder_ / "out";
  for (int failing : {0, 1}) {
    auto communicators = NewThreadCommunicators(2, 20'000);
    absl::Status statuses[2];
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        const auto communication = *ProcessGroup::Start(
            [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
              return std::move(communicators[static_cast<size_t>(r)]);
            },
            {"ring"});
        // Enough for what a run looks at before it begins, and some steps.
        statuses[r] = Run(*communication, r == failing ? 100 : 1'000'000'000, options);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(absl::EndsWith(statuses[failing].message(), "it cannot be decoded"))
        << statuses[failing];
    EXPECT_FALSE(absl::StrContains(statuses[1 - failing].message(), "disagree"))
        << statuses[1 - failing];
  }
}

TEST_F(TrainerTest, ARunThatEndsBeforeItStopsIsDone) {
  for (int steps = 1; steps <= 4; ++steps) {
    const std::string out = folder_ / absl::StrCat("out", steps);
    const absl::Status status = RunAndStop(out, steps);
    EXPECT_EQ(status.code(), steps <= 3 ? absl::StatusCode::kOk : absl::StatusCode::kCancelled);
    EXPECT_EQ(CheckpointStore(out + "/checkpoints").NewestStep().value(), std::min(steps, 3));
  }
}

// A step that is due for a checkpoint, and the last before a stop.
TEST_F(TrainerTest, AStepIsSavedOnce) {
  const std::string checkpoints = folder_ / "out/checkpoints";
  std::filesystem::create_directories(checkpoints);
  const int watch = inotify_init1(IN_NONBLOCK);
  ASSERT_GE(inotify_add_watch(watch, checkpoints.c_str(), IN_MOVED_TO), 0);
  EXPECT_TRUE(absl::IsCancelled(RunAndStop(folder_ / "out")));
  alignas(inotify_event) char events[4096];
  const ssize_t bytes = read(watch, events, sizeof(events));
  close(watch);
  std::vector<std::string> written;
  for (ssize_t at = 0; at < bytes;) {
    const auto* event = reinterpret_cast<const inotify_event*>(events + at);
    written.push_back(event->name);
    at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
  }
  EXPECT_THAT(written, ElementsAre(".probe", "step_00000003"));
}

// Training goes on while a checkpoint is written; what goes wrong then ends a step, not the run's
// million of them.
TEST_F(TrainerTest, ACheckpointIsWrittenBesideTraining) {
  bool went_on = false;
  sync_it =
      [&](const std::string&) {  // returns once more samples have been read than are read ahead
        const int64_t enough = images_read + 100;
        for (int ms = 0; ms < 20'000 && images_read < enough; ++ms) usleep(1000);
        went_on = images_read >= enough;
        errno = EIO;
        return -1;
      };
  std::atomic<bool> save = true;
  TrainingOptions options;
  options.out = folder_ / "out";
  options.save = &save;
  const auto communication = *ProcessGroup::Start(
      [] { return std::move(NewThreadCommunicators(1, 20'000)[0]); }, {"ring"});
  // No other checkpoint, which would wait for this one.
  const absl::Status status =
      Run(*communication, 1'000'000'000, options, {"checkpoint_every=1000000"});
  sync_it = nullptr;
  EXPECT_TRUE(went_on);
  EXPECT_TRUE(absl::StartsWith(status.message(), "cannot sync " + folder_ / "out/checkpoints/"))
      << status;
  EXPECT_TRUE(absl::EndsWith(status.message(), "weights.safetensors: Input/output error"))
      << status;
  EXPECT_TRUE(std::filesystem::is_empty(folder_ / "out/checkpoints"));
}

// An error that all ranks see ends none of them while rank 0 writes.
TEST_F(TrainerTest, ADivergedRunKeepsTheCheckpointBeingWritten) {
  std::atomic<bool> written = false;
  sync_it = [&](const std::string&) {
    usleep(300'000);
    written = true;
    return 0;
  };
  TrainingOptions options;
  options.out = folder_ / "out";
  auto communicators = NewThreadCommunicators(2, 20'000);
  std::barrier<> both(2);  // as a tool's rank waits before it ends the others
  std::vector<std::thread> threads;
  for (auto& communicator : communicators) {
    threads.emplace_back([&] {
      const auto communication = *ProcessGroup::Start(
          [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
            return std::move(communicator);
          },
          {"ring"});
      const absl::Status status =
          Run(*communication, 1'000'000, options, {"checkpoint_every=1", "learning_rate.base=1e38"},
              [&] { both.arrive_and_wait(); });
      EXPECT_TRUE(written) << communication->rank();
      EXPECT_TRUE(absl::StrContains(status.message(), "not finite")) << status;
      EXPECT_TRUE(absl::StrContains(status.message(), "the checkpoint of step 1 stands")) << status;
    });
  }
  for (std::thread& thread : threads) thread.join();
  sync_it = nullptr;
  EXPECT_TRUE(std::filesystem::exists(folder_ / "out/checkpoints/step_00000001/state.pb"));
}

// A rank writes its part, and rank 0 makes it a checkpoint, while training goes on.
TEST_F(TrainerTest, PartsAreWrittenBesideTraining) {
  std::atomic<bool> stop = false, save = true;
  std::atomic<bool> waited = false, went_on = false;
  sync_what = "";
  sync_it = [&](const std::string& path) {
    if (absl::EndsWith(path, "state.pb")) stop = true;  // rank 0 knows of both parts
    if (!absl::StrContains(path, "optimizer-00002-of-00002") || waited.exchange(true)) return 0;
    const int64_t enough = images_read + 100;
    for (int ms = 0; ms < 20'000 && images_read < enough; ++ms) usleep(1000);
    went_on = images_read >= enough;
    return 0;
  };
  TrainingOptions options;
  options.out = folder_ / "out";
  options.stop = &stop;
  options.save = &save;
  const auto statuses = RunShared(options, {"checkpoint_every=1000000"});
  sync_it = nullptr;
  sync_what = "weights.safetensors";
  EXPECT_TRUE(absl::IsCancelled(statuses[0])) << statuses[0];
  EXPECT_TRUE(absl::IsCancelled(statuses[1])) << statuses[1];
  EXPECT_TRUE(went_on);
  const auto checkpoint = CheckpointStore(folder_ / "out/checkpoints").LoadLatest(nullptr);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_TRUE(std::filesystem::exists(checkpoint->path + "/optimizer-00002-of-00002.safetensors"));
}

// A rank whose step fails alone tells of its part no more, and the checkpoint is there.
TEST_F(TrainerTest, AFailedRankKeepsTheCheckpointBeingWritten) {
  failed = false;
  sync_what = "optimizer-00002-of-00002";
  sync_it = [&](const std::string&) {
    for (int ms = 0; ms < 20'000 && !failed; ++ms) usleep(1000);
    return 0;
  };
  std::atomic<bool> save = true;
  TrainingOptions options;
  options.out = folder_ / "out";
  options.save = &save;
  const auto statuses = RunShared(options, {"checkpoint_every=1000000"}, 100);
  sync_it = nullptr;
  sync_what = "weights.safetensors";
  EXPECT_TRUE(absl::StrContains(statuses[1].message(), "it cannot be decoded")) << statuses[1];
  EXPECT_TRUE(absl::EndsWith(statuses[0].message(), " stands")) << statuses[0];
  const auto checkpoint = CheckpointStore(folder_ / "out/checkpoints").LoadLatest(nullptr);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
}

// Where another rank than 0 cannot write: all end with its reason, and what was there stands.
TEST_F(TrainerTest, APartThatCannotBeWrittenEndsAllRanks) {
  std::atomic<int> writes = 0;
  sync_what = "optimizer-00002-of-00002";
  sync_it = [&](const std::string&) {
    if (++writes <= 4) return 0;  // each is synced as a file, then with its folder
    errno = EIO;
    return -1;
  };
  TrainingOptions options;
  options.out = folder_ / "out";
  const auto statuses = RunShared(options, {"checkpoint_every=1"});
  sync_it = nullptr;
  sync_what = "weights.safetensors";
  for (const absl::Status& status : statuses) {
    EXPECT_TRUE(absl::StrContains(status.message(), "optimizer-00002-of-00002.safetensors: Input"))
        << status;
  }
  EXPECT_TRUE(absl::EndsWith(statuses[0].message(), "; the checkpoint of step 2 stands"))
      << statuses[0];
  std::vector<std::string> skipped;
  const auto checkpoint = CheckpointStore(folder_ / "out/checkpoints").LoadLatest(&skipped);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->state.step(), 2);
  EXPECT_TRUE(skipped.empty());
}

// Ranks with folders of their own, on hosts apart: a checkpoint outlives the loss of one, and the
// run goes on from it.  One that rank 0 alone writes is lent to the others.
TEST_F(TrainerTest, RanksApartKeepEachOthersParts) {
  const std::atomic<bool> stop = true;  // after a few steps
  TrainingOptions options;
  options.out = "out";
  options.stop = &stop;
  enum Keeps { kNew, kOld, kNothing };  // rank 1, of checkpoints
  struct Case {
    int lost;
    bool shard;
    Keeps keeps;
  };
  int64_t step = 0;
  for (const Case& c : {Case{-1, true, kNew},
                        {1, true, kNew},
                        {0, true, kNew},
                        {-1, false, kOld},
                        {1, false, kNothing}}) {
    if (c.lost >= 0) std::filesystem::remove_all(HostOf(c.lost));
    const int64_t before = step;
    for (const absl::Status& status : RunApart(options, {}, c.shard)) {
      EXPECT_TRUE(absl::IsCancelled(status)) << status;
    }
    step = NewestOf(0);
    EXPECT_GT(step, before);
    EXPECT_EQ(NewestOf(1), c.keeps == kNew ? step : c.keeps == kOld ? before : -1);
    EXPECT_EQ(std::filesystem::exists(HostOf(1) + "/out"), c.keeps != kNothing);
    options.resume = "latest";
  }
  // A new run does not mix with what another's hosts have.
  std::filesystem::remove_all(HostOf(0));
  options.resume = "";
  EXPECT_TRUE(absl::IsCancelled(RunApart(options, {}, true)[0]));
  std::filesystem::remove_all(HostOf(0));
  EXPECT_TRUE(absl::StrContains(RunApart(options, {}, true)[1].message(), "already holds checkp"));
}

// What a neighbour cannot keep ends the run with its reason, and what was there stands.
TEST_F(TrainerTest, ACopyThatCannotBeKeptEndsAllRanks) {
  std::atomic<int> writes = 0;
  sync_what = "optimizer-00001-of-00002";
  sync_it = [&](const std::string& path) {
    if (!absl::StrContains(path, HostOf(1)) || ++writes <= 6) return 0;
    errno = ENOSPC;
    return -1;
  };
  TrainingOptions options;
  options.out = "out";
  for (const absl::Status& status : RunApart(options, {"checkpoint_every=1"})) {
    EXPECT_TRUE(absl::StrContains(status.message(), "optimizer-00001-of-00002.safetensors: No spa"))
        << status;
  }
  sync_it = nullptr;
  sync_what = "weights.safetensors";
  const std::atomic<bool> stop = true;
  options.stop = &stop;
  options.resume = "latest";
  for (const absl::Status& status : RunApart(options, {})) {
    EXPECT_TRUE(absl::StrContains(status.message(), "stopped after step ")) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "after step 1;")) << status;
  }
}

// A rank that fails while copies are on their way: what was there before stands.
TEST_F(TrainerTest, AFailedRankApartLeavesTheCheckpointBefore) {
  TrainingOptions options;
  options.out = "out";
  for (int reads : {100, 120}) {
    const auto statuses =
        RunApart(options, {"checkpoint_every=1"}, /*shard=*/true, /*reads_of_1=*/reads);
    EXPECT_TRUE(absl::StrContains(statuses[1].message(), "it cannot be decoded")) << statuses[1];
    options.resume = "latest";
  }
  const std::atomic<bool> stop = true;
  options.stop = &stop;
  for (const absl::Status& status : RunApart(options, {})) {
    EXPECT_TRUE(absl::IsCancelled(status)) << status;
    EXPECT_FALSE(absl::StrContains(status.message(), "after step 1;")) << status;
  }
}

// The folders that a run makes are entries of those above them, and its lines come before the
// checkpoint that counts on them.
TEST_F(TrainerTest, WhatACheckpointCountsOnIsOnTheDisk) {
  const std::string out = folder_ / "a/b/out";
  synced.clear();
  EXPECT_TRUE(absl::IsCancelled(RunAndStop(out)));
  for (const char* holder : {"", "/a", "/a/b", "/a/b/out", "/a/b/out/checkpoints"}) {
    EXPECT_THAT(synced, Contains(absl::StrCat(folder_.path(), holder)));
  }
  const auto first = [](const std::string& part) {
    return std::ranges::find_if(
        synced, [&](const std::string& path) { return absl::StrContains(path, part); });
  };
  EXPECT_LT(first("metrics.jsonl"), first("weights.safetensors"));
  EXPECT_LT(first("weights.safetensors"), synced.end());
}

}  // namespace
}  // namespace gyre
