// The loop itself, with data sets that a file could not be: what fails on one rank alone is told as
// what it is.
#include "engine/training/trainer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "absl/strings/match.h"
#include "tests/data/temp_folder.h"

namespace gyre {
namespace {

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [3, 3, 1] }
  input { name: "label" type: LABEL }
  layer { name: "fc" dense { outputs: 2 } }
  layer { name: "loss" input: "fc" input: "label" softmax_cross_entropy {} })";

// Samples that can be read so many times.
class Samples : public Dataset {
 public:
  explicit Samples(int64_t reads) : reads_left_(reads) {}
  int64_t size() const override { return 1000; }
  const Shape& sample_shape() const override { return shape_; }
  absl::Status Read(int64_t index, Tensor image, int32_t* label) const override {
    if (--reads_left_ < 0) return absl::DataLossError("it cannot be decoded");
    std::fill_n(image.as<float>(), image.elements(), static_cast<float>(index % 7));
    *label = static_cast<int32_t>(index % 2);
    return absl::OkStatus();
  }

 private:
  mutable std::atomic<int64_t> reads_left_;
  const Shape shape_{3, 3, 1};
};

class TrainerTest : public testing::Test {
 protected:
  TrainerTest() {
    WriteBytes(folder_ / "trainer", R"(
      net: "net" batch: 4 steps: 1000000 optimizer { sgd {} } learning_rate { base: 0.001 }
      data { train { idx { images: "i" labels: "l" } } })");
  }

  // One rank's run.
  absl::Status Run(CommunicationThread& communication, int64_t reads) {
    const auto trainer = ParseTrainer(folder_ / "trainer", {});
    const auto net = ParseNetText(kNet, "net");
    EXPECT_TRUE(trainer.ok() && net.ok()) << trainer.status() << net.status();
    const auto device = NewCpuDevice({.threads = 1});
    const Primitives primitives(device->kind(), 1);
    TrainingData data{std::make_unique<Samples>(reads), nullptr, {.image = 0, .label = 1}};
    TrainingOptions options;
    options.out = folder_ / "out";
    auto run = Trainer::Prepare(*trainer, *net, std::move(data), *device, primitives, communication,
                                options);
    EXPECT_TRUE(run.ok()) << run.status();
    const absl::Status status = (*run)->Run().status();
    communication.Abort(status);  // as a tool does
    return status;
  }

  TempFolder folder_;
};

TEST_F(TrainerTest, WhatFailsOnOneRankIsToldAsItself) {
  for (int failing : {0, 1}) {
    auto communicators = NewThreadCommunicators(2, 20'000);
    absl::Status statuses[2];
    std::vector<std::thread> threads;
    for (int r = 0; r < 2; ++r) {
      threads.emplace_back([&, r] {
        const auto communication = *CommunicationThread::Start(
            [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
              return std::move(communicators[static_cast<size_t>(r)]);
            },
            "ring");
        // Enough for what a run looks at before it begins, and some steps.
        statuses[r] = Run(*communication, r == failing ? 100 : 1'000'000'000);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_TRUE(absl::EndsWith(statuses[failing].message(), "it cannot be decoded"))
        << statuses[failing];
    EXPECT_FALSE(absl::StrContains(statuses[1 - failing].message(), "disagree"))
        << statuses[1 - failing];
  }
}

}  // namespace
}  // namespace gyre
