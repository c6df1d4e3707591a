// A steady training step allocates nothing: every allocation of the process is counted, by the
// library that asked for it, while a net trains on one rank, on ranks as threads and as processes.
#include <dlfcn.h>
#include <execinfo.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <map>

#include "absl/strings/str_cat.h"
#include "engine/training/step/training_step.h"
#include "models/schema/parse.h"
#include "tests/distributed/process_group_ranks.h"

namespace {

constexpr int kFrames = 32;
struct Allocation {
  void* frames[kFrames];
  int depth;
};
constexpr size_t kMost = 4096;
Allocation allocations[kMost];
std::atomic<size_t> made = 0;
std::atomic<bool> counting = false;

// From an allocating function alone, so that its caller is the third frame.
[[gnu::noinline]] void Count() {
  if (!counting) return;
  const size_t index = made.fetch_add(1);
  if (index < kMost) allocations[index].depth = backtrace(allocations[index].frames, kFrames);
}

}  // namespace

// In an executable these take the place of the C library's, for all libraries; operator new calls
// them.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) {
  Count();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  Count();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  Count();
  return __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  Count();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  Count();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
}

namespace gyre {
namespace {

// LeNet's layers, and those that draw numbers or sum over ranks within the net.
constexpr char kNet[] = R"(
  name: "t"
  input { name: "image" dims: [20, 20, 1] }
  input { name: "label" type: LABEL }
  layer { name: "conv1" conv2d { filters: 20 kernel: 5 } }
  layer { name: "pool1" pool2d { kind: MAX kernel: 2 stride: 2 } }
  layer { name: "conv2" conv2d { filters: 50 kernel: 5 } }
  layer { name: "relu2" relu {} }
  layer { name: "pool2" pool2d { kind: AVERAGE kernel: 2 stride: 2 } }
  layer { name: "flat" flatten {} }
  layer { name: "fc1" dense { outputs: 500 } }
  layer { name: "relu1" relu {} }
  layer { name: "drop" dropout { rate: 0.5 } }
  layer { name: "fc2" dense { outputs: 10 } }
  layer { name: "loss" input: "fc2" input: "label" softmax_cross_entropy { ignore_label: 9 } }
  layer { name: "accuracy" input: "fc2" input: "label" accuracy {} })";
constexpr int kSteps = 10;

// Trains on one rank and counts in the last steps, until the first rank is through; `meet` returns
// once all ranks have called it.
template <typename Meet>
void Train(ProcessGroup& communication, const Meet& meet) {
  const auto net = ParseNetText(kNet, "test.textproto").value();
  const auto device = NewCpuDevice({.threads = 1});
  ASSERT_TRUE(communication.UseDevice(*device).ok());
  const Primitives primitives(DeviceKind::kCpu, 1);
  OptimizerConfig sgd;
  sgd.mutable_sgd()->set_momentum(0.9f);
  const auto optimizer = NewOptimizer(sgd);
  auto plan = *PlanModel(
      net, {.shape = {.global = 16, .rank = communication.rank(), .ranks = communication.size()},
            .slots = optimizer->slot_names(),
            .bucket_bytes = 1 << 18,  // several
            .feed = FeedOfBytes(*net.message),
            .primitives = &primitives});
  const auto stream = *device->NewStream();
  const auto model = *Model::Create(std::move(plan), *device, *stream, &communication);
  ASSERT_TRUE(model->Initialize(*stream).ok());
  const auto step = *TrainingStep::Create(*model, *optimizer, *device, *stream, communication);
  const Tensor input = model->train().input(0);
  std::vector<float> images(static_cast<size_t>(input.elements()), 0.5f);
  std::vector<int32_t> labels(static_cast<size_t>(input.shape[0]), 3);
  Batch batch{.arrays = {{images.data(), input.shape, DType::kF32},
                         {labels.data(), Shape({input.shape[0]}), DType::kI32}}};
  batch.samples.resize(labels.size());
  const auto run = [&](int64_t first, int64_t last) {
    for (int64_t s = first; s < last; ++s) {
      ASSERT_TRUE(step->Start(batch, s, /*learning_rate=*/1e-3).ok());
      ASSERT_TRUE(step->Finish().ok());
    }
  };
  run(0, 6);  // each lane's first, captured and replayed ones
  void* frame;
  backtrace(&frame, 1);  // the first one allocates
  meet();
  counting = true;
  run(6, 6 + kSteps);
  counting = false;
  meet();
}

// Who asked, whatever stands between (the C++ library, OpenMP): a library, or where in Gyre.
std::string Asker(const Allocation& allocation) {
  Dl_info own;
  dladdr(&made, &own);
  for (int i = 2; i < allocation.depth; ++i) {
    Dl_info info;
    if (dladdr(allocation.frames[i], &info) == 0) continue;
    const std::string file = info.dli_fname;
    if (info.dli_fbase == own.dli_fbase) {
      const auto offset =
          static_cast<char*>(allocation.frames[i]) - static_cast<char*>(own.dli_fbase);
      return absl::StrCat("Gyre: addr2line -Cfie ", file, " 0x", absl::Hex(offset - 1));
    }
    if (file.find("libdnnl") != file.npos) return "oneDNN";
    for (const char* of_mpi : {"/libmpi", "/openmpi/", "/libopen-"}) {
      if (file.find(of_mpi) != file.npos) return "Open MPI";
    }
  }
  return "unknown";
}

// What the vendors' libraries allocate is reported; we do not.
void Report() {
  counting = false;
  ASSERT_LE(made, kMost);
  std::map<std::string, int> askers;
  for (size_t i = 0; i < made; ++i) ++askers[Asker(allocations[i])];
  for (const auto& [asker, count] : askers) {
    const bool ours = asker != "oneDNN" && asker != "Open MPI";
    if (ours) ADD_FAILURE() << count << " allocations in " << kSteps << " steps by " << asker;
    if (!ours) std::printf("%s: %d allocations in %d steps\n", asker.c_str(), count, kSteps);
  }
  made = 0;
}

void TrainOnThreads(int ranks, const char* allreduce) {
  std::barrier all(ranks);
  RunRanksOn(allreduce, ranks, /*timeout_ms=*/20'000, [&](ProcessGroup& communication) {
    Train(communication, [&] { all.arrive_and_wait(); });
  });
  Report();
}

TEST(Allocation, OneRank) { TrainOnThreads(1, "ring"); }

TEST(Allocation, RanksAsThreads) {
  for (const char* allreduce : {"ring", "shared", "auto"}) TrainOnThreads(2, allreduce);
}

TEST(Allocation, RanksAsProcesses) {
  const auto communication =
      *ProcessGroup::Start([] { return NewMpiCommunicator(/*timeout_ms=*/20'000); }, {"ring"});
  Train(*communication, [&] { ASSERT_TRUE(communication->Barrier().ok()); });
  Report();
}

}  // namespace
}  // namespace gyre
