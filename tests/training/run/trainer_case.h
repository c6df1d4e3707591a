// trainer_case.h: the loop of a run, with a data set that a file could not be, and with an eye on
// what it brings to the disk.  Included by one source of a program, whose fsync this is.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/training/run/trainer.h"
#include "tests/data/temp_folder.h"
#include "tests/distributed/process_group_ranks.h"

namespace {

std::mutex synced_mutex;
std::vector<std::string> synced;  // in order
// What becomes of a file whose path has such a part; null: it is brought to the disk.
std::string sync_what = "weights.safetensors";
std::function<int(const std::string& path)> sync_it;
std::atomic<int64_t> images_read = 0;
std::atomic<bool> failed = false;  // one of them
// The sample that cannot be read once a run has begun.  -1: none.
std::atomic<int64_t> bad_sample = -1;

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

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [3, 3, 1] }
  input { name: "label" type: LABEL }
  layer { name: "flat" flatten {} }
  layer { name: "fc" dense { outputs: 2 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

constexpr int64_t kSamples = 1000;
constexpr int64_t kReadsBefore = kSamples;  // what a run reads before it begins

// Samples that can be read so many times.  Then images cannot be, or labels are no classes.
class Samples : public Dataset {
 public:
  explicit Samples(int64_t reads, bool labels_fail = false)
      : reads_left_(reads), begun_(reads - kReadsBefore), labels_fail_(labels_fail) {
    for (int i = 0; i < 7; ++i) std::ranges::fill(images_[i], static_cast<float>(i));
  }
  int64_t size() const override { return kSamples; }
  const std::vector<DataArray>& arrays() const override { return arrays_; }
  absl::StatusOr<Tensor> Read(int64_t index, size_t array, SampleMemory&,
                              const std::optional<SampleDraw>&) const override {
    if (array == 1) {
      const int wrong = labels_fail_ && reads_left_ < 0 ? 2 : 0;
      if (wrong > 0) failed = true;
      return Tensor{&labels_[wrong + index % 2], arrays_[1].shape, DType::kI32};
    }
    ++images_read;
    const int64_t left = --reads_left_;
    if ((left < 0 && !labels_fail_) || (index == bad_sample && left < begun_)) {
      failed = true;
      return absl::DataLossError("it cannot be decoded");
    }
    return Tensor{images_[index % 7], arrays_[0].shape, DType::kF32};
  }

 private:
  mutable std::atomic<int64_t> reads_left_;
  const int64_t begun_;  // reads left when a run begins
  const bool labels_fail_;
  const std::vector<DataArray> arrays_ = {
      {.input = "image", .file = "i", .shape = {3, 3, 1}, .dtype = DType::kF32},
      {.input = "label", .file = "l", .shape = {}, .dtype = DType::kI32}};
  mutable int32_t labels_[4] = {0, 1, 7, 7};
  mutable float images_[7][9];
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    WriteBytes(folder_ / "trainer", R"(
      net: "net" batch: 4 steps: 1000000 checkpoint_every: 1000
      optimizer { sgd {} } learning_rate { base: 0.001 }
      data { train { idx { images: "i" labels: "l" } } })");
    options_.out = folder_ / "out";
  }
  ~TrainerTest() override {
    sync_it = nullptr;
    bad_sample = -1;
    sync_what = "weights.safetensors";
  }

  // Whether, within so long, more samples are read than are read ahead.
  static bool TrainingGoesOn(int ms = 20'000) {
    const int64_t enough = images_read + 100;
    for (; ms > 0 && images_read < enough; --ms) usleep(1000);
    return images_read >= enough;
  }

  // One rank's run.  meet: called before it tells the others that it has ended.
  absl::Status Run(
      ProcessGroup& communication, int64_t reads, TrainingOptions options,
      const std::vector<std::string>& overrides = {}, const std::function<void()>& meet = [] {}) {
    const auto trainer = ParseTrainer(folder_ / "trainer", overrides).value();
    const auto net = ParseNetText(net_, "net").value();
    const auto device = sim_bytes_ > 0 ? NewSimDevice({.threads = 1, .capacity_bytes = sim_bytes_})
                                       : NewCpuDevice({.threads = 1});
    const Primitives primitives(device->kind(), 1);
    const bool several = communication.size() > 1;  // of which one then fails alone
    RunData data{std::make_unique<Samples>(reads, /*labels_fail=*/several), nullptr, {}};
    if (test_reads_ > 0) data.test = std::make_unique<Samples>(test_reads_);
    data.feed = *FeedOf(net, trainer, data.train.get(), data.test.get());
    auto run = Trainer::Prepare(trainer, net, std::move(data), *device, primitives, communication,
                                options);
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return run.status();
    const absl::StatusOr<std::string> digest = (*run)->Run();
    const absl::Status status = digest.status();
    if (status.ok() && communication.rank() == 0) digest_ = *digest;
    meet();
    communication.Abort(status);  // as a tool does
    return status;
  }

  absl::Status RunAlone(int64_t reads, const std::vector<std::string>& overrides = {}) {
    return Run(*GroupOfOne(), reads, options_, overrides);
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
    std::vector<absl::Status> statuses(2);
    RunRanksOn("direct", 2, 20'000, [&](ProcessGroup& communication) {
      const int r = communication.rank();
      if (apart) {
        const std::string host = HostOf(r);
        std::filesystem::create_directory(host);
        ASSERT_EQ(unshare(CLONE_FS), 0);  // for this thread alone
        ASSERT_EQ(chdir(host.c_str()), 0);
      }
      statuses[r] = Run(communication, r == 1 ? reads_of_1 : 1'000'000'000, options, overrides);
    });
    return statuses;
  }

  // A run of one rank that is asked to stop before it begins: it does 3 steps, if it has so many.
  absl::Status RunAndStop(const std::string& out, int steps = 1000) {
    const std::atomic<bool> stop = true;
    TrainingOptions options;
    options.out = out;
    options.stop = &stop;
    const auto communication = GroupOfOne();
    return Run(*communication, kReadsBefore + 1000, options,
               {"checkpoint_every=3", absl::StrCat("steps=", steps)});
  }

  TempFolder folder_;
  TrainingOptions options_;  // with `out` in the folder
  std::string digest_;       // of the last run that ended well
  std::string net_ = kNet;
  size_t sim_bytes_ = 0;    // of the device, which pages; 0: it is the CPU
  int64_t test_reads_ = 0;  // so often the test data can be read; 0: there are none
};

}  // namespace
}  // namespace gyre
