// A whole training step on the cuda device: nothing in it waits for the GPU or allocates, from the
// third step of a lane on it is one graph (or one for each stretch between the host's actions), and
// an error of the GPU comes out with its reason.  Kernels do not run, so numbers mean nothing here.
#include "engine/training/step/training_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "engine/runtime/device/cuda/cuda_device.h"
#include "engine/runtime/primitives/cuda/cuda_primitives.h"
#include "engine/runtime/primitives/cuda/library.h"
#include "models/schema/parse.h"
#include "tests/cuda/fakes/fake_cublaslt.h"
#include "tests/cuda/fakes/fake_cudart.h"
#include "tests/cuda/fakes/fake_cudnn.h"

namespace gyre {
namespace {

using fake_cudart::Calls;
using testing::HasSubstr;

constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [6, 6, 1] }
  input { name: "label" type: LABEL }
  layer { name: "conv" conv2d { filters: 3 kernel: 3 } }
  layer { name: "relu" relu {} }
  layer { name: "pool" pool2d { kind: MAX kernel: 2 } }
  layer { name: "drop" dropout { rate: 0.2 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc1" dense { outputs: 7 } }
  layer { name: "fc2" dense { outputs: 4 } }
  layer { name: "loss" input: "fc2" input: "label" softmax_cross_entropy {} }
  layer { name: "accuracy" input: "fc2" input: "label" accuracy {} })";
constexpr int64_t kBatch = 6;

// What a GPU has: cuBLASLt and cuDNN, faked, then our own kernels; or these alone, because the
// fakes are for one thread.
class GpuPrimitives {
 public:
  GpuPrimitives(Device& device, bool vendors) {
    if (!vendors) {
      std::vector<std::unique_ptr<PrimitiveLibrary>> libraries;
      libraries.push_back(NewReferenceLibrary());
      primitives_ = std::make_unique<Primitives>(DeviceKind::kCuda, std::move(libraries));
      return;
    }
    FakeCublasLt& cublaslt = cublaslt_.emplace();
    FakeCudnn& cudnn = cudnn_.emplace();
    cublaslt.host_view = cudnn.host_view = fake_cudart::HostView;
    cublaslt.enqueue = cudnn.enqueue = fake_cudart::Enqueue;
    primitives_ = NewCudaPrimitives(device, cublaslt.table(), cudnn.table(), {}).value();
  }
  const Primitives* get() const { return primitives_.get(); }

 private:
  std::optional<FakeCublasLt> cublaslt_;
  std::optional<FakeCudnn> cudnn_;
  std::unique_ptr<Primitives> primitives_;
};

// Whether a step pages, on a device that holds no more than what most needs: with updates on the
// host, with none, or with most pages on disk.
enum class Pages : uint8_t { kNone, kWithoutHost, kWithHost, kOnDisk };

// One rank's step with its memory.
class Rank {
 public:
  Rank(ProcessGroup& communication, std::optional<double> clip_norm, bool vendors = true,
       const LossScale& loss_scale = {}, Pages pages = Pages::kNone)
      : device_(NewCudaDevice({}).value()),
        primitives_(*device_, vendors),
        net_(*ParseNetText(kNet, "test.textproto")) {
    OptimizerConfig config;
    config.mutable_sgd()->set_momentum(0.9f);
    optimizer_ = NewOptimizer(config);
    ModelOptions options = {
        .shape = {.global = kBatch,
                  .rank = communication.rank(),
                  .ranks = communication.size(),
                  .loss_scale = loss_scale,
                  .clip_norm = clip_norm},
        .slots = optimizer_->slot_names(),
        .bucket_bytes = 64,
        .feed = FeedOn(device_->kind(), FeedOfBytes(*net_.message)),
        .capacity_bytes = device_->capacity_bytes(),
        .pages = {.planner = pages == Pages::kNone ? PlannerKind::kNone : PlannerKind::kAuto},
        .primitives = primitives_.get()};
    if (pages == Pages::kWithoutHost) options.paging.host_step_bytes_per_s = 1;
    auto plan = PlanModel(net_, options);
    if (pages == Pages::kOnDisk) {
      options.pages.host_bytes = 36 << 10;  // little more than the staging of the smallest slots
      options.pages.folder = testing::TempDir();
    }
    if (pages != Pages::kNone) {
      options.capacity_bytes = LeastCapacity(*plan);
      plan = PlanModel(net_, options);
    }
    stream_ = device_->NewStream().value();
    model_ = Model::Create(std::move(plan).value(), *device_, *stream_).value();
    EXPECT_TRUE(model_->Initialize(*stream_).ok());
    // The fake's kernels write nothing, and fresh memory is NaNs.
    for (int b = 0; b < buckets() && pages == Pages::kNone; ++b) {
      const Tensor bucket = model_->train().bucket(b);
      const std::vector<std::byte> zeros(bucket.bytes());
      EXPECT_TRUE(stream_->Copy(bucket.data, zeros.data(), zeros.size()).ok());
    }
    EXPECT_TRUE(stream_->Synchronize().ok());
    step_ = TrainingStep::Create(*model_, *optimizer_, *device_, *stream_, communication).value();
    std::vector<Tensor> arrays = BatchArrays(model_->train().plan());
    batch_memory_ = *Buffer::Allocate(*device_, MemoryKind::kPinnedHost, BatchBytes(arrays));
    std::memset(batch_memory_.data(), 0, batch_memory_.bytes());
    batch_ = BatchAt(batch_memory_.data(), std::move(arrays));
    batch_.samples.resize(static_cast<size_t>(batch_.arrays[0].shape[0]));
  }

  absl::Status Start() { return step_->Start(batch_, steps_++, /*learning_rate=*/0); }
  absl::Status Finish() { return step_->Finish().status(); }
  const TrainingStep& step() const { return *step_; }
  const ModelPlan& plan() const { return model_->plan(); }
  int buckets() const { return static_cast<int>(model_->plan().train->order.buckets.size()); }

 private:
  std::unique_ptr<Device> device_;
  GpuPrimitives primitives_;
  Parsed<NetConfig> net_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Model> model_;
  Buffer batch_memory_;
  Batch batch_;
  std::unique_ptr<TrainingStep> step_;
  int64_t steps_ = 0;
};

std::unique_ptr<ProcessGroup> Communication(std::unique_ptr<Communicator> communicator) {
  return ProcessGroup::Start(
             [&]() -> absl::StatusOr<std::unique_ptr<Communicator>> {
               return std::move(communicator);
             },
             {"ring"})
      .value();
}

class TrainingStepOnCuda : public testing::Test {
 protected:
  TrainingStepOnCuda() { fake_cudart::Boot(); }

  std::unique_ptr<ProcessGroup> communication_ =
      Communication(std::move(NewThreadCommunicators(1, 20'000).front()));
};

// Whether a step is skipped is the device's affair: the host makes the same calls in any case.
constexpr LossScale kDynamic = {.initial = 65536, .growth_interval = 2000};

// fetches, write_backs: of pages, in a step.
void ExpectNothingWaits(Rank& rank, int fetches = 0, int write_backs = 0) {
  const int pages = fetches + write_backs;
  for (int step = 0; step < 8; ++step) {
    SCOPED_TRACE(step);
    fake_cudart::ForgetCalls();
    ASSERT_TRUE(rank.Start().ok());
    // Each of the two lanes runs plainly, is captured and replayed at once, and is then replayed.
    const bool captured = step == 2 || step == 3;
    EXPECT_EQ(fake_cudart::WaitingCalls(), captured ? "cudaGraphInstantiate 1" : "");
    EXPECT_EQ(Calls("pageable copy"), 0);
    EXPECT_EQ(Calls("cudaGraphLaunch"), step < 2 ? 0 : 1);
    EXPECT_EQ(Calls("cudaLaunchKernel") > 0, step < 4);
    EXPECT_EQ(Calls("cudaStreamBeginCapture"), captured ? 1 : 0);
    // The batch ahead, a byte a pixel, and the step's block go up, fault, report and metrics come
    // down; replayed or not.
    EXPECT_EQ(Calls("copy up"), 2 + fetches);
    EXPECT_EQ(Calls("copy down"), 1 + write_backs);
    if (step < 4) {
      // Each copy of a page says when it is over, and waits for its place.
      EXPECT_GE(Calls("cudaEventRecord"), pages);
      EXPECT_GE(Calls("cudaStreamWaitEvent"), pages);
    } else {
      // The batch's way in is beside the graph; in it are kernels, the block's way up and down, the
      // labels' from the lane to the net, and all of the pages' copies and their order.
      EXPECT_EQ(Calls("cudaMemcpyAsync"), 1);
      EXPECT_EQ(rank.step().graph_nodes(),
                fake_cudart::Launches().size() + 3 + static_cast<size_t>(pages));
    }
    if (step == 0) continue;  // two steps are in flight from here on
    fake_cudart::ForgetCalls();
    ASSERT_TRUE(rank.Finish().ok());
    EXPECT_EQ(fake_cudart::WaitingCalls(), "cudaEventSynchronize 1");
  }
  ASSERT_TRUE(rank.Finish().ok());
}

TEST_F(TrainingStepOnCuda, NothingWaitsWithinAStep) {
  for (const auto& [clip_norm, loss_scale] :
       {std::pair<std::optional<double>, LossScale>(), {1.0, {}}, {std::nullopt, kDynamic}}) {
    SCOPED_TRACE(testing::Message() << clip_norm.has_value() << loss_scale.dynamic());
    Rank rank(*communication_, clip_norm, /*vendors=*/true, loss_scale);
    ExpectNothingWaits(rank);
  }
}

// How often a step that is replayed records an event, and has a stream wait for one.
std::pair<int, int> EventsOfAReplay(Rank& rank) {
  fake_cudart::ForgetCalls();
  EXPECT_TRUE(rank.Start().ok());
  const std::pair<int, int> events = {Calls("cudaEventRecord"), Calls("cudaStreamWaitEvent")};
  EXPECT_TRUE(rank.Finish().ok());
  return events;
}

// Of a device that holds no more than the step that touches most: pages come and go on streams of
// their own, and nothing of that waits.  They are part of the step's one graph.
TEST_F(TrainingStepOnCuda, NothingWaitsWithinAStepThatPages) {
  std::pair<int, int> resident_events;
  {
    Rank resident(*communication_, std::nullopt);
    for (int step = 0; step < 5; ++step) resident_events = EventsOfAReplay(resident);
  }
  Rank rank(*communication_, std::nullopt, /*vendors=*/true, {}, Pages::kWithoutHost);
  ASSERT_TRUE(rank.plan().pages());
  const PagingPlan& paging = *rank.plan().train->paging;
  const auto count = [&](bool Stay::*what) {
    return static_cast<int>(std::ranges::count(paging.stays, true, what));
  };
  const int fetches = count(&Stay::fetched), write_backs = count(&Stay::written_back);
  ASSERT_GT(fetches, 0);
  ASSERT_GT(write_backs, 0);
  ExpectNothingWaits(rank, fetches, write_backs);
  EXPECT_EQ(EventsOfAReplay(rank), resident_events);
}

// Host functions are not captured, so they end stretches; and nothing waits for them but streams.
TEST_F(TrainingStepOnCuda, NothingWaitsForUpdatesOnTheHost) {
  Rank rank(*communication_, std::nullopt, /*vendors=*/true, {}, Pages::kWithHost);
  const auto updates = static_cast<int>(rank.plan().train->paging->host_steps.size());
  ASSERT_GT(updates, 0);
  for (int step = 0; step < 8; ++step) {
    fake_cudart::ForgetCalls();
    ASSERT_TRUE(rank.Start().ok());
    EXPECT_THAT(fake_cudart::WaitingCalls(),
                testing::MatchesRegex(step == 2 || step == 3 ? "cudaGraphInstantiate [0-9]+" : ""))
        << "step " << step;
    EXPECT_EQ(Calls("cudaLaunchHostFunc"), updates) << "step " << step;
    if (step == 0) continue;  // two steps are in flight from here on
    ASSERT_TRUE(rank.Finish().ok());
  }
  ASSERT_TRUE(rank.Finish().ok());
}

// The file's transfers are host functions, which the driver may run one after another.
TEST_F(TrainingStepOnCuda, PagesComeFromDiskAndGoThere) {
  Rank rank(*communication_, std::nullopt, /*vendors=*/true, {}, Pages::kOnDisk);
  ASSERT_GT(rank.plan().disk_bytes(), 0u);
  for (int step = 0; step < 6; ++step) {
    fake_cudart::ForgetCalls();
    ASSERT_EQ(rank.Start(), absl::OkStatus());
    EXPECT_GT(Calls("cudaLaunchHostFunc"), 0) << "step " << step;
    ASSERT_EQ(rank.Finish(), absl::OkStatus());
  }
}

TEST_F(TrainingStepOnCuda, AReplayLaunchesWhatThePlainStepLaunched) {
  Rank rank(*communication_, std::nullopt);
  std::vector<std::vector<std::string>> kernels;
  for (int step = 0; step < 6; ++step) {
    fake_cudart::ForgetCalls();
    ASSERT_TRUE(rank.Start().ok());
    ASSERT_TRUE(rank.Finish().ok());
    auto& launched = kernels.emplace_back();
    for (const fake_cudart::Launch& launch : fake_cudart::Launches()) {
      if (!launch.captured) launched.push_back(launch.kernel);
    }
  }
  EXPECT_GT(kernels[0].size(), 20u);
  for (int step = 1; step < 6; ++step) EXPECT_EQ(kernels[step], kernels[0]) << "step " << step;
}

// Several ranks share the GPU; gradients go through pinned memory, and only the communication's
// answer makes the host wait.
TEST_F(TrainingStepOnCuda, RanksWaitForEachOtherAlone) {
  for (const LossScale& loss_scale : {LossScale{}, kDynamic}) {
    SCOPED_TRACE(loss_scale.dynamic());
    constexpr int kRanks = 2;
    auto communicators = NewThreadCommunicators(kRanks, 20'000);
    std::vector<std::thread> threads;
    std::vector<std::unique_ptr<ProcessGroup>> communications;
    std::vector<std::unique_ptr<Rank>> ranks;
    for (auto& communicator : communicators) {
      communications.push_back(Communication(std::move(communicator)));
      ranks.push_back(std::make_unique<Rank>(*communications.back(), std::nullopt,
                                             /*vendors=*/false, loss_scale));
    }
    const auto run = [&](int steps) {
      fake_cudart::ForgetCalls();
      for (auto& rank : ranks) {
        threads.emplace_back([&rank, steps] {
          for (int s = 0; s < steps; ++s) EXPECT_TRUE(rank->Start().ok() && rank->Finish().ok());
        });
      }
      for (std::thread& thread : threads) thread.join();
      threads.clear();
    };
    run(4);  // until both lanes are captured
    run(6);
    EXPECT_EQ(fake_cudart::WaitingCalls(), "cudaEventSynchronize 12");
    EXPECT_EQ(Calls("pageable copy"), 0);
    // In each of 6 steps of each rank: as one rank alone, and the buckets; the gate has their sums
    // of squares.
    const int buckets = ranks[0]->buckets();
    EXPECT_EQ(Calls("copy up"), 12 * (2 + buckets + (loss_scale.dynamic() ? 1 : 0)));
    EXPECT_EQ(Calls("copy down"), 12 * (1 + buckets));
  }
}

TEST_F(TrainingStepOnCuda, AnErrorOfTheGpuHasItsReason) {
  constexpr int kIllegalAddress = 700;  // cudaErrorIllegalAddress
  for (const int step_that_fails : {0, 2, 5}) {
    fake_cudart::Boot();
    const auto communication = Communication(std::move(NewThreadCommunicators(1, 20'000).front()));
    Rank rank(*communication, std::nullopt);
    absl::Status status;
    for (int step = 0; step < 8 && status.ok(); ++step) {
      if (step == step_that_fails) fake_cudart::FailWork(kIllegalAddress, 3);
      status = rank.Start();
      if (status.ok()) status = rank.Finish();
    }
    EXPECT_THAT(status.message(), HasSubstr("illegal memory access"));
  }
}

TEST_F(TrainingStepOnCuda, ALaunchThatIsRefusedNamesTheLayer) {
  constexpr int kInvalidConfiguration = 9;
  Rank rank(*communication_, std::nullopt);
  fake_cudart::FailCall("cudaLaunchKernel", kInvalidConfiguration, 2);  // after the pixels'
  EXPECT_THAT(rank.Start().message(), HasSubstr("layer pool"));
}

// A GPU that cannot capture the step runs it plainly, step after step: whether the end of the
// capture says so first, or a launch within it, which fails as any launch does.
TEST_F(TrainingStepOnCuda, WithoutGraphsItStillTrains) {
  for (const bool launch_fails : {false, true}) {
    SCOPED_TRACE(launch_fails);
    constexpr int kCaptureUnsupported = 900;
    Rank rank(*communication_, std::nullopt);
    for (int step = 0; step < 6; ++step) {
      if (step == 2 || step == 3) {
        fake_cudart::FailCall("cudaStreamEndCapture", kCaptureUnsupported);
        if (launch_fails) fake_cudart::FailCall("cudaLaunchKernel", kCaptureUnsupported, 5);
      }
      fake_cudart::ForgetCalls();
      ASSERT_TRUE(rank.Start().ok()) << step;
      ASSERT_TRUE(rank.Finish().ok()) << step;
      EXPECT_EQ(Calls("cudaGraphLaunch"), 0);
      EXPECT_EQ(rank.step().graph_nodes(), 0u);
      EXPECT_GT(Calls("cudaLaunchKernel"), 0);
    }
    EXPECT_THAT(rank.step().refusal().message(), HasSubstr("capturing"));
  }
}

}  // namespace
}  // namespace gyre
